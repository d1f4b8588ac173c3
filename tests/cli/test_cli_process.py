"""`millrace describe`, `millrace services`, and `millrace logs --process`: what each prints, and who is not there."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from millrace.cli import process
from millrace.cli.app import app, guarded
from millrace.client import Unavailable
from millrace.core.messages.processes import LOG_PIECE_MOST
from millrace.io.storage.store import Storage
from tests.client.asked import JVM, STACK, Asked, Held


class Cluster(Asked):
    """As the client library, connected."""

    resource_manager_answers = True

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None: ...

    def task_managers(self) -> list[Any]:
        if not self.resource_manager_answers:
            raise Unavailable("resource-manager does not answer", "resource-manager")
        return [SimpleNamespace(task_manager=name) for name in ("tm", "mute")]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster(Storage(str(tmp_path)))
    monkeypatch.setattr(process, "connected", lambda stack: cluster)
    return cluster


def run(*args: str, code: int = 0) -> Any:
    done = CliRunner().invoke(app, args)
    assert done.exit_code == code, (done.output, done.exception)
    return done


def test_a_task_manager_is_described(cluster: Cluster) -> None:
    lines = run("describe", "tm").stdout.splitlines()
    assert lines[:2] == ["process   tm, incarnation 7", "service   task-manager 0.1.0, Python 3.11.7"]
    assert lines[2].startswith("runs      on host-a as process 7, since 1970-01-01")
    assert lines[3:6] == [
        "uses      7 B, 0.0 s of processor time, 7 threads, 7 open files", "machine   4 cores, 9.7 GB, 7 B free; Linux", "",
    ]  # fmt: skip
    assert [line.split() for line in lines[6:]] == [
        ["slot", "state", "has", "job", "attempt", "heap", "outside", "of", "it", "collections", "threads"],
        ["0", "ACTIVE", "512", "MB", "runs", "RUNNING", "30", "MB", "of", "1.0", "GB", "90", "MB", "11", "in", "0.2", "s", "80"],
        ["1", "FREE", "512", "MB"],
        ["slot", "1,", "JVM:", "its", "JVM", "hangs"],
    ]
    assert json.loads(run("describe", "tm", "--json").stdout)["slots"][0]["jvm"]["threads"] == 80


def test_a_service_is_described_and_all_are_listed(cluster: Cluster) -> None:
    lines = run("describe", "dispatcher-0").stdout.splitlines()
    assert (lines[0], lines[-1]) == ("process   dispatcher-0", "scopes    dispatcher leader")
    head, row = run("services").stdout.splitlines()
    assert head.split() == ["process", "service", "host", "pid", "memory", "since", "scopes"]
    assert row.split()[:6] == ["dispatcher-0", "dispatcher", "host-a", "7", "7", "B"] and row.endswith("dispatcher leader")
    assert json.loads(run("services", "--json").stdout)[0]["scopes"] == {"dispatcher": "leader"}


def test_threads_are_printed_and_what_is_missing_is_said(cluster: Cluster) -> None:
    shown = run("describe", "tm", "--threads").stdout
    assert shown == (
        f"=== the process\n{STACK}\n=== the JVM of slot 0\n{JVM}"
        "=== the JVM of slot 0: there is more than fits into an answer; --slot asks for one slot alone\n\n"
        "=== the JVM of slot 1: it hangs\n\n"
    )
    assert [each["of"] for each in json.loads(run("describe", "tm", "--threads", "--json").stdout)][1] == "the JVM of slot 0"
    run("describe", "tm", "--slot", "0", code=2)


def test_settings_are_printed_with_where_they_are_from(cluster: Cluster) -> None:
    head, *rows = run("settings", "tm").stdout.splitlines()
    assert head.split() == ["setting", "value", "from"]
    assert [row.split() for row in rows] == [
        ["cluster", '"default"', "by", "default"],
        ["conf", '{"spark.sql.ansi.enabled":', '"false"}', "in", "/etc/millrace.yaml"],
        ["blob_token", '"***"', "from", "the", "environment"],
    ]
    assert [each["name"] for each in json.loads(run("settings", "tm", "--changed", "--json").stdout)] == ["conf", "blob_token"]
    assert json.loads(run("settings", "tm", "--json").stdout)[1]["value"] == {"spark.sql.ansi.enabled": "false"}
    assert "there is no TaskManager other, and no process" in str(run("settings", "other", code=1).exception)


def test_logs_of_a_process_are_listed_and_the_end_of_one_is_printed(cluster: Cluster) -> None:
    head, *rows = run("logs", "--process", "tm").stdout.splitlines()
    assert head.split() == ["log", "size", "last", "written"]
    assert [row.split()[:3] for row in rows] == [["log", "14", "B"], ["slot-0.jvm.log", "6", "B"]]
    assert run("logs", "--process", "tm", "--log", "slot-0.jvm.log").stdout == "a JVM\n"
    assert run("logs", "--process", "dispatcher-0", "--log", "log").stdout == "a Dispatcher\n"


def test_of_a_large_log_the_end_is_printed_unless_all_is_asked_for(cluster: Cluster) -> None:
    data = b"0123456789abcdef" * (LOG_PIECE_MOST // 16 + 1)
    cluster.held["tm"]["log"] = Held(data)
    assert run("logs", "--process", "tm", "--log", "log").stdout_bytes == data[-process.TAIL_BYTES :]
    assert run("logs", "--process", "tm", "--log", "log", "--whole").stdout_bytes == data


@pytest.mark.parametrize(("args", "code", "said"), [
    (("describe", "nobody"), 1, "there is no TaskManager nobody, and no process of a service of this name answers"),
    (("describe", "mute"), 3, "mute does not answer"),
    (("logs", "--process", "tm", "--log", "none"), 1, "there is no log 'none'"),
    (("logs", "--process", "tm", "--log", "../log"), 1, "there is no log '../log'"),
])  # fmt: skip
def test_who_is_not_there_or_silent(
    cluster: Cluster, args: tuple[str, ...], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded(lambda: app(args)) == code
    assert said in capsys.readouterr().err


def test_a_service_is_asked_though_the_resource_manager_is_away(cluster: Cluster) -> None:
    cluster.resource_manager_answers = False
    done = run("describe", "dispatcher-0")
    assert "dispatcher leader" in done.stdout and done.stderr == "note: resource-manager does not answer\n"


def test_of_a_task_manager_that_may_be_there_nobody_says_that_there_is_none(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.resource_manager_answers = False
    assert guarded(lambda: app(("describe", "nobody"))) == 3
    assert "resource-manager alone knows whether there is a TaskManager nobody" in capsys.readouterr().err


@pytest.mark.parametrize("args", [(), ("j", "--process", "tm"), ("j", "--log", "log"), ("j", "--whole")])
def test_logs_are_of_a_job_or_of_a_process(cluster: Cluster, args: tuple[str, ...]) -> None:
    assert "give either a JOB or --process NAME" in run("logs", *args, code=2).stderr


@pytest.mark.parametrize(
    "args", [("--follow",), ("--stream", "stderr"), ("--task", "a"), ("--every-attempt",), ("--whole",)], ids=lambda args: args[0]
)
def test_what_is_of_a_jobs_logs_is_refused_of_a_process(cluster: Cluster, args: tuple[str, ...]) -> None:
    said = "--log ID" if args == ("--whole",) else "of a JOB's logs"
    assert said in " ".join(run("logs", "--process", "tm", *args, code=2).stderr.replace("│", " ").split())
    assert cluster.asked == []
