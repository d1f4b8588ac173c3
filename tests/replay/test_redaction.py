"""What a redacted export keeps of a record, by exact outputs; tests/end_to_end/test_replay.py has a whole one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from millrace.core.jobgraph.model import JobGraph
from millrace.core.machine import Configured
from millrace.core.messages import processes, schedules
from millrace.core.messages.base import Body
from millrace.core.messages.progress import ReportOrder
from millrace.core.messages.slots import AnswerClient, AnswerFound, OrderAttempts
from services.replay.core.recorded import Recorded
from services.replay.core.redaction import masked, redacted, tokens, walk
from services.resource_manager.core.placement import PLACEMENTS

TOKEN = tokens(b"key")
GRAPH = {
    "name": "secret", "parameters": {"secret_name": "secret"}, "conf": {"spark.sql.secret": "secret"}, "result": "b",
    "modules": [{"name": "secret.py", "sha256": "5ec" + "0" * 61}], "restart": {"strategy": "none"},
    "env": {"kind": "secret", "secret_env": "secret"}, "sources": {"b": {"file": "secret.yaml", "line": 3, "indent": 4}},
    "vertices": {
        "a": {"source": {"format": "csv", "path": "/secret", "options": {"secret": "secret"}, "schema": "secret INT"}, "parallelism": 2},
        "b": {"python": "secret.module:secret", "inputs": {"a": "hash(secret, `se cret`)"}},
        "c": {"sink": {"format": "csv", "path": "/secret/out", "mode": "append"}, "inputs": {"b": "forward"}},
        "d": {"spark_app": {"script": "secret.py", "args": ["secret"]}}, "e": {"source": {"format": "com.secret.Source"}},
    },
}  # fmt: skip


def of(topic: str, value: Any, key: str = "k", id: str = "dispatcher/1/7") -> Recorded:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return redacted(Recorded(topic, 0, 5, 1, key, data, id), TOKEN)


def test_a_graph_is_a_graph_still() -> None:
    found = walk(GRAPH, TOKEN)
    assert "secret" not in json.dumps(found) and "se cret" not in json.dumps(found)
    graph = JobGraph.model_validate(found)
    assert (graph.result, graph.restart.strategy, list(graph.vertices)) == ("b", "none", ["a", "b", "c", "d", "e"])
    assert graph.vertices["b"].inputs["a"].keys == (TOKEN("secret"), TOKEN("se cret"))
    assert graph.vertices["c"].sink.mode == "append" and graph.vertices["c"].inputs["b"].kind == "forward"
    assert graph.vertices["d"].spark_app.script == graph.modules[0].name == TOKEN("secret.py")
    assert (graph.vertices["a"].source.format, graph.vertices["e"].source.format) == ("csv", TOKEN("com.secret.Source"))


def test_an_owners_name_that_is_spelt_like_a_field_is_a_name() -> None:
    """Vertices called as what goes whole, as what stays, and as what is a map itself; a job called so, too."""
    names = ("rows", "options", "free", "status", "vertices")
    vertices = {name: {"sql": "SELECT secret", "inputs": {other: "hash(secret)" for other in names}} for name in names}
    graph = {"name": "n", "vertices": vertices}
    states = {"live": {name: {"graph": json.dumps(graph), "name": "secret", "status": "RUNNING"} for name in names}}
    found = walk(states, TOKEN)
    assert "secret" not in json.dumps(found)
    for name in names:
        assert found["live"][name]["status"] == "RUNNING"
        kept = JobGraph.model_validate(json.loads(found["live"][name]["graph"]))
        assert tuple(kept.vertices) == tuple(kept.vertices["rows"].inputs) == names
    tasks = {"rows": [{"state": "RUNNING"}]}
    told = {"outputs": {"rows": {"schema": "secret", "rows": 17}}, "key_types": {"job": ["secret"]}, "tasks": tasks}
    assert walk(told, TOKEN) == {
        "outputs": {"rows": {"schema": TOKEN("secret"), "rows": 0}}, "key_types": {"job": [TOKEN("secret")]},
        "tasks": tasks,
    }  # fmt: skip


def test_what_is_kept_by_hosts_is_kept_by_tokens() -> None:
    change = {"type": "AskBlocklist", "host": "secret-1", "reason": "secret"}
    blocked = {"hosts": {"secret-1": {"by": "secret"}}, "unread": {"secret-1": change}}
    resource_manager = {"blocklist": blocked, "warm": {"1024": {"a/0": ["a", 0]}}}
    found = walk({"state": resource_manager, "unsent": {"secret-1": change, "": {"type": "Query", "what": "deregister"}}}, TOKEN)
    assert "secret" not in json.dumps(found)
    blocklist = found["state"]["blocklist"]
    assert [*blocklist["hosts"]] == [*blocklist["unread"]] == [blocklist["unread"][TOKEN("secret-1")]["host"]] == [TOKEN("secret-1")]
    assert [*found["unsent"]] == [TOKEN("secret-1"), ""] and found["unsent"][""] == {"type": "Query", "what": "deregister"}
    assert found["state"]["warm"] == resource_manager["warm"]


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_setting_that_decides_by_a_word_stays(placement: str) -> None:
    assert walk(Configured({"slots_placement": placement}).settings, TOKEN) == {"slots_placement": placement}


def test_a_list_under_the_name_of_a_map_has_fields() -> None:
    """Attempts of a job that report were no field's values: their tasks became tokens, and a redacted log led elsewhere."""
    attempt = {"task": "rows", "subtask": 0, "stages": [{"name": "secret"}]}
    for name in ("attempts", "vertices"):
        told = walk({name: [attempt, [attempt], "status"]}, TOKEN)[name]
        assert told == [{**attempt, "stages": [{"name": TOKEN("secret")}]}, [{**attempt, "stages": [{"name": TOKEN("secret")}]}], "status"]


@pytest.mark.parametrize(("value", "expected"), [
    ({"type": "SubmitJob", "version": 1, "job": "j-1", "graph": GRAPH, "reply_to": "secret", "secret": 17},
     {"type": "SubmitJob", "version": 1, "job": "j-1"}),
    ({"type": "CancelJob", "version": "secret", "job": "../secret"}, {"type": "CancelJob"}),
])  # fmt: skip
def test_of_a_strangers_request_its_type_and_job_stay(value: Any, expected: Any) -> None:
    found = of("client.commands", value, "secret", "/secret/1")
    shown = json.loads(found.value)
    assert shown.pop("rest").startswith("redacted:x")
    assert (shown, found.key, found.id) == (expected, TOKEN("secret"), TOKEN("/secret/1"))


@pytest.mark.parametrize("value", [b"secret \xff", b'"secret"', b'{"type": "secret", "job": "j"}', b'{"a": 1}', b"[17]"])
def test_what_is_no_request_is_one_token(value: bytes) -> None:
    assert of("client.commands", value).value.decode() == TOKEN(value.decode(errors="replace"))


def test_of_facts_ids_and_states_stay_and_texts_go() -> None:
    error = {"kind": "user", "retryable": False, "condition": "Secret", "message": "secret", "vertex": "a", "line": 3, "file": "/secret",
             "frame": "secret()", "detail": "Traceback\nsecret", "new_field": ["secret", {"secretly": "secret"}]}  # fmt: skip
    fact = {"type": "AttemptStateChanged", "version": 1, "job": "j", "task": "a", "state": "FAILED", "task_manager": "tm", "error": error}
    found = json.loads(of("job.events", fact).value)
    assert {name: found[name] for name in ("type", "job", "task", "state", "task_manager")} == {
        "type": "AttemptStateChanged", "job": "j", "task": "a", "state": "FAILED", "task_manager": "tm",
    }  # fmt: skip
    assert (found["error"]["kind"], found["error"]["vertex"], found["error"]["line"]) == ("user", "a", 3)
    assert not [text for text in _texts(found) if "secret" in text.lower() or "Traceback" in text]
    result = {"columns": ["secret"], "rows": [["secret", 17]]}
    rows = json.loads(of("job.events", {"type": "JobFinished", "job": "j", "result": result}).value)
    assert rows["result"] == {"columns": [TOKEN("secret")], "rows": [[TOKEN("secret"), 0]]}


@pytest.mark.parametrize(
    ("type_", "kept"),
    [("TaskManagerLost", True), ("DisconnectTaskManager", True), ("JobQueued", True), ("JobRejected", False), ("FailSlot", False)],
)
def test_reasons_stay_where_they_are_a_services_own_words(type_: str, kept: bool) -> None:
    found = walk({"type": type_, "reason": "no heartbeat for 600 ms"}, TOKEN)
    assert found["reason"] == ("no heartbeat for 600 ms" if kept else TOKEN("no heartbeat for 600 ms"))


def test_json_in_texts_is_redacted_within_and_digests_keep_their_shape() -> None:
    state = {"live": {"j": {"graph": json.dumps({"name": "secret", "vertices": {}}), "digest": "ab" * 32}}, "queues": {"0": [[1, "j"]]}}
    found = walk(state, TOKEN)
    assert json.loads(found["live"]["j"]["graph"]) == {"name": TOKEN("secret"), "vertices": {}}
    assert len(found["live"]["j"]["digest"]) == 64 and found["live"]["j"]["digest"] != "ab" * 32
    assert found["queues"] == {"0": [[1, "j"]]}


def test_a_text_that_looks_like_a_token_is_none() -> None:
    assert "secret" not in TOKEN("redacted:secret") and TOKEN("") == ""


def test_what_is_left_to_compare_is_the_same_before_and_after() -> None:
    for value in (GRAPH, {"type": "JobEnded", "archive": {"result": {"columns": ["s"], "rows": [["s", 1]]}}, "staging": ["/secret/.x"]}):
        assert masked(json.dumps(value).encode()) == masked(of("job.events", value).value)
    assert masked(b'{"type":"X","job":"j"}') != masked(b'{"type":"X","job":"k"}')


ASKS = (processes.DescribeAsk(), processes.ThreadsAsk(slot=0), processes.LogsAsk(), processes.UploadAsk(log="secret", start=-9))
TEXTS = dict.fromkeys(("service", "host", "version", "python", "system"), "secret")
STATUS = processes.ProcessStatus.model_validate({**dict.fromkeys(processes.ProcessStatus.model_fields, 7), **TEXTS})
ANSWERS = (
    processes.Description(status=STATUS, slots=[processes.SlotJvm(slot=0, no_answer="secret")], scopes={}),
    processes.ThreadDumps(dumps=[processes.ThreadDump(of="secret", text='"secret"\n    at secret.py:1 secret')]),
    processes.LogFiles(logs=[processes.LogFile(log="log", bytes=7, modified_ms=7)]),
    processes.UploadedPiece(piece=processes.LogPiece(log="log", path="logs/asked/secret", start=0, bytes=7, size=7)),
    processes.NoAnswer(kind="not_found", reason="there is no log 'secret'"),
)


@pytest.mark.parametrize("body", [
    OrderAttempts(attempts=["j/0-a/0/1.1"], order=ReportOrder(), question=3),
    *(AnswerClient(ask=ask, question=3, reply_to="secret", correlation="secret") for ask in ASKS),
    *(AnswerFound(question=3, reply_to="secret", correlation="secret", task_manager="tm", answer=answer) for answer in ANSWERS),
], ids=lambda body: body.type)  # fmt: skip
def test_what_a_process_is_asked_and_answers_can_be_folded_still(body: Body) -> None:
    found = walk(json.loads(body.model_dump_json()), TOKEN)
    assert "secret" not in json.dumps(found)
    again = type(body).model_validate(found)
    assert masked(again.model_dump_json().encode()) == masked(body.model_dump_json().encode())


def test_which_log_a_client_asked_for_may_be_any_text() -> None:
    request = {"type": "UploadLog", "version": 1, "task_manager": "tm", "log": "secret"}
    assert walk({"record": "Client", "log": "of-kafka", "request": request}, TOKEN) == {
        "record": "Client", "log": "of-kafka", "request": {**request, "log": TOKEN("secret")},
    }  # fmt: skip
    found = json.loads(of("process.questions", {"type": "AskProcess", "version": 1, "process": "d", "job": 1, "kind": "secret"}).value)
    assert found.pop("rest").startswith("redacted:x") and found == {"type": "AskProcess", "version": 1}
    assert of("process.questions", b'{"kind": "secret"}').value.decode() == TOKEN('{"kind": "secret"}')


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for inner in value.values() for text in _texts(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in _texts(inner)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize(("why", "kept"), [("", ""), (": secret disk", f": {TOKEN('secret disk')}")])
def test_why_an_attempt_is_canceled_names_no_host_and_no_words_of_an_operator(why: str, kept: str) -> None:
    found = walk({"type": "CancelTasks", "attempts": [], "reason": f"host secret is evacuated{why}"}, TOKEN)
    assert found["reason"] == f"host {TOKEN('secret')} is evacuated{kept}"


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ("1 free slot is on a blocked host (secret)", f"1 free slot is on a blocked host ({TOKEN('secret')})"),
        ("x; 3 free slots are on blocked hosts (a, b)", f"x; 3 free slots are on blocked hosts ({TOKEN('a')}, {TOKEN('b')})"),
        ("on blocked hosts (a, b and 4 more)", f"on blocked hosts ({TOKEN('a')}, {TOKEN('b')} and 4 more)"),
        ("the 1 slot of 1 TaskManager is busy (number 1)", "the 1 slot of 1 TaskManager is busy (number 1)"),
        ("all 2 slots are broken (tm-1: a (b)\nc)", f"all 2 slots are broken (tm-1: {TOKEN('a (b)' + chr(10) + 'c')})"),
        ("1 is broken (tm: why); on blocked hosts (a)", f"1 is broken (tm: {TOKEN('why')}); on blocked hosts ({TOKEN('a')})"),
    ],
)
def test_why_a_job_waits_names_no_host(told: str, kept: str) -> None:
    """The reasons of a ResourceManager stay, as a fold of redacted records says them: there a host is called by its token."""
    assert walk({"type": "JobQueued", "job": "j", "reason": None}, TOKEN)["reason"] is None
    assert walk({"type": "JobQueued", "job": "j", "reason": told}, TOKEN)["reason"] == kept
    assert walk({"type": "JobStatusChanged", "waiting": told}, TOKEN)["waiting"] == kept


def test_a_redacted_request_about_a_schedule_is_one_still() -> None:
    asked = {"type": "SetSchedule", "schedule": "daily", "cron": "0 3 * * *", "time_zone": "Europe/Berlin", "graph": {"name": "secret"}}
    found = walk(asked, TOKEN)
    assert "secret" not in json.dumps(found)
    body = schedules.SetSchedule.model_validate(found)
    assert (body.schedule, body.cron, body.time_zone) == ("daily", "0 3 * * *", "Europe/Berlin")
