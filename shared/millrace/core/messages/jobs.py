"""Between Dispatcher, JobMaster and ResourceManager: the life of a job."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from ..states import Ending
from .attempts import Fault
from .base import Body, Part, empty, unless_set
from .blocklist import AskBlocklist
from .execution import Described
from .kept import Kept
from .processes import AnyAsk
from .profiles import Cores, Extras, WantedSlots, WithProfile
from .requirements import Rescale

STARTED_ANEW = "it was started anew"
"""Why a TaskManager's earlier life is over."""

# Dispatcher -> JobMaster


class StartJob(Body):
    """Take this job over. For a known job the JobMaster answers with its state [R21]; sent again to every new life of the JobMaster."""

    type: Literal["StartJob"] = "StartJob"
    version: Literal[1] = 1
    job: str
    acceptance: str
    graph: dict[str, Any]
    accepted_ms: int
    cancel: bool = False
    """The job was asked to cancel before."""
    kept: Annotated[Kept | None, Field(exclude_if=unless_set)] = None
    """What it begins with, of the job that it repairs."""
    rescale: Annotated[Rescale | None, Field(exclude_if=unless_set)] = None
    """Clients have asked for another parallelism since it was submitted."""


class CancelStartedJob(Body):
    """Cancel the job: the JobMaster owes a JobEnded."""

    type: Literal["CancelStartedJob"] = "CancelStartedJob"
    version: Literal[1] = 1
    job: str


class RescaleStartedJob(Body):
    """Give the job's vertices this parallelism. Taken once, and not by a job that is ending."""

    type: Literal["RescaleStartedJob"] = "RescaleStartedJob"
    version: Literal[1] = 1
    job: str
    rescale: Rescale
    number: Annotated[int, Field(exclude_if=lambda number: not number)] = 0
    """The JobMaster owes a QuestionAnswered with it; 0: none."""


class SuspendJobs(Body):
    """The cluster is being shut down: suspend all jobs. Their attempts end, their slots go back, and what has FINISHED is kept. The
    JobMaster owes a JobsSuspended. Sent again to a new life of the JobMaster."""

    type: Literal["SuspendJobs"] = "SuspendJobs"
    version: Literal[1] = 1


class ResumeJobs(Body):
    """The cluster was started again: all suspended jobs go on."""

    type: Literal["ResumeJobs"] = "ResumeJobs"
    version: Literal[1] = 1


class JobRetired(Body):
    """The job's ending is stored: the JobMaster forgets the job."""

    type: Literal["JobRetired"] = "JobRetired"
    version: Literal[1] = 1
    job: str
    acceptance: str


class DescribeStartedJob(Body):
    """Answer this client's DescribeJob from your state."""

    type: Literal["DescribeStartedJob"] = "DescribeStartedJob"
    version: Literal[1] = 1
    job: str
    reply_to: str
    correlation: str
    number: int = 0
    """Of the question: QuestionAnswered names it."""


class ReportStartedJob(Body):
    """Answer this client's ReportNow: ask the running attempts."""

    type: Literal["ReportStartedJob"] = "ReportStartedJob"
    version: Literal[1] = 1
    job: str
    task: str
    subtask: int | None
    reply_to: str
    correlation: str
    number: int = 0
    """Of the question: QuestionAnswered names it."""


JobQuestion = DescribeStartedJob | ReportStartedJob
"""Requests of clients about one job that its JobMaster answers."""

# JobMaster, ResourceManager -> Dispatcher


class QuestionAnswered(Body):
    """A client's question was answered on client.replies. The Dispatcher, which answers what nobody has answered in time, need not
    [R31]. Of a RescaleStartedJob: it is decided, and the Dispatcher is to answer."""

    type: Literal["QuestionAnswered"] = "QuestionAnswered"
    version: Literal[1] = 1
    number: int
    workers: int = 0
    """Of a "deregister" for the Dispatcher itself: TaskManagers that the provider has not stopped yet."""
    refused: Annotated[str | None, Field(exclude_if=lambda refused: refused is None)] = None
    """Of a RescaleStartedJob: why the job does not take it."""
    job: Annotated[str, Field(exclude_if=lambda job: not job)] = ""
    """Of a RescaleStartedJob: its job. The client may have been answered before, while the JobMaster was silent."""


# JobMaster -> Dispatcher


class JobsSuspended(Body):
    """Answers SuspendJobs: no attempt of this shard runs, and it holds no slot."""

    type: Literal["JobsSuspended"] = "JobsSuspended"
    version: Literal[1] = 1
    jobs: int
    """That are SUSPENDED."""


class JobMasterStarted(Body):
    """The job is in the JobMaster's state; `status` is its state now."""

    type: Literal["JobMasterStarted"] = "JobMasterStarted"
    version: Literal[1] = 1
    job: str
    status: str
    acceptance: Annotated[str, Field(exclude_if=lambda acceptance: not acceptance)] = ""
    """With `rescale`."""
    rescale: Annotated[Rescale | None, Field(exclude_if=unless_set)] = None
    """The parallelism that clients have asked for: a Dispatcher that has lost its log may not find these requests again."""


class JobStatusChanged(Body):
    """The job's state, or why it waits, has changed."""

    type: Literal["JobStatusChanged"] = "JobStatusChanged"
    version: Literal[1] = 1
    job: str
    status: str
    waiting: str | None = None
    position: int | None = None
    expected_ms: Annotated[int | None, Field(exclude_if=unless_set)] = None
    running_ms: int | None = None
    """When the job was first given a slot."""
    publishing: Annotated[bool, Field(exclude_if=unless_set)] = False
    """Its sinks are being moved to their paths: it ends as it is."""


class JobEnded(Body):
    """The job has reached an end; the Dispatcher stores it and answers JobRetired. Sent again to every new life of the Dispatcher."""

    type: Literal["JobEnded"] = "JobEnded"
    version: Literal[1] = 1
    job: str
    acceptance: str
    status: Ending
    cause: Fault | None
    ended_ms: int
    archive: Described
    """What `show` and `result` answer from: the ExecutionGraph, with places of logs and results."""
    staging: list[str] = empty(list)
    """Of builds before: the Dispatcher has the graph, which has where its sinks staged output."""
    running_ms: int | None = None
    """When the job was first given a slot; null: never."""
    kept: Annotated[Kept | None, Field(exclude_if=unless_set)] = None
    """Of a job that FAILED or was CANCELED: what it had finished; null: nothing."""


# JobMaster <-> ResourceManager


class RequestSlots(Body):
    """The job's whole wanted set of slots; replaces the last one. 0 wants none, and gives back the place in the queue."""

    type: Literal["RequestSlots"] = "RequestSlots"
    version: Literal[1] = 1
    job: str
    slots: int
    priority: int
    since_ms: int
    """When the job was accepted: who waits longer goes first among equals."""
    memory_mb: int | None = None
    """What each slot has at least, where `profiles` is empty."""
    tenant: Annotated[str, Field(exclude_if=unless_set)] = ""
    """Whose quota and share count."""
    together: Annotated[bool, Field(exclude_if=unless_set)] = False
    """What it lacks is granted all at once, or not at all."""
    given_back: Annotated[list[str], Field(exclude_if=lambda given_back: not given_back)] = empty(list)
    """Of such a job: the allocations that it gives back with this. It is granted nothing before they are over: it lacks those, too."""
    profiles: Annotated[list[WantedSlots], Field(exclude_if=lambda profiles: not profiles)] = empty(list)
    """The same `slots`, by what each has at least; of a job that wants the same memory of all, and nothing else, empty. A slot in use is
    wanted by its own profile."""
    spare: Annotated[list[str], Field(exclude_if=lambda spare: not spare)] = empty(list)
    """So many slots more for second attempts of slow subtasks: the TaskManagers where these run now, and each wants another one. Granted
    only of what is free and no waiting job can use. Empty of a job whose slots have different profiles."""
    trace: Annotated[str, Field(exclude_if=unless_set)] = ""
    """The job's span, as `trace_context.in_one`, where spans are made: those of its slots belong below it."""


LOST_KEPT = 5_000
"""TaskManagers: more do not fit into one message, and those lost before have long ended by themselves."""


class TaskManagersParted(Body):
    """A shard reports to a new life of the ResourceManager, before it has declared, the TaskManagers that were declared lost to it. It
    takes nothing of them any more. One that lives after all, and whose loss was forgotten with the ResourceManager's log, is released."""

    type: Literal["TaskManagersParted"] = "TaskManagersParted"
    version: Literal[1] = 1
    lost: dict[str, int]
    """id -> the last incarnation that is lost."""


class JobMasterDeclared(Body):
    """Ends a shard's declaration to a new life of the ResourceManager, which waits for those of all shards for some time [R11]; answers
    DeclareAgain."""

    type: Literal["JobMasterDeclared"] = "JobMasterDeclared"
    version: Literal[1] = 1
    task_managers: dict[str, int] = empty(dict)
    """The TaskManagers on which the shard holds allocations: id -> incarnation. One that does not register with the new life of the
    ResourceManager in time, or registers in a later incarnation, is declared lost."""


class DeclareAgain(Body):
    """What the shard was granted was not used in time, or nothing was received of it: its jobs are granted nothing until it has sent
    JobMasterDeclared again [R31]."""

    type: Literal["DeclareAgain"] = "DeclareAgain"
    version: Literal[1] = 1
    requests: Annotated[bool, Field(exclude_if=unless_set)] = False
    """What its jobs want is forgotten: it sends RequestSlots of each as well, before."""


class HeldSlots(Part):
    """Allocations on one TaskManager."""

    task_manager: str
    incarnation: int
    allocations: list[str]


class JobMasterHeartbeat(Body):
    """The shard lives, while a job of it wants slots. Carries what it holds: where that is much, a part of it each time. What the
    ResourceManager counts otherwise for longer than messages are on their way, it answers with ReconcileSlots."""

    type: Literal["JobMasterHeartbeat"] = "JobMasterHeartbeat"
    version: Literal[1] = 1
    part: int
    """Number of the part, from 0 on."""
    parts: int
    """Into which the names of all allocations are divided (`core/allocation.py:part_of`)."""
    held: list[HeldSlots]
    """All that it holds of this part."""


class ReconcileSlots(Body):
    """What the ResourceManager counts otherwise than the shard. The shard frees what it does not hold, and fails what is not there."""

    type: Literal["ReconcileSlots"] = "ReconcileSlots"
    version: Literal[1] = 1
    unclaimed: list[HeldSlots]
    """Slots of its jobs that it does not hold."""
    gone: list[str]
    """Allocations that it holds on TaskManagers that do not have them."""


class JobQueued(Body):
    """Why the job waits and its place in the queue; reason null: it waits no more."""

    type: Literal["JobQueued"] = "JobQueued"
    version: Literal[1] = 1
    job: str
    reason: str | None
    position: int | None
    expected_ms: Annotated[int | None, Field(exclude_if=unless_set)] = None
    """When it has what it waits for, by how often slots were freed lately; null: that cannot be told."""


class NotEnoughResources(Body):
    """The job wants what the cluster cannot have, and has waited for it long enough: it fails with this reason."""

    type: Literal["NotEnoughResources"] = "NotEnoughResources"
    version: Literal[1] = 1
    job: str
    reason: str


class TaskManagerLost(Body):
    """Sent to every shard, once: it is decided. Attempts there are failed and run elsewhere, without counting as failures."""

    type: Literal["TaskManagerLost"] = "TaskManagerLost"
    version: Literal[1] = 1
    task_manager: str
    incarnation: int
    reason: str


class Query(Body):
    """Answer this client's question on client.replies. "deregister" and "register" also have TaskManagers stopped, or started again."""

    type: Literal["Query"] = "Query"
    version: Literal[1] = 1
    what: Literal["task_managers", "overview", "deregister", "register"]
    reply_to: str
    correlation: str
    jobs: dict[str, int] = empty(dict)
    number: int = 0
    """Of the question: QuestionAnswered names it."""


class AskTaskManager(Body):
    """Let this TaskManager answer the client's question about it, and answer in its place if it is not here, or silent."""

    type: Literal["AskTaskManager"] = "AskTaskManager"
    version: Literal[1] = 1
    task_manager: str
    ask: AnyAsk
    reply_to: str
    correlation: str
    number: int = 0
    """Of the question: QuestionAnswered names it."""


Question = JobQuestion | Query | AskTaskManager | AskBlocklist
"""Requests of clients that another scope answers. The Dispatcher numbers them."""


class SlotSpec(WithProfile):
    """A slot as its TaskManager offers it."""

    slot: int
    memory_mb: int
    cores: Cores = 0
    extras: Extras = empty(dict)
