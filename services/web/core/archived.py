"""An archive as the facts that led to it, as far as it tells them: so that an ended job comes into the tables as any other does.

What an archive does not tell is not made up. Of attempts before the last it has the failures alone, and no slots.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from millrace.core.clocks import TIME_MOST_MS
from millrace.core.faults import fault
from millrace.core.jobgraph.compile import PLAN_TASK
from millrace.core.messages.attempts import ResultRows
from millrace.core.messages.execution import Archive, FailureDetail, JobDetail, SubtaskDetail
from millrace.core.origins import origin_shown
from millrace.core.states import ENDED_BY, ENDED_EXECUTION, ENDED_JOB, NOT_DEPLOYED, ExecutionState, JobStatus

from .facts import Fact
from .jobs import BEFORE_DEPLOYING, TOPIC
from .plans import inputs_of, plan_of

ARCHIVE_MOST = 64 << 20  # bytes of one that is read
SUBTASKS_MOST = 100_000
KINDS = {status: kind for kind, status in ENDED_BY.items()}
BETWEEN = frozenset(status.value for status in JobStatus if status not in ENDED_JOB)
STATES = frozenset(state.value for state in ExecutionState)
Body = dict[str, Any]


class Damaged(ValueError):
    """No archive of this job, or none that can be shown; the message says why."""


def parsed(data: bytes, job: str) -> Archive:
    """The archive of a job. It was written by any build, and may have been changed since: raises Damaged."""
    try:
        archive = Archive.model_validate_json(data, extra="ignore")
    except ValidationError as wrong:
        first = wrong.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise Damaged(f"{place + ': ' if place else ''}{first['msg']}") from None
    if archive.job != job:
        raise Damaged(f"it is the archive of another job, {archive.job[:100]}")
    if archive.status not in ENDED_JOB:
        raise Damaged(f"{archive.status[:100]} is no state in which a job ends")
    detail = archive.detail
    subtasks = [each for task in detail.tasks for each in task.subtasks] if detail is not None else []
    if detail is not None and (
        sum(max(0, task.parallelism) for task in detail.tasks) > SUBTASKS_MOST
        or len({task.task for task in detail.tasks}) < len(detail.tasks)
        or any(each.state not in STATES or each.attempt < 0 for each in subtasks)
        or any(not 0 <= each.subtask < task.parallelism for task in detail.tasks for each in task.subtasks)
    ):
        raise Damaged("its tasks have a name, a number or a state that no task has")
    times = [archive.accepted_ms, archive.ended_ms]
    own = ("created_ms", "scheduled_ms", "deployed_ms", "running_ms", "ended_ms")
    times += [ms for each in subtasks for name in own if (ms := getattr(each, name)) is not None]
    times += [*detail.entered.values()] if detail is not None else []
    times += [failure.at_ms for each in subtasks for failure in each.failures]
    if any(not 0 <= ms <= TIME_MOST_MS for ms in times):
        raise Damaged("it has a time that is none")
    return archive


def facts_of(archive: Archive, path: str, first: int) -> list[Fact]:
    """What its job's scopes published, in order. `path`: of the archive in storage. `first`: the number of the first fact."""
    detail = archive.detail
    bodies: list[Body] = [_accepted(archive)]
    if detail is not None:
        told = [each for task in detail.tasks for subtask in task.subtasks for each in _attempts(task.task, subtask)]
        told += [_kept(archive, task.task, each) for task in detail.tasks for each in task.subtasks if each.kept_from is not None]
        told += _states(detail)
        bodies += [{"type": "EdgeSkewed", "at_ms": archive.accepted_ms, "edge": each.json_value()} for each in detail.skewed]
        bodies += sorted(told, key=lambda body: body["at_ms"])  # stable: of one moment, as they follow from each other
    result = detail.result if detail is not None else None
    bodies.append({
        "type": KINDS[archive.status], "at_ms": archive.ended_ms, "archive": path,
        "cause": archive.cause.json_value() if archive.cause is not None else None,
        "spent": detail.spent.model_dump() if detail is not None and detail.spent is not None else None,
        "result": {"rows": result.rows, "truncated": result.truncated} if isinstance(result, ResultRows) else None,
    })  # fmt: skip
    return _numbered(archive.job, bodies, first)


def _states(detail: JobDetail) -> Iterator[Body]:
    """When the job last came into each state between its acceptance and its end."""
    for at_ms, status in sorted((at_ms, status) for status, at_ms in detail.entered.items() if status in BETWEEN):
        yield {"type": "JobStateChanged", "at_ms": at_ms, "status": status, "cause": None}


def facts_of_damaged(job: str, path: str, why: str, at_ms: int, first: int) -> list[Fact]:
    """One row, with the reason. It is FAILED, for what cannot be read is no success; `at_ms`: when the file was written."""
    cause = fault("internal", f"its archive is damaged, so how the job ended is not known: {why}").json_value()
    at_ms = min(max(0, at_ms), TIME_MOST_MS)
    return _numbered(job, [
        {"type": "JobAccepted", "name": job, "at_ms": at_ms, "tasks": []},
        {"type": "JobFailed", "at_ms": at_ms, "archive": path, "cause": cause, "spent": None},
    ], first)  # fmt: skip


def _numbered(job: str, bodies: list[Body], first: int) -> list[Fact]:
    return [Fact(TOPIC, 0, first + n, body["at_ms"], 1, {**body, "job": job, "count": n + 1}) for n, body in enumerate(bodies)]


def _accepted(archive: Archive) -> Body:
    tasks = [(task.task, task.parallelism) for task in archive.detail.tasks if task.task != PLAN_TASK] if archive.detail else []
    plan = plan_of(archive.graph, [task for task, _ in tasks]) if len(tasks) > 1 else None
    inputs = inputs_of(plan) if plan is not None else {}
    origin = origin_shown(archive.graph)
    return {
        "type": "JobAccepted", "name": archive.name, "at_ms": archive.accepted_ms,
        **({} if origin is None else {"origin": origin.json_value()}),
        "tasks": [
            {"task": task, "parallelism": parallelism, "inputs": [{"task": read, "edge": edge} for read, edge in inputs.get(task, ())]}
            for task, parallelism in tasks
        ],
    }  # fmt: skip


def _attempts(task: str, subtask: SubtaskDetail) -> Iterator[Body]:
    failed = {each.attempt: each for each in subtask.failures}
    last = subtask.attempt if subtask.state not in NOT_DEPLOYED else 0
    for each in subtask.failures:
        if each.attempt != last:
            yield _failed(task, subtask, each, each.task_manager)
    if not last:
        return
    times = {ExecutionState.DEPLOYING.value: subtask.deployed_ms, ExecutionState.RUNNING.value: subtask.running_ms}
    for state, at_ms in times.items():
        if at_ms is not None:
            before = {name: getattr(subtask, name) for name in BEFORE_DEPLOYING.values()} if state == ExecutionState.DEPLOYING else {}
            yield {**_attempt(task, subtask, last, state, at_ms, subtask.task_manager), **before}
    if last in failed:
        yield _failed(task, subtask, failed[last], subtask.task_manager)
    elif subtask.state in ENDED_EXECUTION and subtask.ended_ms is not None:
        done = _done(subtask) if subtask.running_ms is not None else None
        yield _attempt(task, subtask, last, subtask.state, subtask.ended_ms, subtask.task_manager, progress=done)


def _failed(task: str, subtask: SubtaskDetail, failure: FailureDetail, task_manager: str) -> Body:
    done = failure.progress.model_dump(exclude_none=True) if failure.progress is not None else None
    error = failure.error.json_value()
    return _attempt(task, subtask, failure.attempt, ExecutionState.FAILED, failure.at_ms, task_manager, error, done)


def _kept(archive: Archive, task: str, subtask: SubtaskDetail) -> Body:
    return {
        "type": "SubtasksKept", "task": task, "subtasks": [subtask.subtask], "kept_from": subtask.kept_from, "at_ms": archive.accepted_ms,
    }  # fmt: skip


def _attempt(
    task: str, subtask: SubtaskDetail, attempt: int, state: str, at_ms: int, task_manager: str, error: Body | None = None,
    progress: dict[str, int] | None = None,
) -> Body:  # fmt: skip
    return {
        "type": "AttemptStateChanged", "task": task, "subtask": subtask.subtask, "attempt": attempt, "state": state, "at_ms": at_ms,
        "task_manager": task_manager or None, "slot": None, "error": error, "progress": progress,
    }  # fmt: skip


def _done(subtask: SubtaskDetail) -> dict[str, int] | None:
    """What the last attempt's Spark has done. Where that is not kept, as of one of very many subtasks, what it has published is."""
    if subtask.progress is not None:
        return subtask.progress.model_dump(exclude_none=True)
    if not subtask.outputs:
        return None
    return {
        "rows_written": sum(each.rows or 0 for each in subtask.outputs.values()),
        "bytes_written": sum(each.bytes or 0 for each in subtask.outputs.values()),
    }
