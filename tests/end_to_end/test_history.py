"""`millrace history` over the storage of a real stack: of each job it says what the cluster said of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pyspark
import pytest

from deploy.local.downloads import CHECKOUT
from deploy.local.java import find_java
from deploy.local.processes import free_port
from millrace.client import NotFinished
from tests.end_to_end.running import LIMIT_S, RunningStack, until


@contextmanager
def history(running: RunningStack, *options: str) -> Iterator[httpx.Client]:
    """A client of one that was started as a user starts it."""
    folder = running.stack.folder
    command = [sys.executable, "-c", "from deploy.cli import main; main()", "history", "--storage", str(folder / "storage"), *options]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "shared")])}
    told = folder / "logs" / "history.log"
    with open(told, "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=env)
    try:
        until("its address", lambda: "page: http" in told.read_text() or process.poll() is not None)
        found = re.search(r"page: (http://\S+)/page/", told.read_text())
        assert found is not None, told.read_text()
        with httpx.Client(base_url=found.group(1), timeout=LIMIT_S, trust_env=False) as http:
            until("its first look", lambda: http.get("/healthz").status_code == 200)
            yield http
        process.terminate()
        assert process.wait(LIMIT_S) == 0, told.read_text()
    finally:
        process.kill()
        process.wait()


@pytest.mark.long
def test_of_each_job_it_says_what_the_cluster_said(running: RunningStack, tmp_path: Path) -> None:
    query = running.sql("SELECT id, id * 2 AS twice FROM range(3)")
    two = running.submit({"name": "two", "vertices": {
        "a": {"sql": "SELECT id FROM range(10)"},
        "b": {"sql": "SELECT count(*) AS n FROM a", "inputs": {"a": "hash(id)"}},
    }})  # fmt: skip
    failing = running.sql("SELECT raise_error('no such luck') AS x")
    script = running.script("print('from the script')\nopen('left.txt', 'w').write('hello')\n")
    jobs = [each.id for each in (query, two, failing, script) if each.end]
    client = running.client
    with history(running) as http:
        listed = {job["job"]: job for job in http.get("/api/v1/jobs?limit=1000").json()["jobs"]}
        for job in jobs:
            shown, there = client.show(job), http.get(f"/api/v1/jobs/{job}").json()["job"]
            names = ("job", "name", "status", "accepted_ms")
            assert [there[name] for name in names] == [getattr(shown.summary, name) for name in names]
            assert listed[job]["status"] == shown.summary.status
            assert shown.detail is not None
            assert there["spent"] == (shown.detail.spent.model_dump() if shown.detail.spent is not None else None)
            assert _attempts(there) == [
                (task.task, each.subtask, each.attempt, each.state, each.deployed_ms, each.running_ms, each.ended_ms)
                for task in shown.detail.tasks for each in task.subtasks
            ]  # fmt: skip
            page = http.get(f"/page/jobs/{job}")
            assert page.status_code == 200 and "This shows the past" in page.text
            try:
                rows = client.result(job).rows
            except NotFinished as none:
                assert http.get(f"/api/v1/jobs/{job}/result").json()["detail"] == str(none)
            else:
                assert http.get(f"/api/v1/jobs/{job}/result").json()["rows"] == rows
        assert "no such luck" in http.get(f"/api/v1/jobs/{failing.id}").json()["job"]["cause"]["message"]
        (task,) = http.get(f"/api/v1/jobs/{script.id}").json()["job"]["tasks"]
        assert http.get(f"/api/v1/jobs/{script.id}/logs/{task['task']}/0/1/stdout").text == "from the script\n"
        assert http.get(f"/api/v1/jobs/{script.id}/files/{task['task']}/0?name=left.txt").content == b"hello"
        refused = http.post("/api/v1/jobs", json={"name": "x", "vertices": {"a": {"sql": "SELECT 1"}}})
        assert refused.json()["type"] == "urn:millrace:no-cluster"
        later = running.sql("SELECT 5 AS five")
        assert later.rows == [[5]]

        def shown_now() -> set[str]:  # of one job alone it would find the archive, without another look
            return {job["job"] for job in http.get("/api/v1/jobs?limit=1000").json()["jobs"]}

        until("a job that ended meanwhile", lambda: later.id in shown_now())


@contextmanager
def spark_history(events: Path, log: Path) -> Iterator[str]:
    """The address of a Spark history server over this folder, of PySpark's own jars."""
    port, home = free_port(), Path(pyspark.__file__).parent
    command = [
        str(find_java().path), "-cp", f"{home}/jars/*", "-Xmx512m", f"-Dspark.history.fs.logDirectory={events.as_uri()}",
        f"-Dspark.history.ui.port={port}", "-Dspark.history.fs.update.interval=1s", "org.apache.spark.deploy.history.HistoryServer",
    ]  # fmt: skip
    with open(log, "wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"})
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.mark.long
def test_an_event_log_is_shown_by_the_spark_history_server_that_is_linked(running: RunningStack, tmp_path: Path) -> None:
    own_jvm = {"conf": {"spark.eventLog.enabled": "true"}, "timeouts": {"start_ms": None}}  # it starts as late as the machine lets it
    job = running.sql("SELECT count(*) AS n FROM range(1000)", **own_jvm)
    assert job.end["type"] == "JobFinished"
    (tmp_path / "events").mkdir()
    with spark_history(tmp_path / "events", tmp_path / "server.log") as server:
        with history(running, "--spark-history", server, "--spark-events", str(tmp_path / "events")) as http:
            (log,) = until("its log", lambda: http.get(f"/api/v1/jobs/{job.id}/spark-logs").json()["logs"])
            assert log["history_url"] == f"{server}/history/{log['application']}/"
            assert log["history_url"] in http.get(f"/page/jobs/{job.id}").text

            def jobs_of_it() -> list[dict[str, Any]]:
                try:
                    answer = httpx.get(f"{server}/api/v1/applications/{log['application']}/jobs", timeout=LIMIT_S, trust_env=False)
                except httpx.HTTPError:
                    return []  # it starts
                if answer.status_code != 200 or "json" not in answer.headers["content-type"]:
                    return []  # while it reads the log for the first time, it answers 200 with a page that says so
                found: list[dict[str, Any]] = answer.json()
                return found

            shown = until("it is shown", jobs_of_it)
            assert {each["status"] for each in shown} == {"SUCCEEDED"}
            assert httpx.get(log["history_url"], follow_redirects=True, timeout=LIMIT_S, trust_env=False).status_code == 200


def _attempts(job: dict[str, Any]) -> list[tuple[Any, ...]]:
    found = []
    for task in job["tasks"]:
        for subtask in task["subtasks"]:
            times = subtask["attempts"][-1]["since_ms"] if subtask["attempts"] else {}
            ended = times.get(subtask["state"]) if subtask["attempts"] else None
            found.append((
                task["task"], subtask["subtask"], subtask["attempt"], subtask["state"], times.get("DEPLOYING"), times.get("RUNNING"), ended,
            ))  # fmt: skip
    return sorted(found, key=lambda each: each[:2])
