"""The TaskManager's effects: each type with what carries it out. None takes time: the slots work on threads of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from millrace.core.messages.base import Body
from millrace.core.messages.effects import (
    AnswerSought,
    AttemptKillSent,
    AttemptLaunched,
    AttemptOrderSent,
    EndProcess,
    FindAnswer,
    KillAttempt,
    LaunchAttempt,
    OrderAttempt,
)
from millrace.runtime.performer import Port, each


class SlotsPort(Protocol):
    """What carries out the machine's effects on slots; see `slots.Slots`."""

    def launch(self, effect: LaunchAttempt) -> None: ...

    def kill(self, effect: KillAttempt) -> None: ...

    def order(self, effect: OrderAttempt) -> None: ...

    def answer(self, effect: FindAnswer) -> None: ...

    def beat(self, patience_ms: int) -> None: ...

    def close(self, timeout_s: float) -> None: ...


def ports(slots: SlotsPort, end: Callable[[EndProcess], None]) -> dict[type[Body], Port]:
    def launch(effect: LaunchAttempt) -> AttemptLaunched:
        slots.launch(effect)
        return AttemptLaunched(attempt=effect.attempt)

    def kill(effect: KillAttempt) -> AttemptKillSent:
        slots.kill(effect)
        return AttemptKillSent(attempt=effect.attempt)

    def order(effect: OrderAttempt) -> AttemptOrderSent:
        slots.order(effect)
        return AttemptOrderSent(attempt=effect.attempt)

    def answer(effect: FindAnswer) -> AnswerSought:
        slots.answer(effect)
        return AnswerSought(question=effect.question)

    return {
        LaunchAttempt: each(launch), KillAttempt: each(kill), OrderAttempt: each(order), FindAnswer: each(answer), EndProcess: each(end)
    }  # fmt: skip
