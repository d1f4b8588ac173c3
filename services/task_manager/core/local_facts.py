"""What the TaskManager's own slots and process report, and outcomes of its effects."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.machine import Envelope, Output
from millrace.core.messages.effects import AttemptKillSent, AttemptLaunched
from millrace.core.messages.slots import (
    AttemptEnded,
    AttemptRunning,
    CaughtUp,
    FellBehind,
    SlotBroken,
    SlotReady,
    SlotReplacing,
)

from . import slot_table
from .leaving import leave_if_idle
from .state import State


def on_slot_ready(state: State, body: SlotReady, envelope: Envelope) -> Iterator[Output]:
    return slot_table.ready(state, body.slot)


def on_slot_replacing(state: State, body: SlotReplacing, envelope: Envelope) -> Iterator[Output]:
    return slot_table.replacing(state, body.slot)


def on_slot_broken(state: State, body: SlotBroken, envelope: Envelope) -> Iterator[Output]:
    yield from slot_table.broken(state, body.slot, body.reason)
    yield from leave_if_idle(state)


def on_attempt_running(state: State, body: AttemptRunning, envelope: Envelope) -> Iterator[Output]:
    return slot_table.running(state, body.slot, body.attempt, envelope.now_ms)


def on_attempt_ended(state: State, body: AttemptEnded, envelope: Envelope) -> Iterator[Output]:
    yield from slot_table.ended(state, body)
    yield from leave_if_idle(state)


def on_attempt_launched(state: State, body: AttemptLaunched, envelope: Envelope) -> Iterator[Output]:
    """What becomes of the attempt is reported by facts."""
    yield from ()


def on_attempt_kill_sent(state: State, body: AttemptKillSent, envelope: Envelope) -> Iterator[Output]:
    """That it has ended is reported by a fact."""
    yield from ()


def on_fell_behind(state: State, body: FellBehind, envelope: Envelope) -> Iterator[Output]:
    state.behind = True
    yield from ()


def on_caught_up(state: State, body: CaughtUp, envelope: Envelope) -> Iterator[Output]:
    state.behind = False
    yield from slot_table.launch_waiting(state)
