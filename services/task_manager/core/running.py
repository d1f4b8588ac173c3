"""Running attempts: the orders that they are given, what they answer, and how far they are."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.machine import Do, Envelope, Output, Say
from millrace.core.messages.effects import AttemptTold, TellAttempt
from millrace.core.messages.slots import (
    AttemptAnswered,
    AttemptAtWork,
    AttemptReplied,
    AttemptsAtWork,
    AttemptsProgressed,
    TellAttempts,
)
from millrace.core.states import AttemptState
from millrace.core.topics import JOB_MASTER, shard_scope

from .state import State


def on_tell_attempts(state: State, body: TellAttempts, envelope: Envelope) -> Iterator[Output]:
    shard = int(envelope.sender.removeprefix(f"{JOB_MASTER}/"))
    running = {
        slot.attempt.id: number
        for number, slot in state.slots.items()
        if slot.attempt is not None and slot.attempt.state is AttemptState.RUNNING
    }
    for attempt in body.attempts:
        number = running.get(attempt)
        if number is None:
            silent = "it does not run on this TaskManager"
            yield Say(envelope.sender, AttemptAnswered(attempt=attempt, question=body.question, silent=silent))
        else:
            order = TellAttempt(slot=number, attempt=attempt, order=body.order, shard=shard, question=body.question)
            yield Do(f"tell/{number}", order)


def on_attempt_told(state: State, body: AttemptTold, envelope: Envelope) -> Iterator[Output]:
    """What it answers is reported by a fact."""
    yield from ()


def on_attempt_replied(state: State, body: AttemptReplied, envelope: Envelope) -> Iterator[Output]:
    answer = AttemptAnswered(attempt=body.attempt, question=body.question, status=body.status, silent=body.silent)
    yield Say(shard_scope(body.shard), answer)


def on_attempts_progressed(state: State, body: AttemptsProgressed, envelope: Envelope) -> Iterator[Output]:
    """To each shard that has such attempts. An attempt that has ended meanwhile is left out."""
    found: dict[int, list[AttemptAtWork]] = {}
    for each in body.attempts:
        slot = state.slots[each.slot]
        running = slot.attempt is not None and slot.attempt.id == each.attempt and slot.attempt.state is AttemptState.RUNNING
        if running and slot.allocation is not None:
            at_work = AttemptAtWork(allocation=slot.allocation, attempt=each.attempt, progress=each.progress)
            found.setdefault(slot.shard, []).append(at_work)
    for shard, attempts in found.items():
        yield Say(shard_scope(shard), AttemptsAtWork(attempts=attempts))
