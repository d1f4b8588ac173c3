"""The runtime at its limits: wide graphs, long queues, many TaskManagers, many ended jobs.

The shells, folds and messages are the real ones. What is measured is processor time and memory, so that a busy machine changes little.
"""

from __future__ import annotations

from collections.abc import Callable

from ..figures import Run
from . import ended, graph, heartbeats, small, stored, waiting

PARTS: dict[str, Callable[[Run], None]] = {
    "graph": graph.measure,
    "stored": stored.measure,
    "waiting": waiting.measure,
    "heartbeats": heartbeats.measure,
    "ended": ended.measure,
    "small": small.measure,
}


def measure(run: Run) -> None:
    for name, part in PARTS.items():
        run.say(name)
        part(run)
