"""What an attempt's Spark has done, from its status store as it may be found."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from services.task_manager.slot.attempt import spark_status
from services.task_manager.slot.attempt.spark_json import Found, SparkJson
from services.task_manager.slot.attempt.spark_status import SparkStatus

LATER_MS = 1 << 50  # after the attempt began


class Spark(SparkJson):
    """Its first job, which runs, has the stages 7 and 8, of which the store has those in `stages`."""

    def __init__(self, listens: Callable[[int], None] = lambda ms: None) -> None:
        self.wait_for_ends = listens  # type: ignore[method-assign]  # what the double is for
        self.stages: dict[int, Found] = {}
        self.asked = 0
        self.newest, self.running = 1, {1}
        self.read: list[int] = []

    def jobs(self, most: int) -> Iterator[Found]:
        for number in range(self.newest, 0, -1):
            self.read.append(number)
            runs = number in self.running
            stages = [7, 8] if number == 1 else []
            yield {"jobId": number, "submissionTime": LATER_MS, "stageIds": stages, "status": "RUNNING" if runs else "SUCCEEDED"}

    def stage(self, number: int) -> Found | None:
        self.asked += 1
        return self.stages.get(number)


def stage(status: str = "COMPLETE", **counts: int) -> Found:
    names = (*spark_status._FIGURES.values(), "executorCpuTime")
    return {"status": status, "description": None, "name": "count at x.py:1", **{name: counts.get(name, 0) for name in names}}


def test_a_stage_that_spark_notes_after_its_job_is_counted() -> None:
    """Spark writes down a job, then its stages; a look in between left the stage out for good."""
    spark = Spark()
    found = SparkStatus(spark)
    found.look()
    assert found.last[0]["stages_total"] == 0
    spark.stages[7] = stage(numTasks=2, numCompleteTasks=2, shuffleWriteBytes=30)
    found.look()
    assert (found.last[0]["tasks_done"], found.last[0]["bytes_shuffled"]) == (2, 30)


def test_a_stage_that_spark_has_forgotten_is_not_asked_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_status, "_MISSES_MAX", 3)
    spark = Spark()
    found = SparkStatus(spark)
    for _ in range(9):
        found.look()
    assert spark.asked == 2 * 3


def test_jobs_that_are_known_to_have_ended_are_read_no_more() -> None:
    spark = Spark()
    found = SparkStatus(spark)
    spark.newest, spark.running = 20, {3, 20}
    for newest, running, read in ((20, {3, 20}, 20), (22, {20}, 21), (22, {20}, 4), (22, set(), 4), (23, set(), 2), (23, set(), 1)):
        spark.newest, spark.running = newest, running
        spark.read.clear()
        found.look()
        assert len(spark.read) == read, (newest, spark.read)


def test_what_has_ended_long_ago_is_forgotten_and_not_counted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt may run jobs for days."""
    monkeypatch.setattr(spark_status, "_STAGES_KEPT", 30)

    class Busy(Spark):
        """Each job has a stage of its own. Of those that have ended Spark keeps 40, and the first two, which run for long."""

        def jobs(self, most: int) -> Iterator[Found]:
            kept = [number for number in range(self.newest, 0, -1) if number <= 2 or number > self.newest - 40]
            for number in kept[:most]:
                status = "RUNNING" if number in self.running else "SUCCEEDED"
                yield {"jobId": number, "submissionTime": LATER_MS, "stageIds": [number], "status": status}

        def stage(self, number: int) -> Found | None:
            return None if number % 10 == 0 else stage("ACTIVE" if number in self.running else "COMPLETE", numCompleteTasks=1)

    spark = Busy()
    found = SparkStatus(spark)
    for newest in range(1, 3001, 20):
        spark.newest, spark.running = newest, {1, 2} if newest < 1500 else {1}
        found.look()
    assert len(found._jobs) <= 2 * spark_status._JOBS_MAX + 20
    spark.running = set()
    for _ in range(12):
        found.look()
    assert len(found._stages) <= 2 * 30 + 20 and not found._misses
    assert found.last[0]["tasks_done"] == newest - newest // 10


def test_figures_of_stages_are_added_up_and_of_memory_the_largest_counts() -> None:
    spark = Spark()
    spark.stages = {
        7: stage(executorRunTime=5, executorCpuTime=3_999_999, jvmGcTime=1, peakExecutionMemory=40, diskBytesSpilled=9),
        8: stage("ACTIVE", executorRunTime=6, executorCpuTime=2_000_000, jvmGcTime=-1, peakExecutionMemory=30, shuffleReadRecords=8),
    }
    found = SparkStatus(spark)
    for _ in range(2):  # what has ended is not counted twice
        found.look()
        counts = found.last[0]
        assert (counts["run_ms"], counts["cpu_ms"], counts["gc_ms"]) == (11, 5, 1)
        assert (counts["bytes_memory_peak"], counts["bytes_spilled_disk"], counts["rows_shuffle_read"]) == (40, 9, 8)
    assert [each["stage"] for each in found.last[1]] == [8]
    assert spark.asked == 3


def test_the_last_look_does_without_listeners_that_are_late() -> None:
    def late(ms: int) -> None:
        raise Py4JJavaError("timed out", SimpleNamespace(_target_id="o1", _gateway_client=None))

    spark = Spark(late)
    spark.stages[7] = stage(numCompleteTasks=2)
    found = SparkStatus(spark)
    found.look_last()
    assert found.last[0]["tasks_done"] == 2


def test_a_look_costs_three_calls_and_two_for_each_stage_that_may_change(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    client = spark.sparkContext._gateway._gateway_client
    send, sent = client.send_command, []
    monkeypatch.setattr(client, "send_command", lambda command, *more, **named: sent.append(command) or send(command, *more, **named))

    def calls(of: Any) -> int:
        gc.collect()  # what Python has forgotten is told to the JVM, too
        sent.clear()
        gc.disable()
        try:
            of()
        finally:
            gc.enable()
        return len([command for command in sent if not command.startswith("m\n")])

    assert calls(lambda: SparkJson(spark._jsc)) <= 6, "once: where the figures are, and what writes them"
    found = SparkStatus(SparkJson(spark._jsc))
    assert calls(found.look) == 3
    spark.range(1000).selectExpr("id % 7 AS k").groupBy("k").count().collect()
    spark._jsc.sc().listenerBus().waitUntilEmpty(5000)
    whole, stages = calls(found.look), len(found._stages)
    assert whole == 3 + 2 * stages and stages >= 2
    assert calls(found.look) == 3, "what has ended is not asked for again"
    assert found.last[0]["rows_read"] == 1000
    assert all(len(json.dumps(each)) < 8_000 / 4 for each in found._spark.jobs(20)), "four are one piece of an answer"
