"""Schedules: jobs that are submitted by cron, whoever dies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from millrace.core.messages.schedules import (
    SCHEDULE_RULE,
    DescribeSchedule,
    ListSchedules,
    PauseSchedule,
    RemoveSchedule,
    ScheduleDescribed,
    ScheduleRemoved,
    SchedulesListed,
    ScheduleSummary,
    SetSchedule,
)

from . import errors
from .session import Session

PAGE_MOST = 1_000
"""Schedules on a page."""


class Schedules(Session):
    """The calls about schedules, but for `run_schedule`, which is a submission."""

    def set_schedule(
        self,
        schedule: str,
        graph: Mapping[str, Any],
        cron: str,
        time_zone: str = "UTC",
        parameters: Mapping[str, str] | None = None,
        uploads: Mapping[str, Path | bytes] | None = None,
        env: Mapping[str, str] | None = None,
        **policy: Any,
    ) -> ScheduleSummary:
        """Makes a schedule, or replaces the one of this name, and returns once it is stored: its jobs will run, whatever dies.

        - cron: minute, hour, day of the month, month, day of the week, in the local time of `time_zone` (as Europe/Berlin).
        - parameters, uploads, env: as of `submit`, for each run. What is uploaded is kept as long as the schedule.
        - policy: other fields of SetSchedule: missed="skip" | "latest" | "all", overlap="skip" | "wait", paused=True, since_ms=...

        Raises Invalid with all that is wrong, Refused, OutcomeUnknown."""
        graph = self._uploaded(graph, uploads, env)
        fields = {"schedule": schedule, "graph": graph, "cron": cron, "time_zone": time_zone, "parameters": dict(parameters or {})}
        return self._ask(_request(SetSchedule, {**fields, **policy}), ScheduleDescribed).schedule

    def schedule(self, schedule: str) -> ScheduleDescribed:
        """When it runs next, and its last runs. Raises NotFound."""
        return self._ask(_request(DescribeSchedule, {"schedule": schedule}), ScheduleDescribed)

    def schedules(self) -> Iterator[ScheduleSummary]:
        """All of them, by their names, page by page."""
        after: str | None = ""
        while after is not None:
            page = self._ask(ListSchedules(limit=PAGE_MOST, after=after), SchedulesListed)
            yield from page.schedules
            after = page.next

    def pause_schedule(self, schedule: str, undo: bool = False) -> ScheduleSummary:
        """No run begins until the same is said with `undo`; times that come meanwhile are not made up for. Raises NotFound."""
        return self._ask(_request(PauseSchedule, {"schedule": schedule, "undo": undo}), ScheduleDescribed).schedule

    def remove_schedule(self, schedule: str) -> None:
        """Its jobs stay, also one that runs. Raises NotFound."""
        self._ask(_request(RemoveSchedule, {"schedule": schedule}), ScheduleRemoved)


def name_rule(name: object) -> str:
    """What is said of what is no name of a schedule."""
    return f"{name!r} is no name of a schedule: {SCHEDULE_RULE}"


def _request(kind: type[Any], fields: dict[str, Any]) -> Any:
    """Raises Invalid."""
    try:
        return kind(**fields)
    except ValidationError as wrong:
        first = wrong.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise errors.Invalid(name_rule(first["input"]) if where == "schedule" else f"{where}: {first['msg']}") from None
