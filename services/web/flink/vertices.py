"""The vertices of a job: their subtasks, attempts and times, and what is measured of them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Path, Query

from millrace.core.states import INITIALIZING, ExecutionState

from . import shapes
from .errors import Refusal, Reply
from .jobs import io_metrics
from .metrics import Agg, Get, aggregated, chosen, measured
from .source import TASK_STATES, Attempt, Source, Task, duration

Subtask = Annotated[int, Path(ge=0)]
TIMED = (
    ExecutionState.CREATED.value, ExecutionState.SCHEDULED.value, ExecutionState.DEPLOYING.value, INITIALIZING,
    ExecutionState.RUNNING.value,
)  # fmt: skip
"""States whose duration Flink tells."""
MEASURED = (
    "read-bytes", "write-bytes", "read-records", "write-records", "accumulated-backpressured-time", "accumulated-idle-time",
    "accumulated-busy-time",
)  # fmt: skip
"""The dashboard hangs where one is missing."""
FLAMES_OFF = -2


def router(source: Source) -> APIRouter:
    api = APIRouter(prefix="/jobs/{job}/vertices/{vertex}", tags=["vertices"])

    @api.get("", response_model=shapes.VertexDetail)
    async def details(job: str, vertex: str) -> Reply:
        """A vertex with the last attempt of each subtask."""
        _, task = await source.task(job, vertex)
        body: shapes.VertexDetail = {
            "id": task.id, "name": task.name, "parallelism": len(task.subtasks), "maxParallelism": len(task.subtasks),
            "now": task.wall_ms, "subtasks": [attempt_of(each) for each in task.current], "aggregated": aggregate(task.current),
        }  # fmt: skip
        return Reply(body)

    @api.get("/subtasktimes", response_model=shapes.VertexTimes)
    async def times(job: str, vertex: str) -> Reply:
        """When the last attempt of each subtask came into its states."""
        _, task = await source.task(job, vertex)
        subtasks: list[shapes.SubtaskTimes] = [
            {
                "subtask": each.subtask, "endpoint": each.task_manager, "duration": _duration(each),
                "timestamps": {**dict.fromkeys(TASK_STATES, 0), **each.times},
            }
            for each in task.current
        ]  # fmt: skip
        body: shapes.VertexTimes = {"id": task.id, "name": task.name, "now": task.wall_ms, "subtasks": subtasks}
        return Reply(body)

    @api.get("/taskmanagers", response_model=shapes.VertexTaskManagers)
    async def task_managers(job: str, vertex: str) -> Reply:
        """The TaskManagers that run it."""
        _, task = await source.task(job, vertex)
        return Reply(by_task_manager(task))

    _add_accumulators(api, source)
    _add_metrics(api, source)
    _add_attempts(api, source)  # last: its subtask is a number, `metrics` is none
    return api


def _add_attempts(api: APIRouter, source: Source) -> None:
    @api.get("/subtasks/{subtask}", response_model=shapes.Attempt)
    async def subtask_details(job: str, vertex: str, subtask: Subtask) -> Reply:
        """The last attempt of a subtask."""
        _, task = await source.task(job, vertex)
        return Reply(attempt_of(_subtask(task, subtask)))

    @api.get("/subtasks/{subtask}/attempts/{attempt}", response_model=shapes.Attempt)
    async def attempt_details(job: str, vertex: str, subtask: Subtask, attempt: Subtask) -> Reply:
        """One attempt of a subtask, counted from 0."""
        _, task = await source.task(job, vertex)
        return Reply(attempt_of(_attempt(task, subtask, attempt)))


def _add_accumulators(api: APIRouter, source: Source) -> None:
    """There are none."""

    @api.get("/accumulators", response_model=shapes.VertexAccumulators)
    async def accumulators(job: str, vertex: str) -> Reply:
        """There are none."""
        _, task = await source.task(job, vertex)
        body: shapes.VertexAccumulators = {"id": task.id, "user-accumulators": []}
        return Reply(body)

    @api.get("/subtasks/accumulators", response_model=shapes.SubtasksAccumulators)
    async def of_subtasks(job: str, vertex: str) -> Reply:
        """There are none."""
        _, task = await source.task(job, vertex)
        subtasks: list[shapes.SubtaskAccumulators] = [
            {"subtask": each.subtask, "attempt": each.number, "endpoint": each.task_manager, "user-accumulators": []}
            for each in task.current
        ]
        body: shapes.SubtasksAccumulators = {"id": task.id, "parallelism": len(task.subtasks), "subtasks": subtasks}
        return Reply(body)

    @api.get("/subtasks/{subtask}/attempts/{attempt}/accumulators", response_model=shapes.AttemptAccumulators)
    async def of_attempt(job: str, vertex: str, subtask: Subtask, attempt: Subtask) -> Reply:
        """There are none."""
        _, task = await source.task(job, vertex)
        found = _attempt(task, subtask, attempt)
        body: shapes.AttemptAccumulators = {
            "subtask": found.subtask, "attempt": found.number, "id": task.id, "user-accumulators": [],
        }  # fmt: skip
        return Reply(body)


def _add_metrics(api: APIRouter, source: Source) -> None:
    @api.get("/metrics", response_model=list[shapes.Metric])
    async def of_vertex(job: str, vertex: str, get: Get = None) -> Reply:
        """What is measured of each subtask, as `SUBTASK.NAME`."""
        _, task = await source.task(job, vertex)
        values = {f"{each.subtask}.{name}": value for each in task.current for name, value in measured(each).items()}
        return Reply(chosen(values, get))

    @api.get("/subtasks/metrics", response_model=list[shapes.Aggregate])
    async def of_subtasks(
        job: str,
        vertex: str,
        get: Get = None,
        agg: Agg = None,
        subtasks: Annotated[str, Query(description="Of these alone: `0-3,7`; empty: of all.", max_length=10_000)] = "",
    ) -> Reply:
        """What is measured, over all subtasks."""
        _, task = await source.task(job, vertex)
        wanted = _numbers(subtasks, len(task.subtasks))
        return Reply(aggregated([measured(each) for each in task.current if each.subtask in wanted], get, agg))

    @api.get("/subtasks/{subtask}/metrics", response_model=list[shapes.Metric])
    async def of_subtask(job: str, vertex: str, subtask: Subtask, get: Get = None) -> Reply:
        """What is measured of one subtask."""
        _, task = await source.task(job, vertex)
        return Reply(chosen(measured(_subtask(task, subtask)), get))

    @api.get("/watermarks", response_model=list[shapes.Metric])
    async def watermarks(job: str, vertex: str) -> Reply:
        """There are none: what a job reads has an end."""
        await source.task(job, vertex)
        return Reply([])

    @api.get("/jm-operator-metrics", response_model=list[shapes.Metric])
    async def of_coordinators(job: str, vertex: str) -> Reply:
        """There are none."""
        await source.task(job, vertex)
        return Reply([])

    @api.get("/backpressure", response_model=shapes.BackPressure)
    async def backpressure(job: str, vertex: str) -> Reply:
        """There is none: readers begin when their producers have ended."""
        _, task = await source.task(job, vertex)
        subtasks: list[shapes.SubtaskPressure] = [
            {
                "subtask": each.subtask, "attempt-number": each.number, "backpressureLevel": "ok", "backpressure-level": "ok",
                "ratio": 0.0, "idleRatio": 0.0, "busyRatio": float(each.state == "RUNNING"),
            }
            for each in task.current
        ]  # fmt: skip
        body: shapes.BackPressure = {
            "status": "ok", "backpressureLevel": "ok", "backpressure-level": "ok", "end-timestamp": task.wall_ms,
            "subtasks": subtasks,
        }  # fmt: skip
        return Reply(body)

    @api.get("/flamegraph", response_model=shapes.FlameGraph)
    async def flames(job: str, vertex: str) -> Reply:
        """As of a Flink cluster that has them switched off."""
        await source.task(job, vertex)
        body: shapes.FlameGraph = {"endTimestamp": FLAMES_OFF}
        return Reply(body)


def _numbers(text: str, count: int) -> set[int]:
    """`0-3,7` -> those of the subtasks. Raises Refusal."""
    wanted: set[int] = set()
    for part in text.split(",") if text else [f"0-{count}"]:
        first, dash, last = part.partition("-")
        if not (first.isascii() and first.isdigit() and (last.isascii() and last.isdigit() if dash else True)):
            raise Refusal(400, f'Cannot resolve query parameter (subtasks) from value "{text[:200]}".')
        wanted.update(range(int(first[:9]), min(count, int((last or first)[:9])) + 1))
    return wanted


def _subtask(task: Task, number: int) -> Attempt:
    if number >= len(task.subtasks):
        raise Refusal(404, f"Invalid subtask index for vertex {task.id}")
    return task.current[number]


def _attempt(task: Task, subtask: int, number: int) -> Attempt:
    current = _subtask(task, subtask)
    for found in (current, *(Attempt(subtask, row, task.until_ms) for row in task.subtasks[subtask]["attempts"])):
        if found.number == number:
            return found
    raise Refusal(404, f"Could not find attempt {number} in subtask {subtask} of vertex {task.id}")


def _duration(attempt: Attempt) -> int:
    return duration(attempt.start_ms, attempt.end_ms, attempt.until_ms)


def attempt_of(attempt: Attempt) -> shapes.Attempt:
    found: shapes.Attempt = {
        "subtask": attempt.subtask, "status": attempt.state, "attempt": attempt.number, "endpoint": attempt.task_manager,
        "start-time": attempt.start_ms, "end-time": attempt.end_ms, "duration": _duration(attempt),
        "metrics": io_metrics([attempt]), "taskmanager-id": attempt.task_manager, "status-duration": _spent(attempt),
        "start_time": attempt.start_ms,
    }  # fmt: skip
    if attempt.beside:
        found["other-concurrent-attempts"] = [attempt_of(each) for each in attempt.beside]
    return found


def _spent(attempt: Attempt) -> dict[str, int]:
    """How long it was in each state; -1: it was not."""
    reached = sorted(attempt.times.items(), key=lambda each: each[1])
    ends = [*(at_ms for _, at_ms in reached[1:]), attempt.until_ms]
    spent = {state: max(0, end - at_ms) for (state, at_ms), end in zip(reached, ends, strict=False)}  # none where none is reached
    return {state: spent.get(state, -1) for state in TIMED}


def aggregate(attempts: Sequence[Attempt]) -> shapes.Aggregated:
    metrics = [io_metrics([each]) for each in attempts]
    spent = [_spent(each) for each in attempts]
    return {
        "metrics": {name: _statistics([each[name] for each in metrics]) for name in MEASURED},  # type: ignore[literal-required]  # of IOMetrics
        "status-duration": {state: _statistics([each[state] for each in spent if each[state] >= 0]) for state in TIMED},
    }


def _statistics(numbers: Sequence[float]) -> shapes.Statistics:
    numbers = numbers or [0]
    cuts = statistics.quantiles(numbers, n=20, method="inclusive") if len(numbers) > 1 else list(numbers) * 19
    return {
        "min": int(min(numbers)), "max": int(max(numbers)), "avg": int(sum(numbers) / len(numbers)), "sum": int(sum(numbers)),
        "median": int(cuts[9]), "p25": int(cuts[4]), "p75": int(cuts[14]), "p95": int(cuts[18]),
    }  # fmt: skip


def by_task_manager(task: Task) -> shapes.VertexTaskManagers:
    groups: dict[str, list[Attempt]] = {}
    for each in task.current:
        groups.setdefault(each.task_manager, []).append(each)
    found: list[shapes.VertexTaskManager] = []
    for name, attempts in groups.items():
        states = Task(task.name, [{"state": each.state} for each in attempts], [], task.wall_ms)
        starts = [each.start_ms for each in attempts if each.start_ms >= 0]
        start_ms, end_ms = min(starts, default=-1), task.end_of(attempts)
        found.append({
            "endpoint": name, "status": states.state, "start-time": start_ms, "end-time": end_ms,
            "duration": duration(start_ms, end_ms, task.until_ms), "metrics": io_metrics(attempts), "status-counts": states.counts,
            "taskmanager-id": name, "aggregated": aggregate(attempts),
        })  # fmt: skip
    return {"id": task.id, "name": task.name, "now": task.wall_ms, "taskmanagers": found}
