"""A job's ExecutionGraph: which subtasks may run, and how `show` describes it."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

from millrace.core.bounded import bytes_of
from millrace.core.clocks import AtMs, NowMs
from millrace.core.jobgraph.compile import PLAN_TASK, Plan
from millrace.core.jobgraph.specs import folder_name
from millrace.core.messages.base import parsed, written
from millrace.core.messages.execution import JobDetail
from millrace.core.messages.progress import AttemptProgress
from millrace.core.origins import origin_shown
from millrace.core.states import ENDED_JOB, ENDING_JOB, ExecutionState, JobStatus
from millrace.core.topics import task_manager_name

from .carrying import carry_over
from .keeping import restore, restore_plan
from .state import NEVER, Failure, Job, Rival, Subtask, Task, move_subtask, place_job
from .time_spent import parts_of

SHOWN_SUBTASKS = ((1000, True), (1000, False), (100, True), (10, True), (0, True))
"""Of a job, in `show` and its archive: the most that fit, and whether what each has done is told too."""
SHOWN_BYTES = 400_000
RIVAL_TIMES = ("created_ms", "scheduled_ms", "deployed_ms", "running_ms", "canceling_ms")


def begin(plan: Plan, job: Job, at_ms: AtMs = NEVER) -> None:
    """Makes the tasks of a new job and schedules what may run first: the planning attempt, where the plan needs one."""
    before = job.rescaled.attempts if job.rescaled is not None else {}
    job.tasks = {PLAN_TASK: Task(1, attempts=before.get(PLAN_TASK, 0))} if plan.needs_planning else {}
    for task in plan.tasks.values():
        job.tasks[task.id] = Task(task.parallelism, blocked=len(task.whole), attempts=before.get(task.id, 0))
    if plan.needs_planning and not restore_plan(plan, job):
        schedule(job.tasks[PLAN_TASK], 0, at_ms)
    else:
        _begin_sources(plan, job, at_ms)


def _begin_sources(plan: Plan, job: Job, at_ms: AtMs) -> None:
    """And whatever else may run because all that it reads is kept."""
    restore(plan, job)
    carry_over(plan, job)
    for name in plan.tasks:
        if not job.tasks[name].blocked:
            _unblock(plan, job, name, at_ms)


def mark_published(plan: Plan, job: Job, task: str, index: int, at_ms: AtMs = NEVER) -> None:  # [R30]
    """This subtask has published: what waited for that may run. A reader by hash or broadcast is looked at when the whole task has
    finished, a reader by forward at its one subtask."""
    done = job.tasks[task]
    done.finished += 1
    if task == PLAN_TASK:
        _begin_sources(plan, job, at_ms)
        return
    whole = done.finished == done.parallelism
    for name in plan.tasks[task].readers:
        reader = job.tasks[name]
        if whole and task in plan.tasks[name].whole:
            reader.blocked -= 1
            if reader.blocked == 0:
                _unblock(plan, job, name, at_ms)
        elif reader.blocked == 0:
            _schedule_aligned(plan, job, name, index, at_ms)


def _unblock(plan: Plan, job: Job, task: str, at_ms: AtMs) -> None:
    for index in range(job.tasks[task].parallelism):
        _schedule_aligned(plan, job, task, index, at_ms)


def _schedule_aligned(plan: Plan, job: Job, task: str, index: int, at_ms: AtMs) -> None:
    """Schedules a subtask of a task that is not blocked, once the subtasks that it reads by forward have published."""
    its = job.tasks[task]
    if index in its.rows and (index not in its.held or job.held_until_ms is not None):
        return
    if all(_has_published(job, other, index) for other in plan.tasks[task].aligned):
        its.held.pop(index, None)
        schedule(its, index, at_ms)


def release(plan: Plan, job: Job, at_ms: AtMs) -> None:
    """Schedules what is held and need not be any more."""
    for name in plan.tasks:
        if job.tasks[name].held and not job.tasks[name].blocked:
            for index in list(job.tasks[name].held):
                _schedule_aligned(plan, job, name, index, at_ms)


def withdraw(plan: Plan, job: Job, task: str, index: int) -> None:
    """What this subtask has published counts no more: the reverse of `mark_published`."""
    done = job.tasks[task]
    if done.finished == done.parallelism:
        for name in plan.tasks[task].readers:
            job.tasks[name].blocked += task in plan.tasks[name].whole
    done.finished -= 1


def _has_published(job: Job, task: str, index: int) -> bool:
    row = job.tasks[task].rows.get(index)
    return row is not None and row.state is ExecutionState.FINISHED


def schedule(task: Task, index: int, at_ms: AtMs = NEVER) -> None:
    """The subtask wants a slot from now on."""
    row = task.rows.setdefault(index, Subtask(attempt=task.attempts))
    if row.state is not ExecutionState.SCHEDULED:
        move_subtask(row, ExecutionState.SCHEDULED)
    row.scheduled_ms = at_ms
    heapq.heappush(task.ready, index)


def schedule_due(job: Job, now_ms: NowMs, at_ms: AtMs = NEVER) -> None:
    """Schedules the subtasks whose retry is due."""
    for task in job.tasks.values():
        for index in [index for index, due in task.retry.items() if due <= now_ms]:
            del task.retry[index]
            schedule(task, index, at_ms)


def scheduled(job: Job) -> Iterator[tuple[str, int]]:
    """The subtasks that wait for a slot, first the ones of the first task. Whoever takes the next one has removed the one before."""
    for name, task in job.tasks.items():
        while task.ready:
            yield name, task.ready[0]


def scheduled_count(job: Job) -> int:
    return sum(len(task.ready) for task in job.tasks.values())


def all_finished(job: Job) -> bool:
    return all(task.finished == task.parallelism for task in job.tasks.values())


def attempt_name(job: Job, task_folder: str, subtask: int, attempt: int) -> str:  # [R20]
    """Names an attempt for ever: `<job>/<task folder>/<subtask>/<life>.<number>`."""
    return f"{job.id}/{task_folder}/{subtask}/{job.life}.{attempt}"


def task_folder(plan: Plan, task: str) -> str:
    """A short name of a task, fit for a path: its index and last vertex."""
    return "plan" if task == PLAN_TASK else folder_name(plan.tasks[task])


def describe(plan: Plan | None, job: Job) -> JobDetail:
    """The job as `show` and its archive have it: tasks, subtasks, attempts, times, failures. At most SHOWN_BYTES [R15].

    It is made as JSON, for its length is looked at several times, and that of models costs three times as much."""
    for most, whole in SHOWN_SUBTASKS:
        found = _describe(plan, job, most, whole)
        if bytes_of(found) <= SHOWN_BYTES:
            break
    return JobDetail.model_validate(found)


def _describe(plan: Plan | None, job: Job, most: int, whole: bool) -> dict[str, Any]:
    shown = 0
    tasks = []
    over = job.status in (*ENDING_JOB, *ENDED_JOB)
    blank = Subtask(ExecutionState.CANCELED if over else ExecutionState.CREATED)  # what has no row
    failures: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for failure in job.failures:
        failures.setdefault((failure.task, failure.subtask), []).append(_describe_failure(failure))
    for name, task in job.tasks.items():
        states = [row.state.value for _, row in sorted(task.rows.items())]
        states += [blank.state.value] * (task.parallelism - len(states))
        counts = {state: states.count(state) for state in dict.fromkeys(states)}
        some = range(min(task.parallelism, max(0, most - shown)))
        shown += len(some)
        folder = task_folder(plan, name) if plan is not None else name
        tasks.append(
            {
                "task": name,
                "parallelism": task.parallelism,
                "states": counts,
                "omitted": task.parallelism - len(some),
                "subtasks": [
                    _describe_subtask(job, folder, index, row, last, failures.get((name, index), []), whole)
                    | _describe_rival(job, name, index)
                    for index in some
                    for row in [task.rows.get(index, blank)]
                    for last in [max(row.attempt, job.of_seconds(name).numbered.get(index, 0))]
                ],
            }
        )
    return {
        "job": job.id,
        "name": job.graph.get("name", ""),
        "acceptance": job.acceptance,
        "status": job.status.value,
        "accepted_ms": job.accepted_ms,
        "since_ms": job.since_ms,
        "entered": dict(job.entered),
        "ended_ms": job.ended_ms or None,
        "restarts": job.restarts + job.memory_restarts,
        "waiting": job.waiting,
        "position": job.position,
        "cause": job.cause.json_value() if job.cause is not None else None,
        "sinks": dict(job.sinks),
        "tasks": tasks,
        **({"failed": job.failed} if job.failed else {}),
        **({"skewed": [each.json_value() for each in job.skewed]} if job.skewed else {}),
        **({"rescaled": dict(job.rescaled.parallelism)} if job.rescaled is not None and job.rescaled.parallelism else {}),
        **({"rescaling": dict(job.rescaling)} if job.rescaling is not None else {}),
        **({} if (origin := origin_shown(job.graph)) is None else {"origin": origin.json_value()}),
        **({} if job.expected_ms is None else {"expected_ms": job.expected_ms}),
        **({} if (spent := parts_of(job)) is None else {"spent": spent}),
    }


def _describe_rival(job: Job, task: str, index: int) -> dict[str, Any]:
    """Flink's other-concurrent-attempts; nothing of a subtask that has one attempt."""
    rival = job.of_seconds(task).rivals.get(index)
    if rival is None:
        return {}
    slot = job.slots[rival.allocation]
    times = {name: at_ms for name in RIVAL_TIMES if (at_ms := getattr(rival, name))}
    given = {"attempt": rival.attempt, "state": rival.state.value, "task_manager": task_manager_name(rival.task_manager)}
    return {"concurrent_attempts": [{**given, **times, **({} if slot.progress is None else {"progress": slot.progress})}]}


def _describe_subtask(
    job: Job, folder: str, index: int, subtask: Subtask, last: int, failures: list[dict[str, Any]], whole: bool
) -> dict[str, Any]:
    slot = job.slots.get(subtask.allocation or "")
    progress = slot.progress if slot is not None else shown_progress(subtask.progress) if whole else None
    return {
        "subtask": index,
        "state": subtask.state.value,
        "attempt": subtask.attempt,
        "task_manager": task_manager_name(subtask.task_manager),
        **({"created_ms": created_ms} if (created_ms := created(job, subtask)) else {}),
        **({"scheduled_ms": subtask.scheduled_ms} if subtask.scheduled_ms else {}),
        "deployed_ms": subtask.deployed_ms or None,
        "running_ms": subtask.running_ms or None,
        **({"canceling_ms": subtask.canceling_ms} if subtask.canceling_ms else {}),
        "ended_ms": subtask.ended_ms or None,
        "logs": [
            {"attempt": n, "path": log_folder(job, attempt_name(job, folder, index, n))}
            for n in range(max(1, last - 9), last + 1)
        ],
        "outputs": {
            vertex: {"rows": rows, "bytes": bytes_} for vertex, (rows, bytes_) in (subtask.outputs or {}).items()
        },
        "failures": failures,
        **({} if progress is None else {"progress": progress}),
        **({} if subtask.kept is None else {"kept_from": job.kept_of[place_job(subtask.kept)]}),
        **({} if subtask.files is None else {"files": dict(zip(("kept", "bytes", "left_out"), subtask.files, strict=True))}),
    }


def created(job: Job, subtask: Subtask | Rival) -> AtMs:
    """When its current attempt was CREATED, or the next one, where that has none yet. First attempts are it with their job, or since it was
    rescaled."""
    anew = job.rescaled.since_ms if job.rescaled is not None else NEVER
    return subtask.created_ms or anew or job.entered.get(JobStatus.CREATED.value, NEVER)


def kept_progress(progress: AttemptProgress | None) -> str | None:
    """As a state keeps it: without what is 0."""
    return None if progress is None else written({name: count for name, count in progress.model_dump().items() if count})


def shown_progress(kept: str | None) -> dict[str, int] | None:
    """What `kept_progress` was given."""
    return None if kept is None else {**dict.fromkeys(AttemptProgress.model_fields, 0), **parsed(kept)}


def _describe_failure(failure: Failure) -> dict[str, Any]:
    return {
        "attempt": failure.attempt,
        "at_ms": failure.at_ms,
        "task_manager": task_manager_name(failure.task_manager),
        "error": failure.error.json_value(),
        **({} if failure.progress is None else {"progress": shown_progress(failure.progress)}),
    }


def log_folder(job: Job, attempt: str) -> str:
    """Where an attempt's stdout and stderr are on the blob server, below `logs/`. Two levels and no more: each folder that must be made
    delays RUNNING."""
    return f"{job.acceptance}/{attempt.removeprefix(job.id + '/').replace('/', '.')}"
