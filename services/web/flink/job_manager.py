"""The JobManager that Flink's tools ask about. What decides here has several processes: its log is that of the leading Dispatcher's, and
the lists have those of all."""

from __future__ import annotations

import asyncio
import platform
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from fastapi import APIRouter, Depends, Request, Response

from millrace.client import MillraceError
from millrace.core.messages.processes import ProcessDescribed, ProcessStatus
from millrace.core.topics import DISPATCHER

from ..processes import Of, Processes
from . import cluster_shapes as shapes
from .cluster import counts
from .errors import Refusal, Reply, not_found
from .fetcher import MetricFetcher, per_second
from .metrics import NS, Get, chosen, of_collector, of_load
from .shapes import Metric
from .source import Source
from .threads import infos

T = TypeVar("T")


def router(source: Source, settings: Mapping[str, str], processes: Processes, fetcher: MetricFetcher) -> APIRouter:
    """`settings`: what is shown as its configuration; no secrets."""
    api = APIRouter(tags=["cluster"])
    _add_settings(api, source, settings)
    _add_logs(api, source, processes)

    @api.get("/jobmanager/metrics", response_model=list[Metric])
    async def metrics(get: Get = None) -> Reply:
        """What is measured of the cluster, and of the leading Dispatcher's process, which is no JVM: its heap is all its memory."""
        found = counts(source)
        values: dict[str, float] = {
            "taskSlotsTotal": found["slots-total"], "taskSlotsAvailable": found["slots-available"],
            "numRegisteredTaskManagers": found["taskmanagers"], "numRunningJobs": found["jobs-running"],
        }  # fmt: skip
        leading = leading_dispatcher(source)
        now, before, seconds = await fetcher.service(leading) if leading and not source.past else (None, None, 0.0)
        if now is not None:
            values |= of_process(now.status, before.status if before is not None else None, seconds)
        return Reply(chosen(values, get))

    @api.get("/jobmanager/profiler", include_in_schema=False)
    @api.get("/jobmanager/profiler/{file}", include_in_schema=False)
    async def profiler(request: Request) -> Reply:
        raise not_found(request.url.path)

    return api


def _add_settings(api: APIRouter, source: Source, settings: Mapping[str, str]) -> None:
    """Those of the web service: what decides runs no JVM."""

    @api.get("/jobmanager/config", response_model=list[shapes.Setting])
    async def config() -> Reply:
        """The settings of the web service."""
        body: list[shapes.Setting] = [{"key": key, "value": value} for key, value in settings.items()]
        return Reply(body)

    @api.get("/jobs/{job}/jobmanager/config", response_model=list[shapes.Setting])
    @api.get("/applications/{job}/jobmanager/config", response_model=list[shapes.Setting])
    async def config_of_job(job: str) -> Reply:
        """The same for each job."""
        await source.job(job)
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
        await source.job(job)
        return await environment()


def _add_logs(api: APIRouter, source: Source, processes: Processes) -> None:
    live = [Depends(source.live)]

    def leading() -> Of:
        """The leading Dispatcher's process. Raises Refusal."""
        name = leading_dispatcher(source)
        if name is None:
            raise Refusal(404, "No Dispatcher leads.")
        return Of(name, True)

    @api.get("/jobmanager/logs", response_model=shapes.LogList, dependencies=live)
    async def logs() -> Reply:
        """Those of the processes of all services, leaders and standbys."""
        found = await _of_all(await processes.services(), lambda of: processes.logs(of))
        body: shapes.LogList = {"logs": [
            {"name": f"{name}.{each.log}", "size": each.bytes, "mtime": each.modified_ms} for name, its in found.items() for each in its
        ]}  # fmt: skip
        return Reply(body)

    @api.get("/jobmanager/logs/{file}", include_in_schema=False, dependencies=live)
    async def one(request: Request, file: str) -> Response:
        names = [each.process for each in await processes.services() if file.startswith(f"{each.process}.")]
        if not names:
            raise Refusal(404, f"The file {file[:200]} does not exist in JobManager log dir: no process of a service that answers has it.")
        name = max(names, key=len)
        return await processes.answer(Of(name, True), file[len(name) + 1 :], request.headers.get("range", ""))

    @api.get("/jobmanager/log", include_in_schema=False, dependencies=live)
    async def log(request: Request) -> Response:
        return await processes.answer(leading(), "log", request.headers.get("range", ""))

    @api.get("/jobmanager/stdout", include_in_schema=False, dependencies=live)
    async def stdout(request: Request) -> Response:
        return await processes.answer(leading(), "stdout", request.headers.get("range", ""))

    @api.get("/jobs/{job}/jobmanager/log-url", include_in_schema=False)
    @api.get("/jobs/{job}/taskmanagers/{name}/log-url", include_in_schema=False)
    async def no_log_url() -> Reply:
        raise Refusal(404, "There is no other service that has logs.")

    @api.get("/jobmanager/thread-dump", response_model=shapes.ThreadDump, dependencies=live)
    async def threads() -> Reply:
        """Where the threads of the processes of all services are."""
        found = await _of_all(await processes.services(), lambda of: processes.threads(of))
        body: shapes.ThreadDump = {"threadInfos": [info for name, dumps in found.items() for info in infos(dumps, name)]}
        return Reply(body)


def leading_dispatcher(source: Source) -> str | None:
    leaders = source.ask(lambda view: view.cluster.leaders())
    return next((str(row["leader"]) for row in leaders if row["scope"] == DISPATCHER), None)


def of_process(now: ProcessStatus, before: ProcessStatus | None, seconds: float) -> dict[str, float]:
    """A process of Python under Flink's names for a JVM. `before`: as it was so many seconds ago, unless it has begun since."""
    figures = {"cpu": now.cpu_ms, **({"gc": now.collections_ms} if now.collections_ms is not None else {})}
    same = before is not None and before.pid == now.pid
    growing = per_second(figures, {"cpu": before.cpu_ms, "gc": before.collections_ms or 0} if before is not None and same else {}, seconds)
    found: dict[str, float] = {
        "Status.JVM.Memory.Heap.Used": now.resident, "Status.JVM.Memory.Heap.Committed": now.resident,
        "Status.JVM.Memory.Heap.Max": now.memory, "Status.JVM.Threads.Count": now.threads, "Status.JVM.CPU.Time": now.cpu_ms * NS,
        **of_load(growing.get("cpu"), now.cores),
    }  # fmt: skip
    if now.collections is not None and now.collections_ms is not None:
        found |= of_collector("Python", now.collections, now.collections_ms)
        if "gc" in growing:
            found["Status.JVM.GarbageCollector.Python.TimeMsPerSecond"] = round(growing["gc"], 1)
    return found


async def _of_all(services: list[ProcessDescribed], ask: Callable[[Of], Awaitable[list[T]]]) -> dict[str, list[T]]:
    """What each answers, by its name; nothing of one that has just gone."""

    async def asked(name: str) -> list[T]:
        try:
            return await ask(Of(name, True))
        except MillraceError:
            return []

    names = [each.process for each in services]
    return dict(zip(names, await asyncio.gather(*map(asked, names)), strict=True))
