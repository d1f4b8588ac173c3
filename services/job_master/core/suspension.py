"""The cluster is shut down and started again: jobs are suspended, and go on. What has FINISHED is kept; what ran begins again."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.clocks import AtMs, after
from millrace.core.machine import Envelope, Output, Say
from millrace.core.messages.jobs import JobsSuspended, ResumeJobs, SuspendJobs
from millrace.core.states import ENDED_JOB, ENDING_JOB, JobStatus
from millrace.core.topics import DISPATCHER

from .failover import fail, unreadable
from .plans import plan_of
from .scheduling import ASKED_MS, advance, cancel_attempts
from .state import Job, State, move_job
from .timers import set_timer

REASON = "the cluster is being shut down"


def on_suspend_jobs(state: State, body: SuspendJobs, envelope: Envelope) -> Iterator[Output]:
    """Asked again it answers again."""
    state.suspending, state.suspension_told = True, False
    for job in list(state.jobs.values()):
        yield from suspend(state, job, envelope.at_ms)


def suspend(state: State, job: Job, at_ms: AtMs) -> Iterator[Output]:  # [R34]
    """Not a job that is ending: what is left of it takes a moment, and its sinks may be half published."""
    if job.status in (*ENDED_JOB, *ENDING_JOB, JobStatus.SUSPENDED) or job.sinks:
        return
    before = job.status
    move_job(job, JobStatus.SUSPENDED, at_ms)
    job.part_due_ms = None
    set_timer(state, job)
    yield from cancel_attempts(state, job, REASON, at_ms, ASKED_MS)
    yield from advance(state, job, at_ms, before)


def report(state: State) -> Iterator[Output]:
    """Once nothing runs any more."""
    if not state.suspension_told and all(_is_quiet(job) for job in state.jobs.values()):
        state.suspension_told = True
        yield Say(DISPATCHER, JobsSuspended(jobs=sum(job.status is JobStatus.SUSPENDED for job in state.jobs.values())))


def _is_quiet(job: Job) -> bool:
    return job.status in ENDED_JOB or (job.status is JobStatus.SUSPENDED and not job.slots)


def on_resume_jobs(state: State, body: ResumeJobs, envelope: Envelope) -> Iterator[Output]:
    yield from resume(state, envelope.at_ms)


def resume(state: State, at_ms: AtMs) -> Iterator[Output]:
    """The time-out of the queue begins anew."""
    state.suspending = False
    for job in [job for job in state.jobs.values() if job.status is JobStatus.SUSPENDED]:
        plan = plan_of(state, job)
        if plan is None:  # another build suspended it
            fail(job, unreadable(), at_ms)
        else:
            queue_ms = plan.graph.timeouts.queue_ms
            if job.queue_due_ms is not None and queue_ms is not None:
                job.queue_due_ms = after(state.now_ms, queue_ms)
            move_job(job, JobStatus.RUNNING, at_ms)
        set_timer(state, job)
        yield from advance(state, job, at_ms, JobStatus.SUSPENDED)
