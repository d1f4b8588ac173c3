"""Submissions in every form, as the client library is given them; and what is refused before it is sent."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from millrace.client import Conflict, Invalid, NotFound, Refused, Unavailable
from millrace.core.messages.client import Problem
from services.web import parcel
from services.web.commands import LOADING_MOST
from tests.web.test_web_commands import GRAPH, Cluster, cluster, web

__all__ = ["cluster", "web"]
SCRIPT = b"import helper\nprint(helper.x)\n"
YAML = b"""name: daily
parameters: {day: 1}
vertices:
  rows:
    sql: SELECT ${day} AS a
  ranked:
    python: ranking:rank
    inputs: {rows: forward}
"""
RANKING = b"def rank(rows):\n    return rows\n"


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield
    assert list(tmp_path.iterdir()) == []


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_graph_as_yaml_with_its_parameters(web: TestClient, cluster: Cluster) -> None:
    text = b"name: n\nparameters: {a: 1}\nenv: {KEY: hush}\nvertices: {one: {sql: 'SELECT ${a} AS a'}}\n"
    answer = web.post("/api/v1/jobs?parameter=a=2", content=text, headers={"Content-Type": "application/yaml"})
    assert answer.status_code == 201, answer.text
    [(job, graph)], [(parameters, env)] = cluster.submitted, cluster.more
    assert job.startswith("n-") and (graph["parameters"], parameters, env) == ({"a": "2"}, {"a": "2"}, {"KEY": "hush"})
    assert "hush" not in json.dumps(graph)


def test_the_publishers_place_in_a_trace_goes_along(web: TestClient, cluster: Cluster) -> None:
    given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    stated = [("traceparent", given), ("tracestate", "a=1"), ("tracestate", "b=2,c=3")]
    for headers in ({"traceparent": given}, {"Traceparent": "nonsense"}, {}, stated):
        assert web.post("/api/v1/jobs", json=GRAPH, headers=headers).status_code == 201
    assert cluster.traces == [(given, ""), ("nonsense", ""), (None, ""), (given, "a=1,b=2,c=3")], "the client leaves out what is malformed"


def test_a_job_that_ended_is_run_again_under_a_new_id(web: TestClient, cluster: Cluster) -> None:
    answer = web.post("/api/v1/jobs/old/again")
    assert answer.status_code == 201, answer.text
    [(job, graph)] = cluster.submitted
    assert job.startswith("graph-of-old-") and graph == {**GRAPH, "name": "graph of old"}
    assert answer.json() == {"job": job, "status": "INITIALIZING", "url": f"/api/v1/jobs/{job}", "warnings": []}
    assert answer.headers["location"] == f"/api/v1/jobs/{job}"
    assert web.post("/api/v1/jobs/old/again?new=mine").json()["job"] == "mine"
    for failure, status in ((NotFound("no such job"), 404), (Refused("it is RUNNING"), 409)):
        cluster.fails = failure
        assert web.post("/api/v1/jobs/old/again").status_code == status


def test_a_job_that_failed_is_repaired_by_a_new_one(web: TestClient, cluster: Cluster) -> None:
    answer = web.post("/api/v1/jobs/old/repair?new=mended")
    assert answer.status_code == 201, answer.text
    assert cluster.submitted == [("mended", {**GRAPH, "name": "graph of old", "origin": {"job": "old", "repair": True}})]
    assert answer.json() == {"job": "mended", "status": "INITIALIZING", "url": "/api/v1/jobs/mended", "warnings": []}
    for failure, status in ((NotFound("no such job"), 404), (Refused("it is RUNNING"), 409)):
        cluster.fails = failure
        assert web.post("/api/v1/jobs/old/repair").status_code == status


@pytest.mark.parametrize("what", ["again", "repair"])
def test_a_repeat_with_the_same_key_runs_the_same_job_again(web: TestClient, cluster: Cluster, what: str) -> None:
    """The header was passed over there: a client that repeats what it got no answer to had two jobs."""
    for _ in range(2):
        assert web.post(f"/api/v1/jobs/old/{what}", headers={"Idempotency-Key": "k"}).status_code == 201
    (first, graph), again = cluster.submitted
    assert again == (first, graph) and first.startswith("key-")
    both = web.post(f"/api/v1/jobs/old/{what}?new=mine", headers={"Idempotency-Key": "k"})
    assert (both.status_code, both.json()["detail"]) == (400, "give new or Idempotency-Key: each alone makes a repeat the same job")
    assert len(cluster.submitted) == 2


def test_what_cannot_be_repaired_is_no_other_graph(web: TestClient, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Conflict("job old is FINISHED: there is nothing to repair, for only what FAILED or was CANCELED is; run it again")

    def submit(*_: Any) -> Any:
        raise refused

    monkeypatch.setattr(cluster, "submit", submit)
    for path in ("repair", "repair?new=mine"):
        answer = web.post(f"/api/v1/jobs/old/{path}")
        assert (answer.status_code, answer.json()["type"]) == (409, "urn:millrace:wrong-state")
        assert answer.json()["detail"] == str(refused)
    mended = {**GRAPH, "origin": {"job": "old", "repair": True}}
    for query in ("", "?job=mine"):
        answer = web.post(f"/api/v1/jobs{query}", json=mended)
        assert (answer.status_code, answer.json()["type"], answer.json()["detail"]) == (409, "urn:millrace:wrong-state", str(refused))
    unknown = web.get("/api/v1/jobs/mine").json()
    assert (unknown["status"], unknown["type"]) == (404, "urn:millrace:wrong-state") and str(refused) in unknown["detail"]
    assert web.post("/api/v1/jobs?job=mine", json=GRAPH).json()["type"] == "urn:millrace:other-graph"
    assert web.post("/api/v1/jobs/old/again?new=mine").json()["type"] == "urn:millrace:other-graph"
    monkeypatch.setattr(cluster, "show", lambda job: None)
    assert web.post("/api/v1/jobs/old/repair?new=mine").json()["type"] == "urn:millrace:other-graph", "that id is another job's"
    assert web.post("/api/v1/jobs?job=mine", json=mended).json()["type"] == "urn:millrace:other-graph"


def test_a_graph_with_its_modules(web: TestClient, cluster: Cluster) -> None:
    files = [("graph", ("daily.yaml", YAML)), ("modules", ("ranking.py", RANKING))]
    answer = web.post("/api/v1/jobs", files=files, data={"parameter": "day=3", "env": ["A=1", "B=x=y"], "parallelism": "ranked=1"})
    assert answer.status_code == 201, answer.text
    assert cluster.submitted[0][1]["vertices"]["ranked"]["parallelism"] == 1
    [(_, graph)], [uploads], [(parameters, env)] = cluster.submitted, cluster.uploads, cluster.more
    assert graph["modules"] == [{"name": "ranking.py", "sha256": sha(RANKING), "kind": "py"}]
    assert (uploads, parameters, env) == ({sha(RANKING): RANKING}, {"day": "3"}, {"A": "1", "B": "x=y"})


def test_a_script_with_the_fields_of_spark_submit(web: TestClient, cluster: Cluster) -> None:
    files = [("script", ("etl.py", SCRIPT)), ("py_files", ("helper.py", b"x = 1\n")), ("files", ("a.csv", b"1,2\n"))]
    fields = {"name": "etl of today", "conf": ["spark.sql.shuffle.partitions=4"], "args": ["--day", "1"], "packages": "a:b:1, c:d:2"}
    answer = web.post("/api/v1/jobs", files=files, data=fields)
    assert answer.status_code == 201, answer.text
    [(_, graph)], [uploads] = cluster.submitted, cluster.uploads
    [vertex] = graph["vertices"].values()
    assert graph["name"] == "etl of today" and vertex["spark_app"]["args"] == ["--day", "1"]
    assert graph["conf"]["spark.sql.shuffle.partitions"] == "4"
    assert set(uploads.values()) == {SCRIPT, b"x = 1\n", b"1,2\n"}


def test_what_is_wrong_is_refused_with_its_line_and_is_not_sent(web: TestClient, cluster: Cluster) -> None:
    text = b"name: n\nvertices:\n  one: {sql: SELECT 1}\n  two:\n    sql: SELECT * FROM one\n    inputs: {on: forward}\n"
    for path in ("jobs", "validate"):
        answer = web.post(f"/api/v1/{path}", content=text, headers={"Content-Type": "application/yaml"})
        mistakes = {(each["line"], *each["place"]) for each in answer.json()["errors"]}
        assert (6, "vertices", "two", "inputs", "on") in mistakes, answer.text
    assert cluster.submitted == []


def test_what_the_cluster_finds_has_its_line_too(web: TestClient, cluster: Cluster) -> None:
    cluster.fails = Invalid("the graph is wrong", [Problem(place=["vertices", "one", "sql"], message="no", hint=None)])
    text = b"name: n\nvertices:\n  one:\n    sql: SELECT 1\n"
    answer = web.post("/api/v1/jobs?job=j", content=text, headers={"Content-Type": "text/yaml"})
    assert (answer.status_code, [each["line"] for each in answer.json()["errors"]]) == (400, [4])
    later = web.get("/api/v1/jobs/j")
    assert (later.status_code, later.json()["detail"]) == (404, "there is no job 'j': it was not accepted: the graph is wrong")


def test_who_asks_later_for_what_could_not_be_sent_is_told_why(web: TestClient, cluster: Cluster) -> None:
    cluster.fails = Unavailable("the blob server does not answer")
    answer = web.post("/api/v1/jobs?job=j", json={"name": "n", "vertices": {"one": {"sql": "SELECT 1"}}})
    assert answer.status_code == 503
    later = web.get("/api/v1/jobs/j")
    assert (later.status_code, later.json()["detail"]) == (404, "there is no job 'j': it was not accepted: the blob server does not answer")


def test_a_graph_reads_no_file_of_this_machine(web: TestClient, cluster: Cluster, tmp_path: Path) -> None:
    """A module of it would be uploaded, and its content would be in the hands of whoever sent the graph."""
    outside = tmp_path.parent / "secret.txt"
    outside.write_text("secret")
    for name in (str(outside), "../secret.txt", f"../{tmp_path.name}/x/../../secret.txt", "..", "."):
        for part in (
            {"modules": [name]},
            {"modules": [{"name": name, "kind": "file"}]},
            {"vertices": {"one": {"spark_app": {"script": name}}}},
        ):
            answer = web.post("/api/v1/jobs", json={**GRAPH, **part})
            assert answer.status_code == 400
            assert any("was not sent along" in each["message"] for each in answer.json()["errors"]), answer.text
    relative = {"name": "n", "vertices": {"a": {"source": {"format": "csv", "path": "../secret.txt"}}}}
    problems = web.post("/api/v1/validate", json=relative).json()["errors"]
    assert any("is relative" in each["message"] for each in problems)
    assert (cluster.submitted, cluster.uploads) == ([], [])


@pytest.mark.parametrize("name", ["../x.py", "/x.py", "a/b.py", "..", ".", "x" * 256, "\u00e9" * 200])
def test_a_file_is_put_nowhere_else(web: TestClient, cluster: Cluster, name: str) -> None:
    answer = web.post("/api/v1/jobs", files=[("graph", ("g.json", json.dumps(GRAPH))), ("modules", (name, b"x"))])
    assert (answer.status_code, answer.json()["errors"][0]["place"], cluster.submitted) == (400, ["modules"], [])


@pytest.mark.parametrize(("files", "fields", "place"), [
    ([("modules", "a.py")], {}, "graph"),
    ([("graph", "g.yaml"), ("script", "s.py")], {}, "graph"),
    ([("graph", "g.yaml"), ("modules", "g.yaml")], {}, "modules"),
    ([("graph", "g.yaml"), ("jars", "a.jar")], {}, "jars"),
    ([("graph", "g.yaml")], {"conf": "a=b"}, "conf"),
    ([("graph", "g.yaml")], {"parameters": "a=b"}, "parameters"),
    ([("graph", "g.yaml"), ("module", "a.py")], {}, "module"),
    ([("graph", "g.yaml")], {"env": "A"}, "env"),
    ([("script", "s.py")], {"parameter": "a=b"}, "parameter"),
    ([("script", "s.py")], {"name": ["a", "b"]}, "name"),
])  # fmt: skip
def test_fields_that_are_no_submission(web: TestClient, cluster: Cluster, files: Any, fields: dict, place: str) -> None:
    answer = web.post("/api/v1/jobs", files=[(name, (file, b"print(1)\n")) for name, file in files], data=fields)
    assert (answer.status_code, answer.json()["errors"][0]["place"], cluster.submitted) == (400, [place], [])


def test_every_field_that_is_wrong_is_told(web: TestClient, cluster: Cluster) -> None:
    """Only the first was, and the next one after that was mended."""
    files = [("graph", ("g.yaml", YAML)), ("modules", ("g.yaml", b"")), ("jar", ("a.jar", b""))]
    answer = web.post("/api/v1/jobs", files=files, data={"parameters": "a=1", "nmae": "x"})
    assert [each["place"] for each in answer.json()["errors"]] == [["parameters"], ["nmae"], ["modules"], ["jar"]]
    answer = web.post("/api/v1/jobs", files=files[:1], data={"conf": "a=b", "args": "c"})
    assert (answer.status_code, [each["place"] for each in answer.json()["errors"]]) == (400, [["conf"], ["args"]])
    assert cluster.submitted == []


@pytest.mark.parametrize("body", [b"", b"--x", b"--x\r\n\r\n", b"--x\r\nContent-Disposition: form-data\r\n\r\na\r\n--x--\r\n", b"nothing"])
def test_a_multipart_that_is_none(web: TestClient, cluster: Cluster, body: bytes) -> None:
    for kind in ("multipart/form-data; boundary=x", "multipart/form-data", "multipart/form-data; boundary="):
        answer = web.post("/api/v1/jobs", content=body, headers={"Content-Type": kind})
        assert (answer.status_code, cluster.submitted) == (400, []), answer.text
        assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("kind", ["application/json", "application/yaml"])
def test_a_graph_that_finds_no_room_is_told_so_and_leaves_nothing(
    web: TestClient, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def full(path: Path, data: bytes) -> int:
        with open(path, "wb") as file:
            file.write(data[:1])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    answer = web.post("/api/v1/jobs", content=YAML, headers={"Content-Type": kind})
    assert (answer.status_code, answer.json()["detail"]) == (507, "the graph cannot be kept: No space left on device")
    assert (cluster.submitted, list(tmp_path.iterdir()), parcel._under_way) == ([], [], 0)


def test_too_many_parts(web: TestClient, cluster: Cluster) -> None:
    many = [("modules", (f"{n}.py", b"")) for n in range(parcel.FILES_MOST + 1)]
    assert web.post("/api/v1/jobs", files=many).status_code == 400
    assert web.post("/api/v1/jobs", files=[("graph", ("g", b""))], data={"args": ["a"] * (parcel.FIELDS_MOST + 1)}).status_code == 400


def test_a_multipart_that_is_half_sent_is_given_up_and_takes_no_others_place(web: TestClient, cluster: Cluster) -> None:
    from services.web.middleware import Limits

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await web.app(scope, receive, send)

    limits = Limits(app, step_most_s=0.05)
    head = b'--x\r\nContent-Disposition: form-data; name="graph"; filename="g.json"\r\n\r\n' + b" " * (2 << 20)
    scope = {
        "type": "http", "method": "POST", "path": "/api/v1/jobs", "raw_path": b"/api/v1/jobs", "query_string": b"", "scheme": "http",
        "http_version": "1.1", "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1),
        "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"multipart/form-data; boundary=x")],
    }  # fmt: skip

    async def story() -> list[dict]:
        async def half() -> list[dict]:
            said, sent = [], []

            async def receive() -> dict:
                if said:
                    await asyncio.Event().wait()
                said.append(1)
                return {"type": "http.request", "body": head, "more_body": True}

            async def send(message: dict) -> None:
                sent.append(message)

            await limits(dict(scope), receive, send)
            return sent

        return [each for sent in await asyncio.gather(*(half() for _ in range(20))) for each in sent if "status" in each]

    answers = asyncio.run(story())
    assert sorted(each["status"] for each in answers) == [408] * parcel.PARCELS_MOST + [429] * (20 - parcel.PARCELS_MOST)
    assert parcel._under_way == 0


def test_validate_tells_how_it_would_run(web: TestClient, cluster: Cluster) -> None:
    files = [("graph", ("daily.yaml", YAML)), ("modules", ("ranking.py", RANKING))]
    found = web.post("/api/v1/validate", files=files).json()
    assert (found["valid"], found["errors"], [each["task"] for each in found["tasks"]]) == (True, [], ["rows+ranked"])
    assert found["tasks"][0]["vertices"][1] == {
        "vertex": "ranked", "kind": "python", "inputs": [{"vertex": "rows", "edge": "chained", "keys": []}],
    }  # fmt: skip
    assert cluster.submitted == []


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """No graph is read before it is set."""
    go_on, load = threading.Event(), parcel.Parcel.load

    def waits(self: parcel.Parcel) -> Any:
        assert go_on.wait(60)
        return load(self)

    monkeypatch.setattr(parcel.Parcel, "load", waits)
    yield go_on
    go_on.set()


@pytest.mark.parametrize(("method", "path"), [("POST", "jobs"), ("POST", "validate"), ("PUT", "schedules/j?cron=0+3+*+*+*")])
def test_a_body_that_is_not_read_in_time_is_said_not_to_be_sent(
    web: TestClient, cluster: Cluster, held: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, path: str
) -> None:
    """It was a 500, or said that the request was sent and may still be carried out; and its folder stayed."""
    monkeypatch.setattr("services.web.commands.LOAD_S", 0.5)
    bodies: list[dict[str, Any]] = [{"json": GRAPH}, {"files": [("graph", ("g.json", json.dumps(GRAPH)))]}]
    for body in bodies:
        answer = web.request(method, f"/api/v1/{path}", **body)
        assert (answer.status_code, answer.json()["type"], answer.headers["retry-after"]) == (503, "urn:millrace:not-loaded", "1")
        assert "nothing was sent, try again" in answer.json()["detail"]
        assert list(tmp_path.iterdir()) == []
    held.set()
    monkeypatch.setattr("services.web.commands.LOAD_S", 30)
    assert web.post("/api/v1/jobs?job=j", json=GRAPH).status_code == 201, "who was late holds nothing"
    assert [job for job, _ in cluster.submitted] == ["j"]


def test_what_a_killed_process_has_left_is_deleted_at_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parcel, "_prefix", "")
    parcel.sweep("kafka:1 web-2")
    other = parcel._empty()
    parcel.sweep("kafka:1 web-1")
    killed = parcel._empty()
    for each in (other, killed):
        each.folder.mkdir()
        (each.folder / "graph.yaml").touch()
    parcel.sweep("kafka:1 web-1")
    assert (killed.folder.exists(), other.folder.exists()) == (False, True)
    other.close()


def test_what_is_put_down_too_late_is_deleted(web: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.web.commands.LOAD_S", 0.05)
    write, answered, written = Path.write_bytes, threading.Event(), threading.Event()

    def late(self: Path, data: bytes) -> int:
        assert answered.wait(60)
        self.parent.mkdir(exist_ok=True)  # it was deleted before
        written.set()
        return write(self, data)

    monkeypatch.setattr(Path, "write_bytes", late)
    assert web.post("/api/v1/validate", json=GRAPH).status_code == 503
    answered.set()
    assert written.wait(60)
    until_s = time.monotonic() + 60
    while list(tmp_path.iterdir()) and time.monotonic() < until_s:
        time.sleep(0.01)
    assert list(tmp_path.iterdir()) == []


def test_graphs_that_are_looked_at_hold_up_no_command(web: TestClient, held: threading.Event) -> None:
    """A viewer may have graphs looked at: as many as there were threads refused everybody's cancel."""
    most = 64
    with ThreadPoolExecutor(most) as askers:
        asked = [askers.submit(web.post, "/api/v1/validate", json=GRAPH) for _ in range(most)]
        refused = most - LOADING_MOST
        while sum(each.done() for each in asked) < refused:
            time.sleep(0.01)
        assert web.post("/api/v1/jobs/j/cancel").status_code == 200
        held.set()
        assert sorted(each.result().status_code for each in asked) == [200] * LOADING_MOST + [429] * refused


def test_all_that_is_wrong_with_the_fields_is_told_at_once(web: TestClient, cluster: Cluster) -> None:
    data = {"conf": "a", "env": ["=1", "A=1"], "parallelism": "x=1", "name": ["a", "b"], "master": ["c", "d"]}
    answer = web.post("/api/v1/jobs", files=[("script", ("etl.py", b"print(1)"))], data=data)
    assert (answer.status_code, answer.json()["type"], cluster.submitted) == (400, "urn:millrace:invalid-parameter", [])
    pair, twice = "NAME=VALUE is needed", "is given more than once"
    assert [(*each["place"], each["message"]) for each in answer.json()["errors"]] == [
        ("parallelism", "is for graphs"), ("env", pair), ("conf", pair), ("master", twice), ("name", twice),
    ]  # fmt: skip


@pytest.mark.parametrize("end", ["", "\r\n", "\r\n--x", "\r\n--x-", "\r\n--x--", "\r\n--x--\r\n"])
def test_a_multipart_body_that_is_cut_off_is_no_submission(web: TestClient, cluster: Cluster, end: str) -> None:
    """Its last part was left out, so a script ran without its arguments."""
    script = 'Content-Disposition: form-data; name="script"; filename="etl.py"\r\n\r\nprint(1)'
    body = f'--x\r\n{script}\r\n--x\r\nContent-Disposition: form-data; name="args"\r\n\r\n--day{end}'
    answer = web.post("/api/v1/jobs", content=body, headers={"Content-Type": "multipart/form-data; boundary=x"})
    if end.endswith(("--x--", "--x--\r\n")):
        assert answer.status_code == 201 and cluster.submitted[0][1]["vertices"]["main"]["spark_app"]["args"] == ["--day"]
    else:
        assert (answer.status_code, answer.json()["type"], cluster.submitted) == (400, "urn:millrace:invalid-body", [])
