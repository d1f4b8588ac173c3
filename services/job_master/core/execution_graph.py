"""Questions to a job's ExecutionGraph: what may run, what is wanted, how it looks. Pure: plan and job in, values out."""

from __future__ import annotations

import json
from typing import Any

from millrace.core.jobgraph.compile import PLAN_TASK, Plan, folder_name, producers

from .state import Job, Subtask
from .transitions import WANTS_SLOT, ExecutionState

SHOWN_SUBTASKS = (1000, 100, 10, 0)  # of a job, in `show` and its archive: the most that fit
SHOWN_BYTES = 400_000
KEPT_FAILURES = 3  # of a subtask


def new_tasks(plan: Plan) -> dict[str, list[Subtask]]:
    """The subtasks of a job before anything ran; the planning attempt goes first where the plan needs it."""
    tasks = {PLAN_TASK: [Subtask()]} if plan.needs_planning else {}
    return tasks | {task.id: [Subtask() for _ in range(task.parallelism)] for task in plan.tasks.values()}


def runnable(plan: Plan, job: Job, now_ms: int) -> list[tuple[str, int]]:
    """The CREATED subtasks whose producers have all published and whose retry is due, producers first."""
    if PLAN_TASK in job.tasks and job.planned is None:
        names = [PLAN_TASK]
    else:
        names = [task for task in plan.tasks if _published(job, plan.tasks[task].upstream)]
    ready = []
    for task in names:
        for index, subtask in enumerate(job.tasks[task]):
            due = subtask.retry_ms is None or subtask.retry_ms <= now_ms
            if subtask.state is not ExecutionState.CREATED or not due:
                continue
            if task == PLAN_TASK or _inputs_published(plan, job, task, index):
                ready.append((task, index))
    return ready


def _published(job: Job, upstream: tuple[str, ...]) -> bool:
    """Cheap first look: some subtask of every producing task has published."""
    return all(any(s.state is ExecutionState.FINISHED for s in job.tasks[task]) for task in upstream)


def _inputs_published(plan: Plan, job: Job, task: str, index: int) -> bool:
    return all(job.tasks[t][i].state is ExecutionState.FINISHED for t, i in producers(plan, task, index))


def wanted_slots(job: Job) -> int:
    return sum(subtask.state in WANTS_SLOT for subtasks in job.tasks.values() for subtask in subtasks)


def scheduled(job: Job) -> tuple[str, int] | None:
    """The first subtask that waits for a slot."""
    for task, subtasks in job.tasks.items():
        for index, subtask in enumerate(subtasks):
            if subtask.state is ExecutionState.SCHEDULED:
                return task, index
    return None


def all_finished(job: Job) -> bool:
    return all(s.state is ExecutionState.FINISHED for subtasks in job.tasks.values() for s in subtasks)


def attempt_name(job: Job, task_folder: str, subtask: int, attempt: int) -> str:
    """Names an attempt for ever: `<job>/<task folder>/<subtask>/<life>.<number>`."""
    return f"{job.id}/{task_folder}/{subtask}/{job.life}.{attempt}"


def task_folder(plan: Plan, task: str) -> str:
    """A short name of a task, fit for a path: its index and last vertex."""
    return "plan" if task == PLAN_TASK else folder_name(plan.tasks[task])


def describe(plan: Plan | None, job: Job) -> dict[str, Any]:
    """The job as `show` and its archive have it: tasks, subtasks, attempts, times, failures. At most SHOWN_BYTES [15]."""
    for most in SHOWN_SUBTASKS:
        found = _describe(plan, job, most)
        if len(json.dumps(found, ensure_ascii=False).encode()) <= SHOWN_BYTES:
            break
    return found


def _describe(plan: Plan | None, job: Job, most: int) -> dict[str, Any]:
    shown = 0
    tasks = []
    for task, subtasks in job.tasks.items():
        counts: dict[str, int] = {}
        for subtask in subtasks:
            counts[subtask.state.value] = counts.get(subtask.state.value, 0) + 1
        some = subtasks[: max(0, most - shown)]
        shown += len(some)
        folder = task_folder(plan, task) if plan is not None else task
        tasks.append(
            {
                "task": task,
                "parallelism": len(subtasks),
                "states": counts,
                "omitted": len(subtasks) - len(some),
                "subtasks": [_describe_subtask(job, folder, index, subtask) for index, subtask in enumerate(some)],
            }
        )
    return {
        "job": job.id,
        "name": job.graph.get("name", ""),
        "acceptance": job.acceptance,
        "status": job.status.value,
        "accepted_ms": job.accepted_ms,
        "since_ms": job.since_ms,
        "ended_ms": job.ended_ms or None,
        "restarts": job.restarts,
        "waiting": job.waiting,
        "position": job.position,
        "cause": job.cause,
        "sinks": dict(job.sinks),
        "tasks": tasks,
    }


def _describe_subtask(job: Job, folder: str, index: int, subtask: Subtask) -> dict[str, Any]:
    return {
        "subtask": index,
        "state": subtask.state.value,
        "attempt": subtask.attempt,
        "task_manager": subtask.task_manager.partition("/")[2],
        "deployed_ms": subtask.deployed_ms or None,
        "running_ms": subtask.running_ms or None,
        "ended_ms": subtask.ended_ms or None,
        "logs": [
            {"attempt": n, "path": log_folder(job, attempt_name(job, folder, index, n))}
            for n in range(max(1, subtask.attempt - 9), subtask.attempt + 1)
        ],
        "outputs": {
            vertex: {k: v for k, v in output.items() if k in ("rows", "bytes")}
            for vertex, output in (subtask.outputs or {}).items()
        },
        "failures": [
            {
                "attempt": f.attempt,
                "at_ms": f.at_ms,
                "task_manager": f.task_manager.partition("/")[2],
                "error": f.error,
            }
            for f in subtask.failures
        ],
    }


def log_folder(job: Job, attempt: str) -> str:
    """Where an attempt's stdout and stderr lie on the blob server, below `logs/`. Two levels and no more: each that is to be made stands
    between the command and RUNNING."""
    return f"{job.acceptance}/{attempt.removeprefix(job.id + '/').replace('/', '.')}"
