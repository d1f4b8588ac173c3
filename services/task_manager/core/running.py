"""Running attempts: the orders that they are given, what they answer, and how far they are."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.machine import Do, Envelope, Output, Say
from millrace.core.messages.effects import AttemptOrderSent, OrderAttempt
from millrace.core.messages.slots import (
    AttemptAnswered,
    OrderAnswered,
    OrderAttempts,
    ProgressReported,
    ReportedProgress,
    SlotsProgressed,
)
from millrace.core.states import AttemptState
from millrace.core.topics import shard_number, shard_scope

from .state import State


def on_order_attempts(state: State, body: OrderAttempts, envelope: Envelope) -> Iterator[Output]:
    shard = shard_number(envelope.sender)
    running = {
        slot.attempt.id: number
        for number, slot in state.slots.items()
        if slot.attempt is not None and slot.attempt.state is AttemptState.RUNNING
    }
    for attempt in body.attempts:
        number = running.get(attempt)
        if number is None:
            no_answer = "it does not run on this TaskManager"
            yield Say(envelope.sender, AttemptAnswered(attempt=attempt, question=body.question, no_answer=no_answer))
        else:
            order = OrderAttempt(slot=number, attempt=attempt, order=body.order, shard=shard, question=body.question)
            yield Do(f"order/{number}", order)


def on_attempt_order_sent(state: State, body: AttemptOrderSent, envelope: Envelope) -> Iterator[Output]:
    """What it answers is reported by a fact."""
    yield from ()


def on_order_answered(state: State, body: OrderAnswered, envelope: Envelope) -> Iterator[Output]:
    answer = AttemptAnswered(attempt=body.attempt, question=body.question, status=body.status, no_answer=body.no_answer)
    yield Say(shard_scope(body.shard), answer)


def on_slots_progressed(state: State, body: SlotsProgressed, envelope: Envelope) -> Iterator[Output]:
    """To each shard that has such attempts. An attempt that has ended meanwhile is left out."""
    found: dict[int, list[ReportedProgress]] = {}
    for each in body.attempts:
        slot = state.slots[each.slot]
        running = slot.attempt is not None and slot.attempt.id == each.attempt and slot.attempt.state is AttemptState.RUNNING
        if running and slot.allocation is not None:
            progress = ReportedProgress(allocation=slot.allocation, attempt=each.attempt, progress=each.progress)
            found.setdefault(slot.shard, []).append(progress)
    for shard, attempts in found.items():
        yield Say(shard_scope(shard), ProgressReported(attempts=attempts))
