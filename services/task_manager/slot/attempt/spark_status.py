"""The process of one attempt: what its Spark does and has done, by Spark's own status store. What has ended is asked for once."""

from __future__ import annotations

import collections
import time

from .. import wire
from .spark_json import Found, SparkJson
from .spark_spans import SparkSpans

_JOBS_MAX = 100  # looked at in one turn, the newest
_STAGES_MAX = 50
_STAGES_KEPT = 1000  # of those that have ended: two jobs at a time may have one in common
_MISSES_MAX = 10  # looks at a stage that is not there, before it counts as forgotten
_HEARD_MS = 5000  # a slot has the least priority: on a busy machine the end of a job comes late
_HEARD_SOON_MS = 500  # the same where nobody wants to know of each job
_WINDOW = 6  # looks that a rate is taken over
_FIGURES: dict[str, str] = {
    "tasks_total": "numTasks", "tasks_done": "numCompleteTasks", "tasks_failed": "numFailedTasks",
    "rows_read": "inputRecords", "rows_written": "outputRecords", "bytes_read": "inputBytes", "bytes_written": "outputBytes",
    "bytes_shuffled": "shuffleWriteBytes", "rows_shuffled": "shuffleWriteRecords",
    "bytes_shuffle_read": "shuffleReadBytes", "rows_shuffle_read": "shuffleReadRecords",
    "bytes_spilled_memory": "memoryBytesSpilled", "bytes_spilled_disk": "diskBytesSpilled",
    "run_ms": "executorRunTime", "gc_ms": "jvmGcTime", "bytes_memory_peak": "peakExecutionMemory",
}  # fmt: skip
"""Ours -> Spark's of a stage."""


class SparkStatus:
    """The jobs that began after this was made. ``last``: what the last `look` found. `noted`: notes each job that has ended."""

    def __init__(self, spark: SparkJson, noted: SparkSpans | None = None) -> None:
        self._spark, self._noted = spark, noted
        self._began_ms = int(time.time() * 1000)
        self._jobs: dict[int, bool] = {}  # job of this attempt -> whether it runs; of those that do not, the newest
        self._forgotten = -1  # the last job that may be missing there, for it has ended long ago
        self._stages: dict[int, bool] = {}  # stage of these -> whether it may still change; of those that may not, the newest
        self._misses: collections.Counter[int] = collections.Counter()
        self._ended = _nothing()  # of the stages that do not
        self._rows: collections.deque[tuple[float, int]] = collections.deque(maxlen=_WINDOW)
        self.last: tuple[wire.Progress, list[wire.StageStatus]] = (_nothing(), [])

    def cancel(self, before_ms: int) -> None:
        """Cancels the jobs that began before this time. Raises what Py4J does."""
        self._spark.cancel(before_ms, _JOBS_MAX)

    def look(self) -> None:
        """Asks Spark: three calls into the JVM, two for each stage that may have changed, two for each four jobs that are new or run.
        Raises what Py4J does."""
        self._find_stages()
        progress = _nothing()
        stages: list[wire.StageStatus] = []
        live = [number for number, changes in self._stages.items() if changes]
        for number in live[:_STAGES_MAX]:
            stage = self._spark.stage(number)
            if stage is None:
                # Spark notes a job before its stages: a look in between finds the one and not yet the others.
                self._misses[number] += 1
                if self._misses[number] == _MISSES_MAX:
                    self._ends(number)
                continue
            status = stage["status"]
            counts = _counts(stage)
            if status in ("COMPLETE", "SKIPPED") or status == "FAILED" and not any(self._jobs.values()):  # else it may be tried again
                self._ends(number)
                _add(self._ended, counts)
                continue
            _add(progress, counts)
            if status == "ACTIVE" and len(stages) < wire.STAGES_MAX:
                stages.append(_described(number, stage, counts))
        _add(progress, self._ended)
        progress["stages_total"] += len(live[_STAGES_MAX:])
        progress["rows_per_s"] = self._rate(max(progress["rows_read"], progress["rows_written"]))
        self.last = progress, stages

    def look_last(self) -> None:
        """Notes what has ended since the last look. Spark's listeners hear of an end a moment after whoever waited for it. Raises what
        Py4J does."""
        from py4j.protocol import Py4JJavaError

        try:
            self._spark.wait_for_ends(_HEARD_SOON_MS if self._noted is None else _HEARD_MS)
        except Py4JJavaError:
            pass  # they are late: what they have heard of is counted
        self.look()

    def _find_stages(self) -> None:
        """Notes new jobs of this attempt, and their stages. What is older than a job that is known is known, too."""
        running = {number for number, runs in self._jobs.items() if runs}
        for job in self._spark.jobs(_JOBS_MAX):  # the newest first
            number = job["jobId"]
            running.discard(number)
            if not self._jobs.get(number, number > self._forgotten):
                if not running:
                    break
                continue
            if number not in self._jobs:
                if job["submissionTime"] is None or job["submissionTime"] < self._began_ms:
                    break  # another attempt's, and so are those before it
                for each in job["stageIds"]:
                    self._stages.setdefault(each, True)
            self._jobs[number] = job["status"] == "RUNNING"
            if self._noted is not None and not self._jobs[number]:
                self._noted.note(self._spark, job)
        if len(self._jobs) > 2 * _JOBS_MAX:
            self._forgotten = _forget(self._jobs, _JOBS_MAX)
        if len(self._stages) > 2 * _STAGES_KEPT:
            _forget(self._stages, _STAGES_KEPT)

    def _ends(self, stage: int) -> None:
        """It is asked for no more."""
        self._stages[stage] = False
        self._misses.pop(stage, None)

    def _rate(self, rows: int) -> int:
        """Rows a second over the last looks."""
        now_s = time.monotonic()
        self._rows.append((now_s, rows))
        first_s, first = self._rows[0]
        return int((rows - first) / (now_s - first_s)) if now_s > first_s and rows > first else 0


def _forget(known: dict[int, bool], kept: int) -> int:
    """Drops what has ended, but for so many of the newest: an attempt may run jobs for days. Returns the newest that may be dropped."""
    last = max(known) - kept
    for number in [each for each, goes_on in known.items() if not goes_on and each <= last]:
        del known[number]
    return last


def _nothing() -> wire.Progress:
    return {
        "stages_done": 0, "stages_active": 0, "stages_total": 0,
        "tasks_done": 0, "tasks_failed": 0, "tasks_total": 0,
        "rows_read": 0, "rows_written": 0, "rows_per_s": 0,
        "bytes_read": 0, "bytes_written": 0, "bytes_shuffled": 0, "rows_shuffled": 0, "bytes_shuffle_read": 0, "rows_shuffle_read": 0,
        "bytes_spilled_memory": 0, "bytes_spilled_disk": 0, "run_ms": 0, "cpu_ms": 0, "gc_ms": 0, "bytes_memory_peak": 0,
    }  # fmt: skip


def _counts(stage: Found) -> wire.Progress:
    counts = _nothing()
    status = stage["status"]
    if status == "SKIPPED":
        return counts
    counts["stages_total"] = 1
    counts["stages_done"], counts["stages_active"] = int(status == "COMPLETE"), int(status == "ACTIVE")
    for name, own in _FIGURES.items():
        counts[name] = max(0, stage[own])  # type: ignore[literal-required]  # of the same TypedDict
    counts["cpu_ms"] = max(0, stage["executorCpuTime"]) // 1_000_000
    return counts


def _add(total: wire.Progress, counts: wire.Progress) -> None:
    """All but the most memory that a stage needed: memory is free again after it."""
    peak = max(total["bytes_memory_peak"], counts["bytes_memory_peak"])
    for name, value in counts.items():
        total[name] += value  # type: ignore[literal-required]  # the names are those of the same TypedDict
    total["bytes_memory_peak"] = peak


def _described(number: int, stage: Found, counts: wire.Progress) -> wire.StageStatus:
    return {
        "stage": number,
        "name": " ".join(str(stage["description"] or stage["name"]).split())[: wire.TEXT_MAX],
        "tasks_done": counts["tasks_done"],
        "tasks_total": counts["tasks_total"],
    }
