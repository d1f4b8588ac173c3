"""What one trivial query costs its slot, part by part: between two jobs of one row the slot does all of this."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from deploy.local.spark_classes import class_data_folder
from tests.slot.lifecycle import Slot

from .figures import Row, Run, p50, percentile
from .sql import QUERY

WARM_UP = 60
SPEC: dict[str, Any] = {
    "task": "query", "vertices": [{"id": "query", "sql": QUERY, "parallelism": 1, "inputs": {}}],
    "outputs": [{"vertex": "query", "edge": "result", "rows": 100}], "modules": [],
}  # fmt: skip
PARTS = {
    "order_ms": "ordered -> its process has it",
    "attach_ms": "attach: a session of its own, its settings",
    "query_ms": "run: plan, compute, collect",
    "report_ms": "report: written, read, the process ended",
    "reset_ms": "reset: what it left is taken away, the next process is forked and attached",
}


def measure(run: Run) -> None:
    n = run.count(300, 10)
    samples: dict[str, list[float]] = {name: [] for name in (*PARTS, "whole_ms")}
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder:
        slot = Slot(Path(folder), archive_folder=str(class_data_folder()), java_options=())
        try:
            slot.until("ready")
            for number in range(WARM_UP + n):
                took = _query(slot)
                if number >= WARM_UP:
                    for name, ms in took.items():
                        samples[name].append(ms)
                if number % 60 == 0:
                    run.say(f"{number} of {WARM_UP + n}")
        finally:
            slot.close()
    run.samples |= samples
    whole = p50(samples["whole_ms"])
    for name, what in {**PARTS, "whole_ms": "the whole, one after the other"}.items():
        ms = samples[name]
        run.rows.append(Row(what, n, f"{p50(ms):.1f} ms", f"p99 {percentile(ms, 99):.0f} ms", "the whole", f"{p50(ms) / whole:.2f} x"))


def _query(slot: Slot) -> dict[str, float]:
    began = time.perf_counter()
    attempt = slot.start("", spec=SPEC)
    slot.until("running")
    running = time.perf_counter()
    attempt.ended = slot.until("ended")
    ended = time.perf_counter()
    if attempt.ended["status"] != "finished":
        raise RuntimeError(f"the query ended with {attempt.ended}")
    slot.until("ready")
    ready = time.perf_counter()
    spent = attempt.ended["report"]["spent"]
    query_ms = spent["plan_ms"] + spent["compute_ms"] + spent["exchange_ms"]
    return {
        "order_ms": (running - began) * 1000,
        "attach_ms": spent["start_ms"],
        "query_ms": query_ms,
        "report_ms": (ended - running) * 1000 - spent["start_ms"] - query_ms,
        "reset_ms": (ready - ended) * 1000,
        "whole_ms": (ready - began) * 1000,
    }
