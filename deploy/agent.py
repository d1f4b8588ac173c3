"""Runs TaskManagers on its host as a ResourceManager tells it to (`services/resource_manager/providers/process.py`).

A local stack's supervisor has one. On another host it is a program of its own: `millrace agent`. Its TaskManagers end with it, and
with nobody else: leaders come and go meanwhile.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from services.resource_manager.core.workers import is_worker
from services.task_manager.settings import heap_of
from services.task_manager.slot.common.config import MEBIBYTE

from .local.processes import Child, log_tail

STOP_S = 6.0  # for a TaskManager; 5 is what it promises
MOST = 16  # TaskManagers that a machine of any size is given by itself


def machine_holds(slots: int, heap_mb: int | None, cores: int, memory: int) -> int:
    """How many TaskManagers of so many slots use a machine up: its cores, and half of its memory in bytes, with the heap that one of
    them alone would have."""
    heaps_mb = slots * (heap_mb or heap_of(memory, slots))
    return max(1, min(cores // slots, memory // MEBIBYTE // 2 // heaps_mb, MOST))


class Running(Protocol):
    """A TaskManager's process."""

    def ended(self) -> str | None:
        """Why it has ended, in a line; None: it runs."""
        ...

    def stop(self, patience_s: float) -> None:
        """Ends it, and returns when nothing of it runs."""
        ...


class Refused(Exception):
    """What was asked is not done; the message says why."""


class Superseded(Refused):
    """It was asked for by a leader that was replaced."""


def write_whole(path: Path, text: str) -> None:
    """All of it or nothing, though the machine stops meanwhile. Raises OSError."""
    new = path.with_name(f"{path.name}.new")
    with new.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


@dataclass
class TaskManagerProcess:
    """One that runs as a child of this process. `gone` is called once it was stopped."""

    child: Child
    gone: Callable[[], None] = lambda: None

    def ended(self) -> str | None:
        code = self.child.exit_code()
        if code is None:
            return None
        last = log_tail([self.child.log], lines=1).strip()
        return f"it ended with {code}{f': {last}' if last else ''}"

    def stop(self, patience_s: float) -> None:
        if self.child.exit_code() is None:  # else its process id may be another one's by now
            self.child.stop(patience_s)
        self.gone()


@dataclass
class Agent:
    """TaskManagers by their ids. Calls come on several threads. `epoch`: the highest of a leader that has asked what there is. What an
    earlier one still asks for is refused, for its successor has counted."""

    start_process: Callable[[str], Running]
    host: str = field(default_factory=socket.gethostname)  # as its TaskManagers name it when they register
    running: dict[str, Running] = field(default_factory=dict)
    most: int = 1_000
    claim: Path | None = None
    """File with the uuid of the cluster that it serves, from the first request on; None: that is kept as long as it runs."""
    cluster: str = ""
    epoch: int = 0
    closed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopping: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.claim is not None and self.claim.exists():
            self.cluster = self.claim.read_text().strip()

    def workers(self, epoch: int, cluster: str = "") -> dict[str, str | None]:
        with self._lock:
            self._check(epoch, cluster)
            self.epoch = epoch
            return {name: running.ended() for name, running in self.running.items()}

    def start(self, name: str, epoch: int, cluster: str = "") -> None:
        """One that runs stays. One that has ended is started again."""
        with self._lock:
            self._check(epoch, cluster)
            if not is_worker(name):
                raise Refused(f"{name} is no id of a TaskManager that an agent starts")
            if name in self._stopping:
                raise Refused(f"{name} is being stopped")
            before = self.running.get(name)
            if before is None and len(self.running) >= self.most:
                raise Refused(f"it has {len(self.running)} TaskManagers, and may have no more (--most)")
            if before is None or before.ended() is not None:
                self.running[name] = self.start_process(name)

    def stop(self, name: str, epoch: int, cluster: str = "") -> None:
        with self._lock:
            self._check(epoch, cluster)
            running = self.running.get(name)
            self._stopping[name] = None
        try:
            if running is not None:
                running.stop(STOP_S)
            with self._lock:
                if self.running.get(name) is running:
                    self.running.pop(name, None)
        finally:
            with self._lock:
                self._stopping.pop(name, None)

    def close(self) -> None:
        """Nothing is started from now on."""
        with self._lock:
            self.closed = True

    def end(self) -> None:
        """Stops all that run side by side, for each may take STOP_S; nothing is started from now on."""
        self.close()
        living = list(self.running.values())
        with ThreadPoolExecutor(max(1, len(living)), thread_name_prefix="stop") as pool:
            list(pool.map(lambda running: running.stop(STOP_S), living))

    def _check(self, epoch: int, cluster: str) -> None:
        """The first that asks owns it: what another one started or stopped there would be lost to the owner. Its epochs say nothing of
        another cluster's, so that is looked at first."""
        if self.closed:
            raise Refused("the agent is being stopped")
        if cluster != self.cluster and self.cluster:
            where = f"; to give it to another one, end it, delete {self.claim} and start it again" if self.claim is not None else ""
            raise Refused(f"it serves cluster {self.cluster}, and not {cluster or 'one without a name'}{where}")
        if epoch < self.epoch:
            raise Superseded(f"a later leader, of epoch {self.epoch}, has asked already")
        if cluster and not self.cluster:
            if self.claim is not None:
                write_whole(self.claim, f"{cluster}\n")
            self.cluster = cluster
