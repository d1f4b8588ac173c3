"""What the shard does at each tick of its leader."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.machine import Envelope, Output, Ticked

from . import heartbeats, inspection, scheduling
from .state import State


def on_ticked(state: State, body: Ticked, envelope: Envelope) -> Iterator[Output]:
    yield from inspection.answer_overdue(state)
    yield from scheduling.act_on_timers(state, envelope.at_ms)
    yield from heartbeats.beat(state)
