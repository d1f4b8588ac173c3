"""What an attempt is given, what it reports, and why it failed. The slot has the same types as TypedDicts, in `slot/attempt_wire.py`."""

from __future__ import annotations

import functools
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    model_serializer,
)
from pydantic_core import SchemaSerializer
from pydantic_core.core_schema import any_schema, plain_serializer_function_ser_schema

from .base import Part, empty
from .progress import AttemptProgress


class Open(Part):
    """A part that was a free object in 0.1.0: it keeps fields that this build does not know, and writes those alone that were given.

    In Python it may be given as a dict, too, with the names that it has in JSON.
    """

    model_config = ConfigDict(
        frozen=True, extra="allow", strict=True, validate_by_name=True, serialize_by_alias=True, defer_build=True
    )

    @model_serializer(mode="wrap")
    def _as_given(self, _: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        some: Any = {"include": info.include, "exclude": info.exclude, "exclude_none": info.exclude_none}
        given: dict[str, Any] = _serializer(type(self)).to_python(self, mode=info.mode, by_alias=True, exclude_unset=True, **some)
        return given

    def json_value(self) -> dict[str, Any]:
        """As it is in JSON."""
        return self.model_dump(mode="json")

    def json_text(self) -> bytes:
        """As it is in a file of its own: in a quarter of the time of `json_value`, which is yet to be written."""
        return _serializer(type(self)).to_json(self, by_alias=True, exclude_unset=True)

    def json_bytes(self) -> int:
        """How long `json_text` is."""
        return len(self.json_text())

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> Any:
        return {**handler(source), "strict": False}  # of the object alone; its fields are strict

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> Any:
        return handler({name: value for name, value in core_schema.items() if name != "serialization"})


@functools.cache
def _serializer(kind: type[Open]) -> SchemaSerializer:
    """What writes it with all its parts in one call: as each would by itself, in a quarter of the time."""
    kind.model_rebuild()
    return SchemaSerializer(_in_one_call(kind.__pydantic_core_schema__))


def _in_one_call(schema: Any) -> Any:
    """The schema without `Open._as_given`. A part that is not Open writes what was not given as well."""
    if isinstance(schema, list):
        return [_in_one_call(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = schema
    if schema.get("type") == "model":
        if not issubclass(schema["cls"], Open):
            return any_schema(ref=schema.get("ref"), serialization=plain_serializer_function_ser_schema(_whole, info_arg=True))
        kept = {name: value for name, value in schema.items() if name != "serialization"}
    return {name: value if name == "metadata" else _in_one_call(value) for name, value in kept.items()}


def _whole(part: Part, info: SerializationInfo) -> Any:
    """All its fields, which `exclude_unset` of the parts around it would thin out."""
    return part.__pydantic_serializer__.to_python(part, mode=info.mode, exclude_none=info.exclude_none)


def _number(value: object) -> object:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


Count = Annotated[int | None, BeforeValidator(_number)]
"""A number that user code may have written, too: what is none counts as not known."""


# Why an attempt, or a job, failed

FaultKind = Literal[
    "lost", "infrastructure", "timeout", "user", "jvm", "killed", "exit", "analysis", "missing_path", "internal"
]
"""Every `kind` of fault that this build makes, in a core or in a slot."""


class Decided(Open):
    """What a JobMaster decided on a failed attempt: its place in the failure history of the job."""

    number: int = 0
    """Of this failure among all of the job, from 1."""
    then: str = ""
    """restart, move or fail (the job); none: another attempt of the subtask runs, and goes on."""
    delay_ms: int | None = None
    """Until the next attempt of the subtask."""
    why: str = ""
    """Which budget decided, and how much of it is used."""
    concurrent_with: int | None = None
    """The number of an earlier failure: this one came while the job was restarting, or failing, for that one."""


class Fault(Open):
    """Why an attempt, or its job, failed. `kind` and `retryable` say what follows: `millrace.core.faults` has the table of them."""

    kind: Annotated[str, Field(examples=list(get_args(FaultKind)))] = ""
    """What failed, in one word. A reader must bear words that it does not know."""
    retryable: bool = False
    """Whether another attempt may succeed."""
    condition: str | None = None
    """The name of the error: Spark's condition, the class of a Python exception, a signal."""
    message: str = ""
    """A sentence for the user."""
    vertex: str | None = None
    """The vertex that failed."""
    line: int | None = None
    """From 1, in `file`; where that is null, in the query of the vertex."""
    column: int | None = None
    """From 1."""
    file: str | None = None
    """The user's own file."""
    frame: str | None = None
    """The last frame of the stack in the user's own code."""
    detail: str = ""
    """The stack trace, shortened; only between the processes of a TaskManager."""
    exit_code: int | None = None
    """Of the attempt's process, or of the script in it."""
    files_kept: int | None = None
    """How many of the files that the attempt left in its folder are kept with the job."""
    files_left_out: int | None = None
    """How many are not."""
    task: str | None = None
    """Of a job's cause: the task, the subtask and the number of the attempt that failed last."""
    subtask: int | None = None
    attempt: int | None = None
    lost: str | None = None
    """Of rows that are gone from the exchange: the folders that are not there, one a line, as far as they fit."""
    decided: Decided | None = None
    """Of a failed attempt, and of a job's cause: what followed."""
    progress: AttemptProgress | None = None
    """What the failed attempt's Spark had done; only between its process and its JobMaster, which tells it beside the error."""


# What an attempt is given


InputEdge = Literal["chained", "hash", "broadcast", "forward"]
OutputEdge = Literal["hash", "broadcast", "forward", "result", "sink"]


class FolderRuns(Open):
    """The folders that all subtasks of a task wrote, in short: who reads of 1,000 is not told of each by name.

    The folder of a subtask is `<base>/<subtask>/<attempt>/<place>`.
    """

    base: str
    place: str
    runs: list[list[int]]
    """Of all subtasks in order: how many one after the other have published by the attempt of that number."""


class InputSpec(Open):
    """One input of a vertex: `chained` comes from the same attempt, the others from folders that other attempts published."""

    edge: InputEdge
    keys: list[str] = empty(list)
    """Of a hash edge: the columns."""
    key_types: list[str] | None = None
    """Of a chained one of which a share is read: the SQL types that the keys are cast to, to find it; None: their own."""
    share: int = 0
    """Of a hash edge, and of a copied source that it reads: which share of the rows is taken, of how many."""
    shares: int = 0
    folders: list[str] = empty(list)
    """Of each producing subtask the folder with its output; none where `published` tells it."""
    published: FolderRuns | None = None
    """The same in short, to a TaskManager that understands it."""
    spark_schema: str | None = Field(default=None, alias="schema")
    """Spark's JSON of the rows."""
    listed: bool = False
    """Each of these folders has a note of its files: one without it is not whole."""


class SourceSpec(Open):
    """What is read by one of Spark's readers, as the graph has it."""

    format: str
    path: str | None = None
    options: dict[str, str] = empty(dict)
    ddl: str | None = Field(default=None, alias="schema")
    """The declared columns, as in CREATE TABLE."""


class SinkSpec(Open):
    """Where the rows go in the end, as the graph has it."""

    format: str
    path: str
    mode: str = "error"
    """error, overwrite or append."""
    options: dict[str, str] = empty(dict)


class SparkAppSpec(Open):
    """A script, as the graph has it."""

    script: str
    """The name of its module."""
    args: list[str] = empty(list)


class VertexSpec(Open):
    """One step; exactly one of source, sql, python, sink, spark_app is given."""

    id: str
    source: SourceSpec | None = None
    sql: str | None = None
    python: str | None = None
    sink: SinkSpec | None = None
    spark_app: SparkAppSpec | None = None
    ddl: str | None = Field(default=None, alias="schema")
    """The declared columns, as in CREATE TABLE."""
    parallelism: int
    copied: bool = False
    """A source that each subtask of its reader reads whole, by itself."""
    inputs: dict[str, InputSpec]
    """By the producing vertex."""


class OutputSpec(Open):
    """What is written of a vertex's rows: for other attempts (hash, broadcast, forward), into a sink's staging, as the result."""

    vertex: str
    edge: OutputEdge
    keys: list[str] = empty(list)
    """Of a hash output: the columns, the types that these are cast to (null: their own), and the number of shares."""
    key_types: list[str] | None = None
    shares: int = 0
    folder: str = ""
    """Of all but the result: where the rows go."""
    rows: int = 0
    """Of the result: how many of its rows are kept."""
    name: str = ""
    """Of a sink: what the names of its published files begin with."""


class PinnedSource(Open):
    """What the plan attempt fixed of a source, so that all attempts read the same; of any vertex, what others take of its rows."""

    spark_schema: str = Field(default="", alias="schema")
    """Spark's JSON of the rows."""
    files: list[list[Any]] = empty(list)
    """Of a source that several subtasks share: [path, length, time of change in ms] of each file."""
    digest: str = ""
    """Of a source that each of several subtasks reads whole: the SHA-256 of such a list. Empty: of any other."""
    base: str | None = None
    """The folder below which partition columns stand in the path."""
    split_bytes: int = 0
    splits: int = 0
    columns: list[str] | None = None
    """The columns that anybody reads; null: all."""
    filter: str | None = None
    """SQL that is true for each row that anybody takes; null: all are taken."""


class ModuleSpec(Open):
    """An uploaded file that goes with the job."""

    name: str
    sha256: str
    kind: str


class QueryPlace(Open):
    """Where a query stands in the user's file."""

    file: str
    line: int
    indent: int | None = None


class AttemptSpec(Open):
    """All that an attempt must know to run: its vertices, what they read, where their rows go."""

    job: str
    task: str
    subtask: int
    parallelism: int
    attempt: int
    kind: Literal["run", "plan"]
    """plan: the attempt that fixes, before all others, what must be the same for all of them."""
    vertices: list[VertexSpec]
    """Producers first."""
    outputs: list[OutputSpec]
    pinned: dict[str, PinnedSource]
    """By source."""
    conf: dict[str, str]
    """Spark settings of the job."""
    modules: list[ModuleSpec]
    parameters: dict[str, str]
    env: dict[str, str] = empty(dict)
    """Environment variables."""
    resources: dict[str, int] = empty(dict)
    """What it asks of its slot: `memory_mb`, `cores` and extras, by name."""
    sources: dict[str, QueryPlace] = empty(dict)
    """By vertex."""
    traceparent: str | None = None
    """The span that those of its own code belong below: the publisher's, or this attempt's where its TaskManager makes spans."""
    tracestate: str | None = None
    """The publisher's, beside it."""
    traced: bool = False
    """Its TaskManager makes spans of its Spark jobs: it is to note them."""


# What an attempt reports


Counts = Annotated[list[int], BeforeValidator(lambda value: value if isinstance(value, list) and all(map(_is_count, value)) else [])]
"""Numbers that user code may have written, too: what is no list of counts is empty."""


class HeavyKey(Open):
    """A key that has many rows of a share, by a sample of them."""

    share: int = 0
    key: list[str | None] = empty(list)
    """Its columns' values as texts, cut after 64 characters; null: NULL."""
    rows_about: int = 0


class HashReport(Open):
    """How the rows that were handed on by hash are spread over the shares. Reported where there are many rows."""

    keys: list[str] = empty(list)
    share_rows: Counts = empty(list)
    """Of each share."""
    share_bytes: Counts = empty(list)
    heaviest: list[HeavyKey] = empty(list)
    """Of the largest share, where it is far larger than the others."""


class OutputReport(Open):
    """What an attempt wrote of one vertex."""

    spark_schema: str = Field(default="", alias="schema")
    """Spark's JSON of the rows."""
    rows: Count = None
    bytes: Count = None
    listed: bool = False
    """Its exchange folders have notes of their files. Builds before 0.2 made none."""
    hashed: list[HashReport] = empty(list)
    """Of each hash output with many rows; absent where there is none."""


class ResultRows(Open):
    """The first rows of a result. Values are JSON's: `docs/publishing.md` has how Spark's types look."""

    columns: list[str] = empty(list)
    types: list[str] = empty(list)
    """Spark's names of them."""
    rows: list[list[Any]] | None = None
    truncated: bool = False
    """There are more rows."""
    path: str | None = None
    """In place of `rows`, where they are many: a file on the blob server that holds all this with them."""


class FilesLeft(Open):
    """What is kept of the files that an attempt left in its folder, in numbers."""

    kept: Count = None
    bytes: Count = None
    left_out: Count = None


class OwnTime(Open):
    """Where the time of an attempt went by its own steady clock, from when its process took it until it wrote its report."""

    start_ms: Count = None
    """Its folders, settings and modules."""
    plan_ms: Count = None
    """Sources opened and queries analysed."""
    compute_ms: Count = None
    """Spark's jobs, and what user code does itself."""
    exchange_ms: Count = None
    """Edges: what is opened of other attempts' rows, and what is committed for others, without the Spark jobs that compute it."""


class AttemptReport(Open):
    """What a finished attempt reports: `pinned`, `schemas`, `key_types`, `time_zone` of one that planned, else `outputs` and `result`."""

    outputs: dict[str, OutputReport] = empty(dict)
    """By vertex."""
    result: ResultRows | None = None
    pinned: dict[str, PinnedSource] = empty(dict)
    """By source."""
    schemas: dict[str, str] = empty(dict)
    """Vertex -> Spark's JSON of its rows."""
    key_types: dict[str, list[str]] = empty(dict)
    """Vertex with several hash inputs -> the types as which their keys are compared."""
    time_zone: str | None = None
    """Of the planning machine, for all attempts: where a day begins decides which keys are equal, and so which share has a row."""
    files: FilesLeft | None = None
    spent: OwnTime | None = None
    progress: AttemptProgress | None = None
    """What its Spark has done in all."""
