"""The times of a schedule: pure functions of its cron expression, its time zone, and given times. All are Unix time in milliseconds.

Cron is Debian's, as `cronsim` has it. Where clocks are put forward, a time that does not exist is the first one after the gap. Where they
are put back, a time that exists twice is the first of the two. Expressions that begin with * in minute or hour go by real time.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, available_timezones

from millrace.core.jobgraph.problems import Problem

if TYPE_CHECKING:
    from cronsim import CronSim

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
FIELDS = "minute, hour, day of the month, month, day of the week, as in 0 3 * * 1-5; or @hourly, @daily, @weekly, @monthly, @yearly"
ZONES = "a name of the IANA database, as Europe/Berlin or UTC"
PARAMETERS = ("scheduled_time", "scheduled_date", "previous_time", "previous_date")
LOCAL = "localtime"  # of the machine, and each leader may have another one


class NoTimes(ValueError):
    """The expression or the time zone is none, here: another machine may know more zones."""


def problems(cron: str, time_zone: str, wall_ms: int) -> list[Problem]:
    """What is wrong with them, for who sets a schedule."""
    found = []
    try:
        _zone(time_zone)
    except NoTimes as failure:
        near = difflib.get_close_matches(time_zone, available_timezones() - {LOCAL}, 1)
        found.append(Problem(("time_zone",), str(failure), f"did you mean {near[0]}?" if near else f"give {ZONES}"))
    try:
        if next(after(cron, "UTC", wall_ms), None) is None:
            found.append(Problem(("cron",), f"{cron!r} never comes: no day within 50 years is meant", f"give {FIELDS}"))
    except NoTimes as failure:
        found.append(Problem(("cron",), str(failure), f"give {FIELDS}"))
    return found


def after(cron: str, time_zone: str, ms: int) -> Iterator[int]:
    """The times after this one, in order. Raises NoTimes."""
    return _iterated(cron, time_zone, ms - ms % 1000, reverse=False)


def until(cron: str, time_zone: str, ms: int) -> Iterator[int]:
    """The times up to this one, newest first. Raises NoTimes."""
    return _iterated(cron, time_zone, ms - ms % 1000 + 1000, reverse=True)


def between(cron: str, time_zone: str, after_ms: int, until_ms: int, most: int) -> list[int]:
    """The newest `most` times of those after the one and up to the other, oldest first. Raises NoTimes."""
    found = itertools.takewhile(lambda ms: ms > after_ms, until(cron, time_zone, until_ms))
    return list(itertools.islice(found, most))[::-1]


def text(ms: int, time_zone: str) -> str:
    """In local time, as 2026-01-31T03:00:00+01:00. Raises NoTimes."""
    return _local(ms, time_zone).isoformat(timespec="seconds")


def job_id(schedule: str, ms: int) -> str:
    """The id of the job for this time: in UTC, which has each time once. It alone makes a run that is submitted twice one job."""
    return f"{schedule}-{datetime.fromtimestamp(ms // 1000, timezone.utc):%Y%m%dT%H%MZ}"


def parameters(graph: Mapping[str, Any], given: Mapping[str, str], cron: str, time_zone: str, ms: int) -> dict[str, str]:
    """The values that a run for this time is submitted with: the given ones, and times where the graph declares them. Raises NoTimes."""
    declared = graph.get("parameters")
    wanted = [each for each in PARAMETERS if isinstance(declared, Mapping) and each in declared and each not in given]
    if not wanted:
        return dict(given)
    previous = next(until(cron, time_zone, ms - 1000), ms)
    local = {"scheduled": _local(ms, time_zone), "previous": _local(previous, time_zone)}
    times = {f"{name}_time": when.isoformat(timespec="seconds") for name, when in local.items()}
    dates = {f"{name}_date": when.date().isoformat() for name, when in local.items()}
    return {**{name: {**times, **dates}[name] for name in wanted}, **given}


def _iterated(cron: str, time_zone: str, ms: int, reverse: bool) -> Iterator[int]:
    try:
        for each in _simulated(cron, datetime.fromtimestamp(ms // 1000, _zone(time_zone)), reverse):
            yield round(each.timestamp()) * 1000
    except (OverflowError, OSError):  # the year 9999, or 1
        return


def _simulated(cron: str, when: datetime, reverse: bool) -> CronSim:
    from cronsim import CronSim, CronSimError

    expression = ALIASES.get(cron.strip().lower(), cron)
    if len(expression.split()) != 5:
        raise NoTimes(f"{cron!r} is no cron expression: it has {len(expression.split())} fields, not 5")
    try:
        return CronSim(expression, when, reverse)
    except (CronSimError, ValueError, TypeError, AssertionError) as failure:
        raise NoTimes(f"{cron!r} is no cron expression: {str(failure)[:1].lower()}{str(failure)[1:] or 'not understood'}") from None


def _local(ms: int, time_zone: str) -> datetime:
    return datetime.fromtimestamp(ms // 1000, _zone(time_zone))


def _zone(name: str) -> ZoneInfo:
    try:
        if name == LOCAL or name.startswith("."):
            raise ValueError
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError; a folder of zones is an OSError
        raise NoTimes(f"{name!r} is no time zone") from None
