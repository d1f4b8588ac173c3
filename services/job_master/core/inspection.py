"""Running attempts looked at: how far they are, and what they are doing at this moment when a client asks (ReportNow)."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.answering import answered, refuse
from millrace.core.clocks import after
from millrace.core.machine import Envelope, Output, Say
from millrace.core.messages.client import InspectedAttempt, JobReported
from millrace.core.messages.events import AttemptProgressing, AttemptsProgressing
from millrace.core.messages.jobs import ReportStartedJob
from millrace.core.messages.progress import AttemptStatus, ReportOrder
from millrace.core.messages.slots import AttemptAnswered, OrderAttempts, ProgressReported
from millrace.core.states import ExecutionState
from millrace.core.timing import FORWARDED_MOST, INSPECTION_ANSWER_MS
from millrace.core.topics import Scope, task_manager_name

from .attempts import current_attempt
from .execution_graph import attempt_name, task_folder
from .lifecycle import has_ended
from .plans import plan_of
from .reporting import event_number, job_event
from .speculation import of_slot
from .state import Inspected, Inspection, Job, State

ATTEMPTS_MOST = 20  # of one ReportNow
NOT_REPORTED = "it has reported nothing yet: it began a moment ago, or its TaskManager is of an older build"


def on_progress_reported(state: State, body: ProgressReported, envelope: Envelope) -> Iterator[Output]:
    """Only current attempts count, as in `attempts.on_task_state_changed`."""
    found: dict[str, list[AttemptProgressing]] = {}
    for each in body.attempts:
        current = current_attempt(state, each)
        if current is None:
            continue
        job, task, index, rival = current
        its = rival or job.tasks[task].rows[index]
        if its.state is ExecutionState.RUNNING:
            job.slots[each.allocation].progress = each.progress.model_dump(exclude_none=True)
            progressing = AttemptProgressing(task=task, subtask=index, attempt=its.attempt, progress=each.progress)
            found.setdefault(job.id, []).append(progressing)
    for name, attempts in found.items():
        job = state.jobs[name]
        number = event_number(job, "AttemptsProgressing")
        yield job_event(job, AttemptsProgressing(job=name, at_ms=envelope.at_ms, count=number, attempts=attempts))


def on_report_started_job(state: State, body: ReportStartedJob, envelope: Envelope) -> Iterator[Output]:
    """Asks the attempts on all their TaskManagers; the client is answered when they have answered, or are late."""
    job = state.jobs.get(body.job)
    if job is None:
        yield from has_ended(body)
        return
    running = _running(state, job, body.task, body.subtask)
    if not running:
        reported = JobReported(correlation=body.correlation, job=job.id, reason=_why_none(job, body.task, body.subtask))
        yield from answered(body.reply_to, body.number, reported)
        return
    if len(state.inspections) >= FORWARDED_MOST:
        reason = f"{FORWARDED_MOST} requests wait for attempts' answers already; try again"
        yield from refuse(body, "busy", reason)
        return
    some = dict(list(running.items())[:ATTEMPTS_MOST])
    state.inspected += 1
    state.inspections[state.inspected] = Inspection(
        job.id, body.reply_to, body.correlation, body.number, after(state.now_ms, INSPECTION_ANSWER_MS), len(running), some
    )
    by_task_manager: dict[Scope, list[str]] = {}
    for name, each in some.items():
        if not _has_answered(each):
            by_task_manager.setdefault(each.task_manager, []).append(name)
    for task_manager, names in by_task_manager.items():
        yield Say(task_manager, OrderAttempts(attempts=names, order=ReportOrder(), question=state.inspected))
    if not by_task_manager:
        yield from _answer(state, state.inspected)


def on_attempt_answered(state: State, body: AttemptAnswered, envelope: Envelope) -> Iterator[Output]:
    inspection = state.inspections.get(body.question)
    each = inspection.attempts.get(body.attempt) if inspection is not None else None
    if inspection is None or each is None:
        return  # it has been answered without
    each.status = body.status.model_dump() if body.status is not None else None
    each.no_answer = body.no_answer
    if all(_has_answered(each) for each in inspection.attempts.values()):
        yield from _answer(state, body.question)


def answer_overdue(state: State) -> Iterator[Output]:
    """Answers clients without the attempts whose TaskManagers are silent [R31]."""
    for number in [number for number, each in state.inspections.items() if each.due_ms <= state.now_ms]:
        for each in state.inspections[number].attempts.values():
            if not _has_answered(each):
                name = task_manager_name(each.task_manager)
                each.no_answer = f"its TaskManager {name} has not answered within {INSPECTION_ANSWER_MS / 1000:g} s"
        yield from _answer(state, number)


def _has_answered(each: Inspected) -> bool:
    return each.status is not None or each.no_answer is not None


def _answer(state: State, number: int) -> Iterator[Output]:
    inspection = state.inspections.pop(number)
    attempts = [
        InspectedAttempt(
            task=each.task,
            subtask=each.subtask,
            attempt=each.attempt,
            task_manager=task_manager_name(each.task_manager),
            running_ms=each.running_ms,
            status=None if each.status is None else AttemptStatus.model_validate(each.status),
            no_answer=each.no_answer,
        )
        for each in inspection.attempts.values()
    ]
    reported = JobReported(
        correlation=inspection.correlation, job=inspection.job, attempts=attempts, running=inspection.running
    )
    yield from answered(inspection.reply_to, inspection.number, reported)


def _running(state: State, job: Job, task: str, subtask: int | None) -> dict[str, Inspected]:
    """The running attempts that are asked for, by name."""
    plan = plan_of(state, job)
    found = {}
    for allocation, slot in job.slots.items():
        if plan is None or slot.task is None or not _is_meant(slot.task, task) or subtask not in (None, slot.subtask):
            continue
        row = of_slot(job, allocation)
        if row.state is ExecutionState.RUNNING:
            name = attempt_name(job, task_folder(plan, slot.task), slot.subtask, row.attempt)
            found[name] = Inspected(slot.task, slot.subtask, row.attempt, slot.task_manager, row.running_ms)
            if slot.progress is None:  # a TaskManager of 0.1.0, which reports none, would end at the question
                found[name].no_answer = NOT_REPORTED
    return found


def _is_meant(task: str, asked: str) -> bool:
    """`asked`: a task, or one of its vertices; empty: any."""
    return not asked or task == asked or asked in task.split("+")


def _why_none(job: Job, asked: str, subtask: int | None) -> str:
    task = next((each for each in job.tasks if asked and _is_meant(each, asked)), None)
    if asked and task is None:
        return f"the job has no task or vertex {asked}; its tasks are {', '.join(list(job.tasks)[:20])}"
    if task is not None and subtask is not None:
        if subtask >= job.tasks[task].parallelism:
            return f"{task} has {job.tasks[task].parallelism} subtasks, counted from 0"
        row = job.tasks[task].rows.get(subtask)
        return f"{task}[{subtask}] is {row.state.value if row is not None else 'CREATED'}"
    waits = f": {job.waiting}" if job.waiting else ""
    return f"no attempt{f' of {task}' if task else ''} runs; the job is {job.status.value}{waits}"
