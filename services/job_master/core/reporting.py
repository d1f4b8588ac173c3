"""What is reported of a job: to the Dispatcher, and as public events, which are numbered [R16]."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.clocks import AtMs
from millrace.core.jobgraph.compile import Plan
from millrace.core.machine import Output, Publish, Say
from millrace.core.messages.attempts import Fault
from millrace.core.messages.events import (
    AttemptStateChanged,
    EdgeSkewed,
    JobEvent,
    JobRescaled,
    JobStateChanged,
    JobWaiting,
    SubtasksKept,
)
from millrace.core.messages.execution import SkewedEdge, TaskInput, TaskOutline
from millrace.core.messages.jobs import JobEnded, JobMasterStarted, JobStatusChanged
from millrace.core.messages.progress import AttemptProgress
from millrace.core.messages.requirements import Rescale
from millrace.core.states import ExecutionState
from millrace.core.topics import DISPATCHER, OUTPUT_BYTES_MAX, task_manager_name
from millrace.core.trace_context import of_facts

from . import publication
from .execution_graph import created, describe
from .keeping import left_by
from .state import Job, Rival

FIXED_BYTES = 80_000
"""Of JobEnded beside the job's detail and what is kept: its cause above all."""


def event_number(job: Job, kind: str) -> int:
    """The number of the next public event of this kind about the job [R16]."""
    job.counts[kind] = job.counts.get(kind, 0) + 1
    return job.counts[kind]


def job_event(job: Job, body: JobEvent) -> Publish:
    return Publish("job.events", job.id, body, of_facts(job.graph, job.acceptance))


def job_state_changed(job: Job, at_ms: AtMs) -> Publish:
    number = event_number(job, "JobStateChanged")
    event = JobStateChanged(job=job.id, at_ms=at_ms, count=number, status=job.status.value, cause=job.cause)
    return job_event(job, event)


def job_waiting(job: Job, at_ms: AtMs) -> Publish:
    """`job.waiting` is the reason, and not None."""
    assert job.waiting is not None
    number = event_number(job, "JobWaiting")
    event = JobWaiting(
        job=job.id, at_ms=at_ms, count=number, reason=job.waiting, position=job.position, expected_ms=job.expected_ms
    )
    return job_event(job, event)


def attempt_state_changed(
    job: Job, task: str, index: int, at_ms: AtMs, error: Fault | None = None, now: ExecutionState | None = None,
    progress: AttemptProgress | None = None, rival: Rival | None = None,
) -> Publish:  # fmt: skip
    """Of the subtask's current attempt, or of its rival. `error`: why it has failed. `now`: its state, where that is not its subtask's.
    `progress`: of one that is over, what its Spark has done."""
    subtask = job.tasks[task].rows[index]
    its = rival or subtask
    slot = job.slots.get(its.allocation or "")
    is_new = its.state is ExecutionState.DEPLOYING  # and tells of the states before: one record may schedule 25,600 subtasks
    event = AttemptStateChanged(
        job=job.id,
        at_ms=at_ms,
        count=event_number(job, "AttemptStateChanged"),
        task=task,
        subtask=index,
        attempt=its.attempt,
        state=(now or its.state).value,
        task_manager=task_manager_name(its.task_manager) or None,
        slot=slot.slot if slot is not None else None,
        error=error,
        progress=progress,
        created_ms=(created(job, its) or None) if is_new else None,
        scheduled_ms=(its.scheduled_ms or None) if is_new else None,
        beside=subtask.attempt if rival is not None else None,
    )
    return job_event(job, event)


def subtasks_kept(job: Job, at_ms: AtMs) -> Iterator[Output]:
    """Those that the job has not run, for they had finished in the one that it repairs, or before it was rescaled."""
    for task, of, subtasks in job.kept_untold:
        number = event_number(job, "SubtasksKept")
        yield job_event(job, SubtasksKept(job=job.id, at_ms=at_ms, count=number, task=task, subtasks=subtasks, kept_from=of))
    job.kept_untold = []


def edge_skewed(job: Job, edge: SkewedEdge, at_ms: AtMs) -> Publish:
    return job_event(job, EdgeSkewed(job=job.id, at_ms=at_ms, count=event_number(job, "EdgeSkewed"), edge=edge))


def job_rescaled(job: Job, plan: Plan, parallelism: dict[str, int], at_ms: AtMs) -> Publish:
    tasks = []
    for task in plan.tasks.values():
        edges = dict.fromkeys((each.task, each.edge) for its in task.inputs.values() for each in its if each.task is not None)
        read = {"inputs": [TaskInput(task=str(other), edge=edge) for other, edge in edges]} if edges else {}
        tasks.append(TaskOutline(task=task.id, vertices=list(task.vertices), parallelism=task.parallelism, **read))
    number = event_number(job, "JobRescaled")
    return job_event(job, JobRescaled(job=job.id, at_ms=at_ms, count=number, parallelism=dict(parallelism), tasks=tasks))


def job_started(job: Job) -> Say:
    """The answer to StartJob, and what a new life of the Dispatcher is sent."""
    asked = job.rescaled
    if asked is None:
        return Say(DISPATCHER, JobMasterStarted(job=job.id, status=job.status.value))
    rescale = Rescale(parallelism={**asked.parallelism, **(job.rescaling or {})}, log=asked.log, offset=asked.offset)
    started = JobMasterStarted(job=job.id, status=job.status.value, acceptance=job.acceptance, rescale=rescale)
    return Say(DISPATCHER, started)


def status_changed(job: Job) -> Say:
    changed = JobStatusChanged(
        job=job.id,
        status=job.status.value,
        waiting=job.waiting,
        position=job.position,
        expected_ms=job.expected_ms,
        running_ms=job.running_ms or None,
        publishing=bool(job.sinks),
    )
    return Say(DISPATCHER, changed)


def report_status(job: Job, at_ms: AtMs) -> Iterator[Output]:
    """To the Dispatcher and as an event."""
    yield status_changed(job)
    yield job_state_changed(job, at_ms)


def job_ended(job: Job, plan: Plan | None) -> Say:
    """The Dispatcher is sent this at each of its births until it answers JobRetired [R10]."""
    detail = describe(plan, job).model_copy(update={"result": publication.result(job)})
    room = OUTPUT_BYTES_MAX - detail.json_bytes() - FIXED_BYTES
    return Say(
        DISPATCHER,
        JobEnded(
            job=job.id,
            acceptance=job.acceptance,
            status=job.status.value,  # type: ignore[arg-type]  # one of ENDED_JOB
            cause=job.cause,
            ended_ms=job.ended_ms,
            archive=detail,
            running_ms=job.running_ms or None,
            kept=left_by(job, plan, room),
        ),
        after="job.events",  # the Dispatcher goes on with them
    )
