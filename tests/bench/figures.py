"""What all figures share: samples, rows, the machine's facts, and the file that a figure is kept in."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import math
import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
import psutil

from deploy.local import kafka
from deploy.local.etcd import find_etcd, version_text
from deploy.local.java import find_java

PACKAGES = ("millrace", "pyspark", "confluent-kafka", "cslab-etcd3", "pydantic", "pandas", "pyarrow")


@dataclass
class Row:
    """One line of the table. `least`: what it must reach at least; `reached` None: nothing is asked of it."""

    figure: str
    n: int
    p50: str
    second: str
    peer: str
    ratio: str
    least: str = ""
    reached: bool | None = None


@dataclass
class Run:
    """One measuring of a figure: what it found so far."""

    name: str
    quick: bool
    tell: Callable[[str], None]
    rows: list[Row] = field(default_factory=list)
    samples: dict[str, Any] = field(default_factory=dict)

    def count(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def say(self, what: str) -> None:
        """A line of progress."""
        self.tell(f"{self.name}: {what}")


@dataclass(frozen=True)
class Figure:
    """A figure by its name; `measure` fills rows and samples (in the unit that their name ends with)."""

    name: str
    what: str
    measure: Callable[[Run], None]
    parts: Mapping[str, Callable[[Run], None]] = field(default_factory=dict)

    def part(self, name: str) -> Figure:
        """One part of it, as a figure of its own. Raises KeyError."""
        return Figure(f"{self.name}-{name}", self.what, self.parts[name])


def percentile(samples: Sequence[float], percent: float) -> float:
    """The smallest sample that so many percent do not exceed."""
    return sorted(samples)[max(0, math.ceil(len(samples) * percent / 100) - 1)]


def p50(samples: Sequence[float]) -> float:
    return statistics.median(samples)


def load() -> list[float]:
    """The load averages of the last 1, 5 and 15 minutes."""
    return [round(each, 2) for each in os.getloadavg()]


def machine() -> dict[str, Any]:
    """What a reader of a figure must know of where it was measured."""
    etcd = find_etcd()
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_mb": psutil.virtual_memory().total >> 20,
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "java": find_java().text.splitlines()[0],
        "kafka": kafka.VERSION,
        "etcd": f"{version_text(etcd.version)} ({etcd.origin})",
        "librdkafka": confluent_kafka.libversion()[0],
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
    }


def measure(figure: Figure, quick: bool, folder: Path, tell: Callable[[str], None]) -> tuple[Run, bool]:
    """Measures and writes `<folder>/<name>.json`; also says whether others kept the machine busy at the start."""
    facts, start = machine(), load()
    run = Run(figure.name, quick, tell)
    figure.measure(run)
    noisy = start[0] > facts["cores"]
    written = {
        "figure": figure.name,
        "what": figure.what,
        "quick": quick,
        "machine": facts,
        "load_start": start,
        "load_end": load(),
        "noisy": noisy,
        "rows": [asdict(row) for row in run.rows],
        "samples": run.samples,
    }
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / f"{figure.name}.json.new"
    new.write_text(json.dumps(written, indent=1) + "\n")
    new.replace(folder / f"{figure.name}.json")
    return run, noisy
