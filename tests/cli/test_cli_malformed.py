"""A name that nothing can have is a mistake in the command line, whichever command it is given to."""

from __future__ import annotations

import contextlib
import sys
import threading
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from typer.testing import CliRunner

from deploy.cli import app as program
from millrace.cli.exits import Exit, code_of
from millrace.client import Millrace

BAD = "bad name!"
GRAPH = 'name: one\nvertices: {one: {sql: "SELECT 1 AS a"}}\n'
COMMANDS = [
    ("show", BAD), ("cancel", BAD), ("result", BAD), ("logs", BAD), ("events", BAD), ("inspect", BAD), ("files", BAD),
    ("run-again", BAD), ("repair", BAD), ("rescale", BAD), ("rescale", BAD, "-p", "2"),
    ("block", BAD), ("unblock", BAD), ("block", "a", "--reason", "x" * 300),
    ("describe", "x" * 300), ("settings", "x" * 300), ("logs", "--process", "x" * 300),
    ("list", "--cursor", BAD), ("list", "--name", "x" * 300),
    ("schedule", "show", BAD), ("schedule", "pause", BAD), ("schedule", "resume", BAD), ("schedule", "remove", BAD),
    ("schedule", "run", BAD),
    ("schedule", "set", BAD, "GRAPH", "--cron", "@daily"), ("submit", "GRAPH", "--job", BAD), ("repair", BAD, "--graph", "GRAPH"),
]  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: "-".join(word[:12].replace(BAD, "bad") for word in words))
def test_a_name_that_nothing_can_have_is_a_wrong_command_line(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    graph = tmp_path / "one.yaml"
    graph.write_text(GRAPH)
    unconnected = Millrace.__new__(Millrace)
    unconnected.__dict__.update(_link=None, _feed=MagicMock(), _lock=threading.Lock(), _timeout_s=10.0, _closed=threading.Event())
    for name, module in list(sys.modules.items()):
        if name.startswith("millrace.cli.") and hasattr(module, "connected"):
            monkeypatch.setattr(module, "connected", lambda stack: contextlib.nullcontext(unconnected))
    done = CliRunner().invoke(program.app, [str(graph) if word == "GRAPH" else word for word in words])
    failure = done.exception
    code = done.exit_code if isinstance(failure, SystemExit) else code_of(failure) if isinstance(failure, Exception) else None
    assert code == Exit.INVALID, (code, repr(failure), done.output)
