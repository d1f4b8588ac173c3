"""Jobs: the lists, one job with its vertices and its plan, and what is said about how it runs."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from fastapi import APIRouter
from pydantic import ValidationError

from millrace.core.jobgraph.model import Restart

from ..kept import Kept
from . import shapes
from .errors import Reply
from .metrics import Get, chosen
from .source import Attempt, Job, Source, Task, duration

JOB_TYPE = "BATCH"
SCHEDULER = "Default"  # not the adaptive ones, which have pages of their own
DEFAULT_RESTART = "Cluster level default restart strategy"
SHIPPED: dict[str, tuple[str, str]] = {
    "hash": ("HASH", "blocking"), "broadcast": ("BROADCAST", "blocking"), "forward": ("FORWARD", "blocking"),
}  # fmt: skip
"""Kind of an edge -> how Flink calls it. Each goes through storage: its readers begin when it is whole."""


def router(source: Source, kept: Kept) -> APIRouter:
    api = APIRouter(tags=["jobs"])

    @api.get("/jobs", response_model=shapes.Jobs)
    async def jobs() -> Reply:
        """Ids and states."""
        return Reply({"jobs": [{"id": job.id, "status": job.state} for job in source.heads()]})

    @api.get("/jobs/overview", response_model=shapes.JobsOverview)
    async def overview() -> Reply:
        """All jobs, with how many of their tasks are in each state."""
        return Reply({"jobs": await source.summaries(summary)})

    @api.get("/jobs/{job}", response_model=shapes.JobDetail)
    async def details(job: str) -> Reply:
        """A job with its vertices and its plan."""
        return Reply(detail(await source.job(job)))

    @api.get("/jobs/{job}/status", response_model=shapes.Status)
    async def status(job: str) -> Reply:
        """Its state alone."""
        return Reply({"status": (await source.job(job)).state})

    @api.get("/jobs/{job}/plan", response_model=shapes.JobPlan)
    async def plan_alone(job: str) -> Reply:
        """Its plan alone."""
        return Reply({"plan": plan(await source.job(job))})

    @api.get("/jobs/{job}/config", response_model=shapes.JobConfig)
    async def config(job: str) -> Reply:
        """How it is executed: with the restart settings of its graph, where that is known now."""
        found = await source.job(job)
        return Reply(config_of(found, await kept.graph(found.row["job"])))

    @api.get("/jobs/{job}/accumulators", response_model=shapes.JobAccumulators)
    async def accumulators(job: str) -> Reply:
        """There are none: what a job counts is in its progress and its result."""
        await source.job(job)
        none: shapes.JobAccumulators = {
            "job-accumulators": [], "user-task-accumulators": [], "serialized-user-task-accumulators": {},
        }  # fmt: skip
        return Reply(none)

    @api.get("/jobs/{job}/metrics", response_model=list[shapes.Metric])
    async def metrics(job: str, get: Get = None) -> Reply:
        """What is measured of it."""
        found = await source.job(job)
        restarts = sum(max(0, task["attempt"] - 1) for each in found.tasks for task in each.subtasks)
        values = {"numRestarts": restarts, "runningTime": duration(found.start_ms, found.end_ms, found.wall_ms)}
        return Reply(chosen(values, get))

    return api


def summary(job: Job) -> shapes.JobDetails:
    counts: dict[str, Any] = {"total": 0}
    for task in job.tasks:
        for state, count in task.counts.items():
            counts[state.lower()] = counts.get(state.lower(), 0) + count
        counts["total"] += len(task.subtasks)
    for state in shapes.TaskCounts.__annotations__:
        counts.setdefault(state, 0)
    return {
        "jid": job.id, "name": job.name, "jobType": JOB_TYPE, "schedulerType": SCHEDULER, "state": job.state,
        "start-time": job.start_ms, "end-time": job.end_ms, "duration": duration(job.start_ms, job.end_ms, job.wall_ms),
        "last-modification": job.changed_ms, "pending-operators": 0,
        "tasks": counts,  # type: ignore[typeddict-item]  # it has each state, by the loops above
    }  # fmt: skip


def detail(job: Job) -> shapes.JobDetail:
    return {
        "jid": job.id,
        "application-id": job.id,
        "name": job.name,
        "isStoppable": False,
        "state": job.state,
        "job-type": JOB_TYPE,
        "schedulerType": SCHEDULER,
        "start-time": job.start_ms,
        "end-time": job.end_ms,
        "duration": duration(job.start_ms, job.end_ms, job.wall_ms),
        "maxParallelism": -1,
        "now": job.wall_ms,
        "timestamps": job.times,
        "vertices": [vertex(task) for task in job.tasks],
        "status-counts": _status_counts(job),
        "plan": plan(job),
        "pending-operators": 0,
    }


def _status_counts(job: Job) -> dict[str, int]:
    """Of vertices, unlike those of a vertex."""
    counts = dict.fromkeys(job.tasks[0].counts, 0) if job.tasks else {}
    for task in job.tasks:
        counts[task.state] += 1
    return counts


def vertex(task: Task) -> shapes.Vertex:
    return {
        "id": task.id,
        "slotSharingGroupId": task.id,  # each subtask has a slot of its own
        "name": task.name,
        "maxParallelism": len(task.subtasks),
        "parallelism": len(task.subtasks),
        "status": task.state,
        "start-time": task.start_ms,
        "end-time": task.end_ms,
        "duration": duration(task.start_ms, task.end_ms, task.until_ms),
        "tasks": task.counts,
        "metrics": io_metrics(task.current),
    }


def io_metrics(attempts: list[Attempt]) -> shapes.IOMetrics:
    """What they report of themselves. Each is `complete`, or the dashboard would show that it is loading for ever."""

    def total(name: str) -> int:
        return sum(each.progress.get(name) or 0 for each in attempts)

    return {
        "read-bytes": total("bytes_read"),
        "read-bytes-complete": True,
        "write-bytes": total("bytes_written"),
        "write-bytes-complete": True,
        "read-records": total("rows_read"),
        "read-records-complete": True,
        "write-records": total("rows_written"),
        "write-records-complete": True,
        "accumulated-backpressured-time": 0,
        "accumulated-idle-time": 0,
        "accumulated-busy-time": 0.0,
    }


def plan(job: Job) -> shapes.Plan:
    return {"jid": job.id, "name": job.name, "type": JOB_TYPE, "nodes": [_node(job, task) for task in job.tasks]}


def _node(job: Job, task: Task) -> shapes.PlanNode:
    """The description is HTML there."""
    ids = {each.name: each.id for each in job.tasks}
    node: shapes.PlanNode = {
        "id": task.id, "parallelism": len(task.subtasks), "operator": "", "operator_strategy": "",
        "description": escape(task.name).replace("+", "<br/>+ "), "optimizer_properties": {},
    }  # fmt: skip
    inputs: list[shapes.PlanInput] = [
        {"num": number, "id": ids[each["task"]], "ship_strategy": strategy, "exchange": exchange}
        for number, each in enumerate(each for each in task.inputs if each["task"] in ids)
        for strategy, exchange in [SHIPPED.get(each.get("edge", ""), ("", "blocking"))]
    ]
    if inputs:
        node["inputs"] = inputs
    return node


def restart_of(graph: Mapping[str, Any] | None) -> str:
    """Its restart strategy in the words of Flink. Not all graphs have one in them: what is left at its default is left out."""
    try:
        restart = Restart.model_validate(graph.get("restart") or {}, extra="ignore") if graph is not None else None
    except ValidationError:  # of a later build
        restart = None
    if restart is None:
        return DEFAULT_RESTART
    if restart.strategy == "none":
        return "Restart deactivated."
    if restart.strategy == "failure-rate":
        return (
            f"Failure rate restart with maximum of {restart.max_failures_per_interval} failures within interval "
            f"{_duration(restart.failure_rate_interval_ms)} and fixed delay {_duration(restart.delay_ms)}."
        )
    if restart.strategy == "exponential-delay":
        return (
            f"Restart with exponential delay: starting at {_duration(restart.initial_backoff_ms)}, increasing by "
            f"{restart.backoff_multiplier:f}, with maximum {_duration(restart.max_backoff_ms)}. Delay resets after "
            f"{_duration(restart.reset_backoff_threshold_ms)} with jitter {restart.jitter_factor:f}"
        )
    return f"Restart with fixed delay ({_duration(restart.delay_ms)}). #{restart.attempts} restart attempts."


def _duration(ms: int) -> str:
    """As Java's Duration writes it."""
    minutes, rest = divmod(ms, 60_000)
    hours, minutes = divmod(minutes, 60)
    parts = [f"{hours}H"] * bool(hours) + [f"{minutes}M"] * bool(minutes) + [f"{rest / 1000:g}S"] * bool(rest)
    return "PT" + ("".join(parts) or "0S")


def config_of(job: Job, graph: Mapping[str, Any] | None) -> shapes.JobConfig:
    return {
        "jid": job.id,
        "name": job.name,
        "execution-config": {
            "restart-strategy": restart_of(graph),
            "job-parallelism": max((len(task.subtasks) for task in job.tasks), default=1),
            "object-reuse-mode": False,
            "user-config": {"millrace.job": str(job.row["job"])},
        },
    }
