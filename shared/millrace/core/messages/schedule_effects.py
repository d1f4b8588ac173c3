"""Effects of the Dispatcher on schedules in etcd, and their outcomes. `number`: of the request that waits for it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .base import Body, empty, unless_set
from .schedules import ScheduleGraph, ScheduleRun, ScheduleSummary, StoredSchedule


class StoreSchedule(Body):
    """Puts a schedule with its graph, whatever stands there, unless it stands there already; its uploads become young."""

    type: Literal["StoreSchedule"] = "StoreSchedule"
    version: Literal[1] = 1
    number: int
    schedule: str
    stored: StoredSchedule
    graph: ScheduleGraph


class ScheduleStored(Body):
    """It stands in etcd; or, if there is a `problem`, nothing was put."""

    type: Literal["ScheduleStored"] = "ScheduleStored"
    version: Literal[1] = 1
    number: int
    summary: ScheduleSummary | None = None
    problem: str | None = None


class ChangeSchedule(Body):
    """Pauses, resumes or removes a schedule. One that is resumed makes up for no time before `at_ms`."""

    type: Literal["ChangeSchedule"] = "ChangeSchedule"
    version: Literal[1] = 1
    number: int
    schedule: str
    change: Literal["pause", "resume", "remove"]
    at_ms: int


class ScheduleChanged(Body):
    """`summary`: as it stands now. Without it there was none, or it is removed: `found`."""

    type: Literal["ScheduleChanged"] = "ScheduleChanged"
    version: Literal[1] = 1
    number: int
    found: bool
    summary: ScheduleSummary | None = None
    problem: str | None = None
    """What stands there cannot be read."""


class FindSchedules(Body):
    """Reads one schedule, or a page of all behind the name `after`. `run_at_ms`: with what a run at that moment is submitted with."""

    type: Literal["FindSchedules"] = "FindSchedules"
    version: Literal[1] = 1
    number: int
    schedule: str = ""
    after: str = ""
    limit: int = 1
    run_at_ms: Annotated[int | None, Field(exclude_if=unless_set)] = None


class SchedulesFound(Body):
    """What stands there. Of one that was asked for by its name there may be none, or it cannot be read: `problem`."""

    type: Literal["SchedulesFound"] = "SchedulesFound"
    version: Literal[1] = 1
    number: int
    schedules: list[ScheduleSummary]
    next: str | None = None
    """The name that the next page comes after; null: this is the last one."""
    left_out: list[ScheduleRun] = empty(list)
    graph: ScheduleGraph | None = None
    problem: str | None = None
