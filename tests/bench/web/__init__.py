"""The web service beside its peers: the bare hop, Flink's REST and dashboard, a submission by Kafka, and the cluster without it."""

from __future__ import annotations

from collections.abc import Callable

from ..figures import Run
from . import event, facts_held, opening, past, quiet, reading, submitting

PARTS: dict[str, Callable[[Run], None]] = {
    "event": event.measure,
    "reading": reading.measure,
    "submitting": submitting.by_http,
    "beside": submitting.beside,
    "opening": opening.measure,
    "held": facts_held.measure,
    "quiet": quiet.measure,
    "history": past.measure,
}


def measure(run: Run) -> None:
    """All of them. One that cannot be measured, for want of Chromium or of Flink's tools, ends the figure: there is no half of it."""
    for name, part in PARTS.items():
        run.say(name)
        part(run)
