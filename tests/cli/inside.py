"""A command of the whole program in the test's own process: what it says and its exit code, without the second that a process takes."""

from __future__ import annotations

import io
import subprocess
from contextlib import redirect_stderr, redirect_stdout

import pytest

from deploy.cli.app import app, guarded


def command(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs it. `environment`: further variables. One that a signal or its reader's end may meet needs a process."""
    out, err = _Stream(), _Stream()
    return subprocess.CompletedProcess(words, _run(words, out, err, environment), out.text, err.text)


def shown(*words: object, **environment: str) -> tuple[int, str]:
    """(exit code, what a terminal shows) of `command`: stdout and stderr as they came."""
    both = _Stream()
    return _run(words, both, both, environment), both.text


class _Stream(io.TextIOWrapper):
    def __init__(self) -> None:
        self._bytes = io.BytesIO()
        super().__init__(self._bytes, encoding="utf-8", newline="", write_through=True)

    @property
    def text(self) -> str:
        return self._bytes.getvalue().decode()


def _run(words: tuple[object, ...], out: _Stream, err: _Stream, environment: dict[str, str]) -> int:
    with redirect_stdout(out), redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        return guarded(lambda: app([str(word) for word in words], prog_name="millrace"))
