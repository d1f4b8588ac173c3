"""The JobGraph: what a user submits, as frozen models. The wire shape is the YAML shape.

A JobGraph comes into being in two ways: `validate.validate(raw)` makes it from a stranger's value (checks everything,
puts parameters in), and `JobGraph.model_validate(stored)` reads back what a service stored with `dump` (and puts
none in again).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

from millrace.core.messages.base import JOB_ID_PATTERN, empty
from millrace.core.profile import COUNT_MOST, MEMORY_MOST_MB, ExtraCounts

VERTEX_ID = r"^[A-Za-z_][A-Za-z0-9_]{0,62}$"
KINDS = ("source", "sql", "python", "sink", "spark_app")
READ_FORMATS = ("csv", "json", "parquet", "orc", "text", "avro", "xml", "binaryFile")
WriteFormat = Literal["parquet", "csv", "json", "orc", "text", "avro", "xml"]
WRITE_FORMATS: tuple[WriteFormat, ...] = get_args(WriteFormat)

TENANT = r"^([A-Za-z0-9][A-Za-z0-9_.-]{0,62})?$"
ENV_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"
ENV_RESERVED = ("MILLRACE_", "PYSPARK_", "SPARK_")
ENV_RULE = "a variable's name is a letter or _, then letters, digits or _, at most 255 characters in all"
ENV_MODULE = "environment"
"""The name of the module of kind env: variables that a client uploaded, so that no topic and no log has their values. It is no file's name:
a module called like this may stand beside it."""


def is_env_name(name: object) -> bool:
    """Whether it can be a variable's name. What cannot may be part of a secret, and is not quoted."""
    return isinstance(name, str) and re.fullmatch(ENV_NAME, name) is not None and len(name) <= 255


_KEY = re.compile(r"\s*(?:`([^`]+)`|([^\s,()`](?:[^,()`]*[^\s,()`])?))\s*")

_PLACE = re.compile(r"((?:[A-Za-z][A-Za-z0-9+.-]*:)?(?://[^/]*)?)(.*)", re.DOTALL)


@dataclass(frozen=True)
class Limits:
    """What a graph may cost at most; a cluster may lower or raise them."""

    vertices: int = 200
    edges: int = 1000
    parallelism: int = 128
    sql_bytes: int = 64 * 1024
    parameters: int = 200
    modules: int = 200
    variables: int = 200
    variables_bytes: int = 64 * 1024  # of their names and values
    input_bytes: int = 1024 * 1024  # of the raw text, and of all strings once parameters are put in
    depth: int = 32


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class Edge:
    """How rows go from a producing vertex to a consuming one.

    forward: subtask i to subtask i (equal parallelism); broadcast: all rows to every subtask; hash: every row to the
    one subtask that its `keys` pick.
    """

    kind: Literal["forward", "broadcast", "hash"]
    keys: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.kind != "hash":
            return self.kind
        return f"hash({', '.join(key if key.isidentifier() else f'`{key}`' for key in self.keys)})"

    @staticmethod
    def parse(text: object) -> Edge:
        """`forward`, `broadcast` or `hash(column, ...)`; a column with commas or parentheses stands in backticks.

        Raises ValueError with a sentence for the user.
        """
        if isinstance(text, Edge):
            return text
        if not isinstance(text, str):
            raise ValueError("an edge is one of forward, broadcast, hash(column, ...)")
        text = text.strip()
        if text in ("forward", "broadcast"):
            return Edge("forward" if text == "forward" else "broadcast")
        head, bracket, rest = text.partition("(")
        if head.strip() in ("forward", "broadcast") and bracket:
            raise ValueError(f"{head.strip()} takes no columns; only hash does")
        if head.strip() != "hash":
            raise ValueError(f"unknown edge {text!r}: an edge is one of forward, broadcast, hash(column, ...)")
        if not bracket:
            raise ValueError("hash needs its columns: hash(column, ...)")
        return Edge("hash", _parse_keys(rest))


def _parse_keys(rest: str) -> tuple[str, ...]:
    """The columns of `a, b)`: what follows `hash(`."""
    keys: dict[str, None] = {}
    position = 0
    while True:
        match = _KEY.match(rest, position)
        if match is None:
            raise ValueError("hash needs its columns: hash(column, ...)")
        key = match.group(1) or match.group(2)
        if key in keys:
            raise ValueError(f"hash names the column {key} twice")
        keys[key] = None
        position = match.end()
        if rest.startswith(")", position) and position + 1 == len(rest):
            return tuple(keys)
        if position == len(rest):
            quotes = f'between braces YAML ends it at the comma, so write "hash({rest}, ...)" in quotes'
            raise ValueError(f"hash({rest} has no closing parenthesis: {quotes}")
        if not rest.startswith(",", position):
            raise ValueError("hash needs its columns between parentheses: hash(column, ...)")
        position += 1


def as_text(value: object) -> object:
    """Spark's settings and options are text: true is `true`, 5 is `5`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else value


def as_count(value: object) -> object:
    """A parameter makes a number a text: `parallelism: ${n}`."""
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,9}", value) else value


def as_number(value: object) -> object:
    """In YAML a number with a point is a text, so that no digit of `1.10` is lost where a text is meant."""
    return float(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value) else value


def _text_or_none(value: object) -> object:
    return value if isinstance(value, str) else None


def without_dots(path: object) -> object:
    """A sink's path without `.` and `..`, as Hadoop takes it, by its text alone: others ask the file system, for which there is
    nothing in `new/../out`."""
    if not isinstance(path, str) or not {".", ".."} & set(path.split("/")):
        return path
    match = _PLACE.fullmatch(path)
    assert match is not None, "it takes any text"
    place, below = match.groups()
    return f"{place}{posixpath.normpath(below)}"


Text = Annotated[
    str,
    BeforeValidator(as_text),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]}),
]
EdgeText = Annotated[
    Edge,
    BeforeValidator(Edge.parse),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "pattern": r"^\s*(forward|broadcast|hash\s*\(.+\))\s*$"}),
]
VertexId = Annotated[str, Field(pattern=VERTEX_ID)]
Name = Annotated[str, Field(min_length=1, max_length=255)]


class _Model(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        populate_by_name=False,
        serialize_by_alias=True,
    )


class Source(_Model):
    """Reads data through one of Spark's readers."""

    format: Name
    """Spark's name of the format: csv, json, parquet, orc, text, ... or a class of an uploaded jar."""
    path: Annotated[str, Field(min_length=1)] | None = None
    """A file, folder or glob; relative to the graph's file. Needed for file formats."""
    options: dict[str, Text] = empty(dict)
    """Options of Spark's reader, such as header: true."""
    ddl: Annotated[str, Field(min_length=1)] | None = Field(default=None, alias="schema")
    """Columns and types as in CREATE TABLE (`a INT, b STRING`); without it Spark infers them."""


class Sink(_Model):
    """Writes its one input; nothing is seen at the path before all subtasks finished."""

    format: WriteFormat
    """The file format to write."""
    path: Annotated[str, BeforeValidator(without_dots), Field(min_length=1)]
    """The folder to write; relative to the graph's file."""
    mode: Literal["error", "overwrite", "append"] = "error"
    """What to do if the path is there: fail, replace it, or add to it."""
    options: dict[str, Text] = empty(dict)
    """Options of Spark's writer, such as compression: zstd."""


class SparkApp(_Model):
    """An ordinary PySpark script, run as spark-submit runs it."""

    script: Name
    """The script; in a file relative to the graph's file, on the wire the name of a module."""
    args: Annotated[tuple[Text, ...], Field(strict=False)] = ()
    """Arguments of the script."""


class Resources(_Model):
    """What a slot must have at least. Of a vertex: each part that it gives takes the place of the job's."""

    memory_mb: Annotated[int, Field(ge=1, le=MEMORY_MOST_MB)] | None = None
    """Memory of a slot; null takes any slot."""
    cores: Annotated[int, Field(ge=1, le=COUNT_MOST)] | None = None
    """Cores of a slot; null takes any slot."""
    extras: ExtraCounts | None = None
    """What else a slot has, by name, and how many of it: {gpu: 1}. Null: nothing, or what the job asks for."""


class Vertex(_Model):
    """One step; exactly one of source, sql, python, sink, spark_app says which kind."""

    source: Source | None = None
    """Reads data."""
    sql: Annotated[str, Field(min_length=1)] | None = None
    """A Spark SQL query over the inputs, which are temp views named as in `inputs`."""
    python: str | None = Field(default=None, max_length=255, pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$")
    """`module:function` of an uploaded module: DataFrames in (by input name), a DataFrame out."""
    sink: Sink | None = None
    """Writes its one input."""
    spark_app: SparkApp | None = None
    """Runs a whole PySpark script."""
    parallelism: Annotated[int, BeforeValidator(as_count), Field(ge=1)] = 1
    """Number of subtasks; each has its own share of the input."""
    inputs: dict[str, EdgeText] = empty(dict)
    """Producing vertex -> edge: forward, broadcast, or hash(column, ...)."""
    ddl: Annotated[str, Field(min_length=1)] | None = Field(default=None, alias="schema")
    """For a python vertex: the columns it returns, as in CREATE TABLE, so that planning need not call it."""
    resources: Resources | None = None
    """What its slots must have; null: what the job's must. Vertices that are one task have slots with the most of each part."""

    @property
    def kind(self) -> str:
        """Which of KINDS this vertex is."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)


EnvName = Annotated[str, Field(pattern=ENV_NAME, max_length=255)]
Vertices = Annotated[dict[VertexId, Vertex], Field(min_length=1)]


class Module(_Model):
    """A file that goes with the job, known by its content."""

    name: Annotated[str, Field(pattern=r"^[^/\\\x00-\x1f.][^/\\\x00-\x1f]{0,254}$")]
    """The file's name, without folders."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """Hash of its content: what the blob server stores it under."""
    kind: Literal["py", "file", "jar", "archive", "env"] = "py"
    """py: on Python's path (.py, .zip, .whl, .egg); file: in the working folder; jar; archive: unpacked there; env: the environment
    variables that `millrace submit` uploaded."""


class Standing(_Model):
    """Where a query stands in a file: its first line, and how far it is indented there."""

    file: Annotated[str, Field(min_length=1, max_length=255)]
    """The file's name, without folders."""
    line: Annotated[int, Field(ge=1, le=10_000_000)]
    """The line of the query's first line."""
    indent: Annotated[int, Field(ge=0, le=10_000_000)] | None = None
    """Columns before each line of the query; null: its lines are not the file's, and only the first one is known."""


class Restart(_Model):
    """What follows a failed attempt that may be tried again. Each strategy takes its own fields alone."""

    strategy: Literal["fixed-delay", "failure-rate", "exponential-delay", "none"] = "fixed-delay"
    """fixed-delay and failure-rate try again after delay_ms, exponential-delay after ever longer delays; none fails the job at once."""
    scope: Literal["region", "full"] = "region"
    """What runs again after a failure: region, the subtask that failed; full, all subtasks of the job."""
    attempts: Annotated[int, Field(ge=0, le=1000)] = 3
    """fixed-delay: how many restarts the job has in all."""
    delay_ms: Annotated[int, Field(ge=0, le=86_400_000)] = 1000
    """fixed-delay, failure-rate: time between a failure and the next attempt."""
    max_failures_per_interval: Annotated[int, Field(ge=1, le=1000)] = 1
    """failure-rate: how many failures are tried again within an interval; one more fails the job."""
    failure_rate_interval_ms: Annotated[int, Field(ge=1, le=86_400_000)] = 60_000
    """failure-rate: that interval."""
    initial_backoff_ms: Annotated[int, Field(ge=1, le=86_400_000)] = 1000
    """exponential-delay: the first delay, and the shortest one."""
    max_backoff_ms: Annotated[int, Field(ge=1, le=86_400_000)] = 60_000
    """exponential-delay: the longest delay."""
    backoff_multiplier: Annotated[float, Field(ge=1.01, le=1000, allow_inf_nan=False), BeforeValidator(as_number)] = 1.5
    """exponential-delay: each delay is so many times as long as the one before."""
    jitter_factor: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False), BeforeValidator(as_number)] = 0.1
    """exponential-delay: each delay is up to this part of it longer or shorter, so that jobs do not come back all at once."""
    reset_backoff_threshold_ms: Annotated[int, Field(ge=1, le=31_536_000_000)] = 3_600_000
    """exponential-delay: after so long without a failure, counted from the last restart, delays and restarts begin anew."""
    attempts_before_reset_backoff: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """exponential-delay: how many restarts there are until such a time; null: no limit."""
    out_of_memory_attempts: Annotated[int, Field(ge=0, le=1000)] = 3
    """All but none: restarts of the job in all after an attempt ran out of memory, apart from the strategy's own."""


class Speculation(_Model):
    """When a subtask is slow: its attempt runs for longer than its finished siblings did. Flink's slow task detector, with its defaults."""

    baseline_ratio: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False), BeforeValidator(as_number)] = 0.75
    """The part of a task's subtasks that must have finished. The fastest ones of so many are the baseline."""
    baseline_multiplier: Annotated[float, Field(ge=1, le=1000, allow_inf_nan=False), BeforeValidator(as_number)] = 1.5
    """Slow is what takes longer than so many times their median."""
    baseline_lower_bound_ms: Annotated[int, Field(ge=0, le=86_400_000)] = 60_000
    """And longer than this: what takes a moment is not worth a second attempt."""


def _switched(value: object) -> object:
    """`speculative: true` takes the defaults."""
    return {True: {}, False: None}[value] if isinstance(value, bool) else value


SpeculationGiven = Annotated[
    Speculation | None, BeforeValidator(_switched, json_schema_input_type=bool | Speculation | None)
]


class Timeouts(_Model):
    """After `queue_ms` the job fails; after the others the attempt does, and is tried again as `restart` says. Null waits for ever."""

    queue_ms: Annotated[int, Field(ge=1)] | None = None
    """From acceptance until the job has its first slot."""
    start_ms: Annotated[int, Field(ge=1)] | None = 120_000
    """From the deployment of an attempt until it runs."""
    run_ms: Annotated[int, Field(ge=1)] | None = None
    """From the start of an attempt until its end."""


class Origin(_Model):
    """The job whose graph this was, and what is to be made of that job's work."""

    job: Annotated[str, Field(pattern=JOB_ID_PATTERN)]
    """Its id."""
    repair: bool = False
    """What it had finished is kept, and not run again: it FAILED or was CANCELED. False: all runs anew."""
    keep_changed: bool = False
    """Of a repair: what was made with other files than these is kept, too, where the vertices themselves are the same."""


class JobGraph(_Model):
    """A job: vertices joined by edges, and how to run them."""

    name: Name
    """What people call the job."""
    parameters: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$")], Text] = empty(dict)
    """Values for ${name} in the vertices; `submit -p name=value` overrides them. `$$` is one dollar."""
    vertices: Vertices
    """The steps, by id; an id is also the name of the temp view that its consumers see."""
    modules: Annotated[tuple[Module, ...], Field(strict=False)] = ()
    """Files that go with the job; in a file just their paths, relative to the graph's file."""
    env: dict[EnvName, Text] = empty(dict)
    """Environment variables of the job's Python. In a file, `millrace submit` uploads them apart; in a message, whoever reads Kafka or
    etcd reads them: no secrets here."""
    conf: dict[str, Text] = empty(dict)
    """Spark configuration; static settings give the job a JVM of its own."""
    master: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    """The Spark cluster that runs the job's tasks, as spark.master: spark://host:7077, yarn, k8s://...; null: the slot itself."""
    restart: Restart = Restart()
    """How often and when failed attempts are tried again."""
    timeouts: Timeouts = Timeouts()
    """How long the job may wait, start and run."""
    resources: Resources = Resources()
    """What the job needs of each slot, where a vertex asks for nothing else."""
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    """Higher goes first when slots are short, among jobs of the same tenant."""
    together: bool = False
    """Its subtasks that may run at the same time start together or not at all: for code whose processes wait for each other."""
    speculative: SpeculationGiven = None
    """A slow subtask gets a second attempt on a free slot of another TaskManager, and the first one to finish counts. true: by the
    defaults; a mapping: by these numbers."""
    tenant: Annotated[str, Field(pattern=TENANT, max_length=63)] = ""
    """For whom it runs: the cluster's settings may give a tenant a share of the slots, and a limit. Empty: none."""
    sources: dict[VertexId, Standing] = empty(dict)
    """Where the vertices' queries stand in the user's file; `millrace submit` fills it in. It changes nothing but how errors are told."""
    traceparent: Annotated[str | None, BeforeValidator(_text_or_none)] = None
    """The publisher's place in a trace (W3C Trace Context); a header of that name is the usual way to give it. It is no part of what the
    job is, and ignored where it is malformed."""
    tracestate: Annotated[str | None, BeforeValidator(_text_or_none)] = None
    """What the publisher's own tools note beside `traceparent`: carried as it is, with the same rules."""
    origin: Origin | None = None
    """The job that this one was run again from; `millrace run-again` and `millrace repair` fill it in. Null: none."""
    result: str | None = None
    """The vertex whose first rows are the job's result; by default the one that nothing reads; if several are such, none."""


def settings_of(graph: JobGraph) -> dict[str, str]:
    """The Spark settings of each attempt: the job's `conf`, and its `master` as one of them."""
    return {**graph.conf, **({"spark.master": graph.master} if graph.master else {})}


def dump(graph: JobGraph) -> dict[str, Any]:
    """The wire shape of a graph, without what was left at its default; `JobGraph.model_validate` reads it back."""
    return graph.model_dump(mode="json", exclude_defaults=True)


def spark_app_graph(
    name: str,
    script: Module,
    args: Sequence[str] = (),
    conf: dict[str, str] | None = None,
    py_files: Sequence[Module] = (),
    files: Sequence[Module] = (),
    jars: Sequence[Module] = (),
    archives: Sequence[Module] = (),
    packages: Sequence[str] = (),
    master: str | None = None,
) -> dict[str, Any]:
    """The raw one-vertex graph of a spark-submit command line, to be given to `validate` and sent.

    Raw as every client's graph: a dollar in an argument is doubled, for `validate` puts parameters in. `packages` are
    Maven coordinates (spark.jars.packages).
    """
    settings = dict(conf or {})
    if packages:
        given = [part for part in settings.get("spark.jars.packages", "").split(",") if part]
        settings["spark.jars.packages"] = ",".join(dict.fromkeys([*given, *packages]))
    groups = {"file": [script, *files], "py": py_files, "jar": jars, "archive": archives}
    modules = [module.model_copy(update={"kind": kind}) for kind, group in groups.items() for module in group]
    app = {"script": script.name.replace("$", "$$"), "args": [argument.replace("$", "$$") for argument in args]}
    return {
        "name": name,
        "vertices": {"main": {"spark_app": app}},
        "modules": [module.model_dump() for module in modules],
        "conf": settings,
        **({"master": master} if master else {}),
        "restart": {"strategy": "none"},  # as with spark-submit: what a script has done outside, a second run does again
    }
