"""What processes answer that are asked about themselves."""

from __future__ import annotations

from typing import Any

from millrace.core.messages.processes import Buffers, Collector, JvmStatus, MemoryUse, ProcessStatus

TEXTS = {"service": "task-manager", "host": "host-a", "version": "0.1.0", "python": "3.11.7", "system": "Linux"}


def process_status(**more: Any) -> ProcessStatus:
    numbers = dict.fromkeys(ProcessStatus.model_fields.keys() - TEXTS.keys(), 7)
    return ProcessStatus(**{**TEXTS, **numbers, **more})


def jvm_status(**more: Any) -> JvmStatus:
    pool = Buffers(count=1, used=2, capacity=3)
    return JvmStatus(**{
        "version": "17.0.9+9", "uptime_ms": 1_500, "threads": 80,
        "heap": MemoryUse(used=30_000_000, committed=60_000_000, max=1_000_000_000),
        "non_heap": MemoryUse(used=90_000_000, committed=95_000_000, max=None), "direct": pool, "mapped": pool,
        "collectors": [Collector(name="PS-MarkSweep", count=2, time_ms=80), Collector(name="PS-Scavenge", count=9, time_ms=120)], **more,
    })  # fmt: skip
