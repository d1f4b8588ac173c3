"""The cluster: counts, what the dashboard is configured with, applications."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from millrace import __version__
from millrace.core.states import ENDED_JOB, INITIALIZING, ExecutionState, JobStatus

from . import VERSION
from . import cluster_shapes as shapes
from .errors import Reply
from .failures import history
from .jobs import summary
from .metrics import Agg, Get, aggregated
from .shapes import Aggregate
from .source import Job, Source, duration
from .taskmanagers import members

REFRESH_MS = 3000
COMMIT = f"millrace-{__version__}"
"""Where Flink tells its own: what it is that answers."""
APPLICATION_STATES: dict[str, str] = {
    INITIALIZING: JobStatus.CREATED.value, JobStatus.RESTARTING: JobStatus.RUNNING.value,
    JobStatus.CANCELLING: ExecutionState.CANCELING.value, JobStatus.SUSPENDED: JobStatus.RUNNING.value,
}  # fmt: skip
"""A job's state -> that of its application, where that is another word."""


def router(source: Source) -> APIRouter:
    api = APIRouter(tags=["cluster"])

    @api.get("/config", response_model=shapes.Config)
    async def config() -> Reply:
        """What the dashboard is configured with."""
        features: shapes.Features = {
            "web-submit": False, "web-cancel": not source.past, "web-rescale": not source.past, "web-history": source.past,
        }  # fmt: skip
        body: shapes.Config = {
            "refresh-interval": REFRESH_MS, "timezone-name": "Coordinated Universal Time", "timezone-offset": 0,
            "flink-version": VERSION, "flink-revision": f"{COMMIT} @ {VERSION}", "features": features,
        }  # fmt: skip
        return Reply(body)

    @api.get("/overview", response_model=shapes.Overview)
    async def overview() -> Reply:
        """How many there are of everything."""
        return Reply(counts(source))

    @api.get("/jobs/metrics", response_model=list[Aggregate])
    async def job_metrics(
        get: Get = None,
        agg: Agg = None,
        jobs: Annotated[str | None, Query(description="Ids, joined by commas: of these alone.", max_length=20_000)] = None,
    ) -> Reply:
        """What is measured, over all jobs, or over those that are named."""
        wanted = set(jobs.split(",")) if jobs is not None else None
        times = [
            {"runningTime": duration(job.start_ms, job.end_ms, job.wall_ms)}
            for job in source.heads() if wanted is None or job.id in wanted
        ]  # fmt: skip
        return Reply(aggregated(times, get, agg))

    @api.get("/datasets", response_model=shapes.DataSets)
    async def data_sets() -> Reply:
        """None: what tasks hand on belongs to their job."""
        body: shapes.DataSets = {"dataSets": []}
        return Reply(body)

    _add_applications(api, source)
    return api


def counts(source: Source) -> shapes.Overview:
    statuses = source.ask(lambda view: view.jobs.statuses())
    ended = {status.value: statuses.pop(status.value, 0) for status in ENDED_JOB}
    there = members(source)
    slots = [(member["blocked"] is not None, slot) for member, its in there.values() for slot in its]
    blocked = sum(member["blocked"] is not None for member, _ in there.values())
    found: shapes.Overview = {
        "taskmanagers": len(there),
        "slots-total": len(slots),
        "slots-available": sum(slot["state"] == "FREE" and not is_blocked for is_blocked, slot in slots),
        "jobs-running": sum(statuses.values()),
        "jobs-finished": ended["FINISHED"],
        "jobs-cancelled": ended["CANCELED"],
        "jobs-failed": ended["FAILED"],
        "flink-version": VERSION,
        "flink-commit": COMMIT,
    }
    if blocked:  # as in Flink they are left out where none is
        found["taskmanagers-blocked"] = blocked
        found["slots-free-and-blocked"] = sum(slot["state"] == "FREE" and is_blocked for is_blocked, slot in slots)
    return found


def _add_applications(api: APIRouter, source: Source) -> None:
    @api.get("/applications/overview", response_model=shapes.Applications)
    async def applications() -> Reply:
        """Each job is an application of its own, under the job's id."""
        body: shapes.Applications = {"applications": [_application(job) for job in source.heads()]}
        return Reply(body)

    @api.get("/applications/{application}", response_model=shapes.ApplicationDetail)
    async def application(application: str) -> Reply:
        """One with its job."""
        job = await source.job(application)
        times: dict[str, int] = {}
        for state, at_ms in job.times.items():
            if at_ms or state not in ("SUSPENDED", "RECONCILING"):
                times[APPLICATION_STATES.get(state, state)] = max(at_ms, times.get(APPLICATION_STATES.get(state, state), 0))
        whole = _application(job)
        body: shapes.ApplicationDetail = {
            "id": whole["id"], "name": whole["name"], "status": whole["status"], "start-time": whole["start-time"],
            "end-time": whole["end-time"], "duration": whole["duration"], "timestamps": times, "jobs": [summary(job)],
        }  # fmt: skip
        return Reply(body)

    @api.get("/applications/{application}/exceptions", response_model=shapes.ApplicationFailures)
    async def exceptions(application: str) -> Reply:
        """Why it failed."""
        job = await source.job(application)
        entries: list[shapes.ApplicationFailure] = [
            {"exceptionName": each["exceptionName"], "stacktrace": each["stacktrace"], "timestamp": each["timestamp"], "jobId": job.id}
            for each in history(job)[:1]
            if job.state == "FAILED"
        ]  # fmt: skip
        body: shapes.ApplicationFailures = {"exceptionHistory": {"entries": entries}}
        return Reply(body)


def _application(job: Job) -> shapes.Application:
    return {
        "id": job.id, "name": f"SingleJobApplication({job.name})", "start-time": job.start_ms, "end-time": job.end_ms,
        "duration": duration(job.start_ms, job.end_ms, job.wall_ms), "status": APPLICATION_STATES.get(job.state, job.state),
        "jobs": {job.state: 1},
    }  # fmt: skip
