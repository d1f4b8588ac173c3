"""The edge of the cluster: strangers' bytes."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from millrace.core.jobgraph.model import DEFAULT_LIMITS
from millrace.core.messages.base import canonical
from millrace.core.messages.records import Client, decode, encode
from millrace.edge.requests import GRAPH_BYTES_MOST
from millrace.io.interfaces import Received
from millrace.io.storage.store import Storage, upload_path
from services.dispatcher.intake import Intake
from tests.core.of_requests import GRAPH, of, submit


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path))


@pytest.fixture
def intake(storage: Storage) -> Intake:
    return Intake(storage, DEFAULT_LIMITS)


def received(value: bytes, offset: int = 7) -> Received:
    return Received("client.commands", 0, offset, 0, None, value)


def take(intake: Intake, value: bytes) -> Client:
    record = intake.record(received(value), "log", 6)
    assert decode(encode(record)) == record, "it can be a record of the inbox"
    assert (record.log, record.prev, record.offset) == ("log", 6, 7)
    return record


def test_where_queries_stand_makes_no_other_job(intake: Intake) -> None:
    first = take(intake, submit({**GRAPH, "sources": {"v": {"file": "flow.yaml", "line": 3, "indent": 4}}}, reply_to="me"))
    moved = take(intake, submit({**GRAPH, "sources": {"v": {"file": "flow.yaml", "line": 9, "indent": 4}}}, reply_to="me"))
    assert first.digest == moved.digest == take(intake, submit(reply_to="me")).digest
    assert (first.graph or {})["sources"]["v"]["line"] == 3 and (moved.graph or {})["sources"]["v"]["line"] == 9


TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-00"


def fields(given: object) -> dict[str, object]:
    """A traceparent, or it with a tracestate, as a graph has them."""
    parts = given if isinstance(given, tuple) else (given,)
    return {name: part for name, part in zip(("traceparent", "tracestate"), parts, strict=False) if part is not None}


@pytest.mark.parametrize(
    ("headers", "field", "found"),
    [
        ([("traceparent", TRACEPARENT.encode())], None, TRACEPARENT),
        ([], TRACEPARENT, TRACEPARENT),
        ([("traceparent", TRACEPARENT.encode())], OTHER, TRACEPARENT),
        ([], None, None),
        ([("traceparent", b"00-nonsense")], None, None),
        ([("traceparent", None)], None, None),
        ([("tracestate", b"x=1")], None, None),
        ([("traceparent", TRACEPARENT.encode()), ("traceparent", OTHER.encode())], None, None),
        ([], "nonsense", None),
        ([], 7, None),
        ([], ["x" * 1000], None),
        ([("traceparent", TRACEPARENT.encode()), ("tracestate", b"a=1"), ("tracestate", b"b=2")], None, (TRACEPARENT, "a=1,b=2")),
        ([("traceparent", TRACEPARENT.encode()), ("tracestate", b"a")], None, TRACEPARENT),
        ([("traceparent", TRACEPARENT.encode()), ("tracestate", None)], OTHER, TRACEPARENT),
        ([("tracestate", b"a=1")], TRACEPARENT, TRACEPARENT),
        ([("tracestate", b"a=1")], (TRACEPARENT, "b=2"), (TRACEPARENT, "b=2")),
        ([], (TRACEPARENT, "b=" + "2" * 300), TRACEPARENT),
        ([], (None, "b=2"), None),
    ],
)
def test_the_publishers_place_in_a_trace_goes_with_the_job_and_makes_no_other_of_it(
    intake: Intake, headers: list[tuple[str, bytes | None]], field: object, found: object
) -> None:
    graph = {**GRAPH, **fields(field)}
    plain = take(intake, submit(reply_to="me"))
    record = intake.record(Received("client.commands", 0, 7, 0, None, submit(graph, reply_to="me"), headers), "log", 6)
    assert decode(encode(record)) == record
    assert (record.graph, record.digest, record.problems) == (
        {**(plain.graph or {}), **fields(found)}, plain.digest, []
    )  # fmt: skip


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "not JSON: Expecting value at line 1, column 1"),
        (b"\xff\xfe", "not UTF-8 at byte 0"),
        (b"[1]", 'no message: a request is an object with "type" and "version"'),
        ({"type": "Nonsense", "version": 1}, "unknown type 'Nonsense'; known are SubmitJob, CancelJob,"),
        ({"type": "CancelJob", "job": "j"}, 'CancelJob has no "version"; this Dispatcher knows version 1'),
        ({"type": "CancelJob", "version": True}, 'CancelJob has true as its "version", which is no integer; this Dispatcher knows'),
        ({"type": "CancelJob", "version": "1"}, """CancelJob has the text '1' as its "version", which is no integer"""),
        ({"type": "CancelJob", "version": 2, "x": 1}, "CancelJob has a newer version, 2; this Dispatcher knows version 1"),
        ({"type": "CancelJob", "version": 0}, "CancelJob has an unknown version, 0"),
        ({"type": "CancelJob", "version": 1}, "no CancelJob: job: Field required"),
        ({"type": "CancelJob", "version": 1, "job": "j", "now": 1}, "no CancelJob: now: Extra inputs are not permitted"),
        ({"type": "CancelJob", "version": 1, "job": "../j"}, "no CancelJob: job: String should match pattern"),
        (b'{"type":' + b"[" * 100 + b"]" * 100 + b"}", "nested more than 32 deep"),
        (b'"' + b"x" * 1_048_576 + b'"', "1048578 bytes are more than the 1048576 allowed"),
    ],
)  # fmt: skip
def test_bytes_that_are_no_request_are_refused_with_the_reason(intake: Intake, value: object, reason: str) -> None:
    data = of(value)
    record = take(intake, data)
    assert record.request is None
    refusal = record.refusal
    assert refusal.reason.startswith(reason)
    assert (refusal.size_bytes, refusal.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert base64.b64decode(refusal.head_base64) == data[:4096]


def test_a_submission_is_checked_once_and_stored_with_its_parameters_put_in(intake: Intake) -> None:
    graph = {"name": "one", "parameters": {"n": 1}, "vertices": {"v": {"sql": "SELECT ${n}"}}}
    record = take(intake, submit(graph, parameters={"n": "2"}, reply_to="me", accept_before_ms=5))
    assert record.graph == {"name": "one", "parameters": {"n": "2"}, "vertices": {"v": {"sql": "SELECT 2"}}}
    assert record.digest == hashlib.sha256(canonical({"graph": graph, "parameters": {"n": "2"}})).hexdigest()
    assert (record.request.graph, record.request.parameters) == ({}, {})
    assert (record.request.reply_to, record.request.accept_before_ms) == ("me", 5)
    assert (record.problems, record.warnings, record.refusal) == ([], [], None)


@pytest.mark.parametrize(
    ("graph", "place", "message"),
    [
        ({**GRAPH, "vertices": {}}, ["vertices"], "must not be empty"),
        ({"name": "n", "vertices": {"v": {"sql": "SELEC 1"}}}, ["vertices", "v", "sql"], "does not parse: unexpected 1 at line 1"),
        ({"name": "n", "vertices": {"v": {"sql": "SELECT * FROM w"}}}, ["vertices", "v", "sql"], "reads w, which is no input"),
        ({**GRAPH, "conf": {"spark.master": "mesos"}}, ["conf", "spark.master"], "'mesos' is no master: a master is local[N]"),
        ({**GRAPH, "conf": {"spark.app.id": "7"}}, ["conf", "spark.app.id"], "cannot be set by a job: Spark gives it"),
        ({**GRAPH, "master": "spark://host"}, ["master"], "'spark://host' is no master"),
        ({**GRAPH, "modules": [{"name": "m.py", "sha256": "0" * 64}]}, ["modules", 0], "m.py was not uploaded"),
        (
            {"name": "n", "vertices": {f"v{i}": {"sql": f"SELECT '{'x' * 60_000}'"} for i in range(5)}},
            [], "with parameters put in, the graph has",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_graph_is_told_with_its_place(
    intake: Intake, graph: object, place: list, message: str
) -> None:
    record = take(intake, submit(graph))
    assert record.problems[0].place == place
    assert record.problems[0].message.startswith(message)
    assert (record.graph, record.digest) == (None, None)


def test_a_relative_path_is_refused_for_a_message_has_no_folder(intake: Intake, storage: Storage) -> None:
    """Its sink wrote into the TaskManager's own working folder, and the job FINISHED."""
    source = {"source": {"format": "csv", "path": "in/*.csv"}}
    sink = {"sink": {"format": "parquet", "path": "${out}"}, "inputs": {"a": "forward"}}
    graph = {"name": "n", "parameters": {"out": "out"}, "vertices": {"a": source, "b": sink}}
    hint = "write all of it; only millrace submit puts the folder of a graph's file before it"
    assert [(each.place, each.message, each.hint) for each in take(intake, submit(graph)).problems] == [
        (["vertices", "a", "source", "path"], "in/*.csv is relative", hint),
        (["vertices", "b", "sink", "path"], "out is relative", hint),
    ]
    sha256 = hashlib.sha256(b"1,2").hexdigest()
    storage.put_new(upload_path(sha256), b"1,2")
    with_file = {**graph, "modules": [{"name": "in.csv", "sha256": sha256, "kind": "file"}]}
    assert [each.place[1] for each in take(intake, submit(with_file)).problems] == ["b"], "a source may read what goes with the job"
    for out in ("/data/out", "file:///data/out", "s3a://data/out"):
        assert take(intake, submit(with_file, parameters={"out": out})).problems == []


def test_the_same_graph_is_looked_at_once_but_its_uploads_each_time(intake: Intake, storage: Storage) -> None:
    sha256 = hashlib.sha256(b"code").hexdigest()
    value = submit({**GRAPH, "modules": [{"name": "m.py", "sha256": sha256}]})
    assert take(intake, value).graph is None
    storage.put_new(upload_path(sha256), b"code")
    assert take(intake, value).graph is not None
    storage.delete_tree("uploads")
    assert take(intake, value).graph is None


def test_warnings_do_not_stop_a_submission(intake: Intake) -> None:
    record = take(intake, submit({"name": "n", "vertices": {"v": {"sql": "SHOW TABLES"}}}))
    assert record.graph is not None
    assert [warning.message for warning in record.warnings] == ["only Spark can tell whether this SHOW is right"]


def test_what_is_wrong_with_a_submission_that_wants_no_answer_is_parked(intake: Intake) -> None:
    graph = {"name": "n", "vertices": {"v": {"sql": "SELECT * FROM w"}, "x": {"sql": "SELEC 1"}}}
    record = take(intake, submit(graph, reply_to=""))
    assert record.request is None
    assert record.refusal is not None
    assert record.refusal.reason == (
        "no SubmitJob of job j: vertices.v.sql: reads w, which is no input; "
        "vertices.x.sql: does not parse: unexpected 1 at line 1, column 7"
    )


def test_of_a_submission_that_wants_no_answer_the_record_tells_enough_for_a_letter(intake: Intake) -> None:
    value = submit(reply_to="", correlation="x" * 200, graph={"name": "n" * 100, "vertices": {"v": {"sql": f"SELECT '{'x' * 500}'"}}})
    record = take(intake, value)
    assert record.graph is not None and record.excerpt is not None
    assert (record.excerpt.size_bytes, record.excerpt.sha256) == (len(value), hashlib.sha256(value).hexdigest())
    assert base64.b64decode(record.excerpt.head_base64) == value[:512]
    assert take(intake, submit()).excerpt is None
    assert take(intake, of({"type": "CancelJob", "version": 1, "job": "j"})).excerpt is None


def test_sizes_that_slots_do_not_heed_are_warned_of(intake: Intake) -> None:
    conf = {"spark.executor.memory": "9g", "spark.driver.memory": "9g", "spark.sql.ansi.enabled": "true"}
    record = take(intake, submit({**GRAPH, "conf": conf}))
    assert record.graph is not None
    assert [(each.place, each.message[:13]) for each in record.warnings] == [
        (["conf", "spark.executor.memory"], "has no effect"),
        (["conf", "spark.driver.memory"], "has no effect"),
    ]


def test_local_files_are_looked_for_where_that_is_wanted(storage: Storage, tmp_path: Path) -> None:
    source = {"source": {"format": "csv", "path": f"file://{tmp_path}/none.csv"}}
    value = submit({"name": "n", "vertices": {"v": source}})
    assert take(Intake(storage, DEFAULT_LIMITS), value).graph is not None
    [problem] = take(Intake(storage, DEFAULT_LIMITS, check_local_files=True), value).problems
    assert problem.message == f"no such file: {tmp_path}/none.csv"


def test_no_stranger_can_make_a_record_too_large(intake: Intake) -> None:
    wild = {"\x01" * 90 + str(n): {"\x01" * 99: 1} for n in range(100)}
    assert len(encode(take(intake, submit({"name": "n", "vertices": wild})))) < 600_000
    fat = {"name": "n", "vertices": {"v": {"sql": "SELECT '" + "x" * 60_000 + "'"}, "p": {"python": "m:f"}}}
    graph = {**fat, "parameters": {f"p{n}": "y" * 900 for n in range(200)}}
    assert len(json.dumps(take(intake, submit(graph)).graph)) < GRAPH_BYTES_MOST


@pytest.mark.parametrize("wrong", [{}, {"wrong": {}}])
def test_the_sql_of_too_large_a_graph_is_not_looked_into(intake: Intake, monkeypatch: pytest.MonkeyPatch, wrong: Any) -> None:
    monkeypatch.setattr("millrace.edge.requests.check_sql", lambda _: pytest.fail("looked into"))
    vertices = {f"v{n}": {"sql": f"SELECT {n}, '{'x' * 60_000}'"} for n in range(5)}
    [problem] = take(intake, submit({"name": "n", "vertices": {**vertices, **wrong}})).problems
    assert problem.message.startswith("has no kind" if wrong else "with parameters put in, the graph has 300")


@pytest.mark.parametrize(("vertices", "message"), [
    ({"v": {"source": {"format": "csv", "path": "file://[x/y"}}}, "no such file: /y"),
    ({"v": {"source": {"format": "csv", "path": "/" + "x" * 300}}}, "no such file: /xxx"),
    ({"v": {"sql": "SELECT 1", "inputs": {"s(": "forward"}}}, "no vertex is called s("),
])  # fmt: skip
def test_what_a_stranger_wrote_ends_no_dispatcher(storage: Storage, vertices: Any, message: str) -> None:
    [first, *_] = take(Intake(storage, DEFAULT_LIMITS, check_local_files=True), submit({"name": "n", "vertices": vertices})).problems
    assert first.message.startswith(message)


def test_a_graph_that_the_checks_stumble_over_is_refused(intake: Intake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.dispatcher.intake.check_graph", lambda *_: next(iter(())))
    [problem] = take(intake, submit()).problems
    assert problem.message == "the graph cannot be checked (StopIteration)"
    assert "no SubmitJob of job j: the graph cannot be checked" in take(intake, submit(reply_to="")).refusal.reason
    monkeypatch.undo()
    assert take(intake, submit()).graph is not None, "that is not remembered"


# Schedules


def schedule(**fields: Any) -> bytes:
    known = {"type": "SetSchedule", "version": 1, "schedule": "s", "graph": GRAPH, "cron": "0 3 * * *", "reply_to": "me"}
    return json.dumps({**known, **fields}).encode()


DATED = {"name": "d", "parameters": {"scheduled_date": "x", "n": "x"}, "vertices": {"v": {"sql": "SELECT 1", "parallelism": "${n}"}}}


@pytest.mark.parametrize(
    ("fields", "place", "words"),
    [
        ({"cron": "0 3 * *"}, ["cron"], "it has 4 fields, not 5"),
        ({"cron": "0 0 30 2 *"}, ["cron"], "bad day-of-month"),
        ({"time_zone": "Europe/Belin"}, ["time_zone"], "is no time zone"),
        ({"graph": {"name": "x", "vertices": {}}}, ["vertices"], "must not be empty"),
        ({"graph": DATED}, ["vertices", "v", "parallelism"], ""),
        ({"parameters": {"other": "1"}}, ["parameters"], "other is given a value but not declared"),
        ({"graph": {**GRAPH, "modules": [{"name": "a.py", "sha256": "5" * 64, "kind": "py"}]}}, ["modules", 0], "was not uploaded"),
        ({"graph": {**GRAPH, "description": "x" * GRAPH_BYTES_MOST}}, [], "more than the"),
    ],
)
def test_what_is_wrong_with_a_schedule_is_found_when_it_is_set(
    intake: Intake, fields: dict[str, Any], place: list[str | int], words: str
) -> None:
    record = take(intake, schedule(**fields))
    assert record.request is not None and record.request.graph == {}, "nothing of it is kept"
    assert record.problems[0].place == place and words in record.problems[0].message
    quiet = take(intake, schedule(**fields, reply_to=""))
    assert quiet.request is None and quiet.refusal is not None and quiet.refusal.reason.startswith("no SetSchedule of s: ")


def test_a_schedule_that_is_right_goes_on_as_it_is_but_for_its_publishers_trace(intake: Intake) -> None:
    raw = {**DATED, "traceparent": TRACEPARENT, "tracestate": "a=1"}
    record = take(intake, schedule(graph=raw, parameters={"n": "1"}, time_zone="Europe/Berlin"))
    assert record.problems == [] and record.request is not None
    assert (record.request.graph, record.request.parameters) == (DATED, {"n": "1"}), "each run puts its parameters in"


@pytest.mark.parametrize(
    "fields",
    [
        {"schedule": "a b"}, {"schedule": "a" * 71}, {"schedule": ""}, {"cron": "x" * 201}, {"missed": "some"}, {"overlap": "both"},
        {"since_ms": -1}, {"since_ms": 1 << 48}, {"parameters": {"a": 1}}, {"graph": []}, {"paused": 1}, {"version": 2}, {"new": 1},
    ],
)  # fmt: skip
def test_what_is_no_message_about_a_schedule_is_a_dead_letter(intake: Intake, fields: dict[str, Any]) -> None:
    record = take(intake, schedule(**fields))
    assert record.request is None and record.refusal is not None and "SetSchedule" in record.refusal.reason
