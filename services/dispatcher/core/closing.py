"""The cluster's end, in order: no job is accepted any more, those that run are suspended, TaskManagers of the provider are stopped, then it
is written into etcd, where each service reads it and ends.

All of it is in the state, so a leader that takes over goes on where the one before was. A part that does not answer is waited for so long,
and is named. Jobs stay in etcd. They go on when the cluster was opened again, which a new leader is told with its settings.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.clocks import after
from millrace.core.machine import Do, Envelope, Output, Say
from millrace.core.messages import client, effects, jobs
from millrace.core.states import INITIALIZING, ClosingStep, JobStatus, check_closing
from millrace.core.topics import JOB_MASTER, RESOURCE_MANAGER

from . import starting
from .answers import refuse, reply
from .state import Closing, JobRequest, State

SUSPEND_MS = 15_000
"""For so long JobMasters are waited for: an attempt that does not end is killed sooner."""
RELEASE_MS = 15_000
ASK_MS = 500
"""Between two questions to the ResourceManager."""
AWAITING_MOST = 100

Outputs = Iterator[Output]


def shut_down_cluster(state: State, request: client.ShutDownCluster, envelope: Envelope) -> Outputs:
    """Once: read again by a Dispatcher that has lost its log, it would end a cluster that was started again since."""
    if state.closing is None:
        if envelope.body.decided:
            yield from refuse(request, "conflict", "it was asked for before the Dispatcher lost its log; ask again")
            return
        if request.accept_before_ms is not None and envelope.at_ms > request.accept_before_ms:
            yield from refuse(request, "conflict", "it came too late: accept_before_ms had passed by Kafka's clock; ask again")
            return
        yield from _begin(state, envelope)
    assert state.closing is not None
    if request.wait and state.closing.step is not ClosingStep.ENDING:
        if len(state.closing.awaiting) >= AWAITING_MOST:
            yield from refuse(request, "busy", f"{AWAITING_MOST} requests wait for the end already; try again")
        else:
            state.closing.awaiting.append(JobRequest(request.type, "", request.reply_to, request.correlation))
    else:
        yield from reply(request, client.ClusterShutDown, shut_down=shown(state, state.closing))
    yield from advance(state, envelope)


def _begin(state: State, envelope: Envelope) -> Outputs:
    shards = [scope for scope in state.topology.scopes() if scope.startswith(f"{JOB_MASTER}/")]
    due_ms = after(envelope.now_ms, SUSPEND_MS)
    state.closing = Closing(envelope.id, envelope.at_ms, due_ms, shards=dict.fromkeys(shards))
    state.starts_to_send = {}  # what was not begun is begun when the cluster is up again
    for scope in shards:
        yield from suspend(state, state.closing, scope)


def suspend(state: State, closing: Closing, scope: str) -> Outputs:
    """Has a shard suspend its jobs; a new life of one, too, which may have slots left of the life before."""
    if closing.step is ClosingStep.SUSPENDING:
        closing.shards[scope] = None
    if scope in state.received_from:
        yield Say(scope, jobs.SuspendJobs())


def on_jobs_suspended(state: State, body: jobs.JobsSuspended, envelope: Envelope) -> Outputs:
    if state.closing is not None:
        state.closing.shards.pop(envelope.sender, None)
        yield from advance(state, envelope)


def advance(state: State, envelope: Envelope) -> Outputs:  # [R34]
    """The next step, once the one before is done, or its time is up."""
    closing, now_ms = state.closing, envelope.now_ms
    if closing is None:
        return
    if closing.step is ClosingStep.SUSPENDING and (not closing.shards or now_ms >= closing.due_ms):
        _move(closing, ClosingStep.RELEASING)
        closing.due_ms = after(now_ms, RELEASE_MS)
        closing.silent += closing.shards
    if closing.step is ClosingStep.RELEASING:
        if closing.workers == 0 or now_ms >= closing.due_ms:
            closing.silent += [RESOURCE_MANAGER] if closing.workers is None else []
            _move(closing, ClosingStep.ENDING)
            yield from _end(state, closing)
        elif not closing.number or now_ms >= after(closing.asked_ms, ASK_MS):
            yield from _release(state, closing, envelope)


def _move(closing: Closing, step: ClosingStep) -> None:
    check_closing(closing.step, step)
    closing.step = step


def _release(state: State, closing: Closing, envelope: Envelope) -> Outputs:
    closing.asked_ms = envelope.now_ms
    if RESOURCE_MANAGER in state.received_from:
        state.questions += 1
        closing.number = state.questions
        yield Say(RESOURCE_MANAGER, jobs.Query(what="deregister", reply_to="", correlation="", number=closing.number))


def _end(state: State, closing: Closing) -> Outputs:
    """Who waits is answered first: nobody may be there afterwards."""
    for request in closing.awaiting:
        yield from reply(request, client.ClusterShutDown, shut_down=shown(state, closing))
    closing.awaiting = []
    yield Do("shutdown", effects.EndCluster(name=closing.name, shut_down=shown(state, closing)), after_said=True)


def on_cluster_ended(state: State, body: effects.ClusterEnded, envelope: Envelope) -> Outputs:
    """This process reads it in etcd, too, and ends."""
    yield from ()


def reopen(state: State) -> Outputs:
    """The cluster was started again: a leader of then knows by its settings which end is over."""
    assert state.closing is not None
    state.closing = None
    if RESOURCE_MANAGER in state.received_from:
        state.questions += 1
        yield Say(RESOURCE_MANAGER, jobs.Query(what="register", reply_to="", correlation="", number=state.questions))
    for scope in [scope for scope in state.received_from if scope.startswith(f"{JOB_MASTER}/")]:
        yield Say(scope, jobs.ResumeJobs())
        yield from starting.start_all(state, scope)


def shown(state: State, closing: Closing) -> client.ShutDown:
    resting = (JobStatus.SUSPENDED, INITIALIZING)
    return client.ShutDown(
        step=closing.step.value,
        since_ms=closing.since_ms,
        live=len(state.live),
        suspended=sum(job.status in resting for job in state.live.values()),
        workers=closing.workers or 0,
        silent=closing.silent,
    )
