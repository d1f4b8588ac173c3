"""A job's ExecutionGraph as people and programs are shown it: in `JobDescribed`, and in the archive of an ended job."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator

from .attempts import Count, Fault, FilesLeft, Open, ResultRows
from .base import empty
from .progress import AttemptProgress


class TaskOutline(Open):
    """A task of an accepted job: the vertices that run together in one attempt, and how many of these there are."""

    task: str
    vertices: list[str]
    """Producers first."""
    parallelism: int


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


class SubtaskDetail(Open):
    """One subtask with its current, or last, attempt."""

    subtask: int
    state: str
    attempt: int
    """0: there was none yet."""
    task_manager: str
    deployed_ms: int | None = None
    running_ms: int | None = None
    ended_ms: int | None = None
    logs: list[LogPlace] = empty(list)
    """Of the last ten attempts."""
    outputs: dict[str, Written] = empty(dict)
    """By vertex."""
    failures: list[FailureDetail] = empty(list)
    files: FilesLeft | None = None
    progress: AttemptProgress | None = None
    """While its attempt runs: what that reported last."""


class TaskDetail(Open):
    """A task with its subtasks; `omitted` of them are not listed, for they are many."""

    task: str
    parallelism: int
    states: dict[str, int]
    """How many subtasks are in each state."""
    omitted: int = 0
    subtasks: list[SubtaskDetail]


class ResultParts(Open):
    """A result of which parts lie in files of their own."""

    parts: list[ResultRows]


class JobDetail(Open):
    """A job with its tasks, as its JobMaster has it."""

    job: str
    name: str
    acceptance: str
    status: str
    accepted_ms: int
    since_ms: int
    """Since when it has this status."""
    ended_ms: int | None = None
    restarts: int = 0
    """Attempts that failed and were run again as `restart` says."""
    waiting: str | None = None
    position: int | None = None
    cause: Fault | None = None
    sinks: dict[str, bool] = empty(dict)
    """Sinks that are being published -> whether they are."""
    tasks: list[TaskDetail] = empty(list)
    result: ResultRows | ResultParts | None = None
    """Of an ended job, in its archive: the first rows of its result."""


class Archive(Open):
    """What is kept of an ended job, in a file on the blob server: how it ended, its graph, and its ExecutionGraph as it was left."""

    job: str
    name: str
    status: str
    accepted_ms: int
    ended_ms: int
    cause: Fault | None = None
    graph: dict[str, Any] = empty(dict)
    detail: Annotated[JobDetail | None, BeforeValidator(lambda value: value or None)] = None
    """None: a record about the job ended its JobMaster's process, so that nothing of it could be described."""
