"""What is answered, as the OpenAPI document has it. Times are milliseconds since 1970, by the cluster's Kafka."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class Shape(BaseModel):
    """A value of an answer."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class AsOf(Shape):
    """Up to where the answer has heard what happened."""

    offsets: dict[str, dict[str, int]]
    """topic -> partition -> offset of the last record that is in the answer."""
    time_ms: int
    """The newest of these records' time stamps; 0: there is none."""


class Health(Shape):
    """Whether the answers can be relied on."""

    status: Literal["ok", "starting", "degraded"]
    """starting: the tables are being brought back. degraded: they do not follow, so that answers are as old as `last_fold_s`."""
    reason: str | None
    """Why it is not ok."""
    last_fold_s: float
    """Seconds since the last record was taken in, or since the tables were brought back. While nothing happens it grows, and all is
    well."""
    as_of: AsOf


class JobRow(Shape):
    """A job. A time that is null is not known: what was said of it lies too far back."""

    job: str
    name: str
    status: str
    accepted_ms: int | None
    since_ms: int | None
    """Since when it has this status."""
    ended_ms: int | None
    waiting: str | None
    """Why it waits for slots; null: it does not."""
    position: int | None
    """Its place in the queue."""


class Attempt(Shape):
    """An attempt of a subtask."""

    attempt: int
    state: str
    task_manager: str | None
    slot: int | None
    error: dict[str, Any] | None
    since_ms: dict[str, int]
    """When it came into each of its states."""


class Subtask(Shape):
    subtask: int
    attempt: int
    """Number of the last attempt; 0: none yet."""
    state: str
    attempts: list[Attempt]
    """The newest ten."""


class Task(Shape):
    task: str
    """Names of its vertices, joined by +; @plan lists the files of sources before they are read."""
    subtasks: list[Subtask]


class JobDetail(JobRow):
    cause: dict[str, Any] | None
    """Why it FAILED."""
    archive: str | None
    """Path on the blob server."""
    tasks: list[Task]


class TaskManagerRow(Shape):
    task_manager: str
    incarnation: int
    host: str
    slots: int
    since_ms: int | None
    gone_ms: int | None
    reason: str | None
    """Why it is gone."""


class SlotRow(Shape):
    task_manager: str
    slot: int
    state: str
    """STARTING, FREE, ACTIVE (an attempt is in it) or BROKEN."""
    job: str | None
    task: str | None
    subtask: int | None
    attempt: int | None
    reason: str | None
    """Why it is BROKEN."""


class LeaderRow(Shape):
    """Who was last elected for a scope. That it still lives is not said here."""

    scope: str
    leader: str
    epoch: int
    generation: int
    since_ms: int


class Jobs(Shape):
    as_of: AsOf
    total: int
    """How many there are; `jobs` has those of the page asked for."""
    jobs: list[JobRow]


class Job(Shape):
    as_of: AsOf
    job: JobDetail


class TaskManagers(Shape):
    as_of: AsOf
    task_managers: list[TaskManagerRow]


class Slots(Shape):
    as_of: AsOf
    slots: list[SlotRow]


class Leaders(Shape):
    as_of: AsOf
    leaders: list[LeaderRow]


class Overview(Shape):
    as_of: AsOf
    jobs: dict[str, int]
    """How many jobs there are of each status."""
    slots: dict[str, int]
    """How many slots there are of each state."""
    task_managers: int
    leaders: int


class Refusal(Shape):
    error: str
