"""A job's ExecutionGraph as people and programs are shown it: in `JobDescribed`, and in the archive of an ended job."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from .attempts import Count, Fault, FilesLeft, Open, ResultRows
from .base import empty, unless_set
from .kept import Kept
from .progress import AttemptProgress


class JobOrigin(Open):
    """The job that another one was run again from."""

    job: str
    repair: bool = False
    """It repairs that: what had finished there was kept, as far as it could be."""


class TaskInput(Open):
    """A task whose rows another one reads, and how: by hash, broadcast or forward."""

    task: str
    edge: str


class TaskOutline(Open):
    """A task of an accepted job: the vertices that run together in one attempt, and how many of these there are."""

    task: str
    vertices: list[str]
    """Producers first."""
    parallelism: int
    inputs: list[TaskInput] = empty(list)
    """What it reads of other tasks; absent where it reads of none."""


class LogPlace(Open):
    """Where stdout and stderr of an attempt lie on the blob server, below `logs/`."""

    attempt: int
    path: str


class Written(Open):
    """What a subtask has published of one vertex."""

    rows: Count = None
    bytes: Count = None


class FailureDetail(Open):
    """An attempt that failed; the last few are kept."""

    attempt: int
    at_ms: int
    task_manager: str
    error: Fault
    progress: AttemptProgress | None = None
    """What its Spark had done."""


class ConcurrentAttempt(Open):
    """Another attempt of a subtask that lives: the first of the two to finish counts. CANCELING: it has lost."""

    attempt: int
    state: str
    task_manager: str
    created_ms: int | None = None
    """This one and the next ones: when it came into that state."""
    scheduled_ms: int | None = None
    deployed_ms: int | None = None
    running_ms: int | None = None
    canceling_ms: int | None = None
    progress: AttemptProgress | None = None
    """What it reported last."""


class SubtaskDetail(Open):
    """One subtask with its current, or last, attempt."""

    subtask: int
    state: str
    attempt: int
    """0: there was none yet."""
    task_manager: str
    created_ms: int | None = None
    """This one and the next ones: when its current, or last, attempt came into that state. A CREATED one's is of its next attempt, with
    the times of the last one behind it."""
    scheduled_ms: int | None = None
    deployed_ms: int | None = None
    running_ms: int | None = None
    canceling_ms: int | None = None
    ended_ms: int | None = None
    logs: list[LogPlace] = empty(list)
    """Of the last ten attempts."""
    outputs: dict[str, Written] = empty(dict)
    """By vertex."""
    failures: list[FailureDetail] = empty(list)
    files: FilesLeft | None = None
    kept_from: str | None = None
    """The job in which it was FINISHED: this one repairs that, or one that repaired it, and has run no attempt of it."""
    progress: AttemptProgress | None = None
    """While its attempt runs what that reported last; once it has finished what its Spark has done in all."""
    concurrent_attempts: list[ConcurrentAttempt] = empty(list)
    """Beside the current one; absent where there is none."""


class TaskDetail(Open):
    """A task with its subtasks; `omitted` of them are not listed, for they are many."""

    task: str
    parallelism: int
    states: dict[str, int]
    """How many subtasks are in each state."""
    omitted: int = 0
    subtasks: list[SubtaskDetail]


class HeaviestKey(Open):
    """A key, and about how many rows it has."""

    key: list[str | None]
    """The values of its columns as texts, cut after 64 characters; null: NULL."""
    rows: int


class SkewedEdge(Open):
    """A hash edge of which one share has far more rows than the others: the subtask of this number of each reader has that much more to
    do."""

    task: str
    """Whose rows these are,"""
    vertex: str
    """and of which of its vertices."""
    keys: list[str]
    """The columns that they are hashed by."""
    readers: list[str]
    """The vertices that read them."""
    subtask: int
    """The share, and so the subtask of each reader."""
    shares: int
    """How many there are,"""
    shares_empty: int = 0
    """and how many of them have no rows."""
    rows: int
    """Of the share."""
    rows_in_all: int
    bytes: int
    """Of the share, as they lie in the exchange."""
    bytes_in_all: int
    heaviest: list[HeaviestKey] = empty(list)
    """Those that have most rows of the share, by a sample; none: there is no such sample."""


class ResultParts(Open):
    """A result of which parts lie in files of their own."""

    parts: list[ResultRows]


class TimeSpent(Open):
    """Where a job's time went, in ms of the cluster's clock. Each moment from its acceptance to its end belongs to one phase, so the sum is
    the whole. Of a live job it is the time until now. Where attempts overlap, time belongs to those that run."""

    queue_ms: int = 0
    """Nothing ran: it waited for a slot, or for the time of a retry."""
    start_ms: int = 0
    """Slots were granted, and attempts started: launched, attached, given their settings and modules."""
    plan_ms: int = 0
    """Planning attempts, and the analysis in others."""
    compute_ms: int = 0
    """Spark's jobs and user code; also all that failed and canceled attempts did until they had ended."""
    exchange_ms: int = 0
    """Edges between attempts were opened and committed."""
    publish_ms: int = 0
    """Ends of attempts were reported, sinks were moved to their paths."""


class JobDetail(Open):
    """A job with its tasks, as its JobMaster has it."""

    job: str
    name: str
    acceptance: str
    status: str
    accepted_ms: int
    since_ms: int
    """Since when it has this status."""
    entered: dict[str, int] = empty(dict)
    """Status -> when the job last came into it."""
    ended_ms: int | None = None
    restarts: int = 0
    """Attempts that failed and were run again as `restart` says."""
    failed: int = 0
    """Attempts that failed in all. The subtasks list the last few: `error.decided` of each has its number, and what followed."""
    waiting: str | None = None
    position: int | None = None
    expected_ms: Annotated[int | None, Field(exclude_if=unless_set)] = None
    """When it has what it waits for."""
    cause: Fault | None = None
    sinks: dict[str, bool] = empty(dict)
    """Sinks that are being published -> whether they are."""
    tasks: list[TaskDetail] = empty(list)
    skewed: Annotated[list[SkewedEdge], Field(exclude_if=lambda given: not given)] = empty(list)
    """Hash edges of which one share has far more rows than the others."""
    spent: TimeSpent | None = None
    """None: of a build that did not note it."""
    result: ResultRows | ResultParts | None = None
    """Of an ended job, in its archive: the first rows of its result."""
    origin: JobOrigin | None = None
    """None: it was submitted by itself."""
    rescaled: Annotated[dict[str, int], Field(exclude_if=lambda given: not given)] = empty(dict)
    """Vertex -> its parallelism, of those that clients have given another one since it was submitted."""
    rescaling: Annotated[dict[str, int] | None, Field(exclude_if=unless_set)] = None
    """Vertex -> its new parallelism, while what runs is being canceled for it."""


Described = Annotated[JobDetail | None, BeforeValidator(lambda value: value or None)]
"""None: a record about the job ended its JobMaster's process, so that nothing of it could be described. 0.1.0 wrote {} then."""


class Archive(Open):
    """What is kept of an ended job, in a file on the blob server: how it ended, its graph, and its ExecutionGraph as it was left."""

    job: str
    name: str
    status: str
    accepted_ms: int
    ended_ms: int
    cause: Fault | None = None
    graph: dict[str, Any] = empty(dict)
    detail: Described = None
    kept: Kept | None = None
    """Of one that FAILED or was CANCELED: what it had finished, and where in the exchange; null: nothing."""
