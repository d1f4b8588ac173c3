"""TaskManager processes with timed slots, started again when they end, as a supervisor would."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from deploy.local.downloads import CHECKOUT
from deploy.local.processes import Child, spawn
from deploy.local.stack import Stack

AGAIN_S = 0.05


class TaskManagers:
    """`count` of them with `slots` slots each, named timed-1, timed-2, ..., in a `with`.
    `ended(name, exit code, log)` is told of each end that was not asked for here."""

    def __init__(self, stack: Stack, count: int, slots: int, ended: Callable[[str, int, Path], object] = lambda *_: None) -> None:
        self._stack, self._slots, self._ended = stack, slots, ended
        self.names = [f"timed-{number + 1}" for number in range(count)]
        self.lives = stack.folder / "lives"
        self._children: dict[str, Child] = {}
        self._ending = threading.Event()
        self._changing = threading.Lock()
        self._keepers = [threading.Thread(target=self._keep, args=(name,), daemon=True) for name in self.names]

    def __enter__(self) -> TaskManagers:
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
            self._children[name].stop(3.0)
        for keeper in self._keepers:
            keeper.join(10)

    def pid(self, name: str) -> int:
        return self._children[name].pid

    def _start(self, name: str) -> None:
        command = [sys.executable, "-m", "tests.task_manager.timed", "--config", str(self._stack.settings_file)]
        command += ["--id", name, "--instance", name, "--slots", str(self._slots)]
        paths = os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "shared")])
        env = {**os.environ, "PYTHONPATH": paths, "TIMED_LIVES": str(self.lives)}
        log: Path = self._stack.folder / "logs" / f"{name}.log"
        if log.exists():
            log.replace(log.with_suffix(".log.1"))
        self._children[name] = spawn(command, log=log, env=env, cwd=self._stack.folder)

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
