"""What of the client library is about schedules, over plain values: a cluster that has the schedule `j`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from millrace.client import Invalid, Job, NotFound
from millrace.core.messages.client import Problem
from millrace.core.messages.schedules import ScheduleDescribed, ScheduleRun, ScheduleSummary


def summary(schedule: str, **fields: Any) -> ScheduleSummary:
    known = {"name": "n", "cron": "0 3 * * *", "time_zone": "UTC", "missed": "latest", "overlap": "skip", "paused": False, "set_ms": 1}
    return ScheduleSummary(**{"schedule": schedule, **known, "next": ["2026-01-31T03:00:00+00:00"], **fields})


class Scheduled:
    """Of a client."""

    def __init__(self) -> None:
        self.changed: list[tuple[Any, ...]] = []

    def schedules(self) -> Iterator[ScheduleSummary]:
        return iter([summary("j")])

    def schedule(self, schedule: str) -> ScheduleDescribed:
        self._known_schedule(schedule)
        runs = [
            ScheduleRun(due=None, job="by-hand", state="RUNNING", accepted_ms=1),
            ScheduleRun(due="2026-01-30T03:00:00+00:00", left_out="it was missed", times=3),
        ]
        return ScheduleDescribed(correlation="1", schedule=summary(schedule), runs=runs)

    def set_schedule(
        self, schedule: str, graph: Any, cron: str, time_zone: str, parameters: Any, uploads: Any, env: Any, **policy: Any
    ) -> ScheduleSummary:
        self.changed.append(("set", schedule, cron, time_zone, parameters, policy))
        if not re.fullmatch(r"(\S+ ){4}\S+", cron):
            message = f"{cron!r} is no cron expression"
            raise Invalid(message, [Problem(place=["cron"], message=message, hint="give five fields")])
        return summary(schedule)

    def pause_schedule(self, schedule: str, undo: bool = False) -> ScheduleSummary:
        self._known_schedule(schedule)
        self.changed.append(("resume" if undo else "pause", schedule))
        return summary(schedule, paused=not undo)

    def remove_schedule(self, schedule: str) -> None:
        self._known_schedule(schedule)
        self.changed.append(("remove", schedule))

    def run_schedule(self, schedule: str, job: str, watch: bool) -> Job:
        self._known_schedule(schedule)
        self.changed.append(("run", schedule, job))
        return Job(None, job, "INITIALIZING", [], None)  # type: ignore[arg-type]  # it is asked nothing

    def close(self) -> None: ...

    @staticmethod
    def _known_schedule(schedule: str) -> None:
        if schedule != "j":
            raise NotFound(f"there is no schedule {schedule}")
