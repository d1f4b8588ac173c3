"""What is done at a tick."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.machine import Envelope, Output, Ticked

from . import asking, blocklist, liveness, providing, queue, registration, shards, slot_manager
from .state import State


def on_ticked(state: State, body: Ticked, envelope: Envelope) -> Iterator[Output]:
    now_ms = envelope.now_ms
    liveness.advance_clock(state, now_ms, envelope.at_ms)
    yield from registration.lose_silent(state, envelope)
    yield from registration.lose_unregistered(state, now_ms)
    yield from shards.exclude_undeclared(state, now_ms)
    yield from shards.exclude_silent(state, now_ms)
    yield from shards.give_up(state, now_ms)
    yield from blocklist.unblock_overdue(state, now_ms, envelope.at_ms)
    yield from slot_manager.grant(state, envelope)  # first: no job is sent a reason to wait for what it gets
    yield from providing.look_after(state, envelope)
    yield from queue.notify(state, now_ms, envelope.at_ms)
    yield from asking.answer_overdue(state, now_ms)
    yield from blocklist.answer_overdue(state, now_ms)
