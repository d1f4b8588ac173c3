"""What is answered, as the OpenAPI document has it. Times are milliseconds since 1970, by the cluster's Kafka."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from millrace.core.messages.attempts import Fault
from millrace.core.messages.blocklist import BlockedHost, BlockedHostInfo, ForMs, Reason
from millrace.core.messages.client import InspectedAttempt
from millrace.core.messages.execution import JobOrigin, SkewedEdge
from millrace.core.messages.processes import ProcessStatus, Setting, SlotDescribed, ThreadDump
from millrace.core.messages.schedules import ScheduleRun, ScheduleSummary
from millrace.core.states import ClosingStepShown

from .problems import Mistake


class Shape(BaseModel):
    """A value of an answer."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class AsOf(Shape):
    """Up to where the answer has heard what happened."""

    offsets: dict[str, dict[str, int]]
    """topic -> partition -> offset of the last record that is in the answer."""
    time_ms: int
    """The newest of these records' time stamps; 0: there is none."""
    behind_s: int
    """For so many seconds what has happened may be missing: Kafka does not answer, or what it has is not read. 0: nothing is."""


class Health(Shape):
    """Whether the answers can be relied on."""

    status: Literal["ok", "starting", "degraded"]
    """starting: the tables are being brought back. degraded: they do not follow, and answers may be as old as `as_of` says."""
    reason: str | None
    """Why it is not ok."""
    last_fold_s: float
    """Seconds since the last record was taken in, or since the tables were brought back. While nothing happens it grows, and all is
    well."""
    as_of: AsOf


class JobRow(Shape):
    """A job. A time that is null is not known: what was said of it lies too far back."""

    job: str
    name: str
    status: str
    accepted_ms: int | None
    since_ms: int | None
    """Since when it has this status."""
    running_ms: int | None
    """When it was first given a slot; null: it was not yet, or that is not known."""
    ended_ms: int | None
    waiting: str | None
    """Why it waits for slots, or for its storage; null: it does not."""
    position: int | None
    """Its place in the queue."""
    expected_ms: int | None
    """When it has what it waits for, by how often slots were freed lately; null: that cannot be told."""
    state: str
    """Its status, or QUEUED while it waits for its first slot."""
    silent: str | None = None
    """With `archived`: its JobMaster, where that one does not answer."""


class Attempt(Shape):
    """An attempt of a subtask."""

    attempt: int
    state: str
    task_manager: str | None
    slot: int | None
    error: Fault | None
    since_ms: dict[str, int]
    """When it came into each of its states."""
    progress: dict[str, int] | None = None
    """What it reported last, such as rows and bytes; null: nothing."""
    beside: int | None = None
    """The current attempt beside which it lives, or lived, as the subtask's other one; null: there was none."""


class Subtask(Shape):
    subtask: int
    attempt: int
    """Number of the current or last attempt; 0: none yet."""
    state: str
    attempts: list[Attempt]
    """The newest ten; the current one is the last."""
    kept_from: str | None = None
    """The job in which it had FINISHED, where this one has not run it: it repairs that job."""


class Task(Shape):
    task: str
    """Names of its vertices, joined by +; @plan lists the files of sources before they are read."""
    subtasks: list[Subtask]


class TimeSpent(Shape):
    """Where a job's time went, in ms; the sum is the time from its acceptance to its end."""

    queue_ms: int
    start_ms: int
    plan_ms: int
    compute_ms: int
    exchange_ms: int
    publish_ms: int


class JobDetail(JobRow):
    cause: Fault | None
    """Why it FAILED."""
    archive: str | None
    """Path on the blob server."""
    spent: TimeSpent | None = None
    """Of an ended job; null: it is not known, or its archive alone has it."""
    origin: JobOrigin | None = None
    """The job that it was run again from; null: it was submitted by itself."""
    skewed: list[SkewedEdge] = []
    """Hash edges of which one share has far more rows than the others."""
    tasks: list[Task]


class ConcurrentFailure(Shape):
    """An attempt that failed. `error.decided` has its number among the failures of the job, and what followed."""

    at_ms: int | None
    task: str
    subtask: int
    attempt: int
    task_manager: str | None
    error: Fault


class JobFailure(ConcurrentFailure):
    """One that made the job restart or fail."""

    concurrent: list[ConcurrentFailure]
    """What failed while the job restarted or failed for it, the oldest first."""


class Failures(Shape):
    as_of: AsOf
    failures: list[JobFailure]
    """The newest first."""
    omitted: int
    """How many are not listed: of a subtask the newest ten attempts are kept."""


class TaskManagerRow(Shape):
    task_manager: str
    incarnation: int
    host: str
    slots: int
    since_ms: int | None
    gone_ms: int | None
    reason: str | None
    """Why it is gone."""
    blocked: BlockedHost | None = None
    """Of one whose host is blocked: none of its slots is granted."""


class SlotRow(Shape):
    task_manager: str
    slot: int
    state: str
    """STARTING, FREE, ACTIVE (an attempt is in it) or BROKEN."""
    job: str | None
    task: str | None
    subtask: int | None
    attempt: int | None
    reason: str | None
    """Why it is BROKEN."""


class LeaderRow(Shape):
    """Who was last elected for a scope. That it still lives is not said here."""

    scope: str
    leader: str
    epoch: int
    generation: int
    since_ms: int


class ShutDownState(Shape):
    """How far the cluster's end is."""

    step: ClosingStepShown
    """Jobs are suspended; then TaskManagers are stopped; then the services end."""
    since_ms: int
    live: int
    """Jobs that have not ended: they are kept."""
    suspended: int
    workers: int
    """TaskManagers that the provider has not stopped yet."""
    silent: list[str]
    """Who has not answered in time."""


class Jobs(Shape):
    as_of: AsOf
    total: int | None
    """How many there are that the filters allow; `jobs` has those of the page. null, with `archived` alone: the cluster's store has more
    than the Dispatcher remembers, and does not count them."""
    jobs: list[JobRow]
    next: str | None
    """The cursor of the next page; null: this is the last."""


class Job(Shape):
    as_of: AsOf
    job: JobDetail


class TaskManagerNow(Shape):
    """A TaskManager as it answers at this moment. Sizes in bytes."""

    task_manager: str
    incarnation: int
    status: ProcessStatus
    slots: list[SlotDescribed]
    total: int
    """How many slots it has; of very many the first are here."""


class ServiceNow(Shape):
    """A process of a service as it answers at this moment."""

    process: str
    status: ProcessStatus
    scopes: dict[str, str]
    """Which it replicates, and what it is in each: leader, standby."""


class Services(Shape):
    services: list[ServiceNow]
    """Those that have answered within a second, by service and name."""


class ThreadDumps(Shape):
    dumps: list[ThreadDump]


class Settings(Shape):
    settings: list[Setting]


class OwnLogRow(Shape):
    """A log of a process itself."""

    log: str
    bytes: int
    modified_ms: int
    url: str


class OwnLogs(Shape):
    logs: list[OwnLogRow]


class Leaders(Shape):
    as_of: AsOf
    leaders: list[LeaderRow]


class Blocklist(Shape):
    as_of: AsOf
    hosts: list[BlockedHostInfo]
    """By name."""


class Block(BaseModel):
    """How a host is blocked."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid", strict=True)

    for_ms: ForMs | None = None
    """For so long; null: until it is unblocked."""
    reason: Reason = ""
    evacuate: bool = False
    """What runs there is moved, too: it begins again elsewhere, which counts as no failure."""


class Unblocked(Shape):
    host: str
    was_blocked: bool


class Overview(Shape):
    as_of: AsOf
    jobs: dict[str, int]
    """How many jobs there are of each status."""
    slots: dict[str, int]
    """How many slots there are of each state."""
    task_managers: int
    hosts_blocked: int
    """Hosts of which no slot is granted."""
    task_managers_starting: int
    """That were asked for, and have not registered."""
    task_managers_least: int
    """So many are kept, and"""
    task_managers_most: int | None
    """so many there may be; null: no provider starts and stops them."""
    leaders: int


class Submitted(Shape):
    """A submission. `url`: where to ask for its job."""

    job: str
    status: str | None
    """Of the job, when it was accepted; null: the cluster has not answered yet."""
    url: str
    warnings: list[Mistake]


class Schedules(Shape):
    """All schedules, by their names."""

    schedules: list[ScheduleSummary]
    total: int


class ScheduleShown(Shape):
    """A schedule. Times are texts in its time zone."""

    schedule: ScheduleSummary
    runs: list[ScheduleRun]
    """Newest first; answered where it is asked for alone."""


class Canceled(Shape):
    """A cancellation that was asked for."""

    job: str
    status: str | None
    """Of the job, when the cluster answered; null: it has not answered yet."""
    url: str


class PlannedInput(Shape):
    vertex: str
    edge: str
    """chained, hash, broadcast or forward."""
    keys: list[str]


class PlannedVertex(Shape):
    vertex: str
    kind: str
    """source, sql, python, sink or spark_app."""
    inputs: list[PlannedInput]


class PlannedTask(Shape):
    """Vertices that would run together in one attempt."""

    task: str
    parallelism: int
    vertices: list[PlannedVertex]
    reads: list[str]
    """The tasks whose rows it reads."""


class Validated(Shape):
    """What the cluster would find."""

    valid: bool
    errors: list[Mistake]
    warnings: list[Mistake]
    tasks: list[PlannedTask]
    """How the graph would run; none where it is not valid."""


class LogRow(Shape):
    """One file that an attempt writes."""

    task: str
    subtask: int
    attempt: int
    stream: str
    """stdout or stderr."""
    bytes: int
    over: bool
    """Nothing more comes."""
    url: str


class Logs(Shape):
    logs: list[LogRow]


class Report(Shape):
    """What the running attempts of a job do at this moment."""

    job: str
    attempts: list[InspectedAttempt]
    running: int
    """How many attempts run that were asked for; of very many, the first are asked."""
    reason: str | None
    """Why none runs."""
    silent: str | None
    """The JobMaster that would know more and has not answered in time."""


class ResultTable(Shape):
    """The first rows of a FINISHED job."""

    columns: list[str]
    types: list[str]
    rows: list[list[Any]]
    truncated: bool
    """There are more."""


class KeptFileRow(Shape):
    task: str
    subtask: int
    attempt: int
    name: str
    bytes: int


class LeftOut(Shape):
    name: str
    why: str


class KeptFiles(Shape):
    files: list[KeptFileRow]
    left_out: list[LeftOut]
    left_out_in_all: int
    """How many were not kept; `left_out` lists the first."""


class SparkLogRow(Shape):
    task: str
    subtask: int
    attempt: int
    application: str
    """Spark's id of it."""
    history_url: str | None
    """Its page on the Spark history server; null: none is configured."""
    files: list[str]
    """Where its parts are had from."""


class SparkLogs(Shape):
    logs: list[SparkLogRow]


class Events(Shape):
    events: list[dict[str, Any]]
    """As they stand on job.events."""
    truncated: bool = False
    """There are more than 10,000: the first ones are left out."""


class LetterRow(Shape):
    """A request that the cluster could not use."""

    number: int
    at_ms: int
    reason: str
    type: str | None
    job: str | None
    size_bytes: int
    repeats: int
    """How often it had been sent again before."""
    redriven_ms: int | None
    redriven_by: str | None


class Letters(Shape):
    total: int
    """How many are kept, at most: what became of older ones counts, too, until their page is read."""
    letters: list[LetterRow]
    next: str | None
    """The cursor of the next page; null: this is the last."""
