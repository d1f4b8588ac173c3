"""When a waiting job may expect its slots, by how often slots were freed lately. A policy over the state's `freed`."""

from __future__ import annotations

from millrace.core.clocks import AtMs

from .state import FREED_KEPT, State

FREED_LEAST = 3
"""Slots that were freed while jobs waited: from fewer nothing is concluded."""
STEP_MS = 15_000
"""What is expected is sent again when it is further off than this, and than a quarter of the time that is left."""
NEAR_MS = 2000
"""Who has slots before that is sent no place: it would be wrong when it is read."""
FLOWS_MS = 500
"""Where no slot was freed for so long, nobody is near."""


def note_freed(state: State, at_ms: AtMs) -> None:
    """A slot was freed. Only while jobs wait does this say how often it happens."""
    if state.waiting:
        state.freed = [*state.freed[1 - FREED_KEPT :], at_ms]


def pace_ms(state: State, at_ms: AtMs) -> int | None:
    """The time between two freed slots; None: not known. Where none was freed for long, it is longer."""
    freed = state.freed
    if len(freed) < FREED_LEAST:
        return None
    return max((freed[-1] - freed[0]) // (len(freed) - 1), (at_ms - freed[0]) // len(freed))


def expected_ms(state: State, pace: int | None, slots: int, at_ms: AtMs) -> AtMs | None:
    """When so many slots will have been freed, as a time, to the second. `pace`: what `pace_ms` says."""
    return None if pace is None else AtMs(round(max(at_ms, state.freed[-1] + pace * slots) / 1000) * 1000)


def is_near(state: State, pace: int | None, slots: int, at_ms: AtMs) -> bool:
    """Whether so many slots will have been freed in a moment. `pace`: what `pace_ms` says."""
    return pace is not None and pace * slots <= NEAR_MS and at_ms - state.freed[-1] <= FLOWS_MS


def is_news(sent_ms: AtMs | None, found_ms: AtMs | None, at_ms: AtMs) -> bool:
    """Whether another expectation is worth a message."""
    if sent_ms is None or found_ms is None:
        return sent_ms is not found_ms
    return abs(found_ms - sent_ms) > max(STEP_MS, abs(sent_ms - at_ms) // 4)
