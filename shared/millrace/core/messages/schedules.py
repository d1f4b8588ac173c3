"""Schedules: what clients ask about them, what is answered, and how they stand in etcd. A schedule submits a job at each of its times."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from .base import Part, Reply, Request, empty, unless_set

SCHEDULE_RULE = "it begins with a letter or digit, and at most 69 letters, digits, _, . or - follow"
SCHEDULE_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,69}$"
"""A job's id is made of the name and a time, so it is shorter than that."""
ScheduleName = Annotated[str, Field(pattern=SCHEDULE_PATTERN)]
Missed = Literal["skip", "latest", "all"]
Overlap = Literal["skip", "wait"]


class Scheduled(Part):
    """Of a job: which schedule it is of, and for which time."""

    schedule: ScheduleName
    due: Annotated[str, Field(max_length=40)] = ""
    """In the schedule's time zone, such as 2026-01-31T03:00:00+01:00. Empty: somebody asked for this run."""
    time_zone: Annotated[str, Field(max_length=64)] = "UTC"


# Requests


class SetSchedule(Request):
    """Makes a schedule, or replaces the one of this name: times that came before are not made up for. The graph is checked now, and again
    at each run. What it has uploaded is kept for as long as the schedule exists."""

    type: Literal["SetSchedule"] = "SetSchedule"
    version: Literal[1] = 1
    schedule: ScheduleName
    graph: dict[str, Any]
    """The JobGraph. Parameters that it declares by these names have the time of a run: scheduled_time, scheduled_date, previous_time,
    previous_date."""
    parameters: dict[str, str] = empty(dict)
    """Values that override the graph's parameters, also those."""
    cron: Annotated[str, Field(max_length=200)]
    """Minute, hour, day of the month, month, day of the week; or @hourly, @daily, @weekly, @monthly, @yearly."""
    time_zone: Annotated[str, Field(max_length=64)] = "UTC"
    """Of the IANA database, such as Europe/Berlin: `cron` is in its local time."""
    missed: Missed = "latest"
    """Which of the times are run that came while nothing could be submitted: none, the latest, or all (the newest 1,000)."""
    overlap: Overlap = "skip"
    """What becomes of a time at which the run before still goes on."""
    paused: bool = False
    since_ms: Annotated[int, Field(ge=0, lt=1 << 48)] | None = None
    """Unix time in milliseconds: times after it count, also those that have passed. null: those from now on."""


class PauseSchedule(Request):
    """No run of the schedule begins until the same comes with `undo`. Times that come meanwhile are not made up for."""

    type: Literal["PauseSchedule"] = "PauseSchedule"
    version: Literal[1] = 1
    schedule: ScheduleName
    undo: bool = False


class RemoveSchedule(Request):
    """Deletes a schedule. Its jobs stay, also one that runs."""

    type: Literal["RemoveSchedule"] = "RemoveSchedule"
    version: Literal[1] = 1
    schedule: ScheduleName


class RunSchedule(Request):
    """Runs the schedule's graph now, beside its times: as a SubmitJob under this id, and answered as that."""

    type: Literal["RunSchedule"] = "RunSchedule"
    version: Literal[1] = 1
    schedule: ScheduleName
    job: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]
    """Chosen by the client, so that a repeat is known as one."""
    accept_before_ms: int | None = None
    """As of SubmitJob."""


class DescribeSchedule(Request):
    """One schedule: when it runs next, and its last runs."""

    type: Literal["DescribeSchedule"] = "DescribeSchedule"
    version: Literal[1] = 1
    schedule: ScheduleName


class ListSchedules(Request):
    """A page of the schedules, by their names."""

    type: Literal["ListSchedules"] = "ListSchedules"
    version: Literal[1] = 1
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    after: Annotated[str, Field(max_length=100)] = ""
    """`next` of the page before. Empty: the first page."""


# What is answered


class ScheduleSummary(Part):
    """A schedule in one line. Times are texts in its time zone, such as 2026-01-31T03:00:00+01:00."""

    schedule: str
    name: str
    """Of the graph."""
    cron: str
    time_zone: str
    missed: Missed
    overlap: Overlap
    paused: bool
    set_ms: int
    next: list[str]
    """The next times; none while it is paused."""
    last: str | None = None
    """The last time for which a job was accepted."""
    last_job: str | None = None
    due: str | None = None
    """A time that came, and whose job is not accepted yet."""
    due_job: str | None = None
    """The id of that job."""
    problem: str | None = None
    """Why it cannot run any more."""


class ScheduleRun(Part):
    """A run of a schedule, or times that were left out."""

    due: str | None
    """The time that it is for; of several the last one; null: somebody asked for it."""
    job: str | None = None
    state: str | None = None
    """Of the job: one of JobState."""
    accepted_ms: int | None = None
    left_out: str | None = None
    """Why there is no job."""
    times: int = 1
    """How many were left out."""


class ScheduleDescribed(Reply):
    """Answers SetSchedule, PauseSchedule and DescribeSchedule."""

    type: Literal["ScheduleDescribed"] = "ScheduleDescribed"
    version: Literal[1] = 1
    schedule: ScheduleSummary
    runs: list[ScheduleRun] = empty(list)
    """Answers DescribeSchedule alone: newest first, as far as the Dispatcher remembers the jobs."""


class SchedulesListed(Reply):
    """Answers ListSchedules. There may be fewer than `limit`, where more would not fit into one record."""

    type: Literal["SchedulesListed"] = "SchedulesListed"
    version: Literal[1] = 1
    schedules: list[ScheduleSummary]
    next: str | None = None
    """What the next page comes after; null: this is the last one."""


class ScheduleRemoved(Reply):
    """Answers RemoveSchedule: it is gone."""

    type: Literal["ScheduleRemoved"] = "ScheduleRemoved"
    version: Literal[1] = 1
    schedule: str


# In etcd


class StoredSchedule(Part):
    """The value of `schedules/<name>` in etcd. Its graph stands beside it, under `schedule-graphs/<name>`."""

    revision: str
    """Names the SetSchedule that it comes of: one that is carried out twice changes nothing."""
    cron: str
    time_zone: str
    missed: Missed
    overlap: Overlap
    paused: bool = False
    since_ms: int
    """Times after this one count."""
    set_ms: int
    name: str = ""
    """Of the graph."""
    modules: list[str] = empty(list)
    """SHA-256 of uploads that it needs: none of them is swept."""


class ScheduleGraph(Part):
    """What a run is submitted with."""

    graph: dict[str, Any]
    parameters: dict[str, str]


class PendingRun(Part):
    """A time that was decided on, and whose job is not accepted yet."""

    job: str
    due_ms: int
    since_ms: int
    """When it was decided on."""


class LeftOut(Part):
    """Times without a job: the last of them, and how many."""

    due_ms: int
    why: str
    times: Annotated[int, Field(exclude_if=lambda times: times == 1)] = 1


class ScheduleProgress(Part):
    """The value of `schedule-progress/<name>` in etcd: what has become of its times. The leading Dispatcher alone writes it."""

    through_ms: int = 0
    """All times up to this one are decided on."""
    pending: Annotated[PendingRun | None, Field(exclude_if=unless_set)] = None
    last_job: str = ""
    """The job that was accepted last, and its time."""
    last_ms: int = 0
    left_out: list[LeftOut] = empty(list)
    """The newest, oldest first."""
