"""What is answered about the cluster and its TaskManagers, with Flink's names of fields. Memory is in bytes, in a `Resource` in MiB."""

from __future__ import annotations

from typing_extensions import NotRequired, TypedDict

from .shapes import JobDetails

Features = TypedDict("Features", {"web-submit": bool, "web-cancel": bool, "web-rescale": bool, "web-history": bool})
Config = TypedDict(
    "Config",
    {
        "refresh-interval": int, "timezone-name": str, "timezone-offset": int, "flink-version": str, "flink-revision": str,
        "features": Features,
    },
)  # fmt: skip
Overview = TypedDict(
    "Overview",
    {
        "taskmanagers": int, "slots-total": int, "slots-available": int, "jobs-running": int, "jobs-finished": int,
        "jobs-cancelled": int, "jobs-failed": int, "flink-version": str, "flink-commit": str,
        "taskmanagers-blocked": NotRequired[int], "slots-free-and-blocked": NotRequired[int],
    },
)  # fmt: skip
Setting = TypedDict("Setting", {"key": str, "value": str})
Jvm = TypedDict("Jvm", {"version": str, "arch": str, "options": list[str]})
Environment = TypedDict("Environment", {"jvm": Jvm, "classpath": list[str]})
LogFile = TypedDict("LogFile", {"name": str, "size": int, "mtime": int})
LogList = TypedDict("LogList", {"logs": list[LogFile]})
ThreadInfo = TypedDict("ThreadInfo", {"threadName": str, "stringifiedThreadInfo": str})
ThreadDump = TypedDict("ThreadDump", {"threadInfos": list[ThreadInfo]})
DataSet = TypedDict("DataSet", {"id": str, "isComplete": bool})
DataSets = TypedDict("DataSets", {"dataSets": list[DataSet]})

# applications

Application = TypedDict(
    "Application",
    {"id": str, "name": str, "start-time": int, "end-time": int, "duration": int, "status": str, "jobs": dict[str, int]},
)
Applications = TypedDict("Applications", {"applications": list[Application]})
ApplicationDetail = TypedDict(
    "ApplicationDetail",
    {
        "id": str, "name": str, "status": str, "start-time": int, "end-time": int, "duration": int, "timestamps": dict[str, int],
        "jobs": list[JobDetails],
    },
)  # fmt: skip
ApplicationFailure = TypedDict(
    "ApplicationFailure", {"exceptionName": str, "stacktrace": str, "timestamp": int, "jobId": str}
)
ApplicationFailureHistory = TypedDict("ApplicationFailureHistory", {"entries": list[ApplicationFailure]})
ApplicationFailures = TypedDict("ApplicationFailures", {"exceptionHistory": ApplicationFailureHistory})

# TaskManagers

Resource = TypedDict(
    "Resource",
    {
        "cpuCores": float, "taskHeapMemory": int, "taskOffHeapMemory": int, "managedMemory": int, "networkMemory": int,
        "extendedResources": dict[str, float],
    },
)  # fmt: skip
Hardware = TypedDict("Hardware", {"cpuCores": int, "physicalMemory": int, "freeMemory": int, "managedMemory": int})
MemoryConfiguration = TypedDict(
    "MemoryConfiguration",
    {
        "frameworkHeap": int, "taskHeap": int, "frameworkOffHeap": int, "taskOffHeap": int, "networkMemory": int,
        "managedMemory": int, "jvmMetaspace": int, "jvmOverhead": int, "totalFlinkMemory": int, "totalProcessMemory": int,
    },
)  # fmt: skip
TaskManager = TypedDict(
    "TaskManager",
    {
        "id": str, "path": str, "dataPort": int, "jmxPort": int, "timeSinceLastHeartbeat": int, "slotsNumber": int,
        "freeSlots": int, "assignedTasks": int, "totalResource": Resource, "freeResource": Resource, "hardware": Hardware,
        "memoryConfiguration": MemoryConfiguration, "blocked": NotRequired[bool],
    },
)  # fmt: skip
TaskManagers = TypedDict("TaskManagers", {"taskmanagers": list[TaskManager]})
AllocatedSlot = TypedDict("AllocatedSlot", {"jobId": str, "resource": Resource, "assignedTasks": int})
GarbageCollector = TypedDict("GarbageCollector", {"name": str, "count": int, "time": int})
TaskManagerMetrics = TypedDict(
    "TaskManagerMetrics",
    {
        "heapUsed": int, "heapCommitted": int, "heapMax": int, "nonHeapUsed": int, "nonHeapCommitted": int, "nonHeapMax": int,
        "directCount": int, "directUsed": int, "directMax": int, "mappedCount": int, "mappedUsed": int, "mappedMax": int,
        "nettyShuffleMemorySegmentsAvailable": int, "nettyShuffleMemorySegmentsUsed": int, "nettyShuffleMemorySegmentsTotal": int,
        "nettyShuffleMemoryAvailable": int, "nettyShuffleMemoryUsed": int, "nettyShuffleMemoryTotal": int,
        "garbageCollectors": list[GarbageCollector],
    },
)  # fmt: skip


class TaskManagerDetail(TaskManager):
    """A TaskManager with what is in its slots."""

    allocatedSlots: list[AllocatedSlot]
    metrics: TaskManagerMetrics
