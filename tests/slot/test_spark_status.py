"""How far an attempt is, from Spark's status store as it may be found."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from services.task_manager.slot.attempt import spark_status
from services.task_manager.slot.attempt.spark_status import SparkStatus

LATER_MS = 1 << 50  # after the attempt began


def some(value: Any) -> Any:
    return SimpleNamespace(isDefined=lambda: True, get=lambda: value)


def named(name: str) -> Any:
    return SimpleNamespace(name=lambda: name)


class Store:
    """One running job with stage 7, which the store has only when `stages` says so."""

    def __init__(self) -> None:
        self.stages: dict[int, Any] = {}
        self.asked = 0
        self._job = SimpleNamespace(
            jobId=lambda: 1,
            submissionTime=lambda: some(SimpleNamespace(getTime=lambda: LATER_MS)),
            stageIds=lambda: SimpleNamespace(mkString=lambda by: "7"),
            status=lambda: named("RUNNING"),
        )

    def jobsList(self, statuses: Any) -> Any:
        return SimpleNamespace(size=lambda: 1, apply=lambda at: self._job)

    def lastStageAttempt(self, number: int) -> Any:
        self.asked += 1
        if number not in self.stages:
            raise Py4JJavaError("no such stage", SimpleNamespace(_target_id="o1", _gateway_client=None))
        return self.stages[number]


def stage(**counts: int) -> Any:
    names = ("numTasks", "numCompleteTasks", "numFailedTasks", "inputRecords", "outputRecords", "inputBytes", "outputBytes")
    values = {name: counts.get(name, 0) for name in (*names, "shuffleWriteBytes")}
    return SimpleNamespace(status=lambda: named("COMPLETE"), **{name: (lambda value=value: value) for name, value in values.items()})


def status(store: Store) -> SparkStatus:
    return SparkStatus(SimpleNamespace(sc=lambda: SimpleNamespace(statusStore=lambda: store)))


def test_a_stage_that_spark_notes_after_its_job_is_counted() -> None:
    """Spark writes down a job, then its stages; a look in between left the stage out for good."""
    store = Store()
    found = status(store)
    found.look()
    assert found.last[0]["stages_total"] == 0
    store.stages[7] = stage(numTasks=2, numCompleteTasks=2, shuffleWriteBytes=30)
    found.look()
    assert (found.last[0]["tasks_done"], found.last[0]["bytes_shuffled"]) == (2, 30)


def test_a_stage_that_spark_has_forgotten_is_not_asked_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_status, "_MISSES_MAX", 3)
    store = Store()
    found = status(store)
    for _ in range(9):
        found.look()
    assert store.asked == 3
