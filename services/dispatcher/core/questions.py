"""Questions that others answer: each is answered in bounded time, by the Dispatcher with what it knows where they are silent [31].

Who was asked answers the client, and says so here. Where nothing is said in time, the client is told which part is silent, and that part is
asked little until it is heard: what it is asked stays in its inbox, and it will answer all of it when it is back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from millrace.core.machine import Envelope, Output, Say
from millrace.core.messages import client
from millrace.core.messages.jobs import QuestionAnswered

from . import answers
from .answers import refuse, reply
from .state import Asking, Question, Silence, State

if TYPE_CHECKING:
    from .machine import Dispatcher

ANSWER_MS = 3_000
ASKED_MOST = 250  # questions of one part without an answer: a flood of those about a dead part leaves room for those about others
AGAIN_MS = 10_000  # before a silent part is asked again; the longer it is silent, the less often
ETCD = "etcd"
FROM_ETCD = ("GetJobStatus", "DescribeJob", "CancelJob")  # who awaits a job's end, or submits, has time-outs of its own


def ask(dispatcher: Dispatcher, state: State, envelope: Envelope, scope: str, asking: Asking, body: Any) -> Iterator[Output]:
    """Asks a part, or answers in its place if it is known to be silent. `body`: the question, without its number."""
    if not asking.reply_to:
        return
    silence, now_ms = state.silent.get(scope), envelope.now_ms
    if silence is not None and now_ms - silence.asked_ms < max(AGAIN_MS, silence.asked_ms - silence.since_ms):
        yield from instead(dispatcher, state, envelope, scope, asking)
        return
    if sum(each.scope == scope for each in state.asked.values()) >= ASKED_MOST:
        yield from refuse(asking, "busy", f"{ASKED_MOST} questions wait for answers of {scope} already; try again")
        return
    if silence is not None:
        silence.asked_ms = now_ms
    state.questions += 1
    state.asked[state.questions] = Question(scope, now_ms, asking)
    yield Say(scope, body.model_copy(update={"number": state.questions}))


def answered(state: State, scope: str, body: QuestionAnswered) -> None:
    """Which may have come too late for its client, but shows that the part is back."""
    state.asked.pop(body.number, None)
    state.silent.pop(scope, None)


def forget(dispatcher: Dispatcher, state: State, envelope: Envelope, scope: str) -> Iterator[Output]:
    """A part lives anew: what its life before was asked nobody answers any more."""
    state.silent.pop(scope, None)
    for number in [number for number, each in state.asked.items() if each.scope == scope]:
        yield from instead(dispatcher, state, envelope, scope, state.asked.pop(number).asking)


def tick(dispatcher: Dispatcher, state: State, envelope: Envelope) -> Iterator[Output]:
    """Answers what nobody has answered in time."""
    now_ms = envelope.now_ms
    for number, question in list(state.asked.items()):
        if now_ms - question.asked_ms < ANSWER_MS:
            break  # they are in the order in which they were asked
        del state.asked[number]
        state.silent.setdefault(question.scope, Silence(question.asked_ms, question.asked_ms))
        yield from instead(dispatcher, state, envelope, question.scope, question.asking)
    for job, fate in state.fates.items():
        for index, asking in enumerate(fate.behind):
            if asking.reply_to and asking.type in FROM_ETCD and now_ms - asking.asked_ms >= ANSWER_MS:
                fate.behind[index] = Asking("GetJobStatus", job, "", "")  # keeps its place, and does nothing
                reason = f"etcd has not answered within {ANSWER_MS // 1000} s, and what it has of job {job} is not known; try again"
                yield from reply(asking, client.RequestRefused, kind="busy", reason=reason, silent=ETCD)


def instead(dispatcher: Dispatcher, state: State, envelope: Envelope, scope: str, asking: Asking) -> Iterator[Output]:
    """What is known without the part that is silent."""
    if asking.type == "GetClusterOverview":
        nothing = {"task_managers": 0, "slots": 0, "free_slots": 0, "waiting_jobs": 0}
        yield from reply(asking, client.ClusterOverview, jobs=answers.counts(state), **nothing, silent=scope)
    elif asking.type == "ListTaskManagers":
        yield from reply(asking, client.TaskManagersListed, task_managers=[], total=0, silent=scope)
    elif asking.job in state.live:
        yield from reply(asking, client.JobDescribed, summary=state.live[asking.job].summary(asking.job), silent=scope)
    else:
        yield from dispatcher.ask(state, envelope, asking)  # it has ended meanwhile
