"""The attempts of subtasks: they run, finish or fail, and are retried."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from millrace.core.clocks import AtMs, after
from millrace.core.faults import fault
from millrace.core.jobgraph.compile import PLAN_TASK
from millrace.core.machine import Envelope, Output
from millrace.core.messages.attempts import AttemptReport, Fault
from millrace.core.messages.slots import ReportedProgress, TaskStateChanged
from millrace.core.states import ENDING_JOB, IN_SLOT, ExecutionState

from . import failover, publication, resetting, skew, speculation
from .execution_graph import attempt_name, kept_progress, mark_published, task_folder
from .plans import plan_of, running_plan
from .reporting import attempt_state_changed, edge_skewed, subtasks_kept
from .restarts import Decision
from .scheduling import advance, send_cancels
from .slot_pool import vacate_slot
from .state import Failure, Job, Rival, State, move_subtask
from .time_spent import began, note_attempt, stopped
from .timers import retry_at


class Current(NamedTuple):
    """The subtask whose current attempt, or rival, a message is about."""

    job: Job
    task: str
    subtask: int
    rival: Rival | None


def on_task_state_changed(state: State, body: TaskStateChanged, envelope: Envelope) -> Iterator[Output]:
    """Only the current attempt of a subtask counts, and its rival; what an older one reports changes nothing [R20][R38]."""
    current = current_attempt(state, body)
    if current is None:
        return
    job, task, index, rival = current
    its, before = rival or job.tasks[task].rows[index], job.status
    if body.state == "RUNNING":
        if its.state is ExecutionState.DEPLOYING:
            its.state = ExecutionState.RUNNING
            its.running_ms = envelope.at_ms
            began(job, envelope.at_ms)
            yield attempt_state_changed(job, task, index, envelope.at_ms, rival=rival)
        return
    report, error = body.report or AttemptReport(), body.error
    if body.state == "FINISHED":
        error = publication.columns_differ(job, task, index, report)
        error = error or publication.reports_too_large(job, running_plan(state, job), task, report)
    if body.state == "FINISHED" and error is None and its.state is not ExecutionState.CANCELING:
        if rival is not None:
            speculation.swap(job, task, index)
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
    number = speculation.of_slot(job, body.allocation).attempt
    if body.attempt != attempt_name(job, task_folder(plan, slot.task), slot.subtask, number):
        return None
    return Current(job, slot.task, slot.subtask, speculation.rival_in(job, body.allocation))


def _finish(
    state: State, current: Current, allocation: str, report: AttemptReport, at_ms: AtMs
) -> Iterator[Output]:
    """Publication: from here on this attempt's output is the subtask's."""
    job, task, index, _ = current
    plan, subtask = running_plan(state, job), job.tasks[task].rows[index]
    vacate_slot(job, allocation)
    stopped(job, subtask)
    note_attempt(job, job.tasks[task], subtask, at_ms, report)
    move_subtask(subtask, ExecutionState.FINISHED)
    subtask.ended_ms = at_ms
    speculation.took(state, job, task, index)
    publication.keep_report(job, plan, task, index, report)
    mark_published(plan, job, task, index, at_ms)
    yield attempt_state_changed(job, task, index, at_ms, progress=report.progress)
    for edge in skew.count(plan, job, task, report):
        yield edge_skewed(job, edge, at_ms)
    speculation.lose(job, task, index, at_ms)
    yield from send_cancels(state, job, speculation.LOSES)
    yield from subtasks_kept(job, at_ms)


def fail_attempt(state: State, job: Job, allocation: str, error: Fault, at_ms: AtMs) -> Iterator[Output]:
    """The attempt in this slot is over without a result: it was canceled, or it failed and is tried again, perhaps with others, or the job
    fails with it. Its slot is idle now."""
    if speculation.is_one_of_two(job, allocation):
        yield from speculation.end_one(state, job, allocation, error, at_ms)
        return
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
        again = job.status not in ENDING_JOB  # the job is suspended, or the subtask is to run again
        move_subtask(subtask, ExecutionState.CREATED if again else ExecutionState.CANCELED)
        subtask.created_ms = at_ms if again else subtask.created_ms
        yield attempt_state_changed(job, task, index, at_ms, now=ExecutionState.CANCELED)
        if again and task == PLAN_TASK:
            retry_at(state, job, task, index, state.now_ms)
        elif again:
            job.tasks[task].held[index] = None
        return
    move_subtask(subtask, ExecutionState.FAILED)
    speculation.left(job, task, index)
    lost, decision = _decide(state, job, task, index, error)
    kept = failover.note(job, failover.shortened(error), decision)
    done = kept_progress(error.progress)
    failover.keep_failure(job, Failure(task, index, subtask.attempt, at_ms, subtask.task_manager, kept, done))
    yield attempt_state_changed(job, task, index, at_ms, error=kept, progress=error.progress)
    if decision.delay_ms is None:
        where = {"task": task, "subtask": index, "attempt": subtask.attempt}
        failover.fail(job, kept.model_copy(update=where), at_ms)
    elif lost is not None:
        resetting.reset(state, job, lost, decision.delay_ms, at_ms)
    else:
        move_subtask(subtask, ExecutionState.CREATED)
        subtask.created_ms = at_ms
        retry_at(state, job, task, index, after(state.now_ms, decision.delay_ms))


def _decide(
    state: State, job: Job, task: str, index: int, error: Fault
) -> tuple[list[resetting.Place] | None, Decision]:
    """What follows a failure. First: the subtasks that run again, if it is not this one alone."""
    if job.status in ENDING_JOB:
        return None, Decision(None, "the job is ending already")
    plan, subtask = running_plan(state, job), job.tasks[task].rows[index]
    lost = resetting.lost_producers(job, plan, task, index, error)
    if lost is not None:
        decision = failover.recompute(job, state.settings.moves_most)
        return resetting.readers_of(job, plan, [*lost, *resetting.gang(job, task, index)]), decision
    decision = failover.decide(plan.graph.restart, job, subtask, error, state.settings.moves_most, state.now_ms)
    if task == PLAN_TASK:
        return None, decision
    if plan.graph.restart.scope == "full":
        return resetting.everything(job), decision
    return resetting.readers_of(job, plan, resetting.gang(job, task, index)) if job.is_gang else None, decision
