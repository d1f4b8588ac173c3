"""Clients' questions about this TaskManager: what its process finds is published, with what the state has of the slots."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.answering import reply_of
from millrace.core.bounded import fitting
from millrace.core.machine import Do, Envelope, Output, Publish, Say
from millrace.core.messages.base import Reply
from millrace.core.messages.effects import AnswerSought, FindAnswer
from millrace.core.messages.processes import Description, SlotDescribed, SlotJvm, TaskManagerDescribed
from millrace.core.messages.profiles import parts_of
from millrace.core.messages.slots import AnswerClient, AnswerFound, ClientAnswered
from millrace.core.states import SlotState
from millrace.core.topics import RESOURCE_MANAGER

from .state import Slot, State

NOT_ASKED = SlotJvm(slot=0, no_answer="it was not asked")


def on_answer_client(state: State, body: AnswerClient, envelope: Envelope) -> Iterator[Output]:
    effect = FindAnswer(ask=body.ask, question=body.question, reply_to=body.reply_to, correlation=body.correlation)
    yield Do(f"answer/{body.question}", effect)


def on_answer_sought(state: State, body: AnswerSought, envelope: Envelope) -> Iterator[Output]:
    """What is found is reported by a fact."""
    yield from ()


def on_answer_found(state: State, body: AnswerFound, envelope: Envelope) -> Iterator[Output]:
    yield Publish("client.replies", body.reply_to, _reply(state, body))
    yield Say(RESOURCE_MANAGER, ClientAnswered(question=body.question))


def _reply(state: State, body: AnswerFound) -> Reply:
    answer = body.answer
    if not isinstance(answer, Description):
        return reply_of(body.task_manager, body.correlation, answer)
    jvms = {each.slot: each for each in answer.slots}
    return TaskManagerDescribed(
        correlation=body.correlation,
        task_manager=body.task_manager,
        incarnation=state.incarnation,
        status=answer.status,
        slots=fitting(_described(number, slot, jvms.get(number, NOT_ASKED)) for number, slot in state.slots.items()),
        total=len(state.slots),
    )


def _described(number: int, slot: Slot, jvm: SlotJvm) -> SlotDescribed:
    attempt = slot.attempt
    return SlotDescribed(
        slot=number,
        state=slot.state.value,
        **parts_of(slot.profile),
        broken=slot.broken if slot.state is SlotState.BROKEN else None,
        job=slot.job,
        allocation=slot.allocation,
        attempt=attempt.id if attempt is not None else None,
        attempt_state=attempt.state.value if attempt is not None else None,
        jvm=jvm.jvm,
        no_answer=jvm.no_answer,
    )
