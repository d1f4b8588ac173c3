"""Whoever may write to the topics of facts may write anything there: what no table can hold is passed over, and answers go on."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from services.web.app import application
from services.web.core.told import BODIES, NUMBERS, told
from services.web.follow import Follows
from services.web.view import View
from services.web.worker import fact_of
from tests.web.test_web_api import ALONE, T0, record, view, web

__all__ = ["view", "web"]

TASK = {"task": "a", "vertices": ["a"], "parallelism": 2}
EDGE = {
    "task": "a", "vertex": "a", "keys": ["k"], "readers": ["b"], "subtask": 0, "shares": 2, "rows": 9, "rows_in_all": 10, "bytes": 9,
    "bytes_in_all": 10, "heaviest": [{"key": [None], "rows": 8}],
}  # fmt: skip
JOB = {
    "JobAccepted": {"name": "n", "tasks": [TASK]},
    "JobWaiting": {"reason": "no slot", "position": 1},
    "JobStateChanged": {"status": "RUNNING"},
    "JobCancelling": {},
    "AttemptStateChanged": {"task": "a", "subtask": 0, "attempt": 1, "state": "RUNNING"},
    "SubtasksKept": {"task": "a", "subtasks": [0], "kept_from": "k"},
    "JobRescaled": {"parallelism": {"a": 2}, "tasks": [TASK]},
    "EdgeSkewed": {"edge": EDGE},
    "JobFinished": {"archive": None, "result": {"columns": ["a"], "rows": [[1.7976931348623157e308, -1e300, 5e-324]]}},
    "JobFailed": {"archive": None, "cause": {"kind": "user", "message": "boom"}},
}
CLUSTER = {
    "TaskManagerJoined": {"task_manager": "tm", "incarnation": 7, "host": "h", "slots": 1, "states": ["FREE"]},
    "TaskManagerGone": {"task_manager": "tm", "incarnation": 7, "reason": "lost"},
    "SlotChanged": {"task_manager": "tm", "incarnation": 7, "slot": 0, "state": "FREE"},
    "WorkerChanged": {"worker": "w", "state": "STARTING", "failed": False},
    "ProviderConfigured": {"provider": "process", "least": 1, "most": 2},
    "BlocklistChanged": {"hosts": [{"host": "h", "since_ms": T0}]},
    "LeaderElected": {"scope": "dispatcher", "leader": "d", "epoch": 3, "generation": 1},
}
PATHS = ("jobs", "jobs/j", "jobs/j/failures", "slots", "taskmanagers", "leaders", "blocklist", "overview")


def written(kind: str, **other: Any) -> bytes:
    job = {"job": "j"} if kind in JOB else {}
    return json.dumps({"type": kind, "at_ms": T0, "count": 1, **job, **{**JOB, **CLUSTER}[kind], **other}).encode()


@pytest.mark.parametrize("kind", [*JOB, *CLUSTER])
def test_a_fact_with_a_field_of_a_later_build_is_taken_as_it_is(kind: str) -> None:
    assert told(written(kind, later={"a": [1]}))["later"] == {"a": [1]}


@pytest.mark.parametrize(("kind", "other"), [
    ("JobAccepted", {"at_ms": "soon"}),
    ("JobAccepted", {"at_ms": 1e12}),
    ("JobAccepted", {"at_ms": 1 << 62}),
    ("JobAccepted", {"at_ms": -1}),
    ("JobAccepted", {"at_ms": True}),
    ("JobAccepted", {"count": "1"}),
    ("JobAccepted", {"job": "a/b"}),
    ("JobAccepted", {"job": ""}),
    ("JobAccepted", {"job": "a\n"}),
    ("JobAccepted", {"job": None}),
    ("JobAccepted", {"name": ["n"]}),
    ("JobAccepted", {"tasks": [{**TASK, "parallelism": 1 << 40}]}),
    ("JobAccepted", {"tasks": [{**TASK, "parallelism": -1}]}),
    ("JobAccepted", {"tasks": [TASK["task"]]}),
    ("JobAccepted", {"later": float("nan")}),
    ("JobAccepted", {"name": "\ud800"}),
    ("JobAccepted", {"tasks": [TASK, TASK]}),
    ("JobAccepted", {"tasks": [{**TASK, "inputs": [{"task": "a", "edge": "hash"}]}]}),
    ("JobAccepted", {"tasks": [{**TASK, "inputs": [{"task": "b", "edge": "hash"}]}, {**TASK, "task": "b"}]}),
    ("JobRescaled", {"tasks": [{**TASK, "parallelism": 0}]}),
    ("JobRescaled", {"tasks": [TASK, TASK]}),
    ("EdgeSkewed", {"edge": {**EDGE, "rows": -5}}),
    ("EdgeSkewed", {"edge": {**EDGE, "rows_in_all": 1 << 60}}),
    ("EdgeSkewed", {"edge": {**EDGE, "keys": []}}),
    ("EdgeSkewed", {"edge": {**EDGE, "heaviest": [{"key": [None, "x"], "rows": 1}]}}),
    ("EdgeSkewed", {"edge": {**EDGE, "heaviest": [{"key": ["x"], "rows": -1}]}}),
    ("JobWaiting", {"position": "first"}),
    ("JobStateChanged", {"status": "FINISHED"}),
    ("JobStateChanged", {"status": "BUSY"}),
    ("JobStateChanged", {"cause": "boom"}),
    ("JobFailed", {"cause": {"message": 1}}),
    ("JobFailed", {"cause": {"decided": {"number": "1"}}}),
    ("AttemptStateChanged", {"state": "BUSY"}),
    ("AttemptStateChanged", {"subtask": -1}),
    ("AttemptStateChanged", {"subtask": 1 << 40}),
    ("AttemptStateChanged", {"created_ms": "soon"}),
    ("AttemptStateChanged", {"progress": {"rows_read": "many"}}),
    ("SubtasksKept", {"subtasks": [1 << 40]}),
    ("SubtasksKept", {"subtasks": "all"}),
    ("TaskManagerJoined", {"states": 3}),
    ("TaskManagerJoined", {"incarnation": "7"}),
    ("TaskManagerGone", {"reason": None}),
    ("SlotChanged", {"slot": "0"}),
    ("WorkerChanged", {"state": "BUSY"}),
    ("BlocklistChanged", {"hosts": [{"host": "h", "since_ms": 1 << 62}]}),
    ("LeaderElected", {"epoch": None}),
    ("LeaderElected", {"scope": 1}),
])  # fmt: skip
def test_a_fact_that_no_table_can_hold_is_refused(kind: str, other: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        told(written(kind, **other))


@pytest.mark.parametrize("value", [
    b"", b"1", b"[]", b"{", b"{}", b'{"type": []}', b"[" * 100_000, b'{"type": "x", "n": 1e999}',
    b'{"type": "x", "n": ' + b"9" * 400 + b"}",
])  # fmt: skip
def test_what_is_no_fact_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError):
        told(value)


def test_what_is_wrong_is_said_without_what_stands_there() -> None:
    with pytest.raises(ValueError, match=r"^its tasks\.0\.parallelism: Input should be a valid integer$"):
        told(written("JobAccepted", tasks=[{**TASK, "parallelism": "a secret"}]))


def test_a_long_number_in_a_text_is_none() -> None:
    assert told(written("JobWaiting", reason="9" * 400 + " 1e999"))["type"] == "JobWaiting"


def test_a_kind_of_a_later_build_is_no_error() -> None:
    assert told(b'{"type": "JobPaused", "job": 1}') == {"type": "JobPaused", "job": 1}


def test_each_number_of_a_fact_has_a_bound() -> None:
    numbers = {kind: {name for name, field in body.model_fields.items() if "int" in str(field.annotation)} for kind, body in BODIES.items()}
    others = {"version", "subtasks", "parallelism"}  # one value, a list, a dict
    assert {kind: names - others for kind, names in numbers.items()} == {kind: set(dict(bounds)) for kind, bounds in NUMBERS.items()}


def test_answers_go_on_whatever_stands_there() -> None:
    """A time that was a text had stopped all lists, and the next start."""
    rows: dict[str, Any] = {}
    cluster: dict[str, Any] = {}
    view = View(rows, cluster, 10)
    view.load({})
    at = {"job.events": 0, "cluster.events": 0}

    def comes(value: bytes) -> None:
        topic = "cluster.events" if json.loads(value)["type"] in CLUSTER else "job.events"
        offset, at[topic] = at[topic], at[topic] + 1
        message = SimpleNamespace(topic=topic, partition=0, offset=offset, timestamp=T0 / 1000, value=value, headers=[("ce_id", b"d/1/1")])
        try:
            view.fold(fact_of(message))
        except Exception:  # as the agent does
            view.pass_over(topic, 0, offset, T0)

    wrong: tuple[Any, ...] = ("x", None, [], {}, -1, 1 << 70, 1.5, True)
    for kind in (*JOB, *CLUSTER):
        for name in json.loads(written(kind)):
            for value in wrong if name != "type" else ():
                comes(written(kind, **{"job": f"j-{kind}", name: value} if kind in JOB else {name: value}))
    for kind in (*JOB, *CLUSTER):
        comes(written(kind))
    assert view.folded["unreadable"] > 300
    web = TestClient(application(view, lambda: Follows("", 2.5), ALONE), base_url="http://127.0.0.1")
    for path in PATHS:
        assert web.get(f"/api/v1/{path}").status_code == 200, path
    again = View(rows, cluster, 10)
    again.load({})
    assert again.jobs.listed() == view.jobs.listed()


def test_time_spent_is_answered_with_all_its_parts(view: View, web: TestClient) -> None:
    view.fold(fact_of(record("job.events", 2, type="JobFinished", job="j", archive=None, spent={"plan_ms": 3})))
    spent = web.get("/api/v1/jobs/j").json()["job"]["spent"]
    assert (spent["plan_ms"], sum(spent.values())) == (3, 3)
