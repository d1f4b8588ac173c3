"""The attempts of subtasks: they run, finish or fail, and are retried."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from millrace.core.clocks import AtMs, after
from millrace.core.faults import fault
from millrace.core.machine import Envelope, Output
from millrace.core.messages.attempts import AttemptReport, Fault
from millrace.core.messages.slots import ReportedProgress, TaskStateChanged
from millrace.core.states import ENDING_JOB, IN_SLOT, ExecutionState

from . import failover, publication
from .execution_graph import attempt_name, mark_published, task_folder
from .plans import plan_of, running_plan
from .reporting import attempt_state_changed
from .scheduling import advance
from .slot_pool import vacate_slot
from .state import Failure, Job, State, move_subtask
from .time_spent import began, note_attempt, stopped
from .timers import retry_at


class Current(NamedTuple):
    """The subtask whose current attempt a message is about."""

    job: Job
    task: str
    subtask: int


def on_task_state_changed(state: State, body: TaskStateChanged, envelope: Envelope) -> Iterator[Output]:
    """Only the current attempt of a subtask counts; what an older one reports changes nothing [R20]."""
    current = current_attempt(state, body)
    if current is None:
        return
    job, task, index = current
    subtask, before = job.tasks[task].rows[index], job.status
    if body.state == "RUNNING":
        if subtask.state is ExecutionState.DEPLOYING:
            move_subtask(subtask, ExecutionState.RUNNING)
            subtask.running_ms = envelope.at_ms
            began(job, envelope.at_ms)
            yield attempt_state_changed(job, task, index, envelope.at_ms)
        return
    report, error = body.report or AttemptReport(), body.error
    if body.state == "FINISHED":
        error = publication.columns_differ(job, task, index, report)
        error = error or publication.reports_too_large(job, running_plan(state, job), task, report)
    if body.state == "FINISHED" and error is None and subtask.state is not ExecutionState.CANCELING:
        yield from _finish(state, current, body.allocation, report, envelope.at_ms)
    else:
        error = error or fault("killed", f"the attempt ended {body.state}")
        yield from fail_attempt(state, job, body.allocation, error, envelope.at_ms)
    yield from advance(state, job, envelope.at_ms, before, idle=[body.allocation])


def current_attempt(state: State, body: TaskStateChanged | ReportedProgress) -> Current | None:
    """None: the message is about an attempt that does not count, or not any more."""
    job = state.jobs.get(state.allocations.get(body.allocation, ""))
    slot = job.slots[body.allocation] if job is not None else None
    if job is None or slot is None or slot.task is None:
        return None
    plan = plan_of(state, job)
    if plan is None:
        return None
    number = job.tasks[slot.task].rows[slot.subtask].attempt
    if body.attempt != attempt_name(job, task_folder(plan, slot.task), slot.subtask, number):
        return None
    return Current(job, slot.task, slot.subtask)


def _finish(
    state: State, current: Current, allocation: str, report: AttemptReport, at_ms: AtMs
) -> Iterator[Output]:
    """Publication: from here on this attempt's output is the subtask's."""
    job, task, index = current
    plan, subtask = running_plan(state, job), job.tasks[task].rows[index]
    vacate_slot(job, allocation)
    stopped(job, subtask)
    note_attempt(job, job.tasks[task], subtask, at_ms, report)
    move_subtask(subtask, ExecutionState.FINISHED)
    subtask.ended_ms = at_ms
    publication.keep_report(job, plan, task, index, report)
    mark_published(plan, job, task, index)
    yield attempt_state_changed(job, task, index, at_ms)


def fail_attempt(state: State, job: Job, allocation: str, error: Fault, at_ms: AtMs) -> Iterator[Output]:
    """The attempt in this slot is over without a result: it was canceled, or it failed and is tried again, or the job fails with it.
    Its slot is idle now."""
    slot = job.slots[allocation]
    task, index = slot.task, slot.subtask
    assert task is not None
    subtask = job.tasks[task].rows[index]
    assert subtask.state in IN_SLOT, f"{job.id}: {task}[{index}] is {subtask.state} and fails"
    vacate_slot(job, allocation)
    stopped(job, subtask)
    note_attempt(job, job.tasks[task], subtask, at_ms)
    subtask.ended_ms = at_ms
    if subtask.state is ExecutionState.CANCELING:
        suspended = job.status not in ENDING_JOB
        move_subtask(subtask, ExecutionState.CREATED if suspended else ExecutionState.CANCELED)
        yield attempt_state_changed(job, task, index, at_ms, now=ExecutionState.CANCELED)
        if suspended:
            retry_at(state, job, task, index, state.now_ms)
        return
    move_subtask(subtask, ExecutionState.FAILED)
    kept = failover.shortened(error)
    failover.keep_failure(job, Failure(task, index, subtask.attempt, at_ms, subtask.task_manager, kept))
    yield attempt_state_changed(job, task, index, at_ms, error=kept)
    if job.status not in ENDING_JOB:
        _retry_or_fail(state, job, task, index, error, at_ms)


def _retry_or_fail(state: State, job: Job, task: str, index: int, error: Fault, at_ms: AtMs) -> None:
    subtask, restart = job.tasks[task].rows[index], running_plan(state, job).graph.restart
    decided = failover.decide(restart, job, subtask, error, state.settings.moves_most, state.now_ms)
    if decided.delay_ms is None:
        where = {"task": task, "subtask": index, "attempt": subtask.attempt}
        failover.fail(job, failover.shortened(error).model_copy(update=where), at_ms)
        return
    move_subtask(subtask, ExecutionState.CREATED)
    retry_at(state, job, task, index, after(state.now_ms, decided.delay_ms))
