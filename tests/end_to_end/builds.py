"""Processes of another build beside a stack's own: a copy of the code with another version, started as an operator would."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import threading
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from deploy.local.downloads import CHECKOUT
from deploy.local.processes import Child, free_port, spawn
from deploy.local.stack import Stack

SERVICES = ("dispatcher", "resource_manager", "job_master")
AGAIN_S = 0.1


def copy_with_version(folder: Path, version: str) -> Path:
    """The code of this checkout under another version."""
    leave = shutil.ignore_patterns("__pycache__")
    for part in ("shared", "services"):
        shutil.copytree(CHECKOUT / part, folder / part, ignore=leave)
    file = folder / "shared" / "millrace" / "__init__.py"
    text, count = re.subn(r'__version__ = ".*"', f'__version__ = "{version}"', file.read_text())
    assert count == 1, "the version stands elsewhere"
    file.write_text(text)
    return folder


class OtherBuild:
    """One process of each control service from `code`, started again when it ends, in a `with`."""

    def __init__(self, stack: Stack, code: Path) -> None:
        self._stack, self._code = stack, code
        self._children: dict[str, Child] = {}
        self._ending, self._changing = threading.Event(), threading.Lock()
        self._blob_port = free_port([])
        self._keepers: list[threading.Thread] = []

    def __enter__(self) -> OtherBuild:
        for service in SERVICES:
            self._start(service)
            self._keepers.append(threading.Thread(target=self._keep, args=(service,), daemon=True))
            self._keepers[-1].start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changing:
            self._ending.set()
        for child in self._children.values():
            child.stop(5.0)
        for keeper in self._keepers:
            keeper.join(10)

    def _ready_file(self, service: str) -> Path:
        return self._stack.folder / "run" / f"other-{service}.json"

    def _start(self, service: str) -> None:
        ready = self._ready_file(service)
        ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", f"services.{service}", "--config", str(self._stack.settings_file)]
        command += ["--instance", f"{service}-other", "--ready-file", str(ready)]
        if service == "dispatcher":
            command += ["--blob-port", str(self._blob_port)]
        paths = os.pathsep.join([str(self._code), str(self._code / "shared")])
        log = self._stack.folder / "logs" / f"other-{service}.log"
        if log.exists():
            log.replace(log.with_suffix(".log.1"))
        self._children[service] = spawn(command, log=log, env={**os.environ, "PYTHONPATH": paths}, cwd=self._code)

    def _keep(self, service: str) -> None:
        while True:
            self._children[service].popen.wait()
            self._ending.wait(AGAIN_S)
            with self._changing:
                if self._ending.is_set():
                    return
                self._start(service)

    def healths(self) -> dict[int, dict[str, Any]]:
        """Process -> what it says of itself; those that are just starting are left out."""
        found = {}
        for service in SERVICES:
            with suppress(OSError, ValueError):
                ready = json.loads(self._ready_file(service).read_text())
                with urllib.request.urlopen(f"http://127.0.0.1:{ready['health_port']}/health", timeout=2) as answer:
                    found[ready["pid"]] = json.loads(answer.read())
        return found


class TwoBuilds:
    """A stack and the other build beside it: who leads what, and who waits."""

    def __init__(self, stack: Stack, other: OtherBuild) -> None:
        self._stack, self._other = stack, other

    def roles(self) -> dict[str, dict[str, tuple[str, int]]]:
        """Scope -> build -> (role, process)."""
        own = {each["pid"]: each["health"] or {} for each in self._stack.status()["services"].values()}
        found: dict[str, dict[str, tuple[str, int]]] = {}
        for pid, health in {**own, **self._other.healths()}.items():
            for scope in health.get("scopes", ()):
                found.setdefault(scope["scope"], {})[scope["build"]] = (scope["role"], pid)
        return found

    def is_settled(self) -> bool:
        """Each scope is led by one build, and the other one waits."""
        found = [sorted(role for role, _ in builds.values()) for builds in self.roles().values()]
        return bool(found) and all(roles == ["leader", "waiting"] for roles in found)

    def leaders(self) -> dict[str, tuple[str, int]]:
        """Scope -> (build, process) of its leader."""
        return {
            scope: (build, pid)
            for scope, builds in self.roles().items()
            for build, (role, pid) in builds.items()
            if role == "leader"
        }

    def end_leaders(self, leaders: dict[str, tuple[str, int]] | None = None) -> None:
        """SIGTERM to every leader."""
        for pid in dict.fromkeys(pid for _, pid in (leaders or self.leaders()).values()):
            os.kill(pid, signal.SIGTERM)
