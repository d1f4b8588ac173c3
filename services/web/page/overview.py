"""What the overview shows: the sentence, what needs somebody, and the last hour. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .listing import going_on
from .timeline import begun, ended
from .words import count, first_line, is_for_slots

Row = Mapping[str, Any]
HOUR_MS = 3_600_000
STEPS = 120
FAILED_SHOWN_MS = 24 * HOUR_MS
NEEDS_MOST = 6
SHOWN_MOST = 6


@dataclass(frozen=True)
class Need:
    """Something that needs somebody: what, since when, why, and where to go."""

    icon: str
    tone: str
    what: str
    more: str
    since_ms: int | None
    why: str
    href: str
    door: str


@dataclass(frozen=True)
class Course:
    """Slots in use and jobs in the queue over the last hour, as paths on a ground of 1000 by 100, and what they say."""

    used: str
    used_area: str
    waiting: str
    most: int
    waiting_most: int
    summary: str


def headline(states: Mapping[str, int], broken: int, recent_failed: int, members: int) -> str:
    """By rule from the counts, worst first."""
    findings = []
    if recent_failed:
        findings.append(f"{count(recent_failed, 'job')} failed in the last day")
    if waiting := states.get("WAITING", 0):
        findings.append(f"{count(waiting, 'job')} {'waits' if waiting == 1 else 'wait'}")
    if broken:
        findings.append(f"{count(broken, 'slot')} {'is' if broken == 1 else 'are'} broken")
    if not members:
        findings.append("no TaskManager is here")
    if not findings:
        return "All is well"
    return f"{', '.join(findings)}{', the rest is well' if members else ''}".capitalize()


def needs(
    failed: Sequence[Row], waiting: Sequence[Row], slots: Sequence[Row], members: int, gone: Sequence[Row], wall_ms: int, prefix: str
) -> Iterator[Need]:
    """Worst first."""
    if not members:
        yield Need("taskmanagers", "bad", "No TaskManager is here", "", None, "Jobs wait until one registers: millrace up starts them.",
                   f"{prefix}/taskmanagers", "TaskManagers")  # fmt: skip
    for row in failed[:3]:
        why, _ = going_on(row, {"tasks": []}, "FAILED")
        yield Need("failed", "bad", row["job"], "failed", row["ended_ms"], why, f"{prefix}/jobs/{row['job']}", "Open")
    if waiting:
        first = min(waiting, key=lambda row: row["position"] or 1 << 30)
        stuck = sum(row["position"] is None for row in waiting)
        more = f", {count(stuck, 'of them fits', 'of them fit')} into no slot" if stuck else ""
        what = f"{count(len(waiting), 'job')} {'waits' if len(waiting) == 1 else 'wait'} for slots"
        yield Need("waiting", "wait", what, more.lstrip(", "), first["since_ms"], first_line(first["waiting"]), f"{prefix}/queue", "Queue")
    for slot in slots:
        if slot["state"] == "BROKEN":
            yield Need("warn", "bad", f"Slot {slot['slot']} of {slot['task_manager']}", "is broken", None,
                       first_line(slot["reason"] or ""), f"{prefix}/taskmanagers/{slot['task_manager']}", "Slot")  # fmt: skip
    for row in gone:
        if (row["gone_ms"] or 0) > wall_ms - HOUR_MS:
            yield Need("lost", "off", row["task_manager"], "is gone", row["gone_ms"], first_line(row["reason"] or ""),
                       f"{prefix}/taskmanagers/{row['task_manager']}", "Look")  # fmt: skip


def course(attempts: Iterable[Row], past: Iterable[tuple[int, int]], total: int, wall_ms: int) -> Course:
    """`attempts`: those that may have been in a slot in the last hour. `past`: from when to when jobs waited."""
    first = wall_ms - HOUR_MS
    used, waited = [0] * (STEPS + 1), [0] * (STEPS + 1)
    for each in attempts:
        if (start := begun(each)) is not None:
            _mark(used, start, ended(each) or wall_ms, first)
    for since, until in past:
        _mark(waited, since, until, first)
    most, most_waiting = max([total, 1, *used]), max([1, *waited])
    line, area = _path(used, most), _area(used, most)
    low, high = min(used), max(used)
    in_use = f"Over the last hour between {low} and {high} slots were in use; {total} are registered now."
    summary = f"{in_use} At most {max(waited)} jobs waited."
    return Course(line, area, _area(waited, most_waiting), most, max(waited), summary)


def _mark(steps: list[int], since: int, until: int, first: int) -> None:
    """Counts it at each moment that is looked at: no moment is counted for what was over before, or began after."""
    step = HOUR_MS / STEPS
    low, high = max(0, int((since - first) / step + 0.999999)), min(STEPS, int((until - first) / step))
    for n in range(low, high + 1):
        steps[n] += 1


def _path(values: Sequence[int], most: int) -> str:
    wide = 1000 / STEPS
    path, before = [f"M0 {_y(values[0], most)}"], values[0]
    for n, value in enumerate(values[1:], 1):
        if value != before:
            path.append(f"H{n * wide:.1f}V{_y(value, most)}")
        before = value
    return "".join(path) + "H1000"


def _area(values: Sequence[int], most: int) -> str:
    return f"{_path(values, most)}V100H0Z"


def _y(value: int, most: int) -> str:
    return f"{100 - 100 * value / most:.1f}"


def is_wait(fact: Row) -> bool:
    """Whether a fact of a job says that it waits for slots."""
    return fact["kind"] == "JobWaiting" and is_for_slots(fact.get("reason", ""))


def attempts_of(described: Iterable[Row]) -> Iterator[Row]:
    """All attempts of jobs."""
    for job in described:
        for task in job["tasks"]:
            for subtask in task["subtasks"]:
                yield from subtask["attempts"]


def waits_of(row: Row, described: Row, wall_ms: int) -> Iterator[tuple[int, int]]:
    """From when to when a job waited for its first slot, as far as its facts tell."""
    since = next((each["at_ms"] for each in row.get("past", ()) if is_wait(each)), None)
    if since is not None:
        starts = [start for each in attempts_of([described]) if (start := begun(each)) is not None and start >= since]
        yield since, min(starts, default=row["ended_ms"] or wall_ms)
