"""Flink's metrics: without `get` their ids, with it the values of those that there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from fastapi import Query

from . import shapes
from .errors import Refusal
from .source import Attempt

Get = Annotated[str | None, Query(description="Ids, joined by commas: their values. Without: all ids.", max_length=20_000)]
Agg = Annotated[str | None, Query(description="Of min, max, avg, sum and skew those that are wanted; without: all.", max_length=100)]
AGGREGATES = ("min", "max", "avg", "sum", "skew")
NS = 1_000_000
"""In a ms."""
REPORTED = {
    "numRecordsIn": "rows_read", "numRecordsOut": "rows_written", "numBytesIn": "bytes_read", "numBytesOut": "bytes_written",
    "numRecordsInPerSecond": "rows_per_s",
    "Spark.Tasks.Done": "tasks_done", "Spark.Tasks.Failed": "tasks_failed", "Spark.Tasks.Total": "tasks_total",
    "Spark.Shuffle.Read.Bytes": "bytes_shuffle_read", "Spark.Shuffle.Read.Records": "rows_shuffle_read",
    "Spark.Shuffle.Write.Bytes": "bytes_shuffled", "Spark.Shuffle.Write.Records": "rows_shuffled",
    "Spark.Spilled.Memory": "bytes_spilled_memory", "Spark.Spilled.Disk": "bytes_spilled_disk",
    "Spark.Time.Run": "run_ms", "Spark.Time.Cpu": "cpu_ms", "Spark.Time.GC": "gc_ms", "Spark.Memory.Peak": "bytes_memory_peak",
}  # fmt: skip
"""Flink's name, or one of ours where Flink has nothing alike -> that of what an attempt reports of itself."""


def chosen(values: Mapping[str, float], get: str | None) -> list[shapes.Metric]:
    """One that there is not is left out. Their values are texts there."""
    if get is None:
        return [{"id": name} for name in values]
    return [{"id": name, "value": str(values[name])} for name in get.split(",") if name in values]


def measured(attempt: Attempt) -> dict[str, int]:
    """What an attempt reported last, under Flink's names."""
    return {name: attempt.progress[own] for name, own in REPORTED.items() if attempt.progress.get(own) is not None}


def of_collector(name: str, count: int, ms: int) -> dict[str, float]:
    """Of a garbage collector, under Flink's names."""
    return {f"Status.JVM.GarbageCollector.{name}.Count": count, f"Status.JVM.GarbageCollector.{name}.Time": ms}


def of_load(ms_a_second: float | None, cores: int) -> dict[str, float]:
    """The share of the machine's cores that is used. `ms_a_second`: None where it was not asked twice."""
    return {"Status.JVM.CPU.Load": round(ms_a_second / 1000 / cores, 4)} if ms_a_second is not None and cores else {}


def aggregated(values: Sequence[Mapping[str, float]], get: str | None, agg: str | None) -> list[shapes.Aggregate]:
    """Each metric over all of these. Raises Refusal for an aggregation that there is not."""
    wanted = AGGREGATES if agg is None else tuple(agg.split(","))
    for each in wanted:
        if each not in AGGREGATES:
            raise Refusal(400, f'Cannot resolve query parameter (agg) from value "{each}".')
    names = list(dict.fromkeys(name for each in values for name in each))
    if get is None:
        return [{"id": name} for name in names]
    found: list[shapes.Aggregate] = []
    for name in get.split(","):
        numbers = [each[name] for each in values if name in each]
        if numbers:
            figures = _figures(numbers)
            found.append({"id": name, **{each: figures[each] for each in wanted}})  # type: ignore[typeddict-item]  # of AGGREGATES
    return found


def _figures(numbers: Sequence[float]) -> dict[str, float]:
    """`skew`: how far they lie from their mean, in percent of it, at most 100."""
    mean = sum(numbers) / len(numbers)
    deviation = sum(abs(each - mean) for each in numbers) / len(numbers)
    skew = min(100.0, 100.0 * deviation / mean) if mean else 0.0
    return {"min": min(numbers), "max": max(numbers), "avg": mean, "sum": sum(numbers), "skew": skew}
