"""Processes that are started again when they end, as a supervisor would: TaskManagers with timed slots, and agents that run such."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from deploy.local.downloads import CHECKOUT
from deploy.local.processes import Child, spawn
from deploy.local.stack import Stack

AGAIN_S = 0.05


class Kept:
    """Processes by their names, in a `with`. `ended(name, exit code, log)` is told of each end that was not asked for here."""

    patience_s = 3.0

    def __init__(self, stack: Stack, names: list[str], ended: Callable[[str, int, Path], object] = lambda *_: None) -> None:
        self._stack, self.names, self._ended = stack, names, ended
        self.lives = stack.folder / "lives"
        self._children: dict[str, Child] = {}
        self._ending = threading.Event()
        self._changing = threading.Lock()
        self._keepers = [threading.Thread(target=self._keep, args=(name,), daemon=True) for name in self.names]

    def __enter__(self) -> Kept:
        self.lives.mkdir(parents=True, exist_ok=True)
        for name in self.names:
            self._start(name)
        for keeper in self._keepers:
            keeper.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changing:
            self._ending.set()
        for name in self.names:
            self._children[name].stop(self.patience_s)
        for keeper in self._keepers:
            keeper.join(10)

    def pid(self, name: str) -> int:
        return self._children[name].pid

    def pids(self) -> dict[str, int]:
        """Of all, by name."""
        return {name: self.pid(name) for name in self.names}

    def command(self, name: str) -> list[str]:
        """What is run."""
        raise NotImplementedError

    def around(self) -> Mapping[str, str]:
        """The environment that it is run in."""
        return os.environ

    def _start(self, name: str) -> None:
        paths = os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "shared")])
        env = {**self.around(), "PYTHONPATH": paths, "TIMED_LIVES": str(self.lives)}
        log: Path = self._stack.folder / "logs" / f"{name}.log"
        if log.exists():
            log.replace(log.with_suffix(".log.1"))
        self._children[name] = spawn([sys.executable, *self.command(name)], log=log, env=env, cwd=self._stack.folder)

    def _keep(self, name: str) -> None:
        while True:
            child = self._children[name]
            code = child.popen.wait()
            if not self._ending.is_set():
                self._ended(name, code, child.log)
            self._ending.wait(AGAIN_S)
            with self._changing:
                if self._ending.is_set():
                    return
                self._start(name)


class TaskManagers(Kept):
    """`count` of them with `slots` slots each, named timed-1, timed-2, ..."""

    def __init__(self, stack: Stack, count: int, slots: int, ended: Callable[[str, int, Path], object] = lambda *_: None) -> None:
        super().__init__(stack, [f"timed-{number + 1}" for number in range(count)], ended)
        self._slots = slots

    def command(self, name: str) -> list[str]:
        command = ["-m", "tests.task_manager.timed", "--config", str(self._stack.settings_file)]
        return [*command, "--id", name, "--instance", name, "--slots", str(self._slots)]
