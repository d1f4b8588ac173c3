"""What is done at a tick."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.machine import Envelope, Output, Ticked

from . import closing, listing, questions, schedules, starting
from .state import State


def on_ticked(state: State, body: Ticked, envelope: Envelope) -> Iterator[Output]:
    for scope in list(state.starts_to_send):
        yield from starting.start_next(state, scope)
    state.put_since_tick = 0
    yield from questions.answer_overdue(state, envelope)
    yield from listing.refuse_overdue(state, envelope)
    yield from schedules.refuse_overdue(state, envelope)
    yield from closing.advance(state, envelope)
