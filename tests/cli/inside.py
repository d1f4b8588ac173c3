"""A command of the whole program in the test's own process: what it says and its exit code, without the second that a process takes."""

from __future__ import annotations

import io
import subprocess
from contextlib import redirect_stderr, redirect_stdout

import pytest

from deploy.cli.app import app, guarded


def command(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs it. `environment`: further variables. One that a signal or its reader's end may meet needs a process."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="", write_through=True) for _ in range(2)]
    with redirect_stdout(streams[0]), redirect_stderr(streams[1]), pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        code = guarded(lambda: app([str(word) for word in words]))
    out, err = (stream.buffer.getvalue().decode() for stream in streams)  # type: ignore[attr-defined]  # a BytesIO
    return subprocess.CompletedProcess(words, code, out, err)
