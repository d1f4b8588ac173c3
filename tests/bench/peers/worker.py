"""A peer's process, from outside: JSON lines over a socket; what it prints goes to its log."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from deploy.local.processes import Child, log_tail, spawn

from .environments import CannotTakePart

START_LIMIT_S = 180.0
LIMIT_S = 900.0


@dataclass(frozen=True)
class Answer:
    seconds: float
    rows: list[list[Any]]


class Worker:
    """A process that answers one request after the other."""

    def __init__(self, name: str, connection: socket.socket, log: Path) -> None:
        self._name, self._connection, self._log = name, connection, log
        connection.settimeout(LIMIT_S)
        self._lines = connection.makefile("rw", encoding="utf-8")
        self._broken = ""
        self._receive()  # that it is ready

    def ask(self, request: dict[str, Any]) -> Answer:
        """Seconds as the worker measured them, and the rows. Raises CannotTakePart."""
        if self._broken:
            raise CannotTakePart(self._broken)
        self._lines.write(json.dumps(request) + "\n")
        self._lines.flush()
        answer = self._receive()
        if "error" in answer:
            raise CannotTakePart(answer["error"].splitlines()[0][:300] + f" (more in {self._log})")
        return Answer(answer["seconds"], answer["rows"])

    def _receive(self) -> dict[str, Any]:
        try:
            line = self._lines.readline()
        except TimeoutError:
            line = ""
        if not line:
            self._broken = f"{self._name} ended, or gave no answer in {LIMIT_S:.0f} s: see {self._log}"
            raise CannotTakePart(self._broken)
        return dict(json.loads(line))

    def close(self) -> None:
        """The process ends at the end of its input."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._lines.close()
        self._connection.close()


def own_environment(folder: Path) -> dict[str, str]:
    """Without the checkout's packages; what a peer writes for its user or for a while goes to `folder`."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "SPARK_", "VIRTUAL_ENV"))}
    return {**inherited, "HOME": str(folder), "TMPDIR": str(folder), "SPARK_LOCAL_DIRS": str(folder), "RAY_USAGE_STATS_ENABLED": "0"}


@contextlib.contextmanager
def worker(name: str, python: Path, script: Path, arguments: list[str], folder: Path) -> Iterator[Worker]:
    """Starts the process; ends it and all below it. `{scratch}` in the arguments is a folder with a short name."""
    folder.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="peer-"))  # short: a socket's path has at most 107 characters
    log = folder / f"{name}.log"
    child: Child | None = None
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(scratch / "socket"))
            listening.listen()
            command = [str(python), str(script), str(scratch / "socket"), *(each.format(scratch=scratch) for each in arguments)]
            environment = {**own_environment(scratch), "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
            child = spawn(command, log=log, env=environment, cwd=scratch)
            connection = _accepted(listening, child, name, log)
        process = Worker(name, connection, log)
        patience_s = 2.0  # after a Ctrl-C it may be in the middle of its work
        try:
            yield process
            patience_s = 20.0
        finally:
            family = _family(child.pid)
            process.close()
            _end(family, patience_s)
    finally:
        if child is not None:
            child.stop()
        shutil.rmtree(scratch, ignore_errors=True)


def _accepted(listening: socket.socket, child: Child, name: str, log: Path) -> socket.socket:
    listening.settimeout(0.5)
    deadline = time.monotonic() + START_LIMIT_S
    while child.exit_code() is None and time.monotonic() < deadline:
        with contextlib.suppress(TimeoutError):
            return listening.accept()[0]
    last = [line for line in log_tail([log], 5).splitlines() if line.strip()]
    raise CannotTakePart(f"{name} does not start: {(last or ['no output'])[-1][:200]} (more in {log})")


def _family(pid: int) -> list[psutil.Process]:
    """The worker, all below it, and what is left in its session by one of them that has died."""
    found: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        found = [root, *root.children(recursive=True)]
    return [*found, *(process for process in psutil.process_iter() if process not in found and _session(process) == pid)]


def _session(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid)
    except OSError:  # it has ended, or is of another user
        return None


def _end(family: list[psutil.Process], patience_s: float) -> None:
    """Waits for a worker, which ends by itself; what it leaves behind is killed."""
    psutil.wait_procs(family[:1], patience_s)
    _, left = psutil.wait_procs(family, 3)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, 10)
