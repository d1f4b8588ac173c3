"""What a process is asked about itself, and what it answers: how it is, where its threads are, its logs, its settings. None of it
decides anything.

`services/task_manager/slot/wire.py` has `JvmStatus` in the same shape, and a test holds them equal.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from .base import Body, Part, Reply, Request, empty, unless_set
from .profiles import Cores, Extras, WithProfile
from .progress import Count, Later, Text

LOG_PIECE_MOST = 4 << 20
"""Bytes of a log in one answer."""
DUMPS_BYTES_MOST = 600_000
"""Of all thread dumps in one answer, as JSON."""
LOGS_MOST = 1_000
SETTING_CHARACTERS_MOST = 4_000
BY_DEFAULT = "by default"
COLLECTORS_MOST = 20
ProcessName = Annotated[str, Field(min_length=1, max_length=200)]
LogId = Annotated[str, Field(min_length=1, max_length=200)]
Start = Annotated[int, Field(ge=-(1 << 53), le=1 << 53)]
Length = Annotated[int, Field(ge=1, le=LOG_PIECE_MOST)]


# What it is asked


class DescribeAsk(Part):
    """Answer with how you are: your process, and the JVMs of your slots."""

    do: Literal["describe"] = "describe"


class ThreadsAsk(Part):
    """Answer with where your threads are, and those of your slots."""

    do: Literal["threads"] = "threads"
    slot: int | None = None
    """Of this slot alone."""


class LogsAsk(Part):
    """Answer with which logs you have."""

    do: Literal["logs"] = "logs"


class UploadAsk(Part):
    """Put a piece of a log where the blob server serves it, and answer with where that is."""

    do: Literal["upload"] = "upload"
    log: LogId
    """By its id in the list of logs."""
    start: Start = 0
    """The first byte; a negative one counts from the end."""
    length: Length = LOG_PIECE_MOST


class SettingsAsk(Part):
    """Answer with which settings you run with, and where each is from."""

    do: Literal["settings"] = "settings"


Ask = DescribeAsk | ThreadsAsk | LogsAsk | UploadAsk | SettingsAsk
AnyAsk = Annotated[Ask, Field(discriminator="do")]


class AskProcess(Body):
    """A client's question to the processes of services, leaders and standbys alike. Who it is for answers on `client.replies`; who does
    not answer in three seconds is not there, or hangs."""

    type: Literal["AskProcess"] = "AskProcess"
    version: Literal[1] = 1
    process: Annotated[str, Field(max_length=200)] = ""
    """Its name. Empty: all of them."""
    reply_to: Annotated[str, Field(max_length=200)]
    correlation: Annotated[str, Field(max_length=200)] = ""
    ask: AnyAsk


# What it answers


class ProcessStatus(Part):
    """A process, and the machine that it runs on. Sizes in bytes; times are Unix times in milliseconds."""

    service: Text
    host: Text
    pid: Count
    version: Text
    """Of Millrace."""
    python: Text
    system: Text
    started_ms: Count
    cores: Count
    """Of the machine."""
    memory: Count
    """Of the machine, or of the container."""
    memory_free: Count
    resident: Count
    """Memory that the process uses."""
    cpu_ms: Count
    """Processor time that it has used."""
    threads: Count
    files: Count
    """Descriptors that it has open."""
    collections: Later = None
    """How often Python collected garbage, and for how long in all. Null: of a build that does not report it."""
    collections_ms: Later = None


class MemoryUse(Part):
    """Memory of a JVM in bytes. `max` null: it has no bound."""

    used: Count
    committed: Count
    max: Count | None


class Buffers(Part):
    """Memory of a JVM outside of its heap that Java code has in buffers."""

    count: Count
    used: Count
    capacity: Count


class Collector(Part):
    """A garbage collector of a JVM: how often it ran, and for how long in all."""

    name: Text
    count: Count
    time_ms: Count


class JvmStatus(Part):
    """The JVM of a slot."""

    version: Text
    uptime_ms: Count
    threads: Count
    heap: MemoryUse
    non_heap: MemoryUse
    direct: Buffers
    mapped: Buffers
    collectors: Annotated[list[Collector], Field(max_length=COLLECTORS_MOST)]
    metaspace: Annotated[MemoryUse | None, Field(exclude_if=unless_set)] = None
    """Of the classes; a part of `non_heap`. Null, as the next one: of a build that does not report it."""
    cpu_ms: Later = None
    """Processor time that it has used."""


class SlotJvm(Part):
    """A slot and its JVM, or why nothing is known of that: exactly one of `jvm` and `no_answer` is given."""

    slot: int
    jvm: JvmStatus | None = None
    no_answer: str | None = None


class ThreadDump(Part):
    """Where the threads of one process were: exactly one of `text` and `no_answer` is given."""

    of: str
    """Whose they are."""
    text: str | None = None
    """A paragraph for each thread, its name in quotes first; then a line for each frame, the innermost first, without values."""
    truncated: bool = False
    """There was more than fits into an answer."""
    no_answer: str | None = None


class LogFile(Part):
    """A log of a process."""

    log: str
    """Its id."""
    bytes: Count
    modified_ms: Count


class LogPiece(Part):
    """A piece of a log, on the blob server for an hour. What looks like a secret is stars there, as many as it has bytes."""

    log: str
    path: str
    """On the blob server."""
    start: Count
    bytes: Count
    size: Count
    """Bytes of the whole log."""


class Setting(Part):
    """A setting of a process as it runs."""

    name: str
    """As in its file; of one within another, `outer.inner`."""
    value: Any
    """A secret is stars. One that is longer than SETTING_CHARACTERS_MOST is the beginning of its JSON."""
    origin: str
    """`in` a file, `from` a variable, `from` a flag, or `by default`."""


# Answers on their way to the client


class Description(Part):
    """Answers DescribeAsk."""

    answers: Literal["describe"] = "describe"
    status: ProcessStatus
    slots: list[SlotJvm] = empty(list)
    scopes: dict[str, str] = empty(dict)


class ThreadDumps(Part):
    """Answers ThreadsAsk."""

    answers: Literal["threads"] = "threads"
    dumps: list[ThreadDump]


class LogFiles(Part):
    """Answers LogsAsk."""

    answers: Literal["logs"] = "logs"
    logs: list[LogFile]


class UploadedPiece(Part):
    """Answers UploadAsk."""

    answers: Literal["upload"] = "upload"
    piece: LogPiece


class SettingsFound(Part):
    """Answers SettingsAsk."""

    answers: Literal["settings"] = "settings"
    settings: list[Setting]


class NoAnswer(Part):
    """Why there is no answer to any of them."""

    answers: Literal["nothing"] = "nothing"
    kind: Literal["not_found", "invalid", "busy", "internal"]
    reason: str


Answer = Description | ThreadDumps | LogFiles | UploadedPiece | SettingsFound | NoAnswer
AnyAnswer = Annotated[Answer, Field(discriminator="answers")]


# Requests about a TaskManager, and what answers these and AskProcess


class DescribeTaskManager(Request):
    """A TaskManager as it is at this moment: its process, its slots with what is in them, memory and garbage collection of their JVMs.
    It is asked, and answered for within seconds if it is silent."""

    type: Literal["DescribeTaskManager"] = "DescribeTaskManager"
    version: Literal[1] = 1
    task_manager: ProcessName


class DumpThreads(Request):
    """Where the threads of a TaskManager and of its slots are: of its own process, of the JVMs, and of running attempts."""

    type: Literal["DumpThreads"] = "DumpThreads"
    version: Literal[1] = 1
    task_manager: ProcessName
    slot: Annotated[int, Field(ge=0)] | None = None
    """Of this slot alone. An answer has a bound, which the slots share."""


class ListLogs(Request):
    """The logs of a TaskManager and of its slots' JVMs. Those of attempts are their job's."""

    type: Literal["ListLogs"] = "ListLogs"
    version: Literal[1] = 1
    task_manager: ProcessName


class UploadLog(Request):
    """A piece of a TaskManager's log, put where the blob server serves it."""

    type: Literal["UploadLog"] = "UploadLog"
    version: Literal[1] = 1
    task_manager: ProcessName
    log: LogId
    """By its id in the list of logs; no path."""
    start: Start = 0
    """The first byte; a negative one counts from the end."""
    length: Length = LOG_PIECE_MOST


class ListSettings(Request):
    """The settings that a TaskManager runs with, and where each is from."""

    type: Literal["ListSettings"] = "ListSettings"
    version: Literal[1] = 1
    task_manager: ProcessName


AboutTaskManager = DescribeTaskManager | DumpThreads | ListLogs | UploadLog | ListSettings
"""The requests that a TaskManager answers itself."""


class SlotDescribed(WithProfile):
    """A slot as its TaskManager has it."""

    slot: int
    state: str
    memory_mb: int
    broken: str | None = None
    """Why it cannot be started, and what to do; of a BROKEN one."""
    job: str | None = None
    allocation: str | None = None
    attempt: str | None = None
    """The last one of this allocation: `<job>/<task folder>/<subtask>/<life>.<number>`."""
    attempt_state: str | None = None
    jvm: JvmStatus | None = None
    no_answer: str | None = None
    """Why nothing is known of its JVM."""
    cores: Cores = 0
    extras: Extras = empty(dict)


class TaskManagerDescribed(Reply):
    """Answers DescribeTaskManager."""

    type: Literal["TaskManagerDescribed"] = "TaskManagerDescribed"
    version: Literal[1] = 1
    task_manager: str
    incarnation: int
    status: ProcessStatus
    slots: list[SlotDescribed]
    """By number; the first ones only where the answer would be too large."""
    total: int
    """How many slots it has."""


class ProcessDescribed(Reply):
    """A process of a service, which was asked by AskProcess."""

    type: Literal["ProcessDescribed"] = "ProcessDescribed"
    version: Literal[1] = 1
    process: str
    status: ProcessStatus
    scopes: dict[str, str]
    """Which it replicates, and what it is in each: leader, standby, or what it passes through to become one."""


class ThreadsDumped(Reply):
    """Answers DumpThreads, and AskProcess for threads."""

    type: Literal["ThreadsDumped"] = "ThreadsDumped"
    version: Literal[1] = 1
    process: str
    dumps: list[ThreadDump]


class LogsListed(Reply):
    """Answers ListLogs, and AskProcess for logs."""

    type: Literal["LogsListed"] = "LogsListed"
    version: Literal[1] = 1
    process: str
    logs: list[LogFile]


class LogUploaded(Reply):
    """Answers UploadLog, and AskProcess for a piece of a log."""

    type: Literal["LogUploaded"] = "LogUploaded"
    version: Literal[1] = 1
    process: str
    piece: LogPiece


class SettingsListed(Reply):
    """Answers ListSettings, and AskProcess for settings."""

    type: Literal["SettingsListed"] = "SettingsListed"
    version: Literal[1] = 1
    process: str
    settings: list[Setting]
