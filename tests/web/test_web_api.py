"""The web service's answers over HTTP: as its OpenAPI document says, read-only, and to loopback's names alone."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from pydantic import ValidationError
from starlette.testclient import TestClient

from millrace.client import NotFound
from millrace.core.states import JobStatus, StatusShown
from millrace.io.interfaces import Unavailable
from millrace.runtime.metrics import WEB_REQUESTS
from services.web.app import application
from services.web.commands import Commands
from services.web.follow import Following, Follows
from services.web.measured import Measured
from services.web.settings import WebSettings
from services.web.view import View
from services.web.worker import _agent, fact_of
from tests.io.of_metrics import value_of


class Empty:
    """In place of a client of a cluster without jobs."""

    def show(self, job: str) -> Any:
        raise NotFound(f"there is no job {job!r}")

    def close(self) -> None: ...


ALONE = Commands(Empty)  # type: ignore[arg-type]  # nothing else is called
T0 = 1_700_000_000_000


def record(topic: str, offset: int, ce_id: str = "dispatcher/3/17", **body: object) -> SimpleNamespace:
    headers = {"ce_id": ce_id.encode()} if ce_id else {}
    value = json.dumps({"at_ms": T0, "count": 1, **body}).encode()
    return SimpleNamespace(
        topic=topic, partition=0, offset=offset, timestamp=T0 / 1000, headers=headers.items(), value=value
    )


@pytest.fixture
def view() -> View:
    view = View({}, {}, 10)
    view.load({})
    task = {"task": "a", "vertices": ["a"], "parallelism": 1}
    slot = {"task_manager": "tm", "slot": 0, "error": None}
    for message in (
        record("job.events", 0, type="JobAccepted", job="j", name="n", tasks=[task]),
        record("job.events", 1, "job-master/0/1/4", type="AttemptStateChanged", job="j", task="a", subtask=0, attempt=1,
               state="RUNNING", **slot),
        record("cluster.events", 0, "", type="TaskManagerJoined", task_manager="tm", incarnation=7, host="h", slots=1,
               states=["FREE"]),
        record("cluster.events", 1, type="LeaderElected", scope="dispatcher", leader="d", epoch=3, generation=1),
    ):  # fmt: skip
        view.fold(fact_of(message))
    return view


@pytest.fixture
def web(view: View) -> TestClient:
    return TestClient(application(view, lambda: Follows("", 2.5), ALONE), base_url="http://127.0.0.1")


AS_OF = {"offsets": {"job.events": {"0": 1}, "cluster.events": {"0": 1}}, "time_ms": T0, "behind_s": 0}


def test_the_life_of_who_says_a_fact_is_in_its_id() -> None:
    assert fact_of(record("job.events", 5, "job-master/0/12/345", type="x")).life == 12
    assert fact_of(record("job.events", 5, "", type="x")).life == 0


def test_every_answer_has_its_as_of(web: TestClient) -> None:
    assert web.get("/api/v1/overview").json() == {
        "as_of": AS_OF, "jobs": {"INITIALIZING": 1}, "slots": {"ACTIVE": 1}, "task_managers": 1, "leaders": 1,
        "hosts_blocked": 0, "task_managers_starting": 0, "task_managers_least": 0, "task_managers_most": None,
    }  # fmt: skip
    for path in ("jobs", "jobs/j", "taskmanagers", "slots", "leaders"):
        assert web.get(f"/api/v1/{path}").json()["as_of"] == AS_OF
    assert web.get("/healthz").json() == {"status": "ok", "reason": None, "last_fold_s": 2.5, "as_of": AS_OF}
    assert web.get("/api/v1/slots").json()["slots"] == [
        {"task_manager": "tm", "slot": 0, "state": "ACTIVE", "job": "j", "task": "a", "subtask": 0, "attempt": 1, "reason": None}
    ]


@pytest.mark.parametrize(("path", "status", "error"), [
    ("/api/v1/jobs/k", 404, "there is no job 'k'"),
    ("/api/v1/jobs?limit=0", 400, "limit: Input should be greater than or equal to 1"),
    ("/api/v1/jobs?state=RUNING", 400, "state.0: Input should be 'QUEUED', 'INITIALIZING', 'CREATED', 'RUNNING', 'RESTARTING', 'FAILING', "
     "'CANCELLING', 'SUSPENDED', 'FINISHED', 'FAILED' or 'CANCELED'"),
    ("/api/v1/nothing", 404, "Not Found"),
    ("/api/v1/jobs?status=x", 400, "status: no parameter of /api/v1/jobs; there are: state, name, task_manager, since_ms, until_ms, sort, "
     "limit, cursor, archived"),
    ("/api/v1/jobs?limit=0&until_ms=-1", 400, "until_ms: Input should be greater than or equal to 0; "
     "limit: Input should be greater than or equal to 1"),
    ("/api/v1/jobs?limit=1&limit=2", 400, "limit: it is given 2 times, and taken once"),
    ("/api/v1/jobs?state=RUNNING&name=a&name=b", 400, "name: it is given 2 times, and taken once"),
    ("/api/v1/jobs?foo=1&limit=0&name=a&name=b", 400, "foo: no parameter of /api/v1/jobs; there are: state, name, task_manager, since_ms, "
     "until_ms, sort, limit, cursor, archived; name: it is given 2 times, and taken once; "
     "limit: Input should be greater than or equal to 1"),
    ("/api/v1/jobs/j?name=x", 400, "name: no parameter of /api/v1/jobs/j; there are none"),
    ("/api/v1/taskmanagers?gone=true&all=1", 400, "all: no parameter of /api/v1/taskmanagers; there are: gone, limit, cursor"),
    ("/api/v1/slots?task_manager=tm", 400, "task_manager: no parameter of /api/v1/slots; there are: limit, cursor"),
])  # fmt: skip
def test_a_refusal_is_one_line(web: TestClient, path: str, status: int, error: str) -> None:
    answer = web.get(path)
    problem = answer.json()
    assert (answer.status_code, problem["status"], problem["detail"]) == (status, status, error)
    assert answer.headers["content-type"] == "application/problem+json"
    assert len(problem["errors"]) == (error.count(";") + 1 - error.count("there are") if status == 400 else 0), "each has its place"


def test_the_failures_of_a_job(view: View, web: TestClient) -> None:
    assert web.get("/api/v1/jobs/j/failures").json() == {"as_of": AS_OF, "failures": [], "omitted": 0}
    error = {"kind": "user", "retryable": True, "message": "boom", "decided": {"number": 2, "then": "restart", "delay_ms": 50, "why": "x"}}
    failed = {"job": "j", "task": "a", "subtask": 0, "attempt": 1, "state": "FAILED", "task_manager": "tm", "slot": None, "error": error}
    view.fold(fact_of(record("job.events", 2, "job-master/0/1/5", type="AttemptStateChanged", **{**failed, "count": 2})))
    answer = web.get("/api/v1/jobs/j/failures").json()
    assert (answer["omitted"], [each["concurrent"] for each in answer["failures"]]) == (1, [[]])
    [failure] = answer["failures"]
    assert (failure["at_ms"], failure["task"], failure["subtask"], failure["attempt"], failure["task_manager"]) == (T0, "a", 0, 1, "tm")
    assert failure["error"]["decided"]["why"] == "x"
    assert web.get("/api/v1/jobs/k/failures").status_code == 404


def test_what_is_only_read_cannot_be_changed(web: TestClient) -> None:
    for path in ("slots", "overview", "leaders", "taskmanagers", "jobs/j"):
        answer = web.post(f"/api/v1/{path}", json={})
        assert (answer.status_code, answer.headers["content-type"]) == (405, "application/problem+json")
        assert answer.headers["allow"] == "GET, HEAD"


def test_a_wrong_method_is_told_all_that_its_path_has(web: TestClient) -> None:
    assert web.put("/api/v1/jobs").headers["allow"] == "GET, HEAD, POST"
    assert web.post("/api/v1/schedules/nightly").headers["allow"] == "DELETE, GET, HEAD, PUT"
    assert web.post("/api/v1/streams/jobs").headers["allow"] == "GET"


def test_its_description_has_the_answers_that_it_gives(web: TestClient) -> None:
    paths = web.get("/api/v1/openapi.json").json()["paths"]
    assert set(paths["/api/v1/jobs"]["get"]["responses"]) == {"200", "304", "400", "429", "503", "504"}
    assert set(paths["/api/v1/jobs/{job}"]["get"]["responses"]) == {"200", "304", "400", "404", "429", "503", "504"}


def test_its_description_has_the_fields_of_a_cause(web: TestClient) -> None:
    """They were free objects."""
    shapes = web.get("/api/v1/openapi.json").json()["components"]["schemas"]
    for shape, field in (("JobDetail", "cause"), ("Attempt", "error")):
        assert shapes[shape]["properties"][field]["anyOf"][0] == {"$ref": "#/components/schemas/Fault"}
    assert {"kind", "retryable", "message", "vertex", "line"} <= shapes["Fault"]["properties"].keys()


def test_why_an_attempt_failed_is_answered_as_it_was_given(view: View, web: TestClient) -> None:
    error = {"kind": "user", "retryable": False, "message": "ZeroDivisionError: division by zero", "of_a_later_build": 1}
    failed = record("job.events", 2, "job-master/0/1/5", type="AttemptStateChanged", job="j", task="a", subtask=0, attempt=1,
                    state="FAILED", task_manager="tm", slot=0, error=error, count=2)  # fmt: skip
    view.fold(fact_of(failed))
    [attempt] = web.get("/api/v1/jobs/j").json()["job"]["tasks"][0]["subtasks"][0]["attempts"]
    assert attempt["error"] == error


def test_who_has_the_answer_already_is_not_given_it_again(view: View, web: TestClient) -> None:
    for path in ("jobs", "jobs/j", "overview"):
        tag = web.get(f"/api/v1/{path}").headers["etag"]
        for given in (tag, tag.removeprefix("W/"), f'"x", {tag}', "*"):
            answer = web.get(f"/api/v1/{path}", headers={"If-None-Match": given})
            assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)
        view.pass_over("job.events", 0, view.next_offset("job.events", 0), T0 + 1)
        assert web.get(f"/api/v1/{path}", headers={"If-None-Match": tag}).status_code == 304, "nothing of it has changed"
    view.fold(fact_of(record("job.events", view.next_offset("job.events", 0), type="JobCanceled", job="j", archive=None)))
    assert web.get(f"/api/v1/{path}", headers={"If-None-Match": tag}).status_code == 200


def test_monitors_may_ask_by_head(web: TestClient) -> None:
    for path in ("/healthz", "/metrics", "/api/v1/overview"):
        assert web.head(path).status_code == 200
    assert web.head("/api/v1/jobs/k").status_code == 404
    for path in ("jobs", "jobs/j", "cluster", "jobs/j/logs"):
        assert web.head(f"/api/v1/streams/{path}").status_code == 405, "it would be answered for ever"


def test_every_status_of_a_job_can_be_asked_for() -> None:
    assert {"INITIALIZING", *JobStatus} == set(get_args(StatusShown))


def test_behind_loopback_it_answers_to_no_other_name(view: View, web: TestClient) -> None:
    assert web.get("/api/v1/jobs", headers={"host": "a-page.example"}).status_code == 400
    elsewhere = TestClient(application(view, lambda: Follows("", 0), ALONE, "127.0.0.2"), base_url="http://127.0.0.2:8080")
    assert elsewhere.get("/api/v1/jobs").status_code == 200
    open_to_a_container = TestClient(application(view, lambda: Follows("", 0), ALONE, "0.0.0.0"), base_url="http://web:8080")
    assert open_to_a_container.get("/api/v1/jobs").status_code == 200


def test_published_by_a_container_it_answers_to_the_names_that_it_is_given(view: View) -> None:
    app = application(view, lambda: Follows("", 0), ALONE, "0.0.0.0", ["127.0.0.1", "web"])
    for name, status in (("127.0.0.1:8088", 200), ("web:8000", 200), ("a-page.example:8088", 400)):
        assert TestClient(app, base_url=f"http://{name}").get("/api/v1/jobs").status_code == status


def test_before_the_tables_are_back_it_says_so() -> None:
    web = TestClient(application(View({}, {}, 10), lambda: Follows("", 0), ALONE), base_url="http://localhost")
    for path in ("/api/v1/jobs", "/api/v1/jobs/j", "/healthz"):
        assert web.get(path).status_code == 503
    assert web.get("/healthz").json()["reason"] == "the tables are being brought back"


@pytest.mark.parametrize("bad", [
    {"value": b"[" * 100_000}, {"value": b"[]"}, {"value": None}, {"headers": [("ce_id", None)]},
    {"value": b'{"type": "JobAccepted", "at_ms": 1, "job": "k", "name": "n", "tasks": 7}'},
])  # fmt: skip
def test_whatever_a_record_is_that_is_no_fact_it_is_passed_over_and_those_behind_it_are_read(view: View, bad: dict) -> None:
    stranger = SimpleNamespace(**{**vars(record("job.events", 2, type="JobAccepted")), **bad})
    behind = record("job.events", 3, type="JobCanceled", job="j", archive=None)

    class Stream:
        async def events(self) -> AsyncIterator[Any]:
            for message in (stranger, behind):
                yield SimpleNamespace(message=message)

    asyncio.run(_agent(view)(Stream()))
    assert view.next_offset("job.events", 0) == 4 and view.folded["unreadable"] == 1
    assert view.jobs.statuses() == {"CANCELED": 1}


def test_while_kafka_is_away_it_is_degraded_and_says_how_old_it_is(view: View) -> None:
    state = Follows("Kafka has not answered for 12 s", 14.96)
    web = TestClient(application(view, lambda: state, ALONE), base_url="http://127.0.0.1")
    answer = web.get("/healthz")
    assert (answer.status_code, answer.json()) == (
        503, {"status": "degraded", "reason": "Kafka has not answered for 12 s", "last_fold_s": 15.0, "as_of": AS_OF},
    )  # fmt: skip
    tag = web.get("/api/v1/jobs").headers["etag"]
    assert web.get("/api/v1/jobs", headers={"If-None-Match": tag}).status_code == 304
    view.behind_s = lambda: 12
    answer = web.get("/api/v1/jobs", headers={"If-None-Match": tag})
    assert (answer.status_code, answer.json()["as_of"]) == (200, {**AS_OF, "behind_s": 12}), "what is known is shown all the same"
    assert {"millrace_web_follows 0.0", "millrace_web_last_fold_age_seconds 14.96"} <= set(web.get("/metrics").text.splitlines())


def test_what_is_not_read_in_time_or_not_answered_is_told(view: View) -> None:
    place = ("job.events", 0)
    clock, answers = [100.0], {place: (0, 2), ("cluster.events", 0): (9, 9)}

    def ends(_: object) -> dict[tuple[str, int], tuple[int, int]]:
        if not answers:
            raise Unavailable("away")
        return answers

    def after(seconds: float) -> str:
        clock[0] += seconds
        following.ask()
        trouble = following.state().trouble
        assert trouble == "" if view.behind_s() == 0 else f" {view.behind_s()} s" in trouble
        return trouble

    following = Following(view, list(answers), ends, now_s=lambda: clock[0])
    assert after(30) == "", "all is read, or was deleted"
    answers[place] = (0, 4)
    assert after(1) == after(5) == ""
    answers[place] = (0, 8)
    assert after(1) == "job.events[0] has had records up to offset 3 for 6 s that are not read"
    for offset in (2, 3):
        view.pass_over(*place, offset, T0)
    assert after(1) == after(5) == "", "those of then are read; the rest is new"
    assert after(1).startswith("job.events[0] has had records up to offset 7 for 6 s")
    for offset in range(4, 8):
        view.pass_over(*place, offset, T0)
    answers.clear()
    assert after(5) == ""
    assert after(1) == "Kafka has not answered for 6 s"


def test_where_nothing_is_taken_in_though_there_is_more_is_to_be_read_again(view: View) -> None:
    place = ("job.events", 0)
    clock, answers = [100.0], {place: (2, 5), ("cluster.events", 0): (0, 0)}
    following = Following(view, list(answers), lambda _: answers, now_s=lambda: clock[0])

    def after(seconds: float) -> dict[tuple[str, int], int]:
        clock[0] += seconds
        following.ask()
        return following.passed_over()

    assert after(1) == after(5) == {}
    assert after(1) == {place: 2}, "what was before is deleted"
    assert after(1) == {}, "said once, for it takes a moment"
    view.pass_over(*place, 2, T0)
    view.pass_over(*place, 3, T0)
    assert after(5) == after(5) == {}, "it goes on, slowly"
    assert after(1) == {place: 4}
    assert after(6) == {place: 4}, "again, if it did not help"
    view.ready = False
    assert after(6) == {}, "the tables are being brought back: what they hold is not known yet"
    view.ready = True
    view.pass_over(*place, 4, T0)
    assert after(6) == {}


def fresh() -> View:
    view = View({}, {}, 10)
    view.load({})
    return view


def test_what_comes_behind_a_hole_is_not_taken_in_before_what_is_missing() -> None:
    """Else the tables would be at 13, and nobody would ever read 10 to 12."""
    view = fresh()
    place = ("job.events", 0)
    clock, answers = [100.0], {place: (0, 14)}
    following = Following(view, list(answers), lambda _: answers, now_s=lambda: clock[0])
    for offset in range(10):
        view.pass_over(*place, offset, T0)
    view.pass_over(*place, 13, T0)
    assert view.next_offset(*place) == 10
    assert (following.passed_over(), following.passed_over()) == ({place: 10}, {}), "at once, and once"
    view.load({"job.events": {0: 14}})
    assert view.next_offset(*place) == 10, "the worker has committed what came too early"
    for offset in range(10, 14):
        view.pass_over(*place, offset, T0)
    clock[0] += 6
    assert (view.next_offset(*place), view.holes, following.passed_over()) == (14, {}, {})


def test_what_kafka_has_no_record_for_is_read_again_a_few_times_and_then_passed_over() -> None:
    """Who writes in transactions leaves offsets without records. A try that failed counts not: it could not have brought them."""
    view, place = fresh(), ("job.events", 0)
    clock, answers = [100.0], {place: (5, 10)}
    following = Following(view, list(answers), lambda _: answers, now_s=lambda: clock[0])
    following.ask()
    view.pass_over(*place, 7, T0)
    for tried in (False, False, True, False, True, True):
        back = following.passed_over()
        assert back == {place: 5}
        if tried:
            following.went_back(back)
        for offset in (6, 7):
            view.pass_over(*place, offset, T0)
        assert view.next_offset(*place) == 0
        clock[0] += 6
    assert following.passed_over() == {place: 6}
    view.pass_over(*place, 6, T0)
    assert view.next_offset(*place) == 7


def test_before_kafka_has_said_where_it_begins_a_new_table_takes_what_comes() -> None:
    view = fresh()
    view.pass_over("job.events", 0, 7, T0)
    assert view.next_offset("job.events", 0) == 8


def test_who_reads_on_is_not_sent_back_to_where_it_stood_when_kafka_last_answered() -> None:
    view = fresh()
    place = ("job.events", 0)
    clock, answers = [100.0], {place: (0, 99)}
    following = Following(view, list(answers), lambda _: answers, now_s=lambda: clock[0])
    following.ask()
    for offset in range(20):
        clock[0] += 1
        view.pass_over(*place, offset, T0)
        assert following.passed_over() == {}


def test_who_asks_kafka_asks_again_whatever_it_was_answered(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the tables would be said to follow nothing for the rest of the process's life."""
    answers = [RuntimeError("no client can be made now"), Unavailable("away")]
    answered = threading.Event()

    def ends(_: object) -> dict[tuple[str, int], tuple[int, int]]:
        if answers:
            raise answers.pop(0)
        answered.set()
        return {}

    monkeypatch.setattr("services.web.follow.ASKED_EVERY_S", 0.001)
    following = Following(view, [], ends)
    following.start()
    try:
        assert answered.wait(30)
    finally:
        following.stop()


def test_where_an_earlier_process_left_off_is_not_forgotten_with_its_rows() -> None:
    view = View({}, {}, 10)
    view.load({"job.events": {0: 8}, "cluster.events": {}})
    assert view.ask(lambda _: None)[1] == {"offsets": {"job.events": {"0": 7}, "cluster.events": {}}, "time_ms": 0, "behind_s": 0}


def test_what_was_read_before_the_tables_are_brought_back_again_stays_in_as_of() -> None:
    view = View({}, {}, 10)
    view.load({})
    view.pass_over("job.events", 3, 5, T0)
    view.load({})
    assert view.ask(lambda _: None)[1] == {"offsets": {"job.events": {"3": 5}, "cluster.events": {}}, "time_ms": T0, "behind_s": 0}


def test_metrics_are_what_prometheus_reads(web: TestClient) -> None:
    lines = web.get("/metrics").text.splitlines()
    assert 'millrace_web_jobs{status="INITIALIZING"} 1.0' in lines
    assert 'millrace_web_jobs{status="FAILED"} 0.0' in lines, "an alarm needs a number before the first one fails"
    assert 'millrace_web_slots{state="ACTIVE"} 1.0' in lines
    assert 'millrace_web_slots{state="BROKEN"} 0.0' in lines
    assert 'millrace_web_offset{partition="0",topic="job.events"} 1.0' in lines
    assert all(re.fullmatch(r"#.*|[a-z_]+(\{.*\})? [0-9.e+-]+", line) for line in lines), lines


def test_requests_are_counted_by_route_method_and_class_of_status(web: TestClient) -> None:
    asked = [
        ("GET", "/api/v1/jobs/j", "/api/v1/jobs/{job}", "2xx"), ("GET", "/api/v1/jobs/another", "/api/v1/jobs/{job}", "4xx"),
        ("HEAD", "/api/v1/overview", "/api/v1/overview", "2xx"), ("GET", "/v1/jobs/overview", "/v1/jobs/overview", "2xx"),
        ("GET", "/flink/jobs/overview", "/v1/jobs/overview", "2xx"), ("GET", "/nowhere/at/all", "other", "4xx"),
        ("BREW", "/api/v1/jobs", "other", "4xx"), ("PUT", "/nowhere", "other", "4xx"), ("DELETE", "/nowhere", "other", "4xx"),
    ]  # fmt: skip

    def counted() -> list[float]:
        found = [(route, "other" if method == "BREW" else method, status) for method, _, route, status in asked]
        return [value_of(WEB_REQUESTS, *labels, suffix="_count") for labels in found]

    before = counted()
    for method, path, _, _ in asked:
        web.request(method, path)
    assert [now - then for now, then in zip(counted(), before, strict=True)] == [1, 1, 1, 2, 2, 1, 1, 1, 1]
    web.get("/api/v1/overview", headers={"Host": "another.example"})
    assert value_of(WEB_REQUESTS, "/api/v1/overview", "GET", "4xx", suffix="_count") >= 1, "what others refuse is counted, too"


def test_a_stream_is_counted_when_it_begins_and_a_client_that_leaves_before_is_none() -> None:
    async def scene(path: str, status: int | None) -> float:
        labels = ("/api/v1/streams/jobs" if "streams" in path else "/api/v1/jobs", "GET", f"{status // 100}xx" if status else "none")
        before = value_of(WEB_REQUESTS, *labels, suffix="_count")
        seen: list[float] = []

        async def stays(scope: Any, receive: Any, send: Any) -> None:
            if status:
                await send({"type": "http.response.start", "status": status, "headers": []})
                seen.append(value_of(WEB_REQUESTS, *labels, suffix="_count") - before)
            raise asyncio.CancelledError

        async def send(message: Any) -> None: ...

        with pytest.raises(asyncio.CancelledError):
            await Measured(stays)({"type": "http", "method": "GET", "path": path}, None, send)  # type: ignore[arg-type]  # not asked
        assert value_of(WEB_REQUESTS, *labels, suffix="_count") - before == 1
        return seen[0] if seen else 0

    assert asyncio.run(scene("/api/v1/streams/jobs", 200)) == 1
    assert asyncio.run(scene("/api/v1/jobs", 200)) == 0, "it is counted at its end"
    asyncio.run(scene("/api/v1/jobs", None))


@pytest.mark.parametrize(("given", "field"), [
    ({"host": "0.0.0.0"}, "host"), ({"host": "192.168.1.2", "allowed_hosts": ["a"]}, "host"), ({"host": "example.org"}, "host"),
    ({"host": "0.0.0.0", "published_on_loopback": True}, "allowed_hosts"),
])  # fmt: skip
def test_where_others_could_reach_it_it_does_not_start(given: dict, field: str) -> None:
    """It knows no login, and takes commands."""
    with pytest.raises(ValidationError) as refused:
        WebSettings(**given)
    assert [each["loc"] for each in refused.value.errors()] == [(field,)]


def test_on_loopback_and_in_a_container_that_is_published_there_it_starts() -> None:
    assert [WebSettings(host=host).host for host in ("127.0.0.1", "localhost", "::1")] == ["127.0.0.1", "localhost", "::1"]
    assert WebSettings(host="0.0.0.0", published_on_loopback=True, allowed_hosts=["127.0.0.1"]).host == "0.0.0.0"
