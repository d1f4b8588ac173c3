"""TaskManagers and what is in their slots.

A TaskManager here is a process without a JVM of its own: each of its slots has one. So figures of one JVM are 0, but for the heap, which
is that of all slots. It and the last heartbeat are in no public fact: the ResourceManager is asked, where it answers.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence

from fastapi import APIRouter, Depends, Request

from millrace.client import MillraceError
from millrace.core.messages.client import TaskManagerInfo

from ..core.facts import Row
from . import cluster_shapes as shapes
from .commands import Commands
from .errors import Refusal, Reply, not_found
from .ids import job_id
from .metrics import Agg, Get, aggregated, chosen
from .shapes import Aggregate, Metric
from .source import Source

ASKED_EVERY_S = 2.0
WAIT_S = 1.0
MIB = 1 << 20


class Known:
    """The TaskManagers as the ResourceManager knows them. It is asked while somebody looks, and not more often than a page does."""

    def __init__(self, commands: Commands, now_s: Callable[[], float] = time.monotonic) -> None:
        self._commands, self._now_s = commands, now_s
        self._asking, self._asked_s = asyncio.Lock(), -math.inf
        self._known: Mapping[str, TaskManagerInfo] = {}

    async def members(self) -> Mapping[str, TaskManagerInfo]:
        """By name; none where it does not answer."""
        async with self._asking:
            if self._now_s() - self._asked_s >= ASKED_EVERY_S:
                try:
                    found = await self._commands.call(lambda client: client.task_managers(), WAIT_S)
                except MillraceError:
                    found = []
                self._known = {each.task_manager: each for each in found}
                self._asked_s = self._now_s()
            return self._known


def router(source: Source, commands: Commands) -> APIRouter:
    api, known = APIRouter(tags=["taskmanagers"], dependencies=[Depends(source.live)]), Known(commands)

    @api.get("/taskmanagers", response_model=shapes.TaskManagers)
    async def task_managers() -> Reply:
        """Those that are registered, by name."""
        infos = await known.members()
        found = [_row(member, slots, infos.get(name)) for name, (member, slots) in members(source).items()]
        body: shapes.TaskManagers = {"taskmanagers": found}
        return Reply(body)

    @api.get("/taskmanagers/metrics", response_model=list[Aggregate])
    async def over_all(get: Get = None, agg: Agg = None) -> Reply:
        """What is measured, over all of them."""
        return Reply(aggregated([_measured(slots) for _, slots in members(source).values()], get, agg))

    @api.get("/taskmanagers/{name}", response_model=shapes.TaskManagerDetail)
    async def details(name: str) -> Reply:
        """One with its slots."""
        member, slots = member_of(source, name)
        return Reply(detail(member, slots, (await known.members()).get(name)))

    @api.get("/taskmanagers/{name}/metrics", response_model=list[Metric])
    async def metrics(name: str, get: Get = None) -> Reply:
        """What is measured of it."""
        _, slots = member_of(source, name)
        return Reply(chosen({metric: str(value) for metric, value in _measured(slots).items()}, get))

    @api.get("/taskmanagers/{name}/thread-dump", response_model=shapes.ThreadDump)
    async def threads(name: str) -> Reply:
        """None: `millrace inspect JOB` has the stacks of running attempts."""
        member_of(source, name)
        body: shapes.ThreadDump = {"threadInfos": []}
        return Reply(body)

    @api.get("/taskmanagers/{name}/profiler", include_in_schema=False)
    @api.get("/taskmanagers/{name}/profiler/{file}", include_in_schema=False)
    async def profiler(request: Request) -> Reply:
        raise not_found(request.url.path)

    return api


def members(source: Source) -> dict[str, tuple[Row, list[Row]]]:
    """Each TaskManager with its slots, by name."""
    rows, slots = source.ask(lambda view: (view.cluster.task_managers(), view.cluster.slots(view.jobs.in_slots())))
    found: dict[str, tuple[Row, list[Row]]] = {row["task_manager"]: (row, []) for row in rows}
    for slot in slots:
        found[slot["task_manager"]][1].append(slot)
    return found


def member_of(source: Source, name: str) -> tuple[Row, list[Row]]:
    """A TaskManager with its slots. Raises Refusal."""
    found = members(source).get(name)
    if found is None:
        raise Refusal(404, f"No TaskExecutor registered under {name[:200]}.")
    return found


def _row(member: Row, slots: Sequence[Row], info: TaskManagerInfo | None) -> shapes.TaskManager:
    heap = _heap(slots, info)
    return {
        "id": member["task_manager"],
        "path": member["host"],
        "dataPort": -1,
        "jmxPort": -1,
        "timeSinceLastHeartbeat": info.last_beat_ms if info is not None else member["since_ms"] or 0,
        "slotsNumber": len(slots),
        "freeSlots": sum(slot["state"] == "FREE" for slot in slots),
        "assignedTasks": sum(slot["job"] is not None for slot in slots),
        "totalResource": _resource(heap),
        "freeResource": _resource(_heap([slot for slot in slots if slot["state"] == "FREE"], info)),
        "hardware": {"cpuCores": 0, "physicalMemory": 0, "freeMemory": heap * MIB, "managedMemory": 0},
        "memoryConfiguration": {
            "frameworkHeap": 0, "taskHeap": heap * MIB, "frameworkOffHeap": 0, "taskOffHeap": 0, "networkMemory": 0,
            "managedMemory": 0, "jvmMetaspace": 0, "jvmOverhead": 0, "totalFlinkMemory": heap * MIB, "totalProcessMemory": 0,
        },
    }  # fmt: skip


def _heap(slots: Sequence[Row], info: TaskManagerInfo | None) -> int:
    """Of these slots together, in MiB."""
    sizes = {each.slot: each.memory_mb for each in info.slots} if info is not None else {}
    return sum(sizes.get(slot["slot"], 0) for slot in slots)


def _resource(heap: int) -> shapes.Resource:
    return {
        "cpuCores": 0.0, "taskHeapMemory": heap, "taskOffHeapMemory": 0, "managedMemory": 0, "networkMemory": 0,
        "extendedResources": {},
    }  # fmt: skip


def detail(member: Row, slots: Sequence[Row], info: TaskManagerInfo | None) -> shapes.TaskManagerDetail:
    held: dict[str, list[Row]] = {}
    for slot in slots:
        if slot["job"] is not None:
            held.setdefault(slot["job"], []).append(slot)
    return {
        **_row(member, slots, info),
        "allocatedSlots": [
            {"jobId": job_id(job), "resource": _resource(_heap(its, info)), "assignedTasks": len(its)} for job, its in held.items()
        ],
        "metrics": {
            "heapUsed": 0, "heapCommitted": 0, "heapMax": _heap(slots, info) * MIB, "nonHeapUsed": 0, "nonHeapCommitted": 0,
            "nonHeapMax": 0, "directCount": 0, "directUsed": 0, "directMax": 0, "mappedCount": 0, "mappedUsed": 0, "mappedMax": 0,
            "nettyShuffleMemorySegmentsAvailable": 0, "nettyShuffleMemorySegmentsUsed": 0, "nettyShuffleMemorySegmentsTotal": 0,
            "nettyShuffleMemoryAvailable": 0, "nettyShuffleMemoryUsed": 0, "nettyShuffleMemoryTotal": 0, "garbageCollectors": [],
        },
    }  # fmt: skip


def _measured(slots: list[Row]) -> dict[str, int]:
    return {
        "taskSlotsTotal": len(slots),
        "taskSlotsAvailable": sum(slot["state"] == "FREE" for slot in slots),
        "taskSlotsBroken": sum(slot["state"] == "BROKEN" for slot in slots),
    }
