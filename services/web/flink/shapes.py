"""What is answered about jobs, with Flink's names of fields. Times are milliseconds since 1970, -1: not yet; durations are milliseconds."""

from __future__ import annotations

from typing_extensions import NotRequired, TypedDict

Empty = TypedDict("Empty", {})
Bounds = TypedDict("Bounds", {"lowerBound": int, "upperBound": int})
VertexRequirements = TypedDict("VertexRequirements", {"parallelism": Bounds})
Status = TypedDict("Status", {"status": str})
JobIdStatus = TypedDict("JobIdStatus", {"id": str, "status": str})
Jobs = TypedDict("Jobs", {"jobs": list[JobIdStatus]})
TaskCounts = TypedDict(
    "TaskCounts",
    {
        "total": int, "created": int, "scheduled": int, "deploying": int, "initializing": int, "running": int, "finished": int,
        "canceling": int, "canceled": int, "failed": int, "reconciling": int,
    },
)  # fmt: skip
JobDetails = TypedDict(
    "JobDetails",
    {
        "jid": str, "name": str, "jobType": str, "schedulerType": str, "state": str, "start-time": int, "end-time": int,
        "duration": int, "last-modification": int, "tasks": TaskCounts, "pending-operators": int,
    },
)  # fmt: skip
JobsOverview = TypedDict("JobsOverview", {"jobs": list[JobDetails]})
IOMetrics = TypedDict(
    "IOMetrics",
    {
        "read-bytes": int, "read-bytes-complete": bool, "write-bytes": int, "write-bytes-complete": bool, "read-records": int,
        "read-records-complete": bool, "write-records": int, "write-records-complete": bool, "accumulated-backpressured-time": int,
        "accumulated-idle-time": int, "accumulated-busy-time": float,
    },
)  # fmt: skip
Vertex = TypedDict(
    "Vertex",
    {
        "id": str, "slotSharingGroupId": str, "name": str, "maxParallelism": int, "parallelism": int, "status": str,
        "start-time": int, "end-time": int, "duration": int, "tasks": dict[str, int], "metrics": IOMetrics,
    },
)  # fmt: skip
PlanInput = TypedDict("PlanInput", {"num": int, "id": str, "ship_strategy": str, "exchange": str})
PlanNode = TypedDict(
    "PlanNode",
    {
        "id": str, "parallelism": int, "operator": str, "operator_strategy": str, "description": str,
        "inputs": NotRequired[list[PlanInput]], "optimizer_properties": dict[str, str],
    },
)  # fmt: skip
Plan = TypedDict("Plan", {"jid": str, "name": str, "type": str, "nodes": list[PlanNode]})
JobPlan = TypedDict("JobPlan", {"plan": Plan})
JobDetail = TypedDict(
    "JobDetail",
    {
        "jid": str, "application-id": str, "name": str, "isStoppable": bool, "state": str, "job-type": str, "schedulerType": str,
        "start-time": int, "end-time": int, "duration": int, "maxParallelism": int, "now": int, "timestamps": dict[str, int],
        "vertices": list[Vertex], "status-counts": dict[str, int], "plan": Plan, "pending-operators": int,
    },
)  # fmt: skip
ExecutionConfig = TypedDict(
    "ExecutionConfig", {"restart-strategy": str, "job-parallelism": int, "object-reuse-mode": bool, "user-config": dict[str, str]}
)
JobConfig = TypedDict("JobConfig", {"jid": str, "name": str, "execution-config": ExecutionConfig})
Accumulator = TypedDict("Accumulator", {"name": str, "type": str, "value": str})
JobAccumulators = TypedDict(
    "JobAccumulators",
    {
        "job-accumulators": list[Accumulator], "user-task-accumulators": list[Accumulator],
        "serialized-user-task-accumulators": dict[str, str],
    },
)  # fmt: skip

# why a job failed

Throwable = TypedDict("Throwable", {"class": str, "stack-trace": str, "serialized-throwable": str})
ConcurrentFailure = TypedDict(
    "ConcurrentFailure",
    {
        "exceptionName": str, "stacktrace": str, "timestamp": int, "failureLabels": dict[str, str], "taskName": NotRequired[str],
        "endpoint": NotRequired[str], "taskManagerId": NotRequired[str],
    },
)  # fmt: skip


class Failure(ConcurrentFailure):
    """What made the job fail or restart, and what else failed at that time."""

    concurrentExceptions: list[ConcurrentFailure]


FailureHistory = TypedDict("FailureHistory", {"entries": list[Failure], "truncated": bool})
Failures = TypedDict("Failures", {"exceptionHistory": FailureHistory})
JobResult = TypedDict(
    "JobResult",
    {
        "id": str, "application-id": str, "name": str, "application-status": str, "accumulator-results": dict[str, str],
        "net-runtime": int, "start-time": int, "end-time": int, "failure-cause": NotRequired[Throwable],
    },
)  # fmt: skip
QueueStatus = TypedDict("QueueStatus", {"id": str})
ExecutionResult = TypedDict("ExecutionResult", {"status": QueueStatus, "job-execution-result": NotRequired[JobResult]})

# vertices

Statistics = TypedDict(
    "Statistics", {"min": int, "max": int, "avg": int, "sum": int, "median": int, "p25": int, "p75": int, "p95": int}
)
Aggregated = TypedDict("Aggregated", {"metrics": dict[str, Statistics], "status-duration": dict[str, Statistics]})
Attempt = TypedDict(
    "Attempt",
    {
        "subtask": int, "status": str, "attempt": int, "endpoint": str, "start-time": int, "end-time": int, "duration": int,
        "metrics": IOMetrics, "taskmanager-id": str, "status-duration": dict[str, int], "start_time": int,
        "other-concurrent-attempts": NotRequired["list[Attempt]"],
    },
)  # fmt: skip
VertexDetail = TypedDict(
    "VertexDetail",
    {
        "id": str, "name": str, "parallelism": int, "maxParallelism": int, "now": int, "subtasks": list[Attempt],
        "aggregated": Aggregated,
    },
)  # fmt: skip
SubtaskTimes = TypedDict("SubtaskTimes", {"subtask": int, "endpoint": str, "duration": int, "timestamps": dict[str, int]})
VertexTimes = TypedDict("VertexTimes", {"id": str, "name": str, "now": int, "subtasks": list[SubtaskTimes]})
VertexTaskManager = TypedDict(
    "VertexTaskManager",
    {
        "endpoint": str, "status": str, "start-time": int, "end-time": int, "duration": int, "metrics": IOMetrics,
        "status-counts": dict[str, int], "taskmanager-id": str, "aggregated": Aggregated,
    },
)  # fmt: skip
VertexTaskManagers = TypedDict(
    "VertexTaskManagers", {"id": str, "name": str, "now": int, "taskmanagers": list[VertexTaskManager]}
)
VertexAccumulators = TypedDict("VertexAccumulators", {"id": str, "user-accumulators": list[Accumulator]})
SubtaskAccumulators = TypedDict(
    "SubtaskAccumulators", {"subtask": int, "attempt": int, "endpoint": str, "user-accumulators": list[Accumulator]}
)
SubtasksAccumulators = TypedDict(
    "SubtasksAccumulators", {"id": str, "parallelism": int, "subtasks": list[SubtaskAccumulators]}
)
AttemptAccumulators = TypedDict(
    "AttemptAccumulators", {"subtask": int, "attempt": int, "id": str, "user-accumulators": list[Accumulator]}
)
SubtaskPressure = TypedDict(
    "SubtaskPressure",
    {
        "subtask": int, "attempt-number": int, "backpressureLevel": str, "backpressure-level": str, "ratio": float,
        "idleRatio": float, "busyRatio": float,
    },
)  # fmt: skip
BackPressure = TypedDict(
    "BackPressure",
    {
        "status": str, "backpressureLevel": str, "backpressure-level": str, "end-timestamp": int,
        "subtasks": list[SubtaskPressure],
    },
)  # fmt: skip
FlameGraph = TypedDict("FlameGraph", {"endTimestamp": int})

# metrics

Metric = TypedDict("Metric", {"id": str, "value": NotRequired[str]})
Aggregate = TypedDict(
    "Aggregate",
    {
        "id": str, "min": NotRequired[float], "max": NotRequired[float], "avg": NotRequired[float], "sum": NotRequired[float],
        "skew": NotRequired[float],
    },
)  # fmt: skip

# what goes on

Triggered = TypedDict("Triggered", {"request-id": str})
Savepoint = TypedDict("Savepoint", {"location": NotRequired[str], "failure-cause": NotRequired[Throwable]})
SavepointStatus = TypedDict("SavepointStatus", {"status": QueueStatus, "operation": Savepoint | None})
Checkpoint = TypedDict("Checkpoint", {"checkpointId": NotRequired[int], "failureCause": NotRequired[Throwable]})
CheckpointStatus = TypedDict("CheckpointStatus", {"status": QueueStatus, "operation": Checkpoint | None})
