"""The process of one attempt: what it notes of its Spark jobs, for the TaskManager to make spans of.

Each is a line of a file in the log folder, as soon as it has ended: so what an attempt that is killed had done is known, too.
"""

from __future__ import annotations

import os

from .. import wire
from ..common.left import SPARK
from .spark_json import Found, SparkJson

_STAGES_MAX = 50  # of one job


class SparkSpans:
    """Notes jobs that have ended, and their stages: at most `wire.SPANS_MAX` in all."""

    def __init__(self, log_folder: str) -> None:
        self._path = os.path.join(log_folder, SPARK)
        self._left = wire.SPANS_MAX
        self._stages: set[int] = set()

    def note(self, spark: SparkJson, job: Found) -> None:
        """job: one that has ended. Raises what Py4J does. Where the file cannot be written nothing more is noted: the attempt goes on, and
        so do its reports."""
        if self._left <= 0:
            return
        number = job["jobId"]
        spans = [_span(number, job)]
        for stage in job["stageIds"][:_STAGES_MAX]:
            if stage not in self._stages:
                self._stages.add(stage)
                spans += _stage_span(spark, number, stage)
        spans = spans[: self._left]
        self._left -= len(spans)
        if spans:
            try:
                with open(self._path, "ab") as file:
                    file.write(b"".join(map(wire.line_of, spans)))
            except OSError:
                self._left = 0


def _span(number: int, job: Found) -> wire.SparkSpan:
    begin_ms = job["submissionTime"] or 0
    return {
        "job": number, "stage": None, "attempt": 0, "name": _name(job), "begin_ms": begin_ms,
        "end_ms": job["completionTime"] or begin_ms, "failed": job["status"] == "FAILED",
        "tasks": job["numTasks"], "tasks_failed": job["numFailedTasks"], "rows_read": 0, "rows_written": 0,
        "bytes_read": 0, "bytes_written": 0, "bytes_shuffled": 0,
    }  # fmt: skip


def _stage_span(spark: SparkJson, job: int, number: int) -> list[wire.SparkSpan]:
    """None of a stage that was skipped, or that Spark has forgotten."""
    stage = spark.stage(number)
    begin_ms, end_ms = (stage["submissionTime"], stage["completionTime"]) if stage is not None else (None, None)
    if stage is None or begin_ms is None or end_ms is None:
        return []
    return [{
        "job": job, "stage": number, "attempt": stage["attemptId"], "name": _name(stage), "begin_ms": begin_ms, "end_ms": end_ms,
        "failed": stage["status"] == "FAILED", "tasks": stage["numTasks"], "tasks_failed": stage["numFailedTasks"],
        "rows_read": stage["inputRecords"] + stage["shuffleReadRecords"], "rows_written": stage["outputRecords"],
        "bytes_read": stage["inputBytes"] + stage["shuffleReadBytes"], "bytes_written": stage["outputBytes"],
        "bytes_shuffled": stage["shuffleWriteBytes"],
    }]  # fmt: skip


def _name(of: Found) -> str:
    """Its description, or what asked for it and where."""
    return " ".join(str(of["description"] or of["name"]).split())[: wire.TEXT_MAX]
