"""Schedules as they stand in etcd: three keys each. What a client has set, its graph, and what has become of its times.

The graph is apart, for it may have 256 KiB, and each run writes the progress. The ports alone write the first two, and the leader's thread
the third, so neither changes what the other is looking at.
"""

from __future__ import annotations

import itertools
import re
from typing import Any, NamedTuple, TypeVar

import structlog
from pydantic import ValidationError

from millrace.core.messages.base import Part
from millrace.core.messages.schedules import (
    SCHEDULE_PATTERN,
    ScheduleProgress,
    ScheduleRun,
    ScheduleSummary,
    StoredSchedule,
)
from millrace.io.interfaces import Entry, Store, pages

from . import times

SCHEDULES, GRAPHS, PROGRESS = "schedules/", "schedule-graphs/", "schedule-progress/"
NEXT_MOST = 5

P = TypeVar("P", bound=Part)
log = structlog.get_logger("schedules")


class Unreadable(ValueError):
    """What stands under a schedule's key is none of ours: somebody else's, or damaged. The trouble of that schedule alone."""


def read(kind: type[P], entry: Entry) -> P:
    """Raises Unreadable."""
    name = entry.key.partition("/")[2]
    if not re.fullmatch(SCHEDULE_PATTERN, name):
        raise Unreadable(f"{entry.key[:200]!r} in etcd is the key of no schedule")
    try:
        return kind.model_validate_json(entry.value)
    except ValidationError as failure:
        first = failure.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise Unreadable(f"what etcd holds under {entry.key} cannot be read ({where + ': ' if where else ''}{first['msg']})") from None


def value_of(part: Part) -> bytes:
    return part.model_dump_json().encode()


def progress_of(entry: Entry | None) -> ScheduleProgress:
    """What cannot be read is begun anew: of the times that came, the jobs say which were run."""
    try:
        return read(ScheduleProgress, entry) if entry is not None else ScheduleProgress()
    except Unreadable as reason:
        log.error("what became of a schedule's times is not known", reason=str(reason))
        return ScheduleProgress()


class InUse(NamedTuple):
    """What schedules need of what is swept."""

    uploads: frozenset[str]
    """SHA-256."""
    jobs: frozenset[str]
    """Ids under which runs may be submitted again."""
    known: bool
    """Whether that is all: one of them may be unreadable."""


def in_use(store: Store) -> InUse:
    """Raises Unavailable."""
    uploads: set[str] = set()
    known = True
    for entry in pages(store, SCHEDULES):
        try:
            uploads |= set(read(StoredSchedule, entry).modules)
        except Unreadable as reason:
            log.error("uploads are not swept while a schedule cannot be read: remove it, or set it again", reason=str(reason))
            known = False
    pending = (progress_of(entry).pending for entry in pages(store, PROGRESS))
    return InUse(frozenset(uploads), frozenset(run.job for run in pending if run is not None), known)


def summary(name: str, stored: StoredSchedule, progress: ScheduleProgress, wall_ms: int) -> ScheduleSummary:
    """As clients are shown it."""
    known: dict[str, Any] = {
        "schedule": name, "name": stored.name, "cron": stored.cron, "time_zone": stored.time_zone, "missed": stored.missed,
        "overlap": stored.overlap, "paused": stored.paused, "set_ms": stored.set_ms, "last_job": progress.last_job or None,
    }  # fmt: skip
    try:
        following = () if stored.paused else times.after(stored.cron, stored.time_zone, max(wall_ms, stored.since_ms))
        run, zone = progress.pending, stored.time_zone
        return ScheduleSummary(
            **known,
            next=[times.text(ms, zone) for ms in itertools.islice(following, NEXT_MOST)],
            last=times.text(progress.last_ms, zone) if progress.last_job else None,
            due=times.text(run.due_ms, zone) if run is not None else None,
            due_job=run.job if run is not None else None,
        )
    except times.NoTimes as failure:
        return ScheduleSummary(**known, next=[], problem=str(failure))


def runs_left_out(stored: StoredSchedule, progress: ScheduleProgress) -> list[ScheduleRun]:
    """Newest first."""
    try:
        return [
            ScheduleRun(due=times.text(each.due_ms, stored.time_zone), left_out=each.why, times=each.times)
            for each in reversed(progress.left_out)
        ]
    except times.NoTimes:
        return []
