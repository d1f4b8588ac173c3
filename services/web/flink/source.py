"""What Flink's answers are made of: the view, and a job as it stands there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeVar

from millrace.client import NotFound
from millrace.core.states import (
    ENDED_BY,
    ENDED_EXECUTION,
    ENDED_JOB,
    IN_SLOT,
    INITIALIZING,
    NOT_DEPLOYED,
    ExecutionState,
    JobStatus,
)

from .. import problems
from ..asked import Commands, asked, row_of
from ..commands import NotAnswered
from ..core.facts import Row
from ..view import View
from .errors import Refusal, no_leader
from .ids import HEX, JobIds, job_id, vertex_id

T = TypeVar("T")
JOB_STATES = (*(status.value for status in JobStatus), INITIALIZING, "SUSPENDED", "RECONCILING")
ENTERED_BY = {**ENDED_BY, "JobCancelling": JobStatus.CANCELLING.value}
"""Type of an event of a job that names no status -> the one that it has from then on."""
TASK_STATES = (*(state.value for state in ExecutionState), "RECONCILING", INITIALIZING)
AT_ONCE = 500
"""Jobs of which summaries are made while the view is held."""


def clock_ms() -> int:
    return int(time.time() * 1000)


@dataclass(frozen=True)
class Attempt:
    """An attempt of a subtask."""

    subtask: int
    row: Mapping[str, Any]
    until_ms: int
    """What has not ended lasts until then: now, or when its job ended."""
    beside: tuple[Attempt, ...] = ()
    """Of a subtask's current attempt: those that live, or lived, beside it."""

    @property
    def number(self) -> int:
        """Flink counts from 0."""
        return max(0, int(self.row["attempt"]) - 1)

    @property
    def state(self) -> str:
        return str(self.row["state"])

    @property
    def task_manager(self) -> str:
        return str(self.row["task_manager"] or "(unassigned)")

    @property
    def times(self) -> Mapping[str, int]:
        """When it came into each of its states."""
        times: Mapping[str, int] = self.row["since_ms"]
        return times

    @property
    def start_ms(self) -> int:
        """Flink's attempts start as they are deployed."""
        return min((ms for state, ms in self.times.items() if state not in NOT_DEPLOYED), default=-1)

    @property
    def end_ms(self) -> int:
        return self.times.get(self.state, -1) if self.state in ENDED_EXECUTION else -1

    @property
    def progress(self) -> Mapping[str, int]:
        """What it reported last; empty: nothing yet."""
        return self.row.get("progress") or {}


NO_ATTEMPT: Row = {"attempt": 0, "state": "CREATED", "task_manager": None, "slot": None, "error": None, "since_ms": {}}


@dataclass(frozen=True)
class Task:
    """A task of a job, which is one vertex of Flink's plan."""

    name: str
    subtasks: list[Row]
    inputs: list[Row]
    """The tasks whose rows it reads: `task` and `edge` of each, as far as they are known."""
    wall_ms: int
    created_ms: int = 0
    """When the job's subtasks were CREATED; 0: that is not known."""
    job_end_ms: int = -1
    """-1: the job lives."""

    @property
    def id(self) -> str:
        return vertex_id(self.name)

    @cached_property
    def current(self) -> list[Attempt]:
        """The last attempt of each subtask; one that was never deployed has a blank one."""
        created = {ExecutionState.CREATED.value: self.created_ms} if self.created_ms else {}
        return [
            self._current(each, {**NO_ATTEMPT, "state": each["state"], "since_ms": {} if each.get("kept_from") else created})
            for each in self.subtasks
        ]  # when one was kept, and so no longer CREATED, is not known

    def _current(self, subtask: Row, blank: Row) -> Attempt:
        number = subtask["subtask"]
        if subtask["attempts"] and (subtask["state"] in NOT_DEPLOYED or subtask.get("waited")):  # since its job was rescaled
            return Attempt(number, {**blank, "attempt": subtask["attempt"] + 1}, self.until_ms)
        *before, last = subtask["attempts"] or [blank]
        beside = (Attempt(number, each, self.until_ms) for each in before if each.get("beside") == last["attempt"])
        return Attempt(number, last, self.until_ms, tuple(beside))

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many subtasks are in each state."""
        counts = dict.fromkeys(TASK_STATES, 0)
        for each in self.subtasks:
            counts[each["state"]] += 1
        return counts

    @property
    def state(self) -> str:
        """Of all subtasks together, by Flink's rule."""
        counts = self.counts
        for state in (ExecutionState.FAILED, ExecutionState.CANCELING, ExecutionState.CANCELED, ExecutionState.RUNNING):
            if counts[state.value]:
                return str(state.value)
        if counts["FINISHED"]:
            return "FINISHED" if counts["FINISHED"] == len(self.subtasks) else "RUNNING"
        return "CREATED"

    @property
    def start_ms(self) -> int:
        """Of the current attempts, as in Flink."""
        return min((each.start_ms for each in self.current if each.start_ms >= 0), default=-1)

    @property
    def end_ms(self) -> int:
        return self.end_of(self.current)

    def end_of(self, attempts: Sequence[Attempt]) -> int:
        """Of those of its current attempts together: where none was ever deployed, that of the job. -1: one has not ended."""
        if any(each.state not in ENDED_EXECUTION for each in attempts):
            return -1
        return max((each.end_ms for each in attempts if each.start_ms >= 0), default=self.job_end_ms)

    @property
    def until_ms(self) -> int:
        """What has not ended lasts until then."""
        return self.job_end_ms if self.job_end_ms >= 0 else self.wall_ms


@dataclass(frozen=True)
class Job:
    """A job as the view has it."""

    row: Row
    described: Row
    wall_ms: int

    @property
    def id(self) -> str:
        return job_id(self.row["job"])

    @property
    def name(self) -> str:
        return str(self.row["name"] or self.row["job"])

    @property
    def state(self) -> str:
        return str(self.row["status"])

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED_JOB

    @property
    def start_ms(self) -> int:
        """0: it is not known, for what was told of it lies too far back."""
        return int(self.row["accepted_ms"] or self.row["since_ms"] or 0)

    @property
    def end_ms(self) -> int:
        return int(self.row["ended_ms"]) if self.has_ended else -1

    @cached_property
    def tasks(self) -> list[Task]:
        inputs = {each["task"]: each.get("inputs") or [] for each in self.row["tasks"]}
        anew = next((each["at_ms"] for each in reversed(self.row.get("past", ())) if each["kind"] == "JobRescaled"), None)
        return [
            Task(
                each["task"], [self._settled(subtask) for subtask in each["subtasks"]], inputs.get(each["task"], []), self.wall_ms,
                anew or self.row["accepted_ms"] or 0, self.end_ms,
            )
            for each in self.described["tasks"]
        ]  # fmt: skip

    def _settled(self, subtask: Row) -> Row:
        """Of an ended job nothing waits any more. No fact tells of a subtask that had no attempt, or what told of it lies too far back."""
        if not self.has_ended or subtask["state"] not in NOT_DEPLOYED:
            return subtask
        return {**subtask, "state": "FINISHED" if self.state == "FINISHED" else "CANCELED", "waited": True}

    @property
    def times(self) -> dict[str, int]:
        """When it last came into each of its states; 0: it did not."""
        times = {**dict.fromkeys(JOB_STATES, 0), INITIALIZING: self.row["accepted_ms"] or 0}
        for each in self.row.get("past", ()):
            state = ENTERED_BY.get(each["kind"], each.get("status"))
            if state in times:
                times[state] = each["at_ms"]
            if each["kind"] == "JobStateChanged" and not times[JobStatus.CREATED.value]:
                times[JobStatus.CREATED.value] = each["at_ms"]  # the record by which its JobMaster had it led to the next state, too
        return times

    @property
    def changed_ms(self) -> int:
        """When it, or one of its attempts, last came into another state."""
        return max([self.start_ms, self.row["since_ms"] or 0, *(ms for _, each in self.attempts() for ms in each.times.values())])

    def attempts(self) -> Iterator[tuple[Task, Attempt]]:
        """All that are kept."""
        for task in self.tasks:
            for subtask in task.subtasks:
                for row in subtask["attempts"]:
                    yield task, Attempt(subtask["subtask"], row, task.until_ms)


def duration(start_ms: int, end_ms: int, until_ms: int) -> int:
    """For what has not begun -1, as Flink has it. `until_ms`: now, for what has not ended."""
    return -1 if start_ms < 0 else max(0, (end_ms if end_ms >= 0 else until_ms) - start_ms)


class Source:
    """The view as the routes ask it."""

    def __init__(self, view: View, commands: Commands, wall_ms: Callable[[], int] = clock_ms) -> None:
        self._view, self._commands, self._ids, self.wall_ms = view, commands, JobIds(), wall_ms
        self.past = bool(view.past)
        """Of a history: there are ended jobs, and no cluster."""
        self._kept: dict[tuple[Callable[[Job], Any], str], tuple[Row, Any]] = {}  # what makes it, job -> row, what was made

    async def live(self) -> None:
        """Raises Refusal where there is no cluster: Flink's own history has no such paths either."""
        if self.past:
            raise Refusal(404, "This is a history: it has no TaskManagers. Ask the web service of a running cluster.")

    def ask(self, question: Callable[[View], T]) -> T:
        if not self._view.caught_up:
            raise no_leader("the tables are being brought back")
        return self._view.ask(question)[0]

    def own_id(self, text: str) -> str:
        """The own id of the job that is meant, whether it is known or not. Raises Refusal for what can be no id."""
        return self.ask(lambda view: self._ids.own(view.jobs, text))

    async def job(self, text: str) -> Job:
        """By Flink's id or its own. One that is too old, or too new, to be among those that are listed the cluster is asked for, by its
        own. Raises Refusal."""
        own = self.own_id(text)
        return self.ask(lambda view: self._job(view, own)) or await self._asked(own, text)

    async def _asked(self, own: str, text: str) -> Job:
        try:
            found = await asked(own, self._commands)
        except NotFound:
            raise Refusal(404, f"Job {text[:100]} not found") from None
        except problems.Refusal as refused:
            raise Refusal(refused.status_code, f"Job {text[:100]} not found", refused.detail) from None
        except NotAnswered as silent:
            raise no_leader(str(silent)) from None
        known = self.ask(lambda view: self._job(view, own))  # it came meanwhile
        if known is not None:
            return known
        entered = found.detail.entered if found.detail is not None else {}
        changes = sorted((ms, status) for status, ms in entered.items())
        past = [{"kind": "JobStateChanged", "status": status, "at_ms": ms} for ms, status in changes]
        row = {**row_of(found), "past": past}
        return Job(row, row, self.wall_ms())

    def heads(self) -> list[Job]:
        """All jobs without their tasks, the newest first."""
        rows = self.ask(lambda view: view.jobs.rows())
        wall_ms = self.wall_ms()
        return sorted((Job(row, {"tasks": []}, wall_ms) for row in rows), key=lambda job: job.start_ms, reverse=True)

    async def summaries(self, summary: Callable[[Job], T]) -> list[T]:
        """What a function of a module makes of each job with its tasks, the newest first. Of ended jobs it is kept: few change. It is made
        some jobs at a time: of those of a history, which may be very many, the first time takes seconds, and others ask meanwhile."""
        rows = self.ask(lambda view: view.jobs.rows())
        rows.sort(key=lambda row: row["accepted_ms"] or row["since_ms"] or 0, reverse=True)
        if len(self._kept) > 4 * len(rows) + 1000:
            self._kept = {}
        made: list[T] = []
        for n in range(0, len(rows), AT_ONCE):
            some = [row["job"] for row in rows[n : n + AT_ONCE]]
            made += self.ask(partial(self._summaries, some, summary))
            await asyncio.sleep(0)
        return made

    def _summaries(self, jobs: Sequence[str], summary: Callable[[Job], T], view: View) -> list[T]:
        return [each for job in jobs for each in self._summary(view, summary, job)]

    def _summary(self, view: View, summary: Callable[[Job], T], job: str) -> Iterator[T]:
        row = view.jobs.row(job)
        before, kept = self._kept.get((summary, job), (None, None))
        if row is None:
            return  # it was forgotten meanwhile
        if before is row:
            yield kept  # type: ignore[misc]  # `summary` made it
            return
        found = Job(row, view.jobs.described(job) or {"tasks": []}, self.wall_ms())
        made = summary(found)
        if found.has_ended and not any(subtask["state"] in IN_SLOT for task in found.tasks for subtask in task.subtasks):
            self._kept[summary, job] = (row, made)
        yield made

    async def task(self, job: str, vertex: str) -> tuple[Job, Task]:
        """A job and one of its tasks. Raises Refusal."""
        if HEX.fullmatch(vertex) is None:
            raise Refusal(400, f'Cannot resolve path parameter (vertexid) from value "{vertex[:200]}".')
        found = await self.job(job)
        for task in found.tasks:
            if task.id == vertex:
                return found, task
        raise Refusal(404, f"JobVertex {vertex} not found")

    def _job(self, view: View, own: str) -> Job | None:
        row, described = view.jobs.row(own), view.jobs.described(own)
        return Job(row, described, self.wall_ms()) if row is not None and described is not None else None
