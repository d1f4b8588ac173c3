"""Submissions that are wrong: refused with all reasons before anything runs, or failed at once where only Spark can tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from deploy.local.processes import free_port
from millrace.client import Conflict, Invalid, Millrace, Unavailable, new_id
from millrace.client.link import partition_of
from tests.end_to_end.running import RunningStack, Topic

ONE = {"sql": "SELECT 1 AS a"}
WRONG: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a cycle": (
        {"a": {"sql": "SELECT * FROM b", "inputs": {"b": "forward"}}, "b": {"sql": "SELECT * FROM a", "inputs": {"a": "forward"}}},
        ["cycle"],
    ),
    "an unknown kind": ({"a": {"scala": "x"}}, ["scala", "one of"]),
    "an unknown field": ({"a": {**ONE, "paralelism": 2}}, ["paralelism"]),
    "an input that is not there": ({"a": {**ONE, "inputs": {"c": "forward"}}}, ["c"]),
    "parallelism 0": ({"a": {**ONE, "parallelism": 0}}, ["parallelism"]),
    "parallelism above the limit": ({"a": {**ONE, "parallelism": 100_000}}, ["parallelism"]),
    "SQL that does not parse": ({"a": {"sql": "SELECT a FROM (SELECT 1 AS a"}}, ["sql"]),
    "an edge that is none": ({"a": ONE, "b": {"sql": "SELECT * FROM a", "inputs": {"a": "shuffle"}}}, ["shuffle"]),
    "a table that is no input": ({"a": {"sql": "SELECT * FROM nowhere"}}, ["nowhere", "no input"]),
    "no vertex": ({}, ["vertices"]),
    "several": (
        {"a": {**ONE, "parallelism": 0}, "b": {"sql": "SELECT 1", "inputs": {"nope": "forward"}}, "c": {"kind": 1}, "1d": ONE},
        ["parallelism", "nope", "kind", "1d"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("vertices, words", WRONG.values(), ids=WRONG)
def test_a_wrong_graph_is_refused_with_all_reasons(
    running: RunningStack, vertices: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(Invalid) as refused:
        running.client.submit({"name": "wrong", "vertices": vertices}, job="wrong")
    told = json.dumps([[each.place, each.message, each.hint] for each in refused.value.problems])
    assert all(word in told for word in words), told
    assert "wrong" not in [each.job for each in running.client.list().jobs]


def test_modules_settings_and_sizes_that_are_refused(running: RunningStack) -> None:
    graph = {"name": "m", "vertices": {"a": ONE}}
    with pytest.raises(Invalid, match="m.py was not uploaded"):
        running.client.submit({**graph, "modules": [{"name": "m.py", "sha256": "0" * 64}]})
    with pytest.raises(Invalid, match="spark.master"):
        running.client.submit({**graph, "conf": {"spark.master": "mesos://host:5050"}})
    with pytest.raises(Invalid, match="bytes"):
        running.client.submit({**graph, "parameters": {f"p{n}": "x" * 60_000 for n in range(8)}})


def test_the_same_id_again(running: RunningStack) -> None:
    job = running.sql("SELECT 7 AS a")
    graph = {"name": "query", "vertices": {"query": {"sql": "SELECT 7 AS a"}}}
    assert running.client.submit(graph, job=job.id).id == job.id
    with pytest.raises(Conflict, match="another graph"):
        running.client.submit({**graph, "name": "another"}, job=job.id)
    assert job.rows == [[7]]
    assert running.client.submit(graph, job=job.id).status == "FINISHED"
    assert [event["type"] for event in running.client.follow(job.id)].count("JobFinished") == 1


def test_a_submission_whose_time_is_up_is_not_accepted(running: RunningStack) -> None:
    """As it happens when it reaches Kafka long after its client has given up."""
    bootstrap, reply_to, job = running.facts["kafka_bootstrap"], "test-late", new_id("late")
    replies = Topic(bootstrap, "client.replies", partition_of(reply_to, 4))
    request = {
        "type": "SubmitJob", "version": 1, "job": job, "graph": {"name": "late", "vertices": {"a": ONE}},
        "reply_to": reply_to, "correlation": "1", "accept_before_ms": 1_700_000_000_000,
    }  # fmt: skip
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("client.commands", json.dumps(request))
    producer.flush(60)
    while (message := replies.next("the answer")).key() != reply_to.encode():
        pass
    reply = json.loads(message.value())
    replies.close()
    assert (reply["type"], reply["kind"], reply["job"], reply["correlation"]) == ("JobRejected", "late", job, "1")
    assert job not in [each.job for each in running.client.list().jobs]


def test_a_kafka_that_is_not_there() -> None:
    port = free_port()
    with pytest.raises(Unavailable, match=rf"Kafka at 127.0.0.1:{port} does not answer within 2 s .*millrace up"):
        Millrace(f"127.0.0.1:{port}", timeout_s=2)


def failed_at_once(running: RunningStack, vertices: dict[str, Any]) -> dict[str, Any]:
    """The cause of a job that fails in its first attempt, though it may be restarted."""
    job = running.submit({"name": "wrong", "vertices": vertices, "restart": {"attempts": 3, "delay_ms": 0}})
    cause = job.cause
    assert {attempt for _, _, attempt in job.attempts()} <= {1}, job.events
    summary, _, told = running.client.show(job.id)
    assert summary.status == "FAILED"
    assert told is not None and cause.items() <= told.json_value().items(), "the archive has the whole cause, the event its core"
    return cause


def test_sql_that_only_spark_can_refuse_fails_at_once_with_its_place(running: RunningStack) -> None:
    query = "SELECT a,\n       nothing\nFROM made"
    made = {"sql": "SELECT 1 AS a"}
    cause = failed_at_once(running, {"made": made, "wrong": {"sql": query, "inputs": {"made": "forward"}}})
    assert (cause["kind"], cause["vertex"], cause["line"], cause["column"]) == ("analysis", "wrong", 2, 8)
    assert cause["condition"] == "UNRESOLVED_COLUMN.WITH_SUGGESTION"
    assert "`nothing`" in cause["message"] and "\n" not in cause["message"]
    cause = failed_at_once(running, {"wrong": {"sql": "SELECT\n\n  nosuch(1)"}})
    assert (cause["kind"], cause["condition"], cause["line"]) == ("analysis", "UNRESOLVED_ROUTINE", 3)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_path_that_is_not_there_fails_at_once(running: RunningStack, tmp_path: Path, parallelism: int) -> None:
    path = tmp_path / "none.csv"
    source = {"source": {"format": "csv", "path": str(path)}, "parallelism": parallelism}
    cause = failed_at_once(running, {"read": source})
    assert (cause["kind"], cause["vertex"]) == ("missing_path", "read")
    assert str(path) in cause["message"]


def test_a_sink_whose_folder_is_there_fails_at_once(running: RunningStack, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "kept").write_text("kept")
    sink = {"sink": {"format": "parquet", "path": str(tmp_path / "out")}, "inputs": {"a": "forward"}}
    cause = failed_at_once(running, {"a": ONE, "out": sink})
    assert str(tmp_path / "out") in cause["message"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["kept"]
