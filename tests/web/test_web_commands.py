"""Commands over HTTP: what the client library does with them, and what is answered. The client stands for a cluster."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from millrace.client import Busy, Conflict, Invalid, Job, NotFound, OutcomeUnknown, Refused, Unavailable
from millrace.core.messages.blocklist import BlockedHostInfo
from millrace.core.messages.client import JobDetails, JobDetailsListed, Problem, ShutDown
from services.web.app import application
from services.web.commands import Commands, KafkaAway, NotAnswered
from services.web.follow import Follows
from services.web.threads import TooMany
from services.web.view import View
from tests.client.letters import Topic, parked, redriven

GRAPH = {"name": "one", "vertices": {"one": {"sql": "SELECT 1 AS a"}}}


class Cluster:
    """In place of a client: answers as it is told to."""

    def __init__(self) -> None:
        self.submitted: list[tuple[str, dict]] = []
        self.uploads: list[dict[str, bytes]] = []
        self.more: list[tuple[dict, dict]] = []
        self.traces: list[str | None] = []
        self.fails: Exception | None = None
        self.asked: list[Any] = []
        self.waiting = False
        self.go_on = threading.Event()
        self.go_on.set()

    def submit(self, graph: dict, job: str, parameters: Any, uploads: Any, watch: bool, env: Any, *trace: Any) -> Job:
        self._answer()
        self.uploads.append({sha: each if isinstance(each, bytes) else each.read_bytes() for sha, each in (uploads or {}).items()})
        self.submitted.append((job, graph))
        self.more.append((parameters, env))
        self.traces.append(trace)
        warnings = [Problem(place=["vertices", "one"], message="odd", hint=None)]
        return Job(SimpleNamespace(), job, "INITIALIZING", warnings, None)  # type: ignore[arg-type]  # it is asked nothing

    def cancel(self, job: str) -> str:
        self._answer()
        return "CANCELLING"

    def graph_of(self, job: str, *, repair: bool = False) -> dict[str, Any]:
        self._answer()
        graph = {**GRAPH, "name": f"graph of {job}"}
        return {**graph, "origin": {"job": job, "repair": True}} if repair else graph

    def list_details(self, limit: int, cursor: str, **only: Any) -> JobDetailsListed:
        self._answer()
        self.asked.append((limit, cursor, only))
        old = JobDetails(job="old", name="n", status="FAILED", accepted_ms=5, ended_ms=9, archive="archives/old")
        lives = JobDetails(job="j", name="n", status="RUNNING", accepted_ms=7, silent="job-master/0")
        return JobDetailsListed(correlation="", jobs=[lives, old], next="5.old", total=None)

    def shut_down(self) -> ShutDown:
        self._answer()
        return ShutDown(step="SUSPENDING", since_ms=7, live=3, suspended=1, workers=2)

    def deregister(self, undo: bool) -> int:
        self._answer()
        return 0 if undo else 3

    def block(self, host: str, for_ms: int | None, reason: str, *, evacuate: bool, by: str) -> BlockedHostInfo:
        self._answer()
        self.asked.append((host, for_ms, reason, evacuate, by))
        until_ms = None if for_ms is None else 7 + for_ms
        return BlockedHostInfo(
            host=host, since_ms=7, until_ms=until_ms, by=by, reason=reason, evacuate=evacuate, task_managers=1, slots=2, busy=1
        )  # fmt: skip

    def unblock(self, host: str) -> bool:
        self._answer()
        return host == "a"

    def dead_letters(self) -> Any:
        self._answer()
        letter, sent = parked().model_dump_json().encode(), redriven(0).model_dump_json().encode()
        return Topic([letter, sent, letter, letter, sent, sent, sent, letter, letter])

    def show(self, job: str) -> Any:
        raise NotFound(f"there is no job {job!r}")

    def close(self) -> None: ...

    def _answer(self) -> None:
        self.waiting = True
        assert self.go_on.wait(60)
        if self.fails is not None:
            raise self.fails


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def web(cluster: Cluster) -> Iterator[TestClient]:
    view = View({}, {}, 10)
    view.load({})
    commands = Commands(lambda: cluster)  # type: ignore[arg-type,return-value]  # it has what is called
    with TestClient(application(view, lambda: Follows("", 0), commands), base_url="http://127.0.0.1") as web:
        yield web
    cluster.go_on.set()
    commands.close()


def test_a_graph_becomes_a_job(web: TestClient, cluster: Cluster) -> None:
    answer = web.post("/api/v1/jobs?job=j", json=GRAPH)
    assert (answer.status_code, answer.headers["location"]) == (201, "/api/v1/jobs/j")
    assert answer.json() == {
        "job": "j", "status": "INITIALIZING", "url": "/api/v1/jobs/j", "warnings": [{
            "place": ["vertices", "one"], "message": "odd", "hint": None, "line": 1, "column": 27,
        }],
    }  # fmt: skip
    [(job, graph)] = cluster.submitted
    assert (job, graph["vertices"]) == ("j", GRAPH["vertices"])


def test_the_same_key_is_the_same_job_and_another_one_is_another(web: TestClient, cluster: Cluster) -> None:
    for key in ("a", "a", "b"):
        assert web.post("/api/v1/jobs", json=GRAPH, headers={"Idempotency-Key": key}).status_code == 201
    first, again, other = (job for job, _ in cluster.submitted)
    assert first == again != other
    answer = web.post("/api/v1/jobs?job=j", json=GRAPH, headers={"Idempotency-Key": "a"})
    assert answer.status_code == 400


def test_the_cluster_is_shut_down(web: TestClient, cluster: Cluster) -> None:
    answer = web.post("/api/v1/shutdown")
    told = {"step": "SUSPENDING", "since_ms": 7, "live": 3, "suspended": 1, "workers": 2, "silent": []}
    assert (answer.status_code, answer.json()) == (202, told)
    cluster.fails = Unavailable("no answer", "dispatcher")
    assert web.post("/api/v1/shutdown").status_code == 503


def test_the_cluster_is_deregistered_and_that_is_undone_over_http(web: TestClient, cluster: Cluster) -> None:
    answer = web.post("/api/v1/deregister")
    assert (answer.status_code, answer.json()) == (200, {"workers": 3, "undo": False})
    assert web.post("/api/v1/deregister?undo=true").json() == {"workers": 0, "undo": True}
    assert web.post("/api/v1/deregister?undo=perhaps").status_code == 400
    cluster.fails = Unavailable("resource-manager was asked and does not answer", "resource-manager")
    assert web.post("/api/v1/deregister").status_code == 503


def test_a_host_is_blocked_and_unblocked(web: TestClient, cluster: Cluster) -> None:
    answer = web.put("/api/v1/blocklist/a", json={"for_ms": 60_000, "reason": "disk", "evacuate": True})
    its = {"by": "over HTTP", "reason": "disk", "evacuate": True, "task_managers": 1, "slots": 2, "busy": 1}
    assert (answer.status_code, answer.json()) == (200, {"host": "a", "since_ms": 7, "until_ms": 60_007, **its})
    assert web.put("/api/v1/blocklist/b").json()["until_ms"] is None
    assert cluster.asked == [("a", 60_000, "disk", True, "over HTTP"), ("b", None, "", False, "over HTTP")]
    assert web.delete("/api/v1/blocklist/a").json() == {"host": "a", "was_blocked": True}
    assert web.delete("/api/v1/blocklist/c").json() == {"host": "c", "was_blocked": False}
    for path, body in (("a", {"for_ms": 0}), ("a", {"reason": "x" * 201}), ("a", {"until": 1}), ("-", {})):
        assert web.put(f"/api/v1/blocklist/{path}", json=body).status_code == 400
    cluster.fails = Refused("100 hosts are blocked, and more may not be: unblock one (`millrace blocked`)")
    answer = web.put("/api/v1/blocklist/a")
    assert (answer.status_code, answer.json()["detail"]) == (409, str(cluster.fails))
    cluster.fails = Unavailable("no answer", "resource-manager")
    assert web.put("/api/v1/blocklist/a").status_code == 503


def test_dead_letters_are_read_page_by_page_with_a_cursor(web: TestClient) -> None:
    seen, cursor = [], ""
    while cursor is not None:
        page = web.get("/api/v1/deadletters", params={"limit": 2, "cursor": cursor}).json()
        assert page["total"] >= 5
        seen.append([each["number"] for each in page["letters"]])
        cursor = page["next"]
    assert seen == [[8, 7], [3, 2], [0]] and page["total"] == 5
    assert [each["redriven_by"] for each in page["letters"]] == ["x"]
    both = web.get("/api/v1/deadletters?before=7&cursor=3").json()
    assert ([each["number"] for each in both["letters"]], both["next"]) == ([2, 0], None)
    assert web.get("/api/v1/deadletters?cursor=x").status_code == 400


def test_archived_jobs_are_listed_by_the_cluster(web: TestClient, cluster: Cluster) -> None:
    answer = web.get("/api/v1/jobs?archived=true&limit=2&cursor=9.k&state=FAILED&name=n&since_ms=1")
    assert cluster.asked == [(2, "9.k", {"states": ["FAILED"], "name": "n", "since_ms": 1, "until_ms": None})]
    found = answer.json()
    assert (answer.status_code, found["total"], found["next"], list(found)) == (200, None, "5.old", ["as_of", "total", "jobs", "next"])
    blank = {"name": "n", "running_ms": None, "waiting": None, "position": None, "expected_ms": None}
    lives = {"ended_ms": None, "since_ms": None, "silent": "job-master/0"}
    assert found["jobs"] == [
        {"job": "j", "status": "RUNNING", "state": "RUNNING", "accepted_ms": 7, **lives} | blank,
        {"job": "old", "status": "FAILED", "state": "FAILED", "accepted_ms": 5, "ended_ms": 9, "since_ms": 9, "silent": None} | blank,
    ]


@pytest.mark.parametrize("wrong", ["sort=name", "task_manager=tm", "cursor=WzFd", "cursor=1.", "limit=1001", "archived=perhaps"])
def test_archived_jobs_have_one_order(web: TestClient, cluster: Cluster, wrong: str) -> None:
    answer = web.get("/api/v1/jobs", params=dict([("archived", "true"), tuple(wrong.split("="))]))
    assert (answer.status_code, answer.json()["errors"][0]["place"][-1]) == (400, wrong.partition("=")[0])
    assert cluster.asked == []


def test_while_no_dispatcher_answers_archived_jobs_are_not_listed(web: TestClient, cluster: Cluster) -> None:
    cluster.fails = Unavailable("no answer", "dispatcher")
    assert web.get("/api/v1/jobs?archived=true").status_code == 503


def test_a_job_is_canceled(web: TestClient) -> None:
    answer = web.post("/api/v1/jobs/j/cancel")
    assert (answer.status_code, answer.json()["status"]) == (200, "CANCELLING")


@pytest.mark.parametrize(("fails", "status", "kind"), [
    (Invalid("wrong", [Problem(place=["vertices"], message="none", hint="add one")]), 400, "invalid-graph"),
    (Conflict("another graph"), 409, "other-graph"),
    (Busy("no room"), 503, "no-room"),
    (NotFound("no such job"), 404, "not-found"),
    (Refused("it FINISHED"), 409, "wrong-state"),
    (OutcomeUnknown("no answer", "j"), 503, "outcome-unknown"),
    (Unavailable("no answer", "dispatcher"), 503, "no-leader"),
    (Unavailable("the blob server is away"), 503, "unavailable"),
])  # fmt: skip
def test_what_the_cluster_refuses_is_a_problem(
    web: TestClient, cluster: Cluster, fails: Exception, status: int, kind: str
) -> None:
    cluster.fails = fails
    for path in ("/api/v1/jobs", "/api/v1/jobs/j/cancel"):
        answer = web.post(path, json=GRAPH)
        problem = answer.json()
        assert (answer.status_code, problem["type"]) == (status, f"urn:millrace:{kind}"), problem
        assert answer.headers["content-type"] == "application/problem+json"
        assert ("retry-after" in answer.headers) is (status == 503)
        mistakes = [(each["place"], each["message"], each["hint"]) for each in problem.get("errors", [])]
        assert mistakes == ([(["vertices"], "none", "add one")] if isinstance(fails, Invalid) else [])


def test_what_is_not_answered_in_time_is_accepted_for_now(web: TestClient, cluster: Cluster) -> None:
    cluster.go_on.clear()
    answer = web.post("/api/v1/jobs?job=j&wait_s=0.01", json=GRAPH)
    assert (answer.status_code, answer.headers["location"], answer.json()["status"]) == (202, "/api/v1/jobs/j", None)
    assert web.post("/api/v1/jobs/j/cancel?wait_s=0.01").status_code == 202


@pytest.mark.parametrize(("body", "kind", "status"), [
    (b"{", "application/json", 400), (b"[]", "application/json", 400), (b"[" * 100_000, "application/json", 400),
    (b"{}", "text/plain", 415), (b" " * (1 << 20) + b"{}", "application/json", 413),
])  # fmt: skip
def test_what_is_no_graph_is_refused_before_it_is_sent(
    web: TestClient, cluster: Cluster, body: bytes, kind: str, status: int
) -> None:
    answer = web.post("/api/v1/jobs", content=body, headers={"Content-Type": kind})
    assert (answer.status_code, answer.json()["status"], cluster.submitted) == (status, status, [])


def test_a_page_of_another_origin_changes_nothing(web: TestClient, cluster: Cluster) -> None:
    for headers in ({"Origin": "http://a-page.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        assert web.post("/api/v1/jobs/j/cancel", headers=headers).status_code == 403
    assert web.post("/api/v1/jobs/j/cancel", headers={"Origin": "http://127.0.0.1"}).status_code == 200


def waits(most: int, trouble: Callable[[], str] = lambda: "") -> tuple[Commands, Cluster]:
    cluster = Cluster()
    cluster.go_on.clear()
    return Commands(lambda: cluster, trouble, most), cluster  # type: ignore[arg-type,return-value]  # it has what is called


def test_who_waits_is_counted_until_the_answer_is_there() -> None:
    """Also when its sender has gone: its thread waits on."""
    commands, cluster = waits(2)

    async def story() -> None:
        for _ in range(2):
            with pytest.raises(NotAnswered):
                await commands.cancel("j", 0.01)
        with pytest.raises(TooMany):
            await commands.cancel("j", 1)
        cluster.go_on.set()
        while True:
            try:
                assert await commands.cancel("j", 30) == "CANCELLING"
                return
            except TooMany:
                await asyncio.sleep(0.01)

    asyncio.run(story())
    commands.close()


def test_without_kafka_nothing_is_sent_and_nobody_waits() -> None:
    commands, _ = waits(1, lambda: "Kafka has not answered for 9 s")
    with pytest.raises(KafkaAway, match="Kafka has not answered for 9 s"):
        asyncio.run(commands.cancel("j"))
    commands.close()

    def no_kafka() -> Any:
        raise Unavailable("Kafka at x does not answer")

    commands = Commands(no_kafka)
    with pytest.raises(KafkaAway):
        asyncio.run(commands.cancel("j"))
    commands.close()


@pytest.mark.parametrize(("method", "path", "query", "kind"), [
    ("POST", "/api/v1/jobs/j/cancel", "", "urn:millrace:outcome-unknown"),
    ("GET", "/api/v1/jobs", "archived=true", "urn:millrace:service-unavailable"),
    ("PATCH", "/v1/jobs/j", "mode=cancel", None),
])  # fmt: skip
def test_what_is_under_way_when_the_process_ends_is_told_to_ask_again(method: str, path: str, query: str, kind: str | None) -> None:
    """The server cancels what does not end in time, and would answer with a bare 500."""
    view = View({}, {}, 10)
    view.load({})
    cluster = Cluster()
    cluster.go_on.clear()
    commands = Commands(lambda: cluster)  # type: ignore[arg-type,return-value]  # it has what is called
    told: list[Any] = []

    async def scene() -> None:
        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            told.append(message)

        headers = [(b"host", b"127.0.0.1")]
        scope = {
            "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": query.encode(), "headers": headers,
            "scheme": "http", "http_version": "1.1", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "root_path": "",
        }  # fmt: skip
        under_way = asyncio.ensure_future(application(view, lambda: Follows("", 0), commands)(scope, receive, send))
        while not cluster.waiting:
            assert not under_way.done(), told
            await asyncio.sleep(0.01)
        under_way.cancel()
        await under_way

    asyncio.run(scene())
    cluster.go_on.set()
    commands.close()
    start, body = told
    found = json.loads(body["body"])
    assert (start["status"], dict(start["headers"])[b"retry-after"], found.get("type")) == (503, b"1", kind)
    assert (found["detail"] if kind is not None else found["errors"][0]).startswith("this web service ends just now")
