"""`millrace shutdown`, and what a stack says whose cluster is shut down."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from deploy.cli import app as program
from millrace.cli.exits import Exit
from millrace.client import Unavailable
from millrace.core.messages.client import ShutDown


def shutdown(
    monkeypatch: pytest.MonkeyPatch, *options: str, said: str = "", fails: Exception | None = None, away: Exception | None = None,
    **fields: Any,
) -> Any:  # fmt: skip
    """The command's result, and with which arguments the cluster was asked."""
    asked: list[bool] = []

    def shut_down(wait: bool) -> ShutDown:
        asked.append(wait)
        if fails is not None:
            raise fails
        return ShutDown(**{"step": "ENDING", "since_ms": 1, "live": 3, "suspended": 2, "workers": 0, **fields})

    def check_dispatcher() -> None:
        if away is not None:
            raise away

    overview = SimpleNamespace(jobs={"RUNNING": 2, "SUSPENDED": 1, "FINISHED": 7})
    cluster = SimpleNamespace(shut_down=shut_down, overview=lambda: overview, check_dispatcher=check_dispatcher)
    monkeypatch.setattr("millrace.cli.cluster.connected", lambda stack: contextlib.nullcontext(cluster))
    result = CliRunner().invoke(program.app, ["shutdown", *options], input=said)
    return result, asked


def test_it_asks_first_and_shows_how_the_cluster_was_left(monkeypatch: pytest.MonkeyPatch) -> None:
    result, asked = shutdown(monkeypatch, said="y\n")
    assert (result.exit_code, asked) == (0, [True])
    assert "3 jobs will be suspended and kept. Shut the cluster down? [y/N]" in result.stderr
    assert result.stdout.splitlines()[-1] == "the cluster is shut down: 3 jobs are kept, 2 of them suspended"


@pytest.mark.parametrize("said", ["n\n", ""])
def test_without_a_yes_nothing_is_done(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    result, asked = shutdown(monkeypatch, said=said)
    assert (result.exit_code, asked) == (1, [])


def test_one_job_and_one_task_manager_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    result, _ = shutdown(monkeypatch, "--yes", live=1, suspended=1, workers=1)
    assert result.stdout == "the cluster is shut down: 1 job is kept, 1 of them suspended\n"
    assert result.stderr == "1 TaskManager of the provider is not stopped yet\n"


def test_a_cluster_without_a_dispatcher_is_not_waited_for_as_long_as_for_the_end_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Unavailable("no answer to DescribeBlobServer within 7 s; is a Dispatcher running?")
    result, asked = shutdown(monkeypatch, "--yes", away=gone)
    assert asked == [] and result.exception is gone


def test_it_need_not_be_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    result, asked = shutdown(monkeypatch, "--yes", "--no-wait", step="SUSPENDING")
    assert (result.exit_code, asked, result.stdout) == (0, [False], "the cluster is being shut down: 3 jobs are kept\n")


def test_what_did_not_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    result, _ = shutdown(monkeypatch, "-y", workers=1, silent=["job-master/0"])
    assert result.exit_code == Exit.UNAVAILABLE
    assert result.stderr.splitlines() == [
        "1 TaskManager of the provider is not stopped yet", "no answer of job-master/0: attempts of its jobs may still run",
    ]  # fmt: skip


def test_a_cluster_that_does_not_answer_is_not_shut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    result, asked = shutdown(monkeypatch, "-y", fails=Unavailable("no answer"))
    assert asked == [True] and isinstance(result.exception, Unavailable)
