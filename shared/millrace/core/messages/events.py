"""Public facts: `job.events` (ordered per job), `cluster.events`, `dead-letters`.

Each carries `count`, its number among the facts of its kind about its subject: a service that lost its log may publish one again,
and a reader knows it by that. The ending that counts is the one in etcd; `JobFinished`, `JobFailed`, `JobCanceled` follow it [R16].
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field

from ..states import WorkerStateShown
from .attempts import Fault, ResultRows
from .base import Body, Part, unless_set
from .blocklist import BlockedHost
from .execution import JobOrigin, SkewedEdge, TaskOutline, TimeSpent
from .progress import AttemptProgress
from .schedules import Scheduled


class JobEvent(Body):  # [R16]
    """A fact about a job."""

    job: str
    at_ms: int
    """When it happened, by the clock of the cluster's Kafka: it may jump."""
    count: int = 1


class JobAccepted(JobEvent):
    """Dispatcher: the job's graph is stored."""

    type: Literal["JobAccepted"] = "JobAccepted"
    version: Literal[1] = 1
    name: str
    tasks: list[TaskOutline]
    """Producers first."""
    scheduled: Annotated[Scheduled | None, Field(exclude_if=unless_set)] = None
    """Of a schedule's run: which one."""
    origin: Annotated[JobOrigin | None, Field(exclude_if=unless_set)] = None
    """The job that it was run again from; null: it was submitted by itself."""


class JobWaiting(JobEvent):
    """JobMaster: the job waits for slots, or for its storage."""

    type: Literal["JobWaiting"] = "JobWaiting"
    version: Literal[1] = 1
    reason: str
    position: int | None
    expected_ms: Annotated[int | None, Field(exclude_if=unless_set)] = None
    """When it has what it waits for, by how often slots were freed lately; null: that cannot be told."""


class JobStateChanged(JobEvent):
    """JobMaster: the job's state (not its end)."""

    type: Literal["JobStateChanged"] = "JobStateChanged"
    version: Literal[1] = 1
    status: str
    cause: Fault | None = None


class JobCancelling(JobEvent):
    """Dispatcher: a cancel of the job was accepted. The job is CANCELLING from here on, whatever its JobMaster sends before its end, or
    where that one is silent."""

    type: Literal["JobCancelling"] = "JobCancelling"
    version: Literal[1] = 1
    reason: Annotated[str, Field(exclude_if=unless_set)] = ""
    """Empty: a client asked for it."""


class AttemptStateChanged(JobEvent):
    """JobMaster: an attempt of a subtask has a new state."""

    type: Literal["AttemptStateChanged"] = "AttemptStateChanged"
    version: Literal[1] = 1
    task: str
    subtask: int
    attempt: int
    state: str
    task_manager: str | None = None
    slot: int | None = None
    """The slot of its TaskManager, while it is in one."""
    error: Fault | None = None
    progress: Annotated[AttemptProgress | None, Field(exclude_if=unless_set)] = None
    """Of one that has ended by itself: what its Spark has done in all. Null also where its build does not report it."""
    created_ms: Annotated[int | None, Field(exclude_if=unless_set)] = None
    """Of one that is DEPLOYING: when it was CREATED; null also where its build does not report it."""
    scheduled_ms: Annotated[int | None, Field(exclude_if=unless_set)] = None
    """Of one that is DEPLOYING: when it came to want a slot."""
    beside: Annotated[int | None, Field(exclude_if=unless_set)] = None
    """The subtask's current attempt, whose state is the subtask's, where this is another one: a second attempt of a slow subtask, or the
    one that was first and has lost to it. Null: this is the current one."""


class SubtasksKept(JobEvent):
    """JobMaster: these subtasks of a task are FINISHED without an attempt. They had finished in another job, which this one repairs; or in
    this one, before it was rescaled."""

    type: Literal["SubtasksKept"] = "SubtasksKept"
    version: Literal[1] = 1
    task: str
    subtasks: list[int]
    kept_from: str
    """The job whose attempts those were."""


class JobRescaled(JobEvent):
    """JobMaster: vertices of the job have another parallelism, as a client asked. These are its tasks from here on, and none of their
    subtasks counts, until SubtasksKept of this very job says which are FINISHED all the same."""

    type: Literal["JobRescaled"] = "JobRescaled"
    version: Literal[1] = 1
    parallelism: dict[str, int]
    """Vertex -> its new parallelism, of those that had another one."""
    tasks: list[TaskOutline]
    """Producers first."""


class EdgeSkewed(JobEvent):
    """JobMaster: one share of a hash edge has far more rows than the others. Told once all subtasks that write it have finished, before
    any that reads it begins."""

    type: Literal["EdgeSkewed"] = "EdgeSkewed"
    version: Literal[1] = 1
    edge: SkewedEdge


class AttemptProgressing(Part):
    """The running attempt of a subtask, and how far it is."""

    task: str
    subtask: int
    attempt: int
    progress: AttemptProgress


class AttemptsProgressing(JobEvent):
    """Running attempts of one TaskManager whose progress has changed: about once a second, and not while nothing changes. For people to
    look at: an event may be missing, the next one has later figures."""

    type: Literal["AttemptsProgressing"] = "AttemptsProgressing"
    version: Literal[1] = 1
    attempts: list[AttemptProgressing]


class JobFinished(JobEvent):
    """Dispatcher: all tasks finished, sinks are published, the result is stored."""

    type: Literal["JobFinished"] = "JobFinished"
    version: Literal[1] = 1
    archive: str | None
    result: ResultRows | None = None
    """The result's rows, if they are small."""
    spent: TimeSpent | None = None
    """Where its time went; null where that is in its archive alone."""


class JobFailed(JobEvent):
    """Dispatcher: the job has failed for good; that, and why, is stored."""

    type: Literal["JobFailed"] = "JobFailed"
    version: Literal[1] = 1
    archive: str | None
    cause: Fault | None
    spent: TimeSpent | None = None
    """As JobFinished has it."""


class JobCanceled(JobEvent):
    """Dispatcher: the job was canceled, and nothing of it runs any more; that is stored."""

    type: Literal["JobCanceled"] = "JobCanceled"
    version: Literal[1] = 1
    archive: str | None
    spent: TimeSpent | None = None
    """As JobFinished has it."""


class ClusterEvent(Body):
    """A fact about the cluster."""

    at_ms: int
    count: int = 1


class TaskManagerJoined(ClusterEvent):
    """ResourceManager: a TaskManager has registered in a new incarnation. Counted for each incarnation."""

    type: Literal["TaskManagerJoined"] = "TaskManagerJoined"
    version: Literal[1] = 1
    task_manager: str
    incarnation: int
    host: str
    slots: int
    states: list[str]
    """Of its slots, in their order."""


class TaskManagerGone(ClusterEvent):
    """ResourceManager: a TaskManager was declared lost, or left in order. Counted for each incarnation."""

    type: Literal["TaskManagerGone"] = "TaskManagerGone"
    version: Literal[1] = 1
    task_manager: str
    incarnation: int
    reason: str


class SlotChanged(ClusterEvent):
    """ResourceManager: a slot's JVM starts, is warm, or cannot be started. Counted for each slot of an incarnation. That a job is given
    the slot is no such change: events of its attempts show it."""

    type: Literal["SlotChanged"] = "SlotChanged"
    version: Literal[1] = 1
    task_manager: str
    incarnation: int
    slot: int
    state: str
    job: str | None = None
    reason: str | None = None


class WorkerChanged(ClusterEvent):
    """ResourceManager: a TaskManager that its provider starts and stops has another state. Counted over all workers together."""

    type: Literal["WorkerChanged"] = "WorkerChanged"
    version: Literal[1] = 1
    worker: str
    """Its id, which is that of the TaskManager."""
    state: WorkerStateShown
    reason: str | None = None
    """Why it is stopped: in the provider's words, if it gave any."""
    failed: bool = False
    """It is stopped because it was not started, did not register in time, or was lost."""


class ProviderConfigured(ClusterEvent):
    """ResourceManager: a new leader, and who starts and stops TaskManagers for it. Counted over all leaders."""

    type: Literal["ProviderConfigured"] = "ProviderConfigured"
    version: Literal[1] = 1
    provider: str
    """standalone: nobody does."""
    least: int = 0
    """TaskManagers that are kept, and"""
    most: int | None = None
    """that there may be at most; null: there is no limit."""


class BlocklistChanged(ClusterEvent):
    """ResourceManager: the hosts that are blocked, all of them: it replaces the last one. Counted over all changes."""

    type: Literal["BlocklistChanged"] = "BlocklistChanged"
    version: Literal[1] = 1
    hosts: list[BlockedHost]


class LeaderElected(ClusterEvent):
    """The new leader of a scope: it speaks for the scope from here on. Known by its epoch, which grows over all lives of the scope. The
    record's key is the scope."""

    type: Literal["LeaderElected"] = "LeaderElected"
    version: Literal[1] = 1
    scope: str
    leader: str
    """Name of its process."""
    epoch: int
    generation: int


SUBMISSION = re.compile(r"(?:no|(?P<kind>\w+):) SubmitJob of job (?P<job>[^\s:]+): ")
"""How the reason of a refused submission's letter begins: `kind` as in JobRejected, none for an invalid one."""


class DeadLetter(Body):
    """Dispatcher: a record that could not be used, or a SubmitJob without `reply_to` that was refused. It has where the record was, why,
    its hash, and its first 4 KiB (of a SubmitJob in which nothing is wrong, 512 bytes). Also a graph that somebody else has put into etcd:
    then `topic` is `etcd jobs/<job>`, and `offset` the key's revision."""

    type: Literal["DeadLetter"] = "DeadLetter"
    version: Literal[1] = 1
    topic: str
    partition: int
    offset: int
    reason: str
    size_bytes: int
    sha256: str
    head_base64: str
    at_ms: int


class DeadLetterRedriven(Body):
    """An operator's tool: the record of the letter at offset `letter` of dead-letters was sent again, unchanged; it stands at `offset` of
    `topic` now. `repeats` counts such sendings of one record, this one included."""

    type: Literal["DeadLetterRedriven"] = "DeadLetterRedriven"
    version: Literal[1] = 1
    letter: int
    topic: str
    partition: int
    offset: int
    repeats: int
    by: str
    at_ms: int
