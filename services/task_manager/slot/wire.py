"""Any process of a slot, and its TaskManager: the messages between them, JSON objects of one line each.

    TaskManager -> host       Order
    host -> TaskManager       Event
    host -> running attempt   AttemptOrder, each inside a Tell of the TaskManager
    running attempt -> host   AttemptEvent; it may come from user code, so `from_attempt` believes nothing

An order to a running attempt needs no code in between: give it a type here, and a handler in `attempt/channel.py`. Standard library
only, as all of a slot.
"""

from __future__ import annotations

import json
from typing import Any, Literal, TypedDict

LINE_BYTES_MAX = 16 << 10
"""The longest line of a running attempt."""
COUNT_MAX = 1 << 53
STACK_MAX = 40  # frames, the innermost
STAGES_MAX = 10  # that run now
TEXT_MAX = 160  # characters of a frame or of a stage's name
PROGRESS_S = 1.0
"""A running attempt reports its progress so often at most, and for the first time after so long."""
ANSWER_S = 2.0
"""A running attempt that has not answered within this is reported as silent."""


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


class Run(TypedDict):
    """An attempt; the events are ``running`` and ``ended``."""

    do: Literal["run"]
    attempt: str
    spec: dict[str, Any]
    dirs: RunDirs


class Kill(TypedDict):
    """Ends an attempt; the event is ``ended``, ``killed`` unless it ended by itself before."""

    do: Literal["kill"]
    attempt: str
    why: str


class Report(TypedDict):
    """To a running attempt: what are you doing at this moment? One ``status`` with this `question` follows in any case."""

    do: Literal["report"]
    question: str


class Interrupt(TypedDict):
    """To a running attempt: end by yourself, as at Ctrl+C. User code may not obey, so a kill follows sooner or later."""

    do: Literal["interrupt"]


AttemptOrder = Report | Interrupt


class Tell(TypedDict):
    """An order for a running attempt. One that has no question is lost if the attempt does not read its channel."""

    do: Literal["tell"]
    attempt: str
    order: AttemptOrder


class Stop(TypedDict):
    """Ends the slot and what runs in it; the event is ``gone``."""

    do: Literal["stop"]


Order = Start | Run | Kill | Tell | Stop


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


class ProgressEvent(TypedDict):
    """``is``: "progress"."""

    progress: Progress


class StatusEvent(TypedDict):
    """``is``: "status". The answer to a `Report`."""

    question: str
    status: AttemptStatus


# host -> TaskManager


Event = dict[str, Any]
"""``is`` says which it is:

- ready (slot, application_id): warm, probed, a spare process attached; the slot may be offered
- running (attempt): the process has its attempt
- progress (attempt, progress): a `Progress`
- status (attempt, question, status, silent): an `AttemptStatus`, or None and why there is none
- ended (attempt, status, report, rows, error): the status is finished, failed or killed; of the latter two nothing lives any more
- replacing (reason, attempt or None): a new JVM is being started; with an attempt it is that attempt's own, and running follows, else ready
- broken (reason, hint): the slot cannot be started; the host ends
- gone (code, said): made by the TaskManager's side when the host has ended; nothing of the slot lives any more
"""


def line_of(message: Any) -> bytes:
    """A message as it is sent."""
    return (json.dumps(message) + "\n").encode()


def from_attempt(line: bytes) -> tuple[str, Any]:
    """("progress", ProgressEvent) or ("status", StatusEvent). Raises ValueError for what no attempt of ours sends."""
    if len(line) > LINE_BYTES_MAX:
        raise ValueError("the line is too long")
    try:
        message = json.loads(line)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    kind = message.pop("is", None) if isinstance(message, dict) else None
    if kind == "progress" and _is(message, ProgressEvent) and progress_is_sound(message["progress"]):
        return kind, message
    if kind == "status" and _is(message, StatusEvent) and _text(message["question"]) and status_is_sound(message["status"]):
        return kind, message
    raise ValueError("it is no message of an attempt")


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
