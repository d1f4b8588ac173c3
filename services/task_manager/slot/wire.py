"""Any process of a slot, and its TaskManager: the messages between them, JSON objects of one line each.

    TaskManager -> host       Order
    host -> TaskManager       Event
    host -> attempt           Assignment, then AttemptOrder, each inside an OrderAttempt of the TaskManager
    attempt -> host           Attached, Took, then AttemptEvent, which may come from user code: `from_attempt` believes nothing
    host -> control           ControlOrder
    control -> host           ControlAnswer
    look -> host              LookAnswer, once

What an attempt is given and what it leaves has its types in `attempt_wire`.
An order to a running attempt needs no code in between: give it a type here, and a handler in `attempt/channel.py`. Standard library
only, as all of a slot.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast

from .attempt_wire import AttemptSpec, Fault
from .common.attach import Known
from .common.left import Unchecked

if TYPE_CHECKING:
    from typing_extensions import NotRequired

LINE_BYTES_MAX = 16 << 10
"""The longest line of a running attempt."""
COUNT_MAX = 1 << 53
TIME_MAX = 1 << 42  # ms: in nanoseconds, as a collector has them, it fits into 64 bits
STACK_MAX = 40  # frames, the innermost
STAGES_MAX = 10  # that run now
SPANS_MAX = 500  # Spark jobs and stages of an attempt that are noted
COLLECTORS_MAX = 20
TEXT_MAX = 160  # characters of a frame or of a stage's name
PROGRESS_S = 1.0
"""A running attempt reports its progress so often at most, and for the first time after so long."""
ANSWER_S = 2.0
"""A running attempt that has not answered within this is reported as one that does not answer."""
LOOK_S = 1.5
"""The same of a JVM that is looked at."""
DUMP_CHARS_MAX = 400_000
"""Of the threads of a JVM."""


# TaskManager -> host


class Start(TypedDict):
    """The first line: `config` is a `SlotConfig`."""

    do: Literal["start"]
    config: dict[str, Any]


class RunDirs(TypedDict):
    """See `common.config.Dirs`."""

    work: str
    log: str
    blobs: str
    findings: str
    mark: str


class Run(TypedDict):
    """An attempt; the events are ``running`` and ``ended``."""

    do: Literal["run"]
    attempt: str
    spec: AttemptSpec
    dirs: RunDirs


class Kill(TypedDict):
    """Ends an attempt; the event is ``ended``, ``killed`` unless it ended by itself before. `within_ms`: it is asked to end first, by an
    ``interrupt``, and has so long. One without that, which may follow, ends it at once."""

    do: Literal["kill"]
    attempt: str
    why: str
    within_ms: NotRequired[int]


class Report(TypedDict):
    """To a running attempt: what are you doing at this moment? One ``status`` with this `question` follows in any case."""

    do: Literal["report"]
    question: str


class Interrupt(TypedDict):
    """To a running attempt: end by yourself, as at Ctrl+C. User code may not obey, so it is killed a little later (`Kill`)."""

    do: Literal["interrupt"]


AttemptOrder = Report | Interrupt


class OrderAttempt(TypedDict):
    """An order for a running attempt. One that has no question is lost if the attempt does not read its channel."""

    do: Literal["order"]
    attempt: str
    order: AttemptOrder


class Look(TypedDict):
    """Look at the JVM. One ``looked`` with this `question` follows in any case. `threads`: where they are, too."""

    do: Literal["look"]
    question: str
    threads: bool


class Stop(TypedDict):
    """Ends the slot and what runs in it; the event is ``gone``."""

    do: Literal["stop"]


Order = Start | Run | Kill | OrderAttempt | Look | Stop


# attempt -> host, and host -> attempt before the attempt runs


class Attached(TypedDict):
    """The first line of an attempt's process. `reason`: why it is not attached to the JVM. `known`: what it had to ask, if it was given
    nothing."""

    attached: bool
    known: NotRequired[Known]
    reason: NotRequired[str]


class Assignment(TypedDict):
    """What it is to run: see `Run`."""

    attempt: str
    spec: AttemptSpec
    dirs: RunDirs


class Took(TypedDict, total=False):
    """Its answer: the attempt that it runs, or why it cannot begin."""

    took: str
    refused: Fault


# running attempt -> host


class Progress(TypedDict):
    """How far an attempt is, by the jobs that its Spark knows. What Spark forgot before it was looked at is not counted."""

    stages_done: int
    stages_active: int
    stages_total: int
    tasks_done: int
    tasks_failed: int
    tasks_total: int
    rows_read: int
    rows_written: int
    rows_per_s: int
    bytes_read: int
    bytes_written: int
    bytes_shuffled: int
    rows_shuffled: int
    bytes_shuffle_read: int
    rows_shuffle_read: int
    bytes_spilled_memory: int
    bytes_spilled_disk: int
    run_ms: int
    cpu_ms: int
    gc_ms: int
    bytes_memory_peak: int


class StageStatus(TypedDict):
    """A stage that runs now. `name`: what asked for it, and where."""

    stage: int
    name: str
    tasks_done: int
    tasks_total: int


class AttemptStatus(TypedDict):
    """What an attempt is doing at this moment. `stack`: of its main Python thread, the innermost frame last, ``file:line function``."""

    elapsed_ms: int
    progress: Progress
    stages: list[StageStatus]
    stack: list[str]


OwnProgress = TypedDict("OwnProgress", {"is": Literal["progress"], "progress": Progress})

OwnStatus = TypedDict("OwnStatus", {"is": Literal["status"], "question": str, "status": AttemptStatus})
"""The answer to a `Report`."""

AttemptEvent = OwnProgress | OwnStatus


class SparkSpan(TypedDict):
    """A Spark job that has ended, or a stage of it: a line of the file `left.SPARK`. `stage` is None of a job. Times: Unix time, ms."""

    job: int
    stage: int | None
    attempt: int
    name: str
    begin_ms: int
    end_ms: int
    failed: bool
    tasks: int
    tasks_failed: int
    rows_read: int
    rows_written: int
    bytes_read: int
    bytes_written: int
    bytes_shuffled: int


# host -> TaskManager; a class can have no field called ``is``

EndStatus = Literal["finished", "failed", "killed"]

Ready = TypedDict("Ready", {"is": Literal["ready"], "slot": str, "application_id": str})
"""Warm, probed, a spare process attached; the slot may be offered."""

Running = TypedDict("Running", {"is": Literal["running"], "attempt": str})
"""The process has its attempt."""

AttemptProgressed = TypedDict("AttemptProgressed", {"is": Literal["progress"], "attempt": str, "progress": Progress})

AttemptAnswered = TypedDict(
    "AttemptAnswered",
    {"is": Literal["status"], "attempt": str, "question": str, "status": "AttemptStatus | None", "no_answer": "str | None"},
)
"""`no_answer`: why there is no status."""

Ended = TypedDict(
    "Ended",
    {
        "is": Literal["ended"],
        "attempt": str,
        "status": EndStatus,
        "report": "Unchecked | None",
        "rows": "str | None",
        "error": "Fault | Unchecked | None",
    },
)
"""Where it has not finished, nothing of it lives any more. `rows`: of its result, as JSON, which the report is without."""

Replacing = TypedDict("Replacing", {"is": Literal["replacing"], "reason": str, "attempt": "str | None"})
"""A new JVM is being started. With an attempt it is that attempt's own, and running follows, else ready."""

Broken = TypedDict("Broken", {"is": Literal["broken"], "reason": str, "hint": str})
"""The slot cannot be started; the host ends."""

Looked = TypedDict(
    "Looked",
    {"is": Literal["looked"], "question": str, "jvm": "JvmStatus | None", "threads": "str | None", "no_answer": "str | None"},
)
"""`no_answer`: why nothing is known of the JVM."""

Gone = TypedDict("Gone", {"is": Literal["gone"], "code": int, "log_tail": str})
"""Made by the TaskManager's side when the host has ended; nothing of the slot lives any more. `log_tail`: the last that it printed."""

Event = Ready | Running | AttemptProgressed | AttemptAnswered | Ended | Replacing | Broken | Looked | Gone


# look -> host


class MemoryUse(TypedDict):
    """In bytes. `max` None: it has no bound."""

    used: int
    committed: int
    max: int | None


class Buffers(TypedDict):
    """Of Java code outside of the heap; bytes but for `count`."""

    count: int
    used: int
    capacity: int


class Collector(TypedDict):
    """A garbage collector: how often it ran, and for how long in all."""

    name: str
    count: int
    time_ms: int


class JvmStatus(TypedDict):
    """How a JVM is."""

    version: str
    uptime_ms: int
    threads: int
    heap: MemoryUse
    non_heap: MemoryUse
    direct: Buffers
    mapped: Buffers
    collectors: list[Collector]
    metaspace: MemoryUse | None
    cpu_ms: int


class LookAnswer(TypedDict, total=False):
    """What was seen; `reason`: why nothing was."""

    jvm: JvmStatus
    threads: str
    reason: str


# host -> control


class Open(TypedDict):
    """Starts the Spark context, runs a first query, prepares the first session."""

    do: Literal["open"]


class Quiet(TypedDict):
    """Ends all that the last attempt left running."""

    do: Literal["quiet"]
    within_s: float


class Reset(TypedDict):
    """Clears what the last attempt left in the JVM, and prepares a session. `had_variables`: that attempt had environment variables."""

    do: Literal["reset"]
    had_variables: bool


class StopContext(TypedDict):
    """Stops the Spark context of an attempt that had a JVM of its own."""

    do: Literal["stop_context"]


class Probe(TypedDict):
    """Runs Python on every core of the JVM."""

    do: Literal["probe"]


class Warm(TypedDict):
    """Lets the JVM be led through what jobs do, beside everything else; answered at once."""

    do: Literal["warm"]


class Pause(TypedDict):
    """Ends what `Warm` began, because an attempt needs the JVM; answered when nothing of it runs."""

    do: Literal["pause"]


ControlOrder = Open | Quiet | Reset | StopContext | Probe | Warm | Pause


class ControlAnswer(TypedDict):
    """The answer to any order; of the rest each order's has one."""

    ok: bool
    took_ms: float
    reason: NotRequired[str]
    """Where it is not ok."""
    application_id: NotRequired[str]
    """Of Open."""
    living: NotRequired[str]
    """Of Quiet: what still runs; empty: nothing does."""
    replace: NotRequired[str | None]
    """Of Reset: why the JVM must be replaced."""
    left: NotRequired[int]
    """Of Warm: the steps that were not begun."""


def line_of(message: Any) -> bytes:
    """A message as it is sent."""
    return (json.dumps(message) + "\n").encode()


def question_of(order: AttemptOrder) -> str | None:
    """The question that an order asks, if it asks any: one answer follows in any case."""
    return cast("str | None", order.get("question"))


def from_attempt(line: bytes) -> AttemptEvent:
    """What a running attempt sends. Raises ValueError for what no attempt of ours does."""
    if len(line) > LINE_BYTES_MAX:
        raise ValueError("the line is too long")
    try:
        message = json.loads(line)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    kind = message.get("is") if isinstance(message, dict) else None
    if kind == "progress" and _is(message, OwnProgress) and progress_is_sound(message["progress"]):
        return cast(OwnProgress, message)
    if kind == "status" and _is(message, OwnStatus) and _text(message["question"]) and status_is_sound(message["status"]):
        return cast(OwnStatus, message)
    raise ValueError("it is no message of an attempt")


def spark_spans(lines: bytes) -> list[SparkSpan]:
    """Those among the lines that an attempt may have written."""
    found: list[SparkSpan] = []
    for line in lines.splitlines()[:SPANS_MAX]:
        try:
            span = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if _is(span, SparkSpan) and all(map(_fits, span, span.values())):
            found.append(cast(SparkSpan, span))
    return found


def _fits(name: str, value: Any) -> bool:
    """Whether it can be a value of this field of a `SparkSpan`."""
    if name in ("name", "failed"):
        return _text(value) if name == "name" else isinstance(value, bool)
    if name in ("begin_ms", "end_ms"):
        return _count(value) and value < TIME_MAX
    return _count(value) or (name == "stage" and value is None)


def progress_is_sound(value: Any) -> bool:
    """Whether it is a `Progress`."""
    return _is(value, Progress) and all(map(_count, value.values()))


def status_is_sound(value: Any) -> bool:
    """Whether it is an `AttemptStatus`."""
    return (
        _is(value, AttemptStatus)
        and _count(value["elapsed_ms"])
        and progress_is_sound(value["progress"])
        and _list(value["stages"], STAGES_MAX)
        and all(map(_stage, value["stages"]))
        and _list(value["stack"], STACK_MAX)
        and all(map(_text, value["stack"]))
    )


def _stage(value: Any) -> bool:
    return _is(value, StageStatus) and all(_text(each) if name == "name" else _count(each) for name, each in value.items())


def _is(value: Any, shape: Any) -> bool:
    return isinstance(value, dict) and value.keys() == shape.__annotations__.keys()


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value < COUNT_MAX


def _text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= TEXT_MAX


def _list(value: Any, most: int) -> bool:
    return isinstance(value, list) and len(value) <= most
