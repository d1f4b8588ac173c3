"""The metrics of a process as a line of its log, again and again, for a cluster without Prometheus.

A counter has beside its number its rate since the line before. Of a histogram there is how many came, and how long they took on average
since then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric as Family
from prometheus_client.samples import Sample

SKIPPED = frozenset({"millrace_build_info", "process_start_time_seconds", "process_max_fds", "process_virtual_memory_bytes"})
"""What does not change, or tells nothing."""
PER_SECOND, MEAN = "_per_s", "_mean_s"

log = structlog.get_logger("metrics")


class Logs(Protocol):
    def info(self, event: str, **fields: object) -> object: ...


class MetricsLog:
    """`scope`: of this process, whose variables have been put in."""

    def __init__(
        self, registry: CollectorRegistry, scope: str, clock: Callable[[], float] = time.monotonic, logs: Logs | None = None
    ) -> None:
        self._registry, self._scope, self._clock, self._logs = registry, scope, clock, logs or log
        self._before: Mapping[str, float] = {}
        self._at_s = clock()

    def report(self) -> None:
        """Logs a line. What is 0 is left out."""
        found, now_s = {name: value for family in self._registry.collect() for name, value in _counted(family)}, self._clock()
        seconds, before = now_s - self._at_s, self._before
        self._before, self._at_s = found, now_s
        values: dict[str, float] = {}
        for name, value in found.items():
            if not value or name.partition("{")[0].endswith("_sum"):
                continue
            values[name] = _short(value)
            base, labels = _parted(name)
            grown = value - before.get(name, 0.0)
            if base.endswith(("_total", "_count")) and grown > 0 and seconds > 0:
                values[f"{base}{PER_SECOND}{labels}"] = _short(grown / seconds)
            if base.endswith("_count") and grown > 0:
                total = f"{base.removesuffix('_count')}_sum{labels}"
                values[f"{base.removesuffix('_seconds_count')}{MEAN}{labels}"] = _short((found[total] - before.get(total, 0.0)) / grown)
        self._logs.info("metrics", scope=self._scope, metrics=values)


def _counted(family: Family) -> Iterator[tuple[str, float]]:
    for sample in family.samples:
        if not sample.name.endswith("_bucket") and sample.name not in SKIPPED:
            yield _named(sample), sample.value


def _named(sample: Sample) -> str:
    labels = ",".join(f"{name}={value}" for name, value in sample.labels.items())
    return f"{sample.name}{{{labels}}}" if labels else sample.name


def _parted(name: str) -> tuple[str, str]:
    base, brace, labels = name.partition("{")
    return base, brace + labels


def _short(value: float) -> float:
    """Three places, as an int where it is one."""
    return int(value) if value == int(value) else round(value, 3) if abs(value) >= 0.01 else round(value, 6)
