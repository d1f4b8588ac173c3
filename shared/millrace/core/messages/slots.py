"""Between ResourceManager, TaskManager and JobMaster: slots, allocations, attempts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ..states import AttemptStateChangedTo, AttemptStateReported, SlotStateFreed, SlotStateReported
from .attempts import AttemptReport, AttemptSpec, Fault
from .base import Body, Part, empty
from .jobs import SlotSpec
from .processes import AnyAnswer, AnyAsk
from .profiles import Cores, Extras, WithProfile
from .progress import AttemptProgress, AttemptStatus, Order

WARM_MOST = 16
"""Attempts after which a JVM hardly gets faster."""

# TaskManager -> ResourceManager


class ReportedSlot(Part):
    """One slot as its TaskManager sees it."""

    slot: int
    state: SlotStateReported
    allocation: str | None = None
    job: str | None = None
    broken: str | None = Field(None, description="Why it cannot be started, and what to do; of a BROKEN one.")


class RegisterTaskManager(Body):
    """What a TaskManager declares to each life of the ResourceManager: who it is and all its slots as they are."""

    type: Literal["RegisterTaskManager"] = "RegisterTaskManager"
    version: Literal[1] = 1
    host: str
    slots: list[SlotSpec]
    states: list[ReportedSlot]
    build: str = ""
    """Its build. Empty: 0.1.0, which knows neither AnswerClient nor AllocateSlots and would end at them."""


class SlotReport(Body):
    """Slots that became free or ceased to be, without a command of the ResourceManager."""

    type: Literal["SlotReport"] = "SlotReport"
    version: Literal[1] = 1
    states: list[ReportedSlot]


class TaskManagerHeartbeat(Body):
    """Alive. Counted against the ResourceManager's own ticks; carries the slot report when `states` is not null."""

    type: Literal["TaskManagerHeartbeat"] = "TaskManagerHeartbeat"
    version: Literal[1] = 1
    states: list[ReportedSlot] | None = None


class SlotFreed(Body):
    """The allocation is over (or was refused: the slot broke while AllocateSlot was on its way); only a FREE slot can be given away."""

    type: Literal["SlotFreed"] = "SlotFreed"
    version: Literal[1] = 1
    slot: int
    allocation: str
    state: SlotStateFreed = "FREE"
    """What the slot is now."""
    warm: Annotated[int, Field(exclude_if=lambda finished: not finished)] = 0
    """So many attempts have finished in the JVM that it has, one after the other, at most WARM_MOST: the next one meets compiled code."""


class SlotUnused(Body):
    """The JobMaster has deployed nothing on this allocation in time: it is given back, and its shard may be away [R31]."""

    type: Literal["SlotUnused"] = "SlotUnused"
    version: Literal[1] = 1
    slot: int
    allocation: str


class ClientAnswered(Body):
    """The client whose question was passed on by AnswerClient has its answer."""

    type: Literal["ClientAnswered"] = "ClientAnswered"
    version: Literal[1] = 1
    question: int


class DisconnectTaskManager(Body):
    """The TaskManager is being stopped in order: its tasks move at once."""

    type: Literal["DisconnectTaskManager"] = "DisconnectTaskManager"
    version: Literal[1] = 1
    reason: str


class DrainAnswered(Body):
    """Answers DrainTaskManager: nothing runs here, and the TaskManager may be stopped; with `refused`, why it may not."""

    type: Literal["DrainAnswered"] = "DrainAnswered"
    version: Literal[1] = 1
    refused: str | None = None


# ResourceManager -> TaskManager


class TaskManagerRegistered(Body):
    """Answers RegisterTaskManager; sent again when the intervals change with the number of TaskManagers."""

    type: Literal["TaskManagerRegistered"] = "TaskManagerRegistered"
    version: Literal[1] = 1
    heartbeat_interval_ms: int
    lost_after_ms: int = 600
    """Without a heartbeat for so long a TaskManager is declared lost; it fences itself earlier."""


class AllocateSlot(Body):
    """Give this slot to the job and offer it to the job's JobMaster."""

    type: Literal["AllocateSlot"] = "AllocateSlot"
    version: Literal[1] = 1
    slot: int
    allocation: str
    job: str
    shard: int


class SlotAllocation(Part):
    """A slot that is given to a job, and the name of that."""

    slot: int
    allocation: str


class AllocateSlots(Body):
    """AllocateSlot of several slots for one job. They are offered together, so what goes into them is deployed together."""

    type: Literal["AllocateSlots"] = "AllocateSlots"
    version: Literal[1] = 1
    job: str
    shard: int
    slots: list[SlotAllocation]


class ReleaseTaskManager(Body):
    """You were declared lost, or are no longer wanted: end yourself [R28]."""

    type: Literal["ReleaseTaskManager"] = "ReleaseTaskManager"
    version: Literal[1] = 1
    incarnation: int
    reason: str


class DrainTaskManager(Body):
    """You seem idle, and are no longer needed: answer whether you may be stopped. The question changes nothing: your slots may still be
    granted."""

    type: Literal["DrainTaskManager"] = "DrainTaskManager"
    version: Literal[1] = 1
    incarnation: int


class AnswerClient(Body):
    """Answer this client's question about you on `client.replies`; then ClientAnswered."""

    type: Literal["AnswerClient"] = "AnswerClient"
    version: Literal[1] = 1
    ask: AnyAsk
    question: int
    """The ResourceManager's own number."""
    reply_to: str
    correlation: str


# TaskManager -> JobMaster


class OfferedAttempt(Part):
    """An attempt as its TaskManager sees it, for a JobMaster that must adopt it."""

    allocation: str
    attempt: str
    state: AttemptStateReported
    report: AttemptReport | None = None
    error: Fault | None = None


class SlotOffer(WithProfile):
    """A slot that was allocated to a job, as its JobMaster is offered it."""

    slot: int
    allocation: str
    job: str
    memory_mb: int
    cores: Cores = 0
    extras: Extras = empty(dict)
    takes_runs: bool = False
    """Its TaskManager understands FolderRuns, and the time of a CancelTasks; those of 0.1.0 do not."""


class OfferSlots(Body):
    """Slots for jobs of this shard; with `attempts`, all that run or ended there and are not answered for (sent to each new life)."""

    type: Literal["OfferSlots"] = "OfferSlots"
    version: Literal[1] = 1
    offers: list[SlotOffer]
    attempts: list[OfferedAttempt] = empty(list)


class TaskStateChanged(Body):
    """An attempt runs, or has ended; an ending is kept until the JobMaster frees the allocation or deploys anew on it."""

    type: Literal["TaskStateChanged"] = "TaskStateChanged"
    version: Literal[1] = 1
    allocation: str
    attempt: str
    state: AttemptStateChangedTo
    report: AttemptReport | None = None
    error: Fault | None = None


class ReportedProgress(Part):
    """A running attempt, and how far it is."""

    allocation: str
    attempt: str
    progress: AttemptProgress


class ProgressReported(Body):
    """What has changed in the progress of running attempts: at most one a second of a TaskManager, to each shard that has such attempts."""

    type: Literal["ProgressReported"] = "ProgressReported"
    version: Literal[1] = 1
    attempts: list[ReportedProgress]


class AttemptAnswered(Body):
    """What an attempt answered to OrderAttempts, or why there is no answer: exactly one of `status` and `no_answer` is given."""

    type: Literal["AttemptAnswered"] = "AttemptAnswered"
    version: Literal[1] = 1
    attempt: str
    question: int
    status: AttemptStatus | None = None
    no_answer: str | None = None


class FailSlot(Body):
    """The allocation is gone: its slot broke, or nobody used it in time."""

    type: Literal["FailSlot"] = "FailSlot"
    version: Literal[1] = 1
    allocation: str
    job: str
    reason: str


# JobMaster -> TaskManager


class DeployTask(Part):
    """One attempt to run in an allocated slot."""

    allocation: str
    attempt: str
    """`<job>/<task folder>/<subtask>/<life>.<number>`: unique for ever."""
    acceptance: str
    folder: str = ""
    """Below `logs/` and `results/` in storage: this attempt's own."""
    spec: AttemptSpec
    start_timeout_ms: int | None
    run_timeout_ms: int | None


class DeployTasks(Body):
    """Run these attempts; sent once for an attempt."""

    type: Literal["DeployTasks"] = "DeployTasks"
    version: Literal[1] = 1
    tasks: list[DeployTask]


class CancelTasks(Body):
    """Kill these attempts; each ends with a TaskStateChanged."""

    type: Literal["CancelTasks"] = "CancelTasks"
    version: Literal[1] = 1
    attempts: list[str]
    reason: str
    within_ms: Annotated[int, Field(exclude_if=lambda ms: not ms)] = 0
    """They are asked to end by themselves first, and have so long; 0: killed at once. Not sent to a TaskManager of 0.1.0."""


class OrderAttempts(Body):
    """Gives these attempts an order. Each answers with AttemptAnswered; the TaskManager answers for one that cannot."""

    type: Literal["OrderAttempts"] = "OrderAttempts"
    version: Literal[1] = 1
    attempts: list[str]
    order: Order
    question: int
    """The JobMaster's own number; the answers carry it."""


class FreeSlots(Body):
    """The JobMaster needs these allocations no more; an attempt in one is killed."""

    type: Literal["FreeSlots"] = "FreeSlots"
    version: Literal[1] = 1
    allocations: list[str]


class FreeUnused(Body):
    """From the ResourceManager: the shard of these allocations has been silent for too long. They are over, but where an attempt lives."""

    type: Literal["FreeUnused"] = "FreeUnused"
    version: Literal[1] = 1
    allocations: list[str]


# Local facts of a TaskManager


class SlotReady(Body):
    """The slot's JVM is warm, its probe passed, a spare process waits."""

    type: Literal["SlotReady"] = "SlotReady"
    version: Literal[1] = 1
    slot: int


class SlotReplacing(Body):
    """The slot's JVM is being replaced; it will be ready again."""

    type: Literal["SlotReplacing"] = "SlotReplacing"
    version: Literal[1] = 1
    slot: int
    reason: str


class SlotBroken(Body):
    """The slot cannot be started; the reason says what to do."""

    type: Literal["SlotBroken"] = "SlotBroken"
    version: Literal[1] = 1
    slot: int
    reason: str


class AttemptRunning(Body):
    """The attempt's process runs the user's code."""

    type: Literal["AttemptRunning"] = "AttemptRunning"
    version: Literal[1] = 1
    slot: int
    attempt: str


class AttemptEnded(Body):
    """Nothing of the attempt lives or writes any more."""

    type: Literal["AttemptEnded"] = "AttemptEnded"
    version: Literal[1] = 1
    slot: int
    attempt: str
    status: Literal["finished", "failed", "killed"]
    report: AttemptReport | None = None
    error: Fault | None = None


class SlotProgress(Part):
    """The attempt in a slot, and how far it is."""

    slot: int
    attempt: str
    progress: AttemptProgress


class SlotsProgressed(Body):
    """Running attempts whose progress has changed: at most one fact a second, of all slots together."""

    type: Literal["SlotsProgressed"] = "SlotsProgressed"
    version: Literal[1] = 1
    attempts: list[SlotProgress]


class OrderAnswered(Body):
    """What became of an order to an attempt: its `status`, or why there is none."""

    type: Literal["OrderAnswered"] = "OrderAnswered"
    version: Literal[1] = 1
    attempt: str
    shard: int
    """Who asked."""
    question: int
    status: AttemptStatus | None = None
    no_answer: str | None = None


class AnswerFound(Body):
    """What the process, its slots or its logs have of a client's question."""

    type: Literal["AnswerFound"] = "AnswerFound"
    version: Literal[1] = 1
    question: int
    reply_to: str
    correlation: str
    task_manager: str
    answer: AnyAnswer


class StopAsked(Body):
    """The process was asked to stop (SIGTERM)."""

    type: Literal["StopAsked"] = "StopAsked"
    version: Literal[1] = 1


class Unheard(Body):
    """Kafka has acknowledged nothing that was sent to the ResourceManager, nor has etcd answered, for too long: it fences itself."""

    type: Literal["Unheard"] = "Unheard"
    version: Literal[1] = 1
    silent_ms: int


class FellBehind(Body):
    """The TaskManager was away, or is not known to have read its inbox: nothing is launched until it has read what became of it."""

    type: Literal["FellBehind"] = "FellBehind"
    version: Literal[1] = 1


class CaughtUp(Body):
    """It has read its inbox, and is nobody that was declared lost: what waits is launched."""

    type: Literal["CaughtUp"] = "CaughtUp"
    version: Literal[1] = 1


LOCAL_FACTS: tuple[type[Body], ...] = (
    SlotReady, SlotReplacing, SlotBroken, AttemptRunning, AttemptEnded, SlotsProgressed,
    OrderAnswered, AnswerFound, StopAsked, Unheard, FellBehind,
    CaughtUp,
)  # fmt: skip
