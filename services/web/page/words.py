"""Numbers, times and states in the words of the page. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple

from markupsafe import Markup

from millrace.cli.words import label, one_line, printable
from millrace.core.faults import is_for_storage
from millrace.core.jobgraph.compile import PLAN_TASK
from millrace.core.states import INITIALIZING, ExecutionState, JobStatus, SlotState

__all__ = ["label", "one_line", "printable"]

NBSP = "\u00a0"
LIBRARIES = ("pyspark/", "py4j/", "pandas/", "pyarrow/", "socket.py:", "threading.py:", "selectors.py:", "subprocess.py:", "<")
Row = Mapping[str, Any]


def is_for_slots(waiting: str | None) -> bool:
    """Whether a job that waits for this reason, or for none, waits for slots: it stands in the queue then."""
    return waiting is not None and not is_for_storage(waiting)


def number(value: float | None) -> str:
    """1,234,567; nothing for what is not known."""
    return "" if value is None else f"{value:,}"


def unbroken(text: str) -> Markup:
    """A command, of which no word goes on in the next line: else browsers part the dashes of an option from its name."""
    return Markup(" ").join(Markup('<span class="word">{}</span>').format(word) for word in text.split())


def count(n: int, one: str, more: str = "") -> str:
    """1 job, 2 jobs."""
    return f"{n:,}{NBSP}{one if n == 1 else more or one + 's'}"


def length(ms: float | None) -> str:
    """A length of time: 589 ms, 12.4 s, 1 min 12 s, 5 h 19 min, 3 d 4 h."""
    if ms is None:
        return ""
    ms = max(0, ms)
    if ms < 1000:
        return f"{ms:.0f}{NBSP}ms"
    seconds = ms / 1000
    if seconds < 59.95:
        return f"{seconds:.1f}{NBSP}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}{NBSP}min" + (f" {rest}{NBSP}s" if rest else "")
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}{NBSP}h" + (f" {minutes}{NBSP}min" if minutes else "")
    return f"{hours // 24}{NBSP}d" + (f" {hours % 24}{NBSP}h" if hours % 24 else "")


def ago(ms: int | None, wall_ms: int) -> str:
    """How long ago a moment was, in one word and one number: it changes as seldom as that does."""
    if not ms:
        return ""
    seconds = max(0, wall_ms - ms) // 1000
    if seconds < 1:
        return "just now"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if seconds >= size:
            return f"{seconds // size}{NBSP}{unit} ago"
    return ""


def iso(ms: int) -> str:
    """For `datetime`."""
    return _utc(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def exact(ms: int) -> str:
    """For `title`."""
    return f"{_utc(ms):%Y-%m-%d %H:%M:%S}.{ms % 1000:03d} UTC"


def clock(ms: int | None) -> str:
    """Time of day, UTC."""
    return f"{_utc(ms):%H:%M:%S}" if ms else ""


def size(n: int | None) -> str:
    """28 MB."""
    if n is None:
        return ""
    for unit, many in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if n >= many:
            return f"{n / many:.1f}{NBSP}{unit}" if n < 10 * many else f"{n // many}{NBSP}{unit}"
    return count(n, "byte")


def subtask_name(task: str, number: int) -> str:
    """A subtask's name for people."""
    return "plan" if task == PLAN_TASK else f"{label(task)}[{number}]"


def sentence(parts: Sequence[str]) -> str:
    """a, b and c."""
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else "".join(parts)


def own_frame(stack: Sequence[str]) -> int:
    """Which frame of a Python stack is the user's own: the innermost that is not of Spark's or Python's libraries. -1: none."""
    return next((n for n in reversed(range(len(stack))) if not stack[n].startswith(LIBRARIES)), -1)


def first_line(text: str) -> str:
    """What a list has room for."""
    return printable(text).strip().partition("\n")[0]


def _utc(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, timezone.utc)


class Shown(NamedTuple):
    """A state as it is shown: always a word and an icon, in a colour."""

    word: str
    icon: str
    tone: str


WAITING = "WAITING"
"""Of a live job: nothing of it is in a slot, and it waits for one."""
LOST = "LOST"
"""Of an attempt that is no job's doing: its TaskManager is gone."""
NEVER = "NEVER"
"""Of a task of an ended job: none of its subtasks was in a slot."""
JOBS: dict[str, Shown] = {
    INITIALIZING: Shown("Initializing", "init", "off"),
    JobStatus.CREATED.value: Shown("Created", "created", "off"),
    WAITING: Shown("Waiting", "waiting", "wait"),
    JobStatus.RUNNING.value: Shown("Running", "running", "run"),
    JobStatus.RESTARTING.value: Shown("Restarting", "again", "again"),
    JobStatus.FAILING.value: Shown("Failing", "warn", "bad"),
    JobStatus.CANCELLING.value: Shown("Cancelling", "cancelling", "off"),
    JobStatus.SUSPENDED.value: Shown("Suspended", "clock", "wait"),
    JobStatus.FINISHED.value: Shown("Finished", "done", "ok"),
    JobStatus.FAILED.value: Shown("Failed", "failed", "bad"),
    JobStatus.CANCELED.value: Shown("Canceled", "canceled", "off"),
}
ATTEMPTS: dict[str, Shown] = {
    ExecutionState.CREATED.value: Shown("Created", "created", "off"),
    ExecutionState.SCHEDULED.value: Shown("Wants a slot", "clock", "wait"),
    ExecutionState.DEPLOYING.value: Shown("Deploying", "deploying", "run"),
    ExecutionState.RUNNING.value: Shown("Running", "running", "run"),
    ExecutionState.CANCELING.value: Shown("Canceling", "cancelling", "off"),
    ExecutionState.FINISHED.value: Shown("Finished", "done", "ok"),
    ExecutionState.FAILED.value: Shown("Failed", "failed", "bad"),
    ExecutionState.CANCELED.value: Shown("Canceled", "canceled", "off"),
    LOST: Shown("Lost, moved", "lost", "off"),
    NEVER: Shown("Never began", "created", "off"),
}
SLOTS: dict[str, Shown] = {
    SlotState.FREE.value: Shown("Free", "created", "off"),
    SlotState.ACTIVE.value: Shown("Active", "running", "run"),
    SlotState.STARTING.value: Shown("Starting", "clock", "wait"),
    SlotState.BROKEN.value: Shown("Broken", "cross", "bad"),
}
_FIRST = (JobStatus.RUNNING.value, WAITING)
COUNTED = (*_FIRST, *(state for state in JOBS if state not in (INITIALIZING, JobStatus.CREATED, *_FIRST)))
"""The states whose number the overview shows."""
UNKNOWN = Shown("Unknown", "info", "off")

LOST_KINDS = ("lost", "infrastructure")
"""Kinds of faults that are not the job's doing."""


def attempt_state(attempt: Row) -> str:
    """The attempt's state; LOST in place of a failure that is not the job's doing."""
    error = attempt.get("error")
    if attempt["state"] == "FAILED" and isinstance(error, Mapping) and error.get("kind") in LOST_KINDS:
        return "LOST"
    return str(attempt["state"])


def as_json(value: Any) -> str:
    """A value as it would stand in a file."""
    return json.dumps(value, ensure_ascii=False)


def local_time(text: str) -> str:
    """2026-01-31T03:00:00+01:00 as 2026-01-31 03:00: in the zone that it is told in."""
    return text[:16].replace("T", NBSP)
