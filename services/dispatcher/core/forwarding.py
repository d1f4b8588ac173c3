"""Requests that another scope answers: the ResourceManager, or the JobMaster of a job [R31].

The other scope answers the client, and sends QuestionAnswered here. Where that does not come in time, the Dispatcher answers with what it
knows, and names the silent scope. A silent scope is asked rarely: what it is asked stays in its inbox, and it answers all of that
when it is back.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.clocks import NowMs, after
from millrace.core.election import QUIET_TICK_MS
from millrace.core.machine import Envelope, Output, Say
from millrace.core.messages.blocklist import AskBlocklist
from millrace.core.messages.jobs import AskTaskManager, Question
from millrace.core.timing import FORWARDED_ANSWER_MS, FORWARDED_MOST

from .answers import refuse
from .state import ForwardedRequest, JobRequest, Silence, State

MORE_MS: dict[type[Question], int] = {AskTaskManager: QUIET_TICK_MS, AskBlocklist: QUIET_TICK_MS}
"""Question -> how much longer than others it may take. The ResourceManager waits for the TaskManager, or for etcd, nearly as long as is
waited for it, and in a cluster at rest machine time stands at a tick that was so long ago."""
AGAIN_MS = 10_000  # before a silent scope is asked again; the longer it is silent, the less often


def is_silent(state: State, scope: str, now_ms: NowMs) -> bool:
    """Whether the scope has not answered in time, and is not to be asked again yet."""
    silence = state.silent.get(scope)
    return silence is not None and now_ms - silence.asked_ms < max(AGAIN_MS, silence.asked_ms - silence.since_ms)


def is_full(state: State, scope: str) -> bool:
    """Whether too many questions wait for a scope already."""
    return sum(each.scope == scope for each in state.asked.values()) >= FORWARDED_MOST


def expect(state: State, request: JobRequest, envelope: Envelope, scope: str, more_ms: int = 0) -> int:
    """Lets a request wait for what a scope makes of it; returns the number that its answer has."""
    if scope in state.silent:
        state.silent[scope].asked_ms = envelope.now_ms
    asked = number(state)
    state.asked[asked] = ForwardedRequest(scope, after(envelope.now_ms, more_ms), request)
    return asked


def number(state: State) -> int:
    """That a scope names when it has decided. Nobody waits for it, unless `expect` has given it."""
    state.questions += 1
    return state.questions


def forward(state: State, request: JobRequest, envelope: Envelope, scope: str, body: Question) -> Iterator[Output]:
    """Asks a scope that is not silent. `body`: the question, without its number."""
    if is_full(state, scope):
        yield from refuse_full(request, scope)
    else:
        number = expect(state, request, envelope, scope, MORE_MS.get(type(body), 0))
        yield Say(scope, body.model_copy(update={"number": number}))


def refuse_full(request: JobRequest, scope: str) -> Iterator[Output]:
    return refuse(request, "busy", f"{FORWARDED_MOST} questions wait for answers of {scope} already; try again")


def withdraw(state: State, scope: str) -> list[JobRequest]:
    """A scope is born anew: nobody answers any more what its life before was asked. Those requests are the caller's to answer."""
    state.silent.pop(scope, None)
    return [state.asked.pop(number).asking for number in [number for number, each in state.asked.items() if each.scope == scope]]


def overdue(state: State, now_ms: NowMs) -> list[tuple[str, JobRequest]]:
    """(scope, request) of what was not answered in time; the caller answers it."""
    found = []
    for number, forwarded in list(state.asked.items()):
        if now_ms - forwarded.asked_ms < FORWARDED_ANSWER_MS:
            continue
        del state.asked[number]
        state.silent.setdefault(forwarded.scope, Silence(forwarded.asked_ms, forwarded.asked_ms))
        found.append((forwarded.scope, forwarded.asking))
    return found
