"""Which jobs a list shows: what is searched for, in which order, from where on. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from millrace.core.states import ENDED_JOB, ExecutionState

from .words import JOBS, count, first_line, label

PAGE = 50
AGES = {"s": 1, "m": 60, "h": 3600, "d": 86400}
Row = Mapping[str, Any]
SORTS: dict[str, Callable[[Row], Any]] = {
    "accepted": lambda row: row["accepted_ms"] or 0,
    "name": lambda row: (row["name"] or "").lower(),
    "state": lambda row: row["status"],
    "took": lambda row: (row["ended_ms"] or 1 << 53) - (row["accepted_ms"] or 0),
}


@dataclass(frozen=True)
class Wanted:
    """What somebody typed: words, and `state:`, `tm:`, `since:`."""

    words: tuple[str, ...] = ()
    states: frozenset[str] = frozenset()
    task_manager: str = ""
    since_ms: int = 0
    wrong: tuple[str, ...] = field(default=())
    """What is not understood, in sentences."""


def wanted(text: str, wall_ms: int) -> Wanted:
    """A part that is not understood is named, and looks for nothing."""
    words, states, wrong, task_manager, since_ms = [], set(), [], "", 0
    for part in text.split():
        name, colon, value = part.partition(":")
        if not colon or name not in ("state", "tm", "since"):
            words.append(part.lower())
        elif name == "tm":
            task_manager = value
        elif name == "since":
            age = re.fullmatch(r"([0-9]{1,6})([smhd])", value)
            if age:
                since_ms = wall_ms - int(age.group(1)) * AGES[age.group(2)] * 1000
            else:
                wrong.append(f"since:{value} is no age: write since:30m, since:2h or since:3d")
        elif value.lower() == "live":
            states |= {each for each in JOBS if each not in ENDED_JOB}
        elif value.upper() in JOBS:
            states.add(value.upper())
        else:
            wrong.append(f"state:{value} is no state: there are {', '.join(each.lower() for each in JOBS)}, and live")
    return Wanted(tuple(words), frozenset(states), task_manager, since_ms, tuple(wrong))


@dataclass(frozen=True)
class Page:
    """A page of the list."""

    rows: tuple[Row, ...]
    total: int
    newer: int
    """Jobs that have come since, and are held back."""
    first: int


def page(
    rows: Sequence[Row], want: Wanted, state: Callable[[Row], str], there: Set[str] | None, sort: str, down: bool,
    start: int, upto: tuple[int, str] | None,
) -> Page:  # fmt: skip
    """`state`: as it is shown; `there`: the jobs that ran on the wanted TaskManager; None: none is wanted. `upto`: nothing that was
    accepted after this job."""
    found = [row for row in rows if _fits(row, want, state, there)]
    kept = found if upto is None else [row for row in found if (row["accepted_ms"] or 0, row["job"]) <= upto]
    key = SORTS[sort]
    kept.sort(key=lambda row: (key(row), row["accepted_ms"] or 0, row["job"]), reverse=down)
    start = min(start, max(0, (len(kept) - 1) // PAGE * PAGE))
    return Page(tuple(kept[start : start + PAGE]), len(kept), len(found) - len(kept), start)


def _fits(row: Row, want: Wanted, state: Callable[[Row], str], there: Set[str] | None) -> bool:
    if want.since_ms and (row["accepted_ms"] or 0) < want.since_ms:
        return False
    if want.states and state(row) not in want.states:
        return False
    if want.words:
        text = f"{row['job']} {row['name']} {(row['cause'] or {}).get('message', '')}".lower()
        if not all(word in text for word in want.words):
            return False
    return there is None or row["job"] in there


def going_on(row: Row, described: Row, shown: str) -> tuple[str, str]:
    """What is going on with a job, in words, and the colour of it."""
    if shown == "FAILED" or (row["cause"] and shown == "FAILING"):
        cause = row["cause"] or {}
        place = f"{cause['file']}:{cause['line']}: " if cause.get("file") and cause.get("line") else ""
        where = f"{cause['vertex']}: " if cause.get("vertex") else ""
        return f"{where}{place}{first_line(str(cause.get('message') or cause.get('kind') or 'no cause is known'))}", "bad"
    if shown == "WAITING":
        return (f"place {row['position']}: " if row["position"] else "") + first_line(row["waiting"]), ""
    tasks = [task for task in described["tasks"] if task["task"] != "@plan"]
    if shown == "FINISHED":
        return (count(row["rows"], "row") if row.get("rows") is not None else ""), ""
    words = []
    for task in tasks:
        states = [each["state"] for each in task["subtasks"]]
        if shown == "RESTARTING" and "FAILED" in states:
            error = next((each["attempts"][-1]["error"] or {} for each in task["subtasks"] if each["state"] == "FAILED"), {})
            why = first_line(str(error.get("message") or error.get("kind") or "it failed"))
            words.append(f"{label(task['task'])} is tried again: {why}")
        elif any(state in (ExecutionState.RUNNING, ExecutionState.DEPLOYING, ExecutionState.FAILED) for state in states):
            done = states.count("FINISHED")
            words.append(label(task["task"]) if len(states) == 1 else f"{label(task['task'])} {done} of {len(states)}")
    following = next((task["task"] for task in tasks if all(each["state"] == "CREATED" for each in task["subtasks"])), None)
    if words and following is not None and shown == "RUNNING":
        words[-1] += f", then {label(following)}"
    if not words and any(task["task"] == "@plan" for task in described["tasks"]) and shown == "RUNNING":
        words = ["is being planned"]
    return ", ".join(words[:3]) + (f" and {len(words) - 3} more" if len(words) > 3 else ""), ""
