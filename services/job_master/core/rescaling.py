"""A running job gets another parallelism, as a client asked for it.

What runs is canceled, and its slots are given back; then the tasks are made anew from the graph with the new numbers, and all begins that
may. What had finished and is the same stays (`carrying`). Nothing of it is a failure, and no budget of restarts is spent.

Between the two steps nothing is deployed. An attempt that still ends is of a task that there may be no more. Its slot must be empty before
that task is gone, for who is in a slot is found by its task.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.clocks import AtMs
from millrace.core.jobgraph.rescale import with_parallelism
from millrace.core.machine import Output
from millrace.core.messages.requirements import Rescale
from millrace.core.states import ENDED_JOB, ENDING_JOB, JobStatus

from .carrying import leave
from .execution_graph import begin
from .failover import fail, unreadable
from .plans import compile_stored, forget_plan, running_plan
from .reporting import job_rescaled, subtasks_kept
from .state import Job, Rescaled, State, move_job
from .timers import set_timer

REASON = "the job gets another parallelism"


def ask(state: State, job: Job, asked: Rescale) -> bool:
    """Notes what is asked for; whether anything is to change. A request that was taken before, or is older than one that was, is not taken
    again: a Dispatcher that has lost its log reads them all once more."""
    if _is_taken(job, asked) or refusal(job, asked) is not None:
        return False
    job.rescaled = job.rescaled or Rescaled(asked.log, asked.offset)
    job.rescaled.log, job.rescaled.offset = asked.log, asked.offset
    has = _parallelism(job)
    wanted = {name: number for name, number in asked.parallelism.items() if name in has and number != has[name]}
    if not wanted:
        return False
    job.rescaling = {**(job.rescaling or {}), **wanted}
    job.part_due_ms = job.slow_due_ms = None
    set_timer(state, job)
    return True


def refusal(job: Job, asked: Rescale) -> str | None:
    """Why it is too late for what is asked for: as a cancel, it calls back no sinks. None: it is taken, or was before."""
    if _is_taken(job, asked):
        return None
    if job.status in ENDED_JOB:
        return f"job {job.id} has ended already: it is {job.status.value}"
    if job.status in ENDING_JOB:
        return f"job {job.id} is {job.status.value}: it gets no other parallelism any more"
    return f"job {job.id} publishes its sinks: it ends with the parallelism that it has" if job.sinks else None


def _is_taken(job: Job, asked: Rescale) -> bool:
    known = job.rescaled
    return known is not None and known.log == asked.log and known.offset >= asked.offset


def _parallelism(job: Job) -> dict[str, int]:
    """Vertex -> what it has, or will have."""
    now = {name: vertex.get("parallelism", 1) for name, vertex in job.graph.get("vertices", {}).items()}
    return now | (job.rescaling or {})


def rescale(state: State, job: Job, at_ms: AtMs) -> Iterator[Output]:
    """Makes the job's tasks anew, once no attempt is in a slot."""
    assert job.rescaling is not None and job.rescaled is not None, f"{job.id} is not to be rescaled"
    if any(slot.task is not None for slot in job.slots.values()):
        if job.status is not JobStatus.RESTARTING:
            move_job(job, JobStatus.RESTARTING, at_ms)
        return
    before, wanted = running_plan(state, job), job.rescaling
    graph = with_parallelism(job.graph, wanted)
    after = compile_stored(graph, job.planner)
    job.rescaling = None
    if after is None:  # the Dispatcher's build takes what this one does not
        fail(job, unreadable(), at_ms)
        return
    leave(job, before, after, at_ms)
    job.rescaled.parallelism.update(wanted)
    job.graph, job.held_until_ms, job.hashed, job.skewed = graph, None, {}, []
    if job.backoff is not None and job.backoff.restart_ms is not None:  # the restart that it was for has begun with this
        job.backoff.restart_ms = min(job.backoff.restart_ms, state.now_ms)
    forget_plan(state, job)
    begin(running_plan(state, job), job, at_ms)
    set_timer(state, job)
    yield job_rescaled(job, running_plan(state, job), wanted, at_ms)
    yield from subtasks_kept(job, at_ms)
