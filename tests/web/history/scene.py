"""A storage with archives, and a history of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from millrace.core.messages.attempts import Fault, ResultRows
from millrace.core.messages.execution import (
    Archive,
    FailureDetail,
    JobDetail,
    LogPlace,
    SubtaskDetail,
    TaskDetail,
    TimeSpent,
    Written,
)
from millrace.io.storage.store import Storage
from services.web.app import application
from services.web.commands import Commands
from services.web.history.archives import Archives
from services.web.history.client import Past
from services.web.history.rows import PackedRows
from services.web.history.spark_events import SparkEvents
from services.web.page import page
from services.web.processes import Processes
from services.web.view import View

T0 = 1_700_000_000_000
GRAPH = {
    "name": "n",
    "vertices": {
        "a": {"sql": "SELECT 1 AS x"},
        "b": {"sql": "SELECT x, count(*) AS n FROM a GROUP BY x", "inputs": {"a": "hash(x)"}, "parallelism": 1},
    },
}


def failed(number: int, at_ms: int, message: str = "division by zero") -> FailureDetail:
    error = Fault(kind="user", retryable=True, message=message, task="a", subtask=0, attempt=number)
    return FailureDetail(attempt=number, at_ms=at_ms, task_manager="tm-1", error=error)


def archive(job: str, status: str = "FINISHED", at_ms: int = T0, **more: Any) -> Archive:
    """Of two tasks; the first was tried twice."""
    subtasks = [
        SubtaskDetail(
            subtask=0, state="FINISHED", attempt=2 - n, task_manager="tm-2", deployed_ms=at_ms + 100 * n + 20,
            running_ms=at_ms + 100 * n + 30, ended_ms=at_ms + 100 * n + 90, failures=[failed(1, at_ms + 10)] if n == 0 else [],
            logs=[LogPlace(attempt=k, path=f"c.1.{job}/{n}-{task}.0.1.{k}") for k in range(1, 3 - n)],
            outputs={task: Written(rows=7 + n, bytes=70)},
        )
        for n, task in enumerate(("a", "b"))
    ]  # fmt: skip
    cause = None
    if status != "FINISHED":
        subtasks[1] = SubtaskDetail(subtask=0, state="CANCELED", attempt=0, task_manager="")
    if status == "FAILED":
        cause = failed(2, at_ms + 90, "it broke").error
        failures = [failed(1, at_ms + 10), failed(2, at_ms + 90, "it broke")]
        subtasks[0] = subtasks[0].model_copy(update={"state": "FAILED", "failures": failures})
    detail = JobDetail(
        job=job, name=f"name of {job}", acceptance=f"c.1.{job}", status=status, accepted_ms=at_ms, since_ms=at_ms + 200,
        ended_ms=at_ms + 200, cause=cause, spent=TimeSpent(queue_ms=20, compute_ms=180),
        tasks=[TaskDetail(task=task, parallelism=1, states={each.state: 1}, subtasks=[each])
               for task, each in zip(("a", "b"), subtasks, strict=True)],
        result=ResultRows(columns=["x", "n"], types=["int", "bigint"], rows=[[1, 2]]) if status == "FINISHED" else None,
    )  # fmt: skip
    values = {"job": job, "name": detail.name, "status": status, "accepted_ms": at_ms, "ended_ms": at_ms + 200, "cause": cause,
              "graph": GRAPH, "detail": detail, **more}  # fmt: skip
    return Archive(**values)


class Scene:
    """`most`: archives that are shown. `events`: the folder of a Spark history server, and `spark_history` its address."""

    def __init__(self, folder: Path, most: int = 1000, events: Path | None = None, spark_history: str = "") -> None:
        self.folder = folder
        self.storage = Storage(str(folder))
        self.view = View(PackedRows(), {}, most, past=str(folder))
        self.archives = Archives(self.view, self.storage, most, SparkEvents(self.storage, events) if events else None)
        commands = Commands(lambda: Past(self.view, self.storage))
        processes = Processes(commands, self.storage)
        screens = page(self.view, self.archives.state, commands, processes, lambda key: None, spark_history=spark_history)
        app = application(
            self.view, self.archives.state, commands, storage=self.storage, page=screens, spark_history=spark_history
        )
        self.web = TestClient(app, base_url="http://127.0.0.1")

    def write(self, job: str, content: Archive | bytes, at_s: float = T0 / 1000, record: str = "1.0") -> Path:
        """The archive, written at that time."""
        data = content if isinstance(content, bytes) else content.model_dump_json().encode()
        path = f"archives/{job}/c.1.{job}/{record}.json"
        self.storage.put_new(path, data)
        os.utime(self.folder / path, (at_s, at_s))
        return self.folder / path

    def get(self, path: str, status: int = 200) -> Any:
        answer = self.web.get(path)
        assert answer.status_code == status, (path, answer.status_code, answer.text[:500])
        return answer.json() if "json" in answer.headers["content-type"] else answer.text
