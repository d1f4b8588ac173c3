"""TaskManagers and what is in their slots.

A TaskManager here is a process without a JVM of its own: each of its slots has one. So figures of one JVM are those of all slots together.
They and the last heartbeat are in no public fact: the TaskManager and the ResourceManager are asked, where they answer.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from millrace.client import MillraceError
from millrace.core.messages.client import SlotInfo, TaskManagerInfo
from millrace.core.messages.processes import JvmStatus, ProcessStatus, TaskManagerDescribed

from ..core.facts import Row
from ..processes import Of, Processes
from . import cluster_shapes as shapes
from .commands import Commands
from .errors import Refusal, Reply, not_found
from .fetcher import MetricFetcher, Sampled, per_second
from .ids import job_id
from .metrics import NS, Agg, Get, aggregated, chosen, of_collector, of_load
from .shapes import Aggregate, Metric
from .source import Source
from .threads import infos

ASKED_EVERY_S = 2.0
ASKED_MOST = 20  # TaskManagers at once
WAIT_S = 1.0  # for the ResourceManager
MIB = 1 << 20


class Known:
    """The TaskManagers as the ResourceManager knows them, and as they are themselves. Both are asked while somebody looks, and not more
    often than a page does."""

    def __init__(self, commands: Commands, fetcher: MetricFetcher, now_s: Callable[[], float] = time.monotonic) -> None:
        self._commands, self._fetcher, self._now_s = commands, fetcher, now_s
        self._asking, self._asked_s = asyncio.Lock(), -math.inf
        self._known: Mapping[str, TaskManagerInfo] = {}
        self._machines: dict[tuple[str, int], ProcessStatus] = {}  # name, incarnation -> as it was once: its machine stays what it is

    async def machines(self, members: Mapping[str, tuple[Row, list[Row]]]) -> dict[str, ProcessStatus]:
        """The machines on which they run, as far as they have answered. Each is asked once."""
        keys = {name: (name, int(row["incarnation"])) for name, (row, _) in members.items()}
        unknown = [name for name, key in keys.items() if key not in self._machines][:ASKED_MOST]
        for name, seen in (await self._fetcher.task_managers(unknown)).items():
            if isinstance(seen.found, TaskManagerDescribed):
                self._machines[keys[name]] = seen.found.status
        self._machines = {key: self._machines[key] for key in keys.values() if key in self._machines}
        return {name: self._machines[key] for name, key in keys.items() if key in self._machines}

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


def router(source: Source, commands: Commands, processes: Processes, fetcher: MetricFetcher) -> APIRouter:
    api, known = APIRouter(tags=["taskmanagers"], dependencies=[Depends(source.live)]), Known(commands, fetcher)

    @api.get("/taskmanagers", response_model=shapes.TaskManagers)
    async def task_managers() -> Reply:
        """Those that are registered, by name."""
        rows = members(source)
        heaps, machines = await known.members(), await known.machines(rows)
        found = [_row(member, slots, heaps.get(name), machines.get(name)) for name, (member, slots) in rows.items()]
        body: shapes.TaskManagers = {"taskmanagers": found}
        return Reply(body)

    @api.get("/taskmanagers/metrics", response_model=list[Aggregate])
    async def over_all(
        get: Get = None,
        agg: Agg = None,
        taskmanagers: Annotated[str | None, Query(description="Names, joined by commas: of these alone.", max_length=20_000)] = None,
    ) -> Reply:
        """What is measured, over all of them, or over those that are named."""
        rows = members(source)
        chosen_ones = [name for name in rows if taskmanagers is None or name in taskmanagers.split(",")]
        asks = get is None or "Status." in get
        seen = await fetcher.task_managers(chosen_ones) if asks else {}
        return Reply(aggregated([measured_of(rows[name][1], seen.get(name)) for name in chosen_ones], get, agg))

    @api.get("/taskmanagers/{name}", response_model=shapes.TaskManagerDetail)
    async def details(name: str) -> Reply:
        """One with its slots."""
        member, slots = member_of(source, name)
        return Reply(detail(member, slots, (await known.members()).get(name), await fetcher.task_manager(name)))

    @api.get("/taskmanagers/{name}/metrics", response_model=list[Metric])
    async def metrics(name: str, get: Get = None) -> Reply:
        """What is measured of it."""
        _, slots = member_of(source, name)
        measured = measured_of(slots, (await fetcher.task_managers([name])).get(name))
        return Reply(chosen(measured, get))

    @api.get("/taskmanagers/{name}/thread-dump", response_model=shapes.ThreadDump)
    async def threads(name: str) -> Reply:
        """Where its threads are, those of its slots' JVMs, and the Python of running attempts."""
        member_of(source, name)
        body: shapes.ThreadDump = {"threadInfos": list(infos(await processes.threads(Of(name, False))))}
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


def _row(member: Row, slots: Sequence[Row], info: TaskManagerInfo | None, machine: ProcessStatus | None) -> shapes.TaskManager:
    heap = _heap(slots, info)
    found: shapes.TaskManager = {
        "id": member["task_manager"],
        "path": member["host"],
        "dataPort": -1,
        "jmxPort": -1,
        "timeSinceLastHeartbeat": info.last_beat_ms if info is not None else member["since_ms"] or 0,
        "slotsNumber": len(slots),
        "freeSlots": sum(slot["state"] == "FREE" for slot in slots),
        "assignedTasks": sum(slot["job"] is not None for slot in slots),
        "totalResource": _resource(slots, info),
        "freeResource": _resource([slot for slot in slots if slot["state"] == "FREE"], info),
        "hardware": {
            "cpuCores": machine.cores if machine is not None else 0, "physicalMemory": machine.memory if machine is not None else 0,
            "freeMemory": heap * MIB, "managedMemory": 0,
        },
        "memoryConfiguration": {
            "frameworkHeap": 0, "taskHeap": heap * MIB, "frameworkOffHeap": 0, "taskOffHeap": 0, "networkMemory": 0,
            "managedMemory": 0, "jvmMetaspace": 0, "jvmOverhead": 0, "totalFlinkMemory": heap * MIB, "totalProcessMemory": 0,
        },
    }  # fmt: skip
    if member["blocked"] is not None:
        found["blocked"] = True
    return found


def _heap(slots: Sequence[Row], info: TaskManagerInfo | None) -> int:
    """Of these slots together, in MiB."""
    return sum(each.memory_mb for each in _known(slots, info))


def _known(slots: Sequence[Row], info: TaskManagerInfo | None) -> list[SlotInfo]:
    """What the ResourceManager has of these slots; nothing of those that it does not know yet."""
    found = {each.slot: each for each in info.slots} if info is not None else {}
    return [found[slot["slot"]] for slot in slots if slot["slot"] in found]


def _resource(slots: Sequence[Row], info: TaskManagerInfo | None) -> shapes.Resource:
    """What these slots have together. Those of one machine may share its cores: each counts all that it may use."""
    known = _known(slots, info)
    extras = sorted({name for each in known for name in each.extras})
    return {
        "cpuCores": float(sum(each.cores for each in known)), "taskHeapMemory": _heap(slots, info), "taskOffHeapMemory": 0,
        "managedMemory": 0, "networkMemory": 0,
        "extendedResources": {name: float(sum(each.extras.get(name, 0) for each in known)) for name in extras},
    }  # fmt: skip


def detail(
    member: Row, slots: Sequence[Row], info: TaskManagerInfo | None, now: TaskManagerDescribed | None
) -> shapes.TaskManagerDetail:
    held: dict[str, list[Row]] = {}
    for slot in slots:
        if slot["job"] is not None:
            held.setdefault(slot["job"], []).append(slot)
    jvms = _jvms(now)
    return {
        **_row(member, slots, info, now.status if now is not None else None),
        "allocatedSlots": [
            {"jobId": job_id(job), "resource": _resource(its, info), "assignedTasks": len(its)} for job, its in held.items()
        ],
        "metrics": {
            "heapUsed": sum(jvm.heap.used for jvm in jvms), "heapCommitted": sum(jvm.heap.committed for jvm in jvms),
            "heapMax": sum(jvm.heap.max or 0 for jvm in jvms) or _heap(slots, info) * MIB,
            "nonHeapUsed": sum(jvm.non_heap.used for jvm in jvms), "nonHeapCommitted": sum(jvm.non_heap.committed for jvm in jvms),
            "nonHeapMax": sum(jvm.non_heap.max or 0 for jvm in jvms),
            "directCount": sum(jvm.direct.count for jvm in jvms), "directUsed": sum(jvm.direct.used for jvm in jvms),
            "directMax": sum(jvm.direct.capacity for jvm in jvms), "mappedCount": sum(jvm.mapped.count for jvm in jvms),
            "mappedUsed": sum(jvm.mapped.used for jvm in jvms), "mappedMax": sum(jvm.mapped.capacity for jvm in jvms),
            "nettyShuffleMemorySegmentsAvailable": 0, "nettyShuffleMemorySegmentsUsed": 0, "nettyShuffleMemorySegmentsTotal": 0,
            "nettyShuffleMemoryAvailable": 0, "nettyShuffleMemoryUsed": 0, "nettyShuffleMemoryTotal": 0,
            "garbageCollectors": [{"name": name, "count": count, "time": ms} for name, (count, ms) in _collections(jvms).items()],
        },
    }  # fmt: skip


def _jvms(now: TaskManagerDescribed | None) -> list[JvmStatus]:
    return [slot.jvm for slot in now.slots if slot.jvm is not None] if now is not None else []


def _collections(jvms: Sequence[JvmStatus]) -> dict[str, tuple[int, int]]:
    """Garbage collector -> how often it ran, and for how many ms, over all JVMs."""
    found: dict[str, tuple[int, int]] = {}
    for each in (collector for jvm in jvms for collector in jvm.collectors):
        count, ms = found.get(each.name, (0, 0))
        found[each.name] = count + each.count, ms + each.time_ms
    return found


def measured_of(slots: Sequence[Row], seen: Sampled | None) -> dict[str, float]:
    """Of the slots, and of their JVMs where the TaskManager answers."""
    found: dict[str, float] = {
        "taskSlotsTotal": len(slots),
        "taskSlotsAvailable": sum(slot["state"] == "FREE" for slot in slots),
        "taskSlotsBroken": sum(slot["state"] == "BROKEN" for slot in slots),
    }
    now = seen.found if seen is not None else None
    if seen is None or not isinstance(now, TaskManagerDescribed):
        return found
    found["System.CPU.Cores"], found["System.Memory.Total"], found["System.Memory.Available"] = (
        now.status.cores, now.status.memory, now.status.memory_free,
    )  # fmt: skip
    if jvms := _jvms(now):
        found |= of_jvms(jvms)
        if seen.before is not None and isinstance(seen.before.found, TaskManagerDescribed):
            found |= rates(now, seen.before.found, seen.at_s - seen.before.at_s)
    return found


def rates(now: TaskManagerDescribed, before: TaskManagerDescribed, seconds: float) -> dict[str, float]:
    """Of the JVMs that were there both times: one that began or came back meanwhile would bring all that it had done before."""
    known = {slot.slot: slot.jvm for slot in before.slots if slot.jvm is not None}
    pairs = [
        (slot.jvm, known[slot.slot]) for slot in now.slots
        if slot.jvm is not None and slot.slot in known and slot.jvm.uptime_ms >= known[slot.slot].uptime_ms
    ]  # fmt: skip
    later, earlier = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    times, times_before = ({name: ms for name, (_, ms) in _collections(jvms).items()} for jvms in (later, earlier))
    growing = per_second(times, times_before, seconds)
    found = {f"Status.JVM.GarbageCollector.{name}.TimeMsPerSecond": round(ms, 1) for name, ms in growing.items()}
    cpu_ms, cpu_before_ms = (sum(jvm.cpu_ms or 0 for jvm in jvms) for jvms in (later, earlier))
    if pairs and all(jvm.cpu_ms is not None for jvm in (*later, *earlier)):
        found |= of_load(per_second({"cpu": cpu_ms}, {"cpu": cpu_before_ms}, seconds).get("cpu"), now.status.cores)
    return found


def of_jvms(jvms: Sequence[JvmStatus]) -> dict[str, float]:
    """Of all together, under Flink's names."""
    found: dict[str, float] = {}
    spaces = {"Heap": [jvm.heap for jvm in jvms], "NonHeap": [jvm.non_heap for jvm in jvms],
              "Metaspace": [jvm.metaspace for jvm in jvms if jvm.metaspace is not None]}  # fmt: skip
    for kind, memory in spaces.items():
        if memory:
            found[f"Status.JVM.Memory.{kind}.Used"] = sum(each.used for each in memory)
            found[f"Status.JVM.Memory.{kind}.Committed"] = sum(each.committed for each in memory)
            found[f"Status.JVM.Memory.{kind}.Max"] = sum(each.max or 0 for each in memory)
    for kind, buffers in (("Direct", [jvm.direct for jvm in jvms]), ("Mapped", [jvm.mapped for jvm in jvms])):
        found[f"Status.JVM.Memory.{kind}.Count"] = sum(each.count for each in buffers)
        found[f"Status.JVM.Memory.{kind}.MemoryUsed"] = sum(each.used for each in buffers)
        found[f"Status.JVM.Memory.{kind}.TotalCapacity"] = sum(each.capacity for each in buffers)
    for name, (count, ms) in _collections(jvms).items():
        found |= of_collector(name, count, ms)
    found["Status.JVM.Threads.Count"] = sum(jvm.threads for jvm in jvms)
    if all(jvm.cpu_ms is not None for jvm in jvms):
        found["Status.JVM.CPU.Time"] = sum(jvm.cpu_ms or 0 for jvm in jvms) * NS
    return found
