"""A provider of TaskManagers in memory, with the faults of real ones; and what must hold of one that the ResourceManager uses."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from millrace.core.topics import RESOURCE_MANAGER
from services.resource_manager.core import workers
from services.resource_manager.providers import NotProvided
from tests.simulation.cluster import Cluster
from tests.simulation.task_manager import TaskManagerProcess

AWAY = "the backend is away"


class MemoryProvider:
    """Starts TaskManagers of a cluster. Its faults are fields: each is undone by who has set it."""

    def __init__(self, cluster: Cluster, most: int, stop_ms: int = 0) -> None:
        """`most`: TaskManagers at most, as its ResourceManager is configured. `stop_ms`: what it takes to stop one."""
        self._cluster, self._most, self._stop_ms = cluster, most, stop_ms
        self._ending: dict[str, int] = {}  # what it was asked to stop -> when nothing of it runs
        self.away = False  # it answers nothing, and does nothing
        self.refuses = False  # it starts none, and says so
        self.loses_answers = False  # it does what it is asked, and nobody learns of it
        self.mute = False  # those that it starts never register: they have no process in the cluster
        self.doubles = False  # it starts one more each time, of which nobody knows
        self.epoch = 0
        self.has: dict[str, bool] = {}  # what was started and not stopped -> whether somebody asked for it
        self.started_ms: list[int] = []  # when it was asked to start one
        self.broken: list[str] = []  # what did not hold. Who performs effects tries again whatever is raised
        cluster.world.provider = self
        cluster.unwatched = lambda name: workers.is_worker(name.partition("/")[2])

    # as the ResourceManager uses it

    def start(self, worker: str, epoch: int, avoid: Sequence[str] = ()) -> None:
        """Each has a host of its own."""
        self._fence(epoch)
        if f"host-{worker}" in avoid:
            raise NotProvided(f"its host host-{worker} is blocked")
        self.started_ms.append(self._cluster.world.clock.now_ms())
        self._hold(worker not in self._ending, f"{worker} is asked for while it is being stopped")
        if self.refuses:
            raise NotProvided("there is no room")
        self._run(worker, asked=True)
        self._hold(sum(self.has.values()) <= self._most, f"{list(self.has)} run, and {self._most} may")
        if self.doubles:
            numbers = [workers.number_of(each) for each in self.has]
            self._run(f"{workers.PREFIX}{max(numbers) + 1}", asked=False)
        self._answer()

    def stop(self, worker: str, epoch: int) -> None:
        self._fence(epoch)
        now_ms = self._cluster.world.clock.now_ms()
        if worker in self.living() and now_ms < self._ending.setdefault(worker, now_ms + self._stop_ms):
            raise NotProvided("it takes longer")
        self._hold_what_works(worker)
        self.lose(worker)
        self._answer()

    def workers(self, epoch: int) -> Mapping[str, str | None]:
        self._fence(epoch)
        self.epoch = epoch
        return {name: "its process has ended" if self._ended(name) else None for name in self.has}

    # what happens to it

    def lose(self, worker: str) -> None:
        """Nothing of it is left, and nobody is told."""
        self.has.pop(worker, None)
        self._ending.pop(worker, None)
        process = self._process(worker)
        if process is not None and process.alive:
            self._cluster.kill(process.name)

    def heal(self) -> None:
        self.away = self.refuses = self.loses_answers = self.mute = self.doubles = False

    def living(self) -> list[str]:
        """Those whose processes run."""
        return [name for name in self.has if not self._ended(name)]

    def _fence(self, epoch: int) -> None:
        if self.away:
            raise NotProvided(AWAY)
        if epoch < self.epoch:
            raise NotProvided(f"a leader of epoch {self.epoch} has asked")

    def _answer(self) -> None:
        if self.loses_answers:
            raise NotProvided("the connection was lost before it answered")

    def _run(self, worker: str, *, asked: bool) -> None:
        process = self._process(worker)
        self.has[worker] = asked or self.has.get(worker, False)
        if not self.mute and (process is None or not process.alive):
            self._cluster.start(f"task-manager/{worker}")

    def _process(self, worker: str) -> TaskManagerProcess | None:
        process = self._cluster.processes.get(f"task-manager/{worker}")
        assert process is None or isinstance(process, TaskManagerProcess)
        return process

    def _ended(self, worker: str) -> bool:
        process = self._process(worker)
        return process is not None and not process.alive

    def _hold_what_works(self, worker: str) -> None:
        """[R33]: one that works is stopped only because it was declared lost. Where more run than may, somebody has to go. One that was
        asked for is never a stranger, whichever life has asked."""
        told = [each for each in self._events("WorkerChanged") if each["worker"] == worker and each["state"] == "STOPPING"]
        stranger = bool(told) and told[-1]["reason"] == workers.UNKNOWN
        self._hold(not (stranger and self.has.get(worker)), f"{worker} was asked for, and is turned away")
        process = self._process(worker)
        if process is None or not process.alive or process.name in self._cluster.paused or len(self.living()) > self._most:
            return
        runs = [each.attempt for each in self._cluster.world.book.living.values() if each.task_manager == process.slots.process]
        gone = [each["reason"] for each in self._events("TaskManagerGone") if _names(each, process)]
        self._hold(not runs or bool(gone and "needed" not in gone[-1]), f"{worker} is stopped while {runs} run: {gone}")

    def _events(self, kind: str) -> list[dict[str, Any]]:
        """Also what the leader has decided and the broker does not have yet: no effect waits for that."""
        values: list[str | bytes] = [each.value for each in self._cluster.world.broker.log("cluster.events", 0).records]
        folded = self._cluster.leader(RESOURCE_MANAGER)
        values += [each.value for each in folded.outbox.values() if each.topic == "cluster.events"] if folded is not None else []
        return [each for each in map(json.loads, values) if each["type"] == kind]

    def _hold(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.broken.append(f"[R33]: {otherwise}")


def _names(event: dict[str, Any], process: TaskManagerProcess) -> bool:
    return (event["task_manager"], event["incarnation"]) == (process.id, process.shell.incarnation)
