"""A cluster as Flink's tools see it in these tests: a running, a waiting, a finished, a failed and a canceled job on one TaskManager."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from starlette.testclient import TestClient

from millrace.client import NotFound, Refused, Unavailable
from millrace.core.messages.client import SlotInfo, TaskManagerInfo
from millrace.core.messages.execution import JobDetail, LogPlace, SubtaskDetail, TaskDetail
from millrace.io.storage.store import Storage
from services.web.app import application
from services.web.flink.ids import job_id, vertex_id
from services.web.flink.source import Job, Source
from services.web.follow import Follows
from services.web.view import View
from tests.client.asked import Asked
from tests.web.test_web_tables import T0, Story, accepted, attempt

RUNS, WAITS, ENDED, FAILED, CANCELED = "runs", "waits", "ended", "failed", "canceled"
JOBS = (RUNS, WAITS, ENDED, FAILED, CANCELED)
VERTEX = vertex_id("a")
FAULT = {
    "kind": "user", "retryable": False, "condition": "ZeroDivisionError", "message": "division by zero", "vertex": "a", "line": 3,
    "file": "etl.py", "frame": "etl.py:3 in ratio",
}  # fmt: skip


MEMBER = TaskManagerInfo(
    task_manager="tm", incarnation=7, host="h", since_ms=1, last_beat_ms=1_700_000_009_000,
    slots=[SlotInfo(slot=number, state="FREE", memory_mb=512, cores=2, extras={"gpu": 1}) for number in range(3)],
)  # fmt: skip


STORAGE = "memory://flink-scene"


class Commands(Asked):
    """Cancels as the Dispatcher does, and forgets it."""

    def __init__(self, members: list[TaskManagerInfo] | None = None, unknown: tuple[str, ...] = ()) -> None:
        """`unknown`: processes that the cluster has no more."""
        super().__init__(Storage(STORAGE), unknown=unknown)
        self.canceled: list[str] = []
        self.known = members

    async def cancel(self, job: str) -> str:
        if job not in JOBS:
            raise NotFound(f"there is no job {job}")
        if job in (ENDED, FAILED):
            raise Refused(f"job {job} has ended")
        self.canceled.append(job)
        return "CANCELLING"

    async def call(self, request: Any, wait_s: float = 0.0) -> Any:
        return request(self)

    def task_managers(self) -> list[TaskManagerInfo]:
        """As the client library has it."""
        if self.known is None:
            raise Unavailable("resource-manager does not answer", "resource-manager")
        return self.known

    def refused(self, job: str) -> None:
        """None was submitted."""

    def show(self, job: str) -> Any:
        """As the client library has it: where the attempt in the slot writes."""
        if job not in JOBS:
            raise NotFound(f"there is no job {job}")
        subtask = SubtaskDetail(
            subtask=0, state="RUNNING", attempt=1, task_manager="tm", logs=[LogPlace(attempt=1, path=f"{job}/a.0.1")]
        )
        task = TaskDetail(task="a", parallelism=2, states={}, subtasks=[subtask])
        return SimpleNamespace(
            detail=JobDetail(job=job, name=job, acceptance="c.1.1", status="RUNNING", accepted_ms=1, since_ms=1, tasks=[task])
        )


def story() -> list[Any]:
    jobs = Story()
    jobs.say("JobAccepted", RUNS, job=RUNS, name="name of runs", tasks=[
        {"task": "a", "vertices": ["a"], "parallelism": 2},
        {"task": "b+c", "vertices": ["b", "c"], "parallelism": 1, "inputs": [{"task": "a", "edge": "hash"}]},
    ])  # fmt: skip
    for job in JOBS:
        if job != RUNS:
            accepted(jobs, job, parallelism=2)
        jobs.say("JobStateChanged", job, job=job, status="RUNNING", cause=None)
    jobs.say("JobWaiting", WAITS, job=WAITS, reason="no slot is free", position=1)
    for number, state in ((0, "RUNNING"), (1, "FINISHED")):
        attempt(jobs, RUNS, "DEPLOYING", subtask=number, slot=number)
        attempt(jobs, RUNS, state, subtask=number, slot=number)
    reported = {"rows_read": 10, "rows_written": 4, "bytes_read": 100, "bytes_written": 40, "rows_per_s": 5}
    jobs.say("AttemptsProgressing", RUNS, job=RUNS, attempts=[{"task": "a", "subtask": 0, "attempt": 1, "progress": reported}])
    attempt(jobs, FAILED, "RUNNING")
    attempt(jobs, FAILED, "FAILED", error=FAULT, slot=None)
    attempt(jobs, FAILED, "RUNNING", number=2)
    attempt(jobs, FAILED, "FAILED", number=2, error=FAULT, slot=None)
    jobs.say("JobFinished", ENDED, job=ENDED, archive="archives/e", result=None, spent=None)
    jobs.say("JobFailed", FAILED, job=FAILED, archive="archives/f", cause={**FAULT, "task": "a", "subtask": 0, "attempt": 2})
    jobs.say("JobCanceled", CANCELED, job=CANCELED, archive=None)
    cluster = Story("cluster.events")
    states = ["FREE", "FREE", "BROKEN"]
    cluster.say("TaskManagerJoined", "tm 7", task_manager="tm", host="h", slots=3, incarnation=7, states=states)
    cluster.say("LeaderElected", "dispatcher", scope="dispatcher", leader="dispatcher-0", epoch=3, generation=1)
    return [*jobs.facts, *cluster.facts]


def made(
    commands: Any, dashboard: Path | None = None, loaded: bool = True, stored: Callable[[str], Any] = lambda key: None,
    more: Sequence[Any] = (),
) -> TestClient:  # fmt: skip
    """`more`: facts behind those of the story."""
    view = View({}, {}, 10)
    if loaded:
        view.load({})
    for fact in [*story(), *more]:
        view.fold(fact)
    shown = {"millrace.port": "8081"}
    storage = Storage(STORAGE)
    storage.put_if_absent(f"logs/{RUNS}/a.0.1/stderr", b"rows: 7\n")
    app = application(view, lambda: Follows("", 2.5), commands, shown=shown, flink_dashboard=dashboard, storage=storage, stored=stored)
    return TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False, follow_redirects=False)


def job_of(view: View) -> Job:
    """The job `j`, a moment after it began."""
    return asyncio.run(Source(view, Commands(), lambda: T0 + 20).job("j"))


def path(template: str, job: str = RUNS) -> str:
    return template.replace("J", job_id(job)).replace("V", VERTEX)
