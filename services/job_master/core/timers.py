"""The timers of jobs: the time-out of the queue, the retries of subtasks, when one is slow, and how long a gang waits for the rest of its
slots.
`state.due` has the earliest of each job."""

from __future__ import annotations

from millrace.core.clocks import NowMs
from millrace.core.states import ENDED_JOB, ENDING_JOB, JobStatus

from .state import Job, State


def is_due(state: State, job: Job) -> bool:
    """Whether one of its timers is due."""
    return job.id in state.due and state.due[job.id] <= state.now_ms


def set_timer(state: State, job: Job) -> None:
    """Finds the earliest timer among all. A job that is ending or suspended has none."""
    times = [due for task in job.tasks.values() for due in task.retry.values()]
    if job.held_until_ms is not None:
        times.append(job.held_until_ms)
    if job.queue_due_ms is not None:
        times.append(job.queue_due_ms)
    if job.part_due_ms is not None:
        times.append(job.part_due_ms)
    if job.slow_due_ms is not None:
        times.append(job.slow_due_ms)
    if times and job.status not in (*ENDING_JOB, *ENDED_JOB, JobStatus.SUSPENDED):
        state.due[job.id] = min(times)
    else:
        state.due.pop(job.id, None)


def retry_at(state: State, job: Job, task: str, index: int, due: NowMs) -> None:
    """The subtask, which is CREATED again, is scheduled at this time."""
    job.tasks[task].retry[index] = due
    if job.status is JobStatus.SUSPENDED:
        return
    state.due[job.id] = min(due, state.due.get(job.id, due))
