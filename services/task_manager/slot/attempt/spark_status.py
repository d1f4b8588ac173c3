"""The process of one attempt: how far its Spark jobs are, from Spark's own status store.

Each call into the JVM takes a fifth of a millisecond or so; a finished job or stage is asked for once.
"""

from __future__ import annotations

import collections
import time
from typing import Any

from .. import wire
from .spark_spans import SparkSpans

_JOBS_MAX = 100  # looked at in one turn, the newest
_STAGES_MAX = 50
_MISSES_MAX = 10  # looks at a stage that is not there, before it counts as forgotten
_HEARD_MS = 5000  # a slot has the least priority: on a busy machine the end of a job comes late
_WINDOW = 6  # looks that a rate is taken over


class SparkStatus:
    """The jobs that began after this was made. ``last``: what the last `look` found. `noted`: notes each job that has ended."""

    def __init__(self, jsc: Any, noted: SparkSpans | None = None) -> None:
        self._jsc, self._noted = jsc, noted
        self._store: Any = None
        self._began_ms = int(time.time() * 1000)
        self._jobs: dict[int, bool] = {}  # job of this attempt -> whether it runs
        self._stages: dict[int, bool] = {}  # stage of these -> whether it may still change
        self._misses: collections.Counter[int] = collections.Counter()
        self._ended = _nothing()  # of the stages that do not
        self._rows: collections.deque[tuple[float, int]] = collections.deque(maxlen=_WINDOW)
        self.last: tuple[wire.Progress, list[wire.StageStatus]] = (_nothing(), [])

    def look(self) -> None:
        """Asks Spark. Raises what Py4J does."""
        if self._store is None:
            self._store = self._jsc.sc().statusStore()
        self._find_stages()
        progress = _nothing()
        stages: list[wire.StageStatus] = []
        live = [number for number, changes in self._stages.items() if changes]
        for number in live[:_STAGES_MAX]:
            stage = self._stage(number)
            if stage is None:
                # Spark notes a job before its stages: a look in between finds the one and not yet the others.
                self._misses[number] += 1
                self._stages[number] = self._misses[number] < _MISSES_MAX
                continue
            status = stage.status().name()
            counts = _counts(stage, status)
            if status in ("COMPLETE", "SKIPPED") or status == "FAILED" and not any(self._jobs.values()):  # else it may be tried again
                self._stages[number] = False
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
        """Notes what has ended since the last look. Spark's listeners hear of an end a moment after whoever waited for it."""
        if self._noted is not None:
            self._jsc.sc().listenerBus().waitUntilEmpty(_HEARD_MS)
            self.look()

    def _find_stages(self) -> None:
        """Notes new jobs of this attempt, and their stages."""
        jobs = self._store.jobsList(None)  # the newest first
        for at in range(min(jobs.size(), _JOBS_MAX)):
            job = jobs.apply(at)
            number = job.jobId()
            if self._jobs.get(number) is False:
                continue
            if number not in self._jobs:
                submitted = job.submissionTime()
                if not submitted.isDefined() or submitted.get().getTime() < self._began_ms:
                    break  # another attempt's, and so are those before it
                for each in job.stageIds().mkString(",").split(","):
                    if each:
                        self._stages.setdefault(int(each), True)
            self._jobs[number] = job.status().name() == "RUNNING"
            if self._noted is not None and not self._jobs[number]:
                self._noted.note(self._store, job)

    def _stage(self, number: int) -> Any:
        """What Spark knows of a stage; None if it does not know it yet, or has forgotten it."""
        from py4j.protocol import Py4JJavaError

        try:
            return self._store.lastStageAttempt(number)
        except Py4JJavaError:
            return None

    def _rate(self, rows: int) -> int:
        """Rows a second over the last looks."""
        now_s = time.monotonic()
        self._rows.append((now_s, rows))
        first_s, first = self._rows[0]
        return int((rows - first) / (now_s - first_s)) if now_s > first_s and rows > first else 0


def _nothing() -> wire.Progress:
    return {
        "stages_done": 0, "stages_active": 0, "stages_total": 0,
        "tasks_done": 0, "tasks_failed": 0, "tasks_total": 0,
        "rows_read": 0, "rows_written": 0, "rows_per_s": 0,
        "bytes_read": 0, "bytes_written": 0, "bytes_shuffled": 0,
    }  # fmt: skip


def _counts(stage: Any, status: str) -> wire.Progress:
    counts = _nothing()
    if status == "SKIPPED":
        return counts
    counts["stages_total"] = 1
    counts["stages_done"] = int(status == "COMPLETE")
    counts["tasks_total"] = stage.numTasks()
    if status == "PENDING":
        return counts
    counts["stages_active"] = int(status == "ACTIVE")
    counts["tasks_done"] = stage.numCompleteTasks()
    counts["tasks_failed"] = stage.numFailedTasks()
    counts["rows_read"] = stage.inputRecords()
    counts["rows_written"] = stage.outputRecords()
    counts["bytes_read"] = stage.inputBytes()
    counts["bytes_written"] = stage.outputBytes()
    counts["bytes_shuffled"] = stage.shuffleWriteBytes()
    return counts


def _add(total: wire.Progress, counts: wire.Progress) -> None:
    for name, value in counts.items():
        total[name] += value  # type: ignore[literal-required]  # the names are those of the same TypedDict


def _described(number: int, stage: Any, counts: wire.Progress) -> wire.StageStatus:
    description = stage.description()
    name = description.get() if description.isDefined() else stage.name()
    return {
        "stage": number,
        "name": " ".join(str(name).split())[: wire.TEXT_MAX],
        "tasks_done": counts["tasks_done"],
        "tasks_total": counts["tasks_total"],
    }
