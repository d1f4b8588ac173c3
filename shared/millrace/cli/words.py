"""Words in which commands show things: states, tasks, numbers, lengths of time, and what a stranger wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millrace.core.states import ExecutionState

COLORS: dict[str, str] = {
    ExecutionState.FINISHED: "green", ExecutionState.RUNNING: "cyan", ExecutionState.FAILED: "red",
    ExecutionState.CANCELED: "yellow", ExecutionState.CANCELING: "yellow",
}  # fmt: skip
FIGURES = ("tasks", "read", "written", "shuffle read", "shuffle written", "spilled", "memory", "ran", "cpu", "gc")


def label(task: str) -> str:
    """A task by its vertices, readable also when there are many."""
    names = task.split("+")
    return task if len(names) <= 4 else f"{names[0]}+...+{names[-1]} ({len(names)} vertices)"


def printable(text: str) -> str:
    """What a stranger wrote, as it may be printed: control characters would speak to the terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def one_line(text: str) -> str:
    """`printable`, on one line: a name that begins a line of its own would speak as if it were ours."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def short(number: int) -> str:
    """A number to be read at a glance: 950, 1.2 k, 34 M."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= size:
            return f"{number / size:.1f} {unit}" if number < 10 * size else f"{number // size} {unit}"
    return str(number)


def size(number: int) -> str:
    """Bytes to be read at a glance."""
    return f"{short(number)}B" if number >= 1000 else f"{number} B"


def progress_line(progress: dict[str, Any]) -> str:
    """How far an attempt is, in a few words; nothing before its first Spark job."""
    if not progress["stages_total"]:
        return ""
    failed = f" ({progress['tasks_failed']} failed)" if progress["tasks_failed"] else ""
    words = [
        f"stages {progress['stages_done']}/{progress['stages_total']}",
        f"tasks {progress['tasks_done']}/{progress['tasks_total']}{failed}",
    ]
    if rows := max(progress["rows_read"], progress["rows_written"]):
        words.append(f"{short(rows)} rows")
    if progress["rows_per_s"]:
        words.append(f"{short(progress['rows_per_s'])} rows/s")
    for name, what in (
        ("bytes_read", "read"), ("bytes_written", "written"), ("bytes_shuffled", "shuffled"), ("bytes_spilled_disk", "spilled"),
    ):  # fmt: skip
        if number := progress.get(name):  # none of a build that does not count them
            words.append(f"{size(number)} {what}")
    return ", ".join(words)


def figures(progress: Mapping[str, Any]) -> tuple[str, ...]:
    """What the Spark of an attempt has done, in the order of FIGURES; "-": its build does not count it."""

    def moved(direction: str, rows: str) -> str:
        if progress.get(direction) is None:
            return "-"
        return f"{size(progress[direction])}, {short(progress[rows] or 0)} rows" if progress[direction] or progress[rows] else "0"

    def length(name: str) -> str:
        return "-" if progress.get(name) is None else f"{progress[name] / 1000:.1f} s"

    failed = f" ({progress['tasks_failed']} failed)" if progress["tasks_failed"] else ""
    spilled, peak = progress.get("bytes_spilled_disk"), progress.get("bytes_memory_peak")
    return (
        f"{progress['tasks_done']}/{progress['tasks_total']}{failed}",
        moved("bytes_read", "rows_read"), moved("bytes_written", "rows_written"),
        moved("bytes_shuffle_read", "rows_shuffle_read"), moved("bytes_shuffled", "rows_shuffled"),
        "-" if spilled is None else size(spilled), "-" if peak is None else size(peak),
        length("run_ms"), length("cpu_ms"), length("gc_ms"),
    )  # fmt: skip


def took(start_ms: int | None, end_ms: int | None) -> str:
    """A length of time as people say it: 0.4 s, 2 m 5 s, 3 h 12 m."""
    if not start_ms or not end_ms or end_ms < start_ms:
        return ""
    seconds = (end_ms - start_ms) / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} m {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} m"


def place(position: int | None, expected_ms: int | None, wall_ms: int, where: str = "") -> str:
    """Of a job that waits: its number, and in how much time it has its slots, if that is known."""
    if not position:
        return ""
    until = left(expected_ms, wall_ms)
    return f" (number {position}{where}{f', in about {until}' if until else ''})"


def left(expected_ms: int | None, wall_ms: int) -> str:
    """Until a job is expected to have its slots; empty where that is not known, or has passed."""
    return took(wall_ms, expected_ms) if expected_ms is not None and expected_ms > wall_ms else ""


def minute(text: str | None) -> str:
    """2026-01-31T03:00:00+01:00 as 2026-01-31 03:00."""
    return (text or "")[:16].replace("T", " ")
