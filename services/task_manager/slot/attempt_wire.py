"""Any process of a slot: what an attempt is given, what it reports, why it failed.

Made by `python -m tests.docs` from the models of `millrace.core.messages.attempts`, for a slot's Python may have no
pydantic. A key that is NotRequired may be absent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from typing_extensions import NotRequired

FaultKind = Literal["lost", "infrastructure", "timeout", "user", "jvm", "killed", "exit", "analysis", "missing_path", "internal"]


class Decided(TypedDict):
    """What a JobMaster decided on a failed attempt: its place in the failure history of the job."""

    number: NotRequired[int]
    then: NotRequired[str]
    delay_ms: NotRequired[int | None]
    why: NotRequired[str]
    concurrent_with: NotRequired[int | None]


class AttemptProgress(TypedDict):
    """How far an attempt is, by the Spark jobs that it has begun. Jobs that are still to come are not known, so totals grow."""

    stages_done: int
    stages_active: int
    stages_total: int
    tasks_done: int
    tasks_failed: int
    tasks_total: int
    rows_read: int
    rows_written: int
    rows_per_s: int
    bytes_read: NotRequired[int | None]
    bytes_written: NotRequired[int | None]
    bytes_shuffled: NotRequired[int | None]
    rows_shuffled: NotRequired[int | None]
    bytes_shuffle_read: NotRequired[int | None]
    rows_shuffle_read: NotRequired[int | None]
    bytes_spilled_memory: NotRequired[int | None]
    bytes_spilled_disk: NotRequired[int | None]
    run_ms: NotRequired[int | None]
    cpu_ms: NotRequired[int | None]
    gc_ms: NotRequired[int | None]
    bytes_memory_peak: NotRequired[int | None]


class Fault(TypedDict):
    """Why an attempt, or its job, failed. `kind` and `retryable` say what follows: `millrace.core.faults` has the table of them."""

    kind: NotRequired[str]
    retryable: NotRequired[bool]
    condition: NotRequired[str | None]
    message: NotRequired[str]
    vertex: NotRequired[str | None]
    line: NotRequired[int | None]
    column: NotRequired[int | None]
    file: NotRequired[str | None]
    frame: NotRequired[str | None]
    detail: NotRequired[str]
    exit_code: NotRequired[int | None]
    files_kept: NotRequired[int | None]
    files_left_out: NotRequired[int | None]
    task: NotRequired[str | None]
    subtask: NotRequired[int | None]
    attempt: NotRequired[int | None]
    lost: NotRequired[str | None]
    decided: NotRequired[Decided | None]
    progress: NotRequired[AttemptProgress | None]


class FolderRuns(TypedDict):
    """The folders that all subtasks of a task wrote, in short: who reads of 1,000 is not told of each by name."""

    base: str
    place: str
    runs: list[list[int]]


class InputSpec(TypedDict):
    """One input of a vertex: `chained` comes from the same attempt, the others from folders that other attempts published."""

    edge: Literal["chained", "hash", "broadcast", "forward"]
    keys: NotRequired[list[str]]
    key_types: NotRequired[list[str] | None]
    share: NotRequired[int]
    shares: NotRequired[int]
    folders: NotRequired[list[str]]
    published: NotRequired[FolderRuns | None]
    schema: NotRequired[str | None]
    listed: NotRequired[bool]


class SourceSpec(TypedDict):
    """What is read by one of Spark's readers, as the graph has it."""

    format: str
    path: NotRequired[str | None]
    options: NotRequired[dict[str, str]]
    schema: NotRequired[str | None]


class SinkSpec(TypedDict):
    """Where the rows go in the end, as the graph has it."""

    format: str
    path: str
    mode: NotRequired[str]
    options: NotRequired[dict[str, str]]


class SparkAppSpec(TypedDict):
    """A script, as the graph has it."""

    script: str
    args: NotRequired[list[str]]


class VertexSpec(TypedDict):
    """One step; exactly one of source, sql, python, sink, spark_app is given."""

    id: str
    source: NotRequired[SourceSpec | None]
    sql: NotRequired[str | None]
    python: NotRequired[str | None]
    sink: NotRequired[SinkSpec | None]
    spark_app: NotRequired[SparkAppSpec | None]
    schema: NotRequired[str | None]
    parallelism: int
    copied: NotRequired[bool]
    inputs: dict[str, InputSpec]


class OutputSpec(TypedDict):
    """What is written of a vertex's rows: for other attempts (hash, broadcast, forward), into a sink's staging, as the result."""

    vertex: str
    edge: Literal["hash", "broadcast", "forward", "result", "sink"]
    keys: NotRequired[list[str]]
    key_types: NotRequired[list[str] | None]
    shares: NotRequired[int]
    folder: NotRequired[str]
    rows: NotRequired[int]
    name: NotRequired[str]


class PinnedSource(TypedDict):
    """What the plan attempt fixed of a source, so that all attempts read the same; of any vertex, what others take of its rows."""

    schema: NotRequired[str]
    files: NotRequired[list[list[Any]]]
    digest: NotRequired[str]
    base: NotRequired[str | None]
    split_bytes: NotRequired[int]
    splits: NotRequired[int]
    columns: NotRequired[list[str] | None]
    filter: NotRequired[str | None]


class ModuleSpec(TypedDict):
    """An uploaded file that goes with the job."""

    name: str
    sha256: str
    kind: str


class QueryPlace(TypedDict):
    """Where a query stands in the user's file."""

    file: str
    line: int
    indent: NotRequired[int | None]


class AttemptSpec(TypedDict):
    """All that an attempt must know to run: its vertices, what they read, where their rows go."""

    job: str
    task: str
    subtask: int
    parallelism: int
    attempt: int
    kind: Literal["run", "plan"]
    vertices: list[VertexSpec]
    outputs: list[OutputSpec]
    pinned: dict[str, PinnedSource]
    conf: dict[str, str]
    modules: list[ModuleSpec]
    parameters: dict[str, str]
    env: NotRequired[dict[str, str]]
    resources: NotRequired[dict[str, int]]
    sources: NotRequired[dict[str, QueryPlace]]
    traceparent: NotRequired[str | None]
    tracestate: NotRequired[str | None]
    traced: NotRequired[bool]


class HeavyKey(TypedDict):
    """A key that has many rows of a share, by a sample of them."""

    share: NotRequired[int]
    key: NotRequired[list[str | None]]
    rows_about: NotRequired[int]


class HashReport(TypedDict):
    """How the rows that were handed on by hash are spread over the shares. Reported where there are many rows."""

    keys: NotRequired[list[str]]
    share_rows: NotRequired[list[int]]
    share_bytes: NotRequired[list[int]]
    heaviest: NotRequired[list[HeavyKey]]


class OutputReport(TypedDict):
    """What an attempt wrote of one vertex."""

    schema: NotRequired[str]
    rows: NotRequired[int | None]
    bytes: NotRequired[int | None]
    listed: NotRequired[bool]
    hashed: NotRequired[list[HashReport]]


class ResultRows(TypedDict):
    """The first rows of a result. Values are JSON's: `docs/publishing.md` has how Spark's types look."""

    columns: NotRequired[list[str]]
    types: NotRequired[list[str]]
    rows: NotRequired[list[list[Any]] | None]
    truncated: NotRequired[bool]
    path: NotRequired[str | None]


class FilesLeft(TypedDict):
    """What is kept of the files that an attempt left in its folder, in numbers."""

    kept: NotRequired[int | None]
    bytes: NotRequired[int | None]
    left_out: NotRequired[int | None]


class OwnTime(TypedDict):
    """Where the time of an attempt went by its own steady clock, from when its process took it until it wrote its report."""

    start_ms: NotRequired[int | None]
    plan_ms: NotRequired[int | None]
    compute_ms: NotRequired[int | None]
    exchange_ms: NotRequired[int | None]


class AttemptReport(TypedDict):
    """What a finished attempt reports: `pinned`, `schemas`, `key_types`, `time_zone` of one that planned, else `outputs` and `result`."""

    outputs: NotRequired[dict[str, OutputReport]]
    result: NotRequired[ResultRows | None]
    pinned: NotRequired[dict[str, PinnedSource]]
    schemas: NotRequired[dict[str, str]]
    key_types: NotRequired[dict[str, list[str]]]
    time_zone: NotRequired[str | None]
    files: NotRequired[FilesLeft | None]
    spent: NotRequired[OwnTime | None]
    progress: NotRequired[AttemptProgress | None]
