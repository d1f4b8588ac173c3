"""`millrace deregister`: what it asks for, what it prints, and how it ends when the cluster refuses or is silent. It asks no question: Jobs
stay, and --undo takes it back."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from deploy.cli import app as program
from millrace.cli import exits
from millrace.client import Refused, Unavailable

BUSY = "busy: the ResourceManager was not heard of; try again"
SILENT = "resource-manager was asked and does not answer: it does so when it is back"


def deregister(monkeypatch: pytest.MonkeyPatch, *options: str, answer: int | Exception = 0) -> tuple[Any, list[bool]]:
    """The command's result, and with which `undo` the cluster was asked."""
    asked: list[bool] = []

    def answered(undo: bool) -> int:
        asked.append(undo)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("millrace.cli.cluster.connected", lambda stack: contextlib.nullcontext(SimpleNamespace(deregister=answered)))
    return CliRunner().invoke(program.app, ["deregister", *options]), asked


@pytest.mark.parametrize(("workers", "shown"), [(0, "0 TaskManagers"), (1, "1 TaskManager"), (3, "3 TaskManagers")])
def test_deregister_says_how_many_are_stopped(workers: int, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    result, asked = deregister(monkeypatch, answer=workers)
    assert (result.exit_code, asked, result.stderr) == (0, [False], "")
    assert result.stdout == f"{shown} of the provider: stopped, and none is started until --undo\n"


def test_deregister_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    result, asked = deregister(monkeypatch, "--undo", answer=2)
    assert (result.exit_code, asked, result.stderr) == (0, [True], "")
    assert result.stdout == "TaskManagers are started again when slots are short\n"


@pytest.mark.parametrize(("failure", "code"), [
    (Refused(BUSY), exits.Exit.FAILED),
    (Unavailable(SILENT, "resource-manager"), exits.Exit.UNAVAILABLE),
])  # fmt: skip
@pytest.mark.parametrize("options", [(), ("--undo",)])
def test_a_deregister_that_is_not_done_says_nothing_of_having_been(
    options: tuple[str, ...], failure: Exception, code: exits.Exit, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, asked = deregister(monkeypatch, *options, answer=failure)
    assert (result.exception, asked, result.stdout) == (failure, [bool(options)], "")
    assert (exits.code_of(failure), exits.message_of(failure)) == (code, f"millrace: {failure}")
