"""The cluster: counts, what the dashboard is configured with, applications, the JobManager that Flink's tools ask about."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping

from fastapi import APIRouter, Request

from millrace import __version__
from millrace.core.states import ENDED_JOB, INITIALIZING, ExecutionState, JobStatus

from . import VERSION
from . import cluster_shapes as shapes
from .errors import Refusal, Reply, not_found
from .failures import history
from .jobs import summary
from .metrics import Agg, Get, aggregated, chosen
from .shapes import Aggregate, Metric
from .source import Job, Source, duration
from .taskmanagers import members

REFRESH_MS = 3000
COMMIT = f"millrace-{__version__}"
"""Where Flink tells its own: what it is that answers."""
APPLICATION_STATES: dict[str, str] = {
    INITIALIZING: JobStatus.CREATED.value, JobStatus.RESTARTING: JobStatus.RUNNING.value,
    JobStatus.CANCELLING: ExecutionState.CANCELING.value,
}  # fmt: skip
"""A job's state -> that of its application, where that is another word."""


def router(source: Source, settings: Mapping[str, str]) -> APIRouter:
    """`settings`: what is shown as the JobManager's configuration; no secrets."""
    api = APIRouter(tags=["cluster"])

    @api.get("/config", response_model=shapes.Config)
    async def config() -> Reply:
        """What the dashboard is configured with."""
        features: shapes.Features = {
            "web-submit": False, "web-cancel": not source.past, "web-rescale": False, "web-history": source.past,
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
    async def job_metrics(get: Get = None, agg: Agg = None) -> Reply:
        """What is measured, over all jobs."""
        times = [{"runningTime": duration(job.start_ms, job.end_ms, job.now_ms)} for job in source.heads()]
        return Reply(aggregated(times, get, agg))

    @api.get("/datasets", response_model=shapes.DataSets)
    async def data_sets() -> Reply:
        """None: what tasks hand on belongs to their job."""
        body: shapes.DataSets = {"dataSets": []}
        return Reply(body)

    _add_applications(api, source)
    _add_job_manager(api, source, settings)
    return api


def counts(source: Source) -> shapes.Overview:
    statuses = source.ask(lambda view: view.jobs.statuses())
    ended = {status.value: statuses.pop(status.value, 0) for status in ENDED_JOB}
    slots = [slot for _, its in members(source).values() for slot in its]
    return {
        "taskmanagers": len(members(source)),
        "slots-total": len(slots),
        "slots-available": sum(slot["state"] == "FREE" for slot in slots),
        "jobs-running": sum(statuses.values()),
        "jobs-finished": ended["FINISHED"],
        "jobs-cancelled": ended["CANCELED"],
        "jobs-failed": ended["FAILED"],
        "flink-version": VERSION,
        "flink-commit": COMMIT,
    }


def _add_applications(api: APIRouter, source: Source) -> None:
    @api.get("/applications/overview", response_model=shapes.Applications)
    async def applications() -> Reply:
        """Each job is an application of its own, under the job's id."""
        body: shapes.Applications = {"applications": source.summaries(_application)}
        return Reply(body)

    @api.get("/applications/{application}", response_model=shapes.ApplicationDetail)
    async def application(application: str) -> Reply:
        """One with its job."""
        job = source.job(application)
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
        job = source.job(application)
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
        "duration": duration(job.start_ms, job.end_ms, job.now_ms), "status": APPLICATION_STATES.get(job.state, job.state),
        "jobs": {job.state: 1},
    }  # fmt: skip


def _add_job_manager(api: APIRouter, source: Source, settings: Mapping[str, str]) -> None:
    """Its settings and its process are those of the web service: what decides has several processes, and runs no JVM."""

    @api.get("/jobmanager/config", response_model=list[shapes.Setting])
    async def config() -> Reply:
        """The settings of the web service."""
        body: list[shapes.Setting] = [{"key": key, "value": value} for key, value in settings.items()]
        return Reply(body)

    @api.get("/jobs/{job}/jobmanager/config", response_model=list[shapes.Setting])
    @api.get("/applications/{job}/jobmanager/config", response_model=list[shapes.Setting])
    async def config_of_job(job: str) -> Reply:
        """The same for each job."""
        source.job(job)
        return await config()

    @api.get("/jobmanager/environment", response_model=shapes.Environment)
    async def environment() -> Reply:
        """The Python in which the web service runs."""
        jvm: shapes.Jvm = {"version": f"Python {sys.version.split()[0]}", "arch": platform.machine(), "options": []}
        body: shapes.Environment = {"jvm": jvm, "classpath": []}
        return Reply(body)

    @api.get("/jobs/{job}/jobmanager/environment", response_model=shapes.Environment)
    async def environment_of_job(job: str) -> Reply:
        """The same for each job."""
        source.job(job)
        return await environment()

    @api.get("/jobmanager/metrics", response_model=list[Metric])
    async def metrics(get: Get = None) -> Reply:
        """What is measured of the cluster."""
        found = counts(source)
        values = {
            "taskSlotsTotal": found["slots-total"], "taskSlotsAvailable": found["slots-available"],
            "numRegisteredTaskManagers": found["taskmanagers"], "numRunningJobs": found["jobs-running"],
        }  # fmt: skip
        return Reply(chosen({name: str(value) for name, value in values.items()}, get))

    @api.get("/jobmanager/logs", response_model=shapes.LogList)
    async def logs() -> Reply:
        """None: what decides has several processes, whose logs this service cannot read."""
        body: shapes.LogList = {"logs": []}
        return Reply(body)

    @api.get("/jobmanager/log", include_in_schema=False)
    @api.get("/jobmanager/stdout", include_in_schema=False)
    @api.get("/jobmanager/logs/{file}", include_in_schema=False)
    @api.get("/jobs/{job}/jobmanager/log-url", include_in_schema=False)
    @api.get("/jobs/{job}/taskmanagers/{name}/log-url", include_in_schema=False)
    async def log() -> Reply:
        raise Refusal(404, "This file does not exist in JobManager log dir: `millrace status` names the logs of the services.")

    @api.get("/jobmanager/thread-dump", response_model=shapes.ThreadDump)
    async def threads() -> Reply:
        """None."""
        body: shapes.ThreadDump = {"threadInfos": []}
        return Reply(body)

    @api.get("/jobmanager/profiler", include_in_schema=False)
    @api.get("/jobmanager/profiler/{file}", include_in_schema=False)
    async def profiler(request: Request) -> Reply:
        raise not_found(request.url.path)
