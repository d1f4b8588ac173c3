"""A job from its start to its retirement, as the Dispatcher orders it, and its last step: published sinks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millrace.core.answering import answered, refuse
from millrace.core.clocks import AtMs, after
from millrace.core.faults import fault
from millrace.core.jobgraph.compile import PLANNER
from millrace.core.jobgraph.rescale import with_parallelism
from millrace.core.machine import Envelope, Output, Say
from millrace.core.messages.client import JobDescribed, JobSummary
from millrace.core.messages.effects import SinkPublished
from millrace.core.messages.jobs import (
    CancelStartedJob,
    DescribeStartedJob,
    JobQuestion,
    JobRetired,
    QuestionAnswered,
    RescaleStartedJob,
    StartJob,
)
from millrace.core.messages.requirements import Rescale
from millrace.core.states import ENDED_JOB, ENDING_JOB, JobStatus
from millrace.core.topics import DISPATCHER

from . import rescaling, suspension
from .execution_graph import begin, describe
from .failover import fail, unreadable
from .keeping import take
from .plans import forget_plan, plan_of
from .reporting import job_ended, job_rescaled, job_started, status_changed, subtasks_kept
from .scheduling import advance, cancel_attempts, notify_status, settle
from .slot_pool import free_slots, request_slots
from .state import Job, Rescaled, State, TimeSpent, move_job
from .time_spent import spend
from .timers import set_timer


def on_start_job(state: State, body: StartJob, envelope: Envelope) -> Iterator[Output]:
    """A job known already is answered with its state [R21]; the Dispatcher may have been born anew."""
    yield from forget_other(state, body)
    known = state.jobs.get(body.job)
    if known is not None:
        yield from _answer_again(state, known)
        if body.rescale is not None:
            yield from _rescale(state, known, body.rescale, envelope.at_ms)
        if body.cancel:
            yield from _cancel(state, known, envelope.at_ms)
        return
    job = new_job(state, body, body.graph, envelope)
    plan = plan_of(state, job)
    if plan is None:
        fail(job, unreadable(), envelope.at_ms)
    else:
        take(job, body.kept)
        begin(plan, job, envelope.at_ms)
        queue_ms = plan.graph.timeouts.queue_ms
        job.queue_due_ms = None if queue_ms is None else after(state.now_ms, queue_ms)
        set_timer(state, job)
        if body.cancel:
            move_job(job, JobStatus.CANCELLING, envelope.at_ms)
    yield from subtasks_kept(job, envelope.at_ms)
    # The request for slots goes out before anything else: each submission waits for it.
    yield from settle(state, job, envelope.at_ms, JobStatus.CREATED)
    yield job_started(job)
    if body.rescale is not None and plan is not None:
        yield job_rescaled(job, plan, body.rescale.parallelism, envelope.at_ms)
    yield from notify_status(job, JobStatus.CREATED, envelope.at_ms)
    if state.suspending:
        yield from suspension.suspend(state, job, envelope.at_ms)


def new_job(state: State, body: StartJob, graph: dict[str, Any], envelope: Envelope) -> Job:
    """`graph`: the one of `body`, or none where that must not be touched."""
    asked = body.rescale
    job = Job(
        id=body.job,
        acceptance=body.acceptance,
        life=str(envelope.generation),
        graph=dict(graph) if asked is None else with_parallelism(graph, asked.parallelism),
        accepted_ms=AtMs(body.accepted_ms),
        since_ms=envelope.at_ms,
        entered={JobStatus.CREATED.value: envelope.at_ms},
        spent=TimeSpent(AtMs(body.accepted_ms)),
        planner=PLANNER,
        rescaled=None if asked is None else Rescaled(asked.log, asked.offset, dict(asked.parallelism)),
    )
    state.jobs[job.id] = job
    return job


def forget_other(state: State, body: StartJob) -> Iterator[Output]:
    """Where the Dispatcher came back from an older store and accepted the id anew, the job known here is nobody's."""
    known = state.jobs.get(body.job)
    if known is not None and known.acceptance != body.acceptance:
        yield from _forget_job(state, known)


def _answer_again(state: State, job: Job) -> Iterator[Output]:
    if job.status in ENDED_JOB:
        yield job_ended(job, plan_of(state, job))
    else:
        yield job_started(job)
        if job.waiting is not None:
            yield status_changed(job)


def on_cancel_started_job(state: State, body: CancelStartedJob, envelope: Envelope) -> Iterator[Output]:
    job = state.jobs.get(body.job)
    if job is not None:  # else it has ended, and its JobEnded is on the way
        yield from _cancel(state, job, envelope.at_ms)


def _cancel(state: State, job: Job, at_ms: AtMs) -> Iterator[Output]:
    """At any moment but two: an ended job stays what it is, and sinks being published are not called back."""
    if job.status in (*ENDED_JOB, JobStatus.CANCELLING) or job.sinks:
        return
    before = job.status
    move_job(job, JobStatus.CANCELLING, at_ms)
    yield from advance(state, job, at_ms, before)


def on_rescale_started_job(state: State, body: RescaleStartedJob, envelope: Envelope) -> Iterator[Output]:
    """The client is answered by the Dispatcher, once it is known here whether the job takes it: it may just have ended."""
    job = state.jobs.get(body.job)
    if body.number:
        refused = rescaling.refusal(job, body.rescale) if job is not None else None
        yield Say(DISPATCHER, QuestionAnswered(number=body.number, refused=refused, job=body.job))
    if job is not None:  # else StartJob says so, or it has ended
        yield from _rescale(state, job, body.rescale, envelope.at_ms)


def _rescale(state: State, job: Job, asked: Rescale, at_ms: AtMs) -> Iterator[Output]:
    if rescaling.ask(state, job, asked):
        before = job.status
        yield from cancel_attempts(state, job, rescaling.REASON, at_ms)
        yield from advance(state, job, at_ms, before)


def on_sink_published(state: State, body: SinkPublished, envelope: Envelope) -> Iterator[Output]:
    job = state.jobs.get(body.job)
    if job is None or body.vertex not in job.sinks or job.status in ENDED_JOB:
        return
    before = job.status
    job.sinks[body.vertex] = True
    if body.problem is not None:
        job.unpublished[body.vertex] = None
    if body.problem is not None and job.status not in ENDING_JOB:
        fail(job, fault("user", body.problem, vertex=body.vertex), envelope.at_ms)
    yield from advance(state, job, envelope.at_ms, before)


def on_job_retired(state: State, body: JobRetired, envelope: Envelope) -> Iterator[Output]:  # [R21]
    """The end is stored: forget the job. Another acceptance under the same id is another job.

    If the job still runs here, the Dispatcher knows of an end that this state does not: it came back from an older log.
    """
    job = state.jobs.get(body.job)
    if job is not None and job.acceptance == body.acceptance:
        yield from _forget_job(state, job)


def _forget_job(state: State, job: Job) -> Iterator[Output]:
    """And gives back what it holds."""
    del state.jobs[job.id]
    state.due.pop(job.id, None)
    forget_plan(state, job)
    yield from free_slots(state, job, list(job.slots))
    if job.wanted:
        job.wanted, job.wants = 0, {}
        yield request_slots(state, None, job)


def on_describe_started_job(state: State, body: DescribeStartedJob, envelope: Envelope) -> Iterator[Output]:
    job = state.jobs.get(body.job)
    if job is None:
        yield from has_ended(body)
        return
    if job.status not in ENDED_JOB:
        spend(job, envelope.at_ms)
    summary = JobSummary(
        job=job.id,
        name=job.graph.get("name", ""),
        status=job.status.value,
        accepted_ms=job.accepted_ms,
        ended_ms=job.ended_ms or None,
        waiting=job.waiting,
        position=job.position,
        expected_ms=job.expected_ms,
        running_ms=job.running_ms or None,
    )
    reply = JobDescribed(correlation=body.correlation, summary=summary, detail=describe(plan_of(state, job), job))
    yield from answered(body.reply_to, body.number, reply)


def has_ended(body: JobQuestion) -> Iterator[Output]:
    """Answers a question about a job that is live no more."""
    return refuse(body, "not_found", f"the job {body.job} has just ended: ask again")
