"""One process of a real stack is asked how it is: a TaskManager with a job in its slot, its JVM, its threads, its logs; and services."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from typer.testing import CliRunner

from deploy.cli.app import app
from millrace.client import NotFound, Unavailable
from millrace.runtime.machine_limits import usable_cores
from tests.end_to_end.running import Held, RunningStack, processes_of, until
from tests.end_to_end.test_operating import Web, web, web_process  # noqa: F401  # fixtures

SPARK = """
    import os, pathlib, sys, time
    from pyspark.sql import SparkSession
    folder = pathlib.Path(sys.argv[1])
    def turns(rows):
        (folder / str(os.getpid())).touch()
        while not (folder / "go").exists(): time.sleep(0.02)
        return rows
    print(SparkSession.builder.getOrCreate().sparkContext.parallelize([1], 1).mapPartitions(turns).count())
"""


def ask(web: Web, path: str, **headers: str) -> httpx.Response:  # noqa: F811
    return httpx.get(f"http://127.0.0.1:{web.port}{path}", headers=headers, timeout=30, trust_env=False)


def printed(*args: str) -> str:
    done = CliRunner().invoke(app, args)
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


@pytest.fixture
def at_work(running: RunningStack, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """(the TaskManager, the job) of a Spark task that runs until the end of the test."""
    folder = tmp_path / "held"
    folder.mkdir()
    watched = running.script(SPARK, [folder], name="spark")
    event = watched.running()
    until("the task at work", lambda: list(folder.iterdir()))
    yield str(event["task_manager"]), watched.id
    (folder / "go").touch()
    assert watched.end["type"] == "JobFinished", "to look at it harms nothing"


def test_a_task_manager_tells_of_its_process_and_of_the_job_in_its_slot(
    running: RunningStack, web: Web, at_work: tuple[str, str]  # noqa: F811
) -> None:
    name, job = at_work
    described = running.client.task_manager(name).describe()
    status, (slot,) = described.status, described.slots
    own = psutil.Process(running.pid(name))
    assert (status.pid, status.service, status.cores) == (own.pid, "task-manager", usable_cores())
    assert abs(status.started_ms / 1000 - own.create_time()) < 5 and 10 << 20 < status.resident < status.memory
    assert (slot.state, slot.job, slot.attempt_state, described.total) == ("ACTIVE", job, "RUNNING", 1)
    assert slot.jvm is not None and slot.jvm.heap.max is not None and 256 << 20 < slot.jvm.heap.max <= 512 << 20
    assert slot.jvm.heap.used > 1 << 20 and sum(each.count for each in slot.jvm.collectors) > 0
    shown = ask(web, f"/api/v1/taskmanagers/{name}").json()
    assert (shown["status"]["pid"], shown["slots"][0]["job"]) == (own.pid, job) and shown["slots"][0]["jvm"]["heap"]["used"] > 0
    of_flink = ask(web, f"/taskmanagers/{name}").json()
    assert (of_flink["hardware"]["physicalMemory"], of_flink["hardware"]["cpuCores"]) == (status.memory, status.cores)
    assert of_flink["metrics"]["heapUsed"] > 0 and of_flink["metrics"]["garbageCollectors"]
    page = ask(web, f"/page/taskmanagers/{name}").text
    assert "Memory and garbage collection" in page and f"as process {own.pid} on" in page
    text = printed("describe", name)
    assert f"process {own.pid}," in text and "ACTIVE" in text and job in text


def test_its_threads_are_seen_in_python_in_the_jvm_and_in_the_attempt(
    running: RunningStack, web: Web, at_work: tuple[str, str]  # noqa: F811
) -> None:
    name, _ = at_work

    def dumps() -> dict[str, Any] | None:
        found = {each.of: each.text for each in running.client.task_manager(name).threads()}
        return found if "Executor task launch worker" in (found.get("the JVM of slot 0") or "") else None

    found = until("the task in a dump", dumps)
    assert '" id=' in found["the process"] and '"main"' in found["the JVM of slot 0"]
    (attempt,) = [text for of, text in found.items() if "attempt" in of]
    assert "main.py" in attempt and "count" in attempt, attempt
    alone = ask(web, f"/api/v1/taskmanagers/{name}/thread-dump?slot=0").json()["dumps"]
    assert [each["of"] for each in alone] == [of for of in found if of != "the process"]
    infos = ask(web, f"/taskmanagers/{name}/thread-dump").json()["threadInfos"]
    assert any(each["threadName"].startswith("the JVM of slot 0: Executor task launch worker") for each in infos)
    assert "=== the JVM of slot 0" in printed("describe", name, "--threads", "--slot", "0")


def test_its_logs_are_read_by_id_and_by_nothing_else(running: RunningStack, web: Web) -> None:  # noqa: F811
    name = "task-manager-1"
    ask_it = running.client.task_manager(name)
    logs = {each.log: each for each in ask_it.logs()}
    assert {"log", "slot-0.jvm.log"} <= logs.keys()
    file = (running.stack.folder / "logs" / f"{name}.log").read_bytes()
    read = b"".join(ask_it.read("log"))
    assert len(file) > 1000 and read[: len(file)] == file, "it has no secrets, so there is no star"
    part = ask(web, f"/api/v1/taskmanagers/{name}/logs/log", Range="bytes=10-29")
    assert (part.status_code, part.content) == (206, file[10:30])
    assert ask(web, f"/taskmanagers/{name}/log").content[: len(file)] == file
    assert printed("logs", "--process", name, "--log", "log", "--whole").encode()[: len(file)] == file
    for wrong in ("../task-manager-2.log", f"/{running.stack.folder}/token", "log/../log", "slot-9.jvm.log"):
        with pytest.raises(NotFound):
            ask_it.piece(wrong)
    assert ask(web, f"/api/v1/taskmanagers/{name}/logs/none").status_code == 404


def test_services_are_listed_and_their_logs_read(running: RunningStack, web: Web) -> None:  # noqa: F811
    names = {"dispatcher", "resource-manager", "job-master", "web"}

    def all_of_them() -> dict[str, Any] | None:
        found = {each.process: each for each in running.client.services()}
        return found if found.keys() >= names else None

    found = until("all services", all_of_them)
    assert found["dispatcher"].scopes == {"dispatcher": "leader"}
    assert found["job-master"].status.pid == running.pid("job-master") and found["web"].status.pid == web.process.pid
    for name in names - {"web"}:
        file = (running.stack.folder / "logs" / f"{name}.log").read_bytes()
        assert b"".join(running.client.service(name).read("log"))[: len(file)] == file
        assert ask(web, f"/api/v1/services/{name}/logs/log").content[: len(file)] == file
        assert '" id=' in running.client.service(name).threads()[0].text
    assert b"starts" in ask(web, "/api/v1/services/web/logs/log").content
    assert ask(web, "/jobmanager/log").content.startswith((running.stack.folder / "logs" / "dispatcher.log").read_bytes()[:500])
    assert {f"{name}.log" for name in names} <= {each["name"] for each in ask(web, "/jobmanager/logs").json()["logs"]}
    assert "dispatcher" in printed("services") and "leader" in printed("describe", "dispatcher")
    with pytest.raises(Unavailable, match="there is no process nobody of a service, or it hangs"):
        running.client.service("nobody").describe()


def test_for_a_task_manager_that_is_unknown_there_is_an_answer(running: RunningStack) -> None:
    """Of one that is silent: `test_kill_task_managers.py`."""
    with pytest.raises(NotFound, match="task-manager-9"):
        running.client.task_manager("task-manager-9").describe()


def test_no_answer_has_a_secret(running: RunningStack, web: Web, tmp_path: Path) -> None:  # noqa: F811
    held, secrets = Held(running, tmp_path / "held"), {running.token}
    held.started()
    for process in processes_of(running.stack.folder):
        with contextlib.suppress(psutil.Error):
            secrets |= {value for name, value in process.environ().items() if name.endswith("SECRET")}
    name = str(held.watched.running()["task_manager"])
    ask_it = running.client.task_manager(name)
    texts = [ask_it.describe().model_dump_json(), *(each.text or "" for each in ask_it.threads())]
    texts += [b"".join(ask_it.read(each.log)).decode(errors="replace") for each in ask_it.logs()]
    for of in (ask_it, *map(running.client.service, ("dispatcher", "resource-manager", "job-master", "web"))):
        settings = of.settings()
        assert {"kafka_bootstrap", "log_level"} <= {each.name for each in settings}
        texts += [each.model_dump_json() for each in settings]
    for service in ("dispatcher", "web"):
        texts += [each.text or "" for each in running.client.service(service).threads()]
        texts += [ask(web, f"/api/v1/services/{service}/logs/log").text]
    assert held.let_go().end["type"] == "JobFinished"
    assert len(texts) > 8 and len(secrets) > 1, "the token, and the gateways' secrets"
    assert [secret for text in texts for secret in secrets if secret in text] == []
