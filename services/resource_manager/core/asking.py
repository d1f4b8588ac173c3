"""Clients' questions that a TaskManager answers itself. It is answered for where it is not here, leaves, or is silent [R31]."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.answering import refuse
from millrace.core.clocks import NowMs, after
from millrace.core.election import QUIET_TICK_MS
from millrace.core.machine import Envelope, Output, Say
from millrace.core.messages.client import RefusalKind
from millrace.core.messages.jobs import AskTaskManager, QuestionAnswered
from millrace.core.messages.slots import AnswerClient, ClientAnswered
from millrace.core.timing import FORWARDED_MOST, INSPECTION_ANSWER_MS
from millrace.core.topics import DISPATCHER, task_manager_scope

from .state import Asked, State, task_manager_of

Outputs = Iterator[Output]


def on_ask_task_manager(state: State, body: AskTaskManager, envelope: Envelope) -> Outputs:
    name = body.task_manager
    known = state.task_managers.get(name)
    if not body.reply_to:
        return  # the client wants no answer
    if known is None:
        yield from refuse(body, "not_found", f"no TaskManager {name} is registered")
    elif not known.build:
        yield from refuse(body, "conflict", f"TaskManager {name} is of version 0.1.0, which answers no questions: replace it")
    elif len(state.asked) >= FORWARDED_MOST:
        yield from refuse(body, "busy", f"{FORWARDED_MOST} questions wait for answers of TaskManagers already; try again")
    else:
        state.questions += 1
        state.asked[state.questions] = Asked(name, body.reply_to, body.correlation, body.number, answer_by(state, envelope))
        asks = AnswerClient(ask=body.ask, question=state.questions, reply_to=body.reply_to, correlation=body.correlation)
        yield Say(task_manager_scope(name), asks)


def answer_by(state: State, envelope: Envelope) -> NowMs:
    """When a client is answered without those who are asked now. In a cluster at rest machine time stands at a tick of long ago."""
    since_tick_ms = min(max(envelope.at_ms - state.stamp_ms, 0), QUIET_TICK_MS)
    return after(envelope.now_ms, since_tick_ms + INSPECTION_ANSWER_MS)


def on_client_answered(state: State, body: ClientAnswered, envelope: Envelope) -> Outputs:
    """It may come when the client has been answered without."""
    asked = state.asked.get(body.question)
    if asked is not None and asked.task_manager == task_manager_of(envelope):
        del state.asked[body.question]
        if asked.number:
            yield Say(DISPATCHER, QuestionAnswered(number=asked.number))


def answer_overdue(state: State, now_ms: NowMs) -> Outputs:
    """Answers clients in place of TaskManagers that are silent [R31]."""
    for number in [number for number, asked in state.asked.items() if asked.due_ms <= now_ms]:
        name = state.asked[number].task_manager
        yield from _answer_without(state, number, "busy", f"TaskManager {name} has not answered within {INSPECTION_ANSWER_MS / 1000:g} s")


def answer_lost(state: State, name: str, reason: str) -> Outputs:
    """Answers the clients that a TaskManager that is not registered any more has not answered."""
    for number in [number for number, asked in state.asked.items() if asked.task_manager == name]:
        yield from _answer_without(state, number, "not_found", f"TaskManager {name} is not registered any more: {reason}")


def _answer_without(state: State, number: int, kind: RefusalKind, reason: str) -> Outputs:
    asked = state.asked.pop(number)
    return refuse(asked, kind, reason, task_manager_scope(asked.task_manager))
