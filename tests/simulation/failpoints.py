"""Failpoints: a process is killed, refused or put to sleep right before or right after one of its side effects.

A point is a method of an adapter and the calls of it that are meant. The calls themselves are real; what happens at one of them happens in
the midst of the process's own code, as a signal would come.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from millrace.io.interfaces import Put, Txn, Unavailable, UnknownOutcome
from millrace.io.storage.store import Storage, StorageError
from services.job_master import ports as job_master_ports
from tests.simulation.cluster import Cluster, Process
from tests.simulation.slots import SimulatedSlots
from tests.simulation.store import MemoryStore
from tests.simulation.world import MemoryStorage, PacedBus

When = Literal["before", "after"]
What = Literal["kill", "error", "sleep"]
ASLEEP_MS = 16_000  # three times the life of a lease
DOWN_MS = 2_000  # from a kill until the process is started again


class Killed(BaseException):
    """The process is dead: nothing in it runs on, no handler of an error either."""


@dataclass(frozen=True)
class Point:
    """`owner.method` when `meant(arguments)`; `error` makes what its caller hears when the call does not succeed."""

    owner: Any
    method: str
    meant: Callable[[tuple[Any, ...]], bool]
    error: Callable[[When], Exception] | None


def _writes(key: str, word: bytes = b"") -> Callable[[tuple[Any, ...]], bool]:
    def meant(given: tuple[Any, ...]) -> bool:
        txn = given[1]
        assert isinstance(txn, Txn)
        return any(isinstance(one, Put) and one.key.startswith(key) and word in one.value for one in txn.then)

    return meant


def _etcd_error(when: When) -> Exception:
    return UnknownOutcome("the answer was lost") if when == "after" else Unavailable("etcd is away")


def _disk_error(when: When) -> Exception:
    return StorageError("a path", "the disk is full", "make room")


def _stored_below(folder: str) -> Callable[[tuple[Any, ...]], bool]:
    return lambda given: str(given[1]).startswith(folder)


def _appended_to(topic: str, word: bytes) -> Callable[[tuple[Any, ...]], bool]:
    return lambda given: given[1] == topic and word in given[3]


POINTS = {
    "etcd: the graph of a job": Point(MemoryStore, "txn", _writes("jobs/", b'"state":"accepted"'), _etcd_error),
    "etcd: the end of a job": Point(MemoryStore, "txn", _writes("jobs/", b'"state":"dirty"'), _etcd_error),
    "etcd: the tombstone of a job": Point(MemoryStore, "txn", _writes("jobs/", b'"state":"clean"'), _etcd_error),
    "etcd: the pointer to a snapshot": Point(MemoryStore, "txn", _writes("snapshots/"), _etcd_error),
    "storage: a module of a job": Point(Storage, "copy_new", _stored_below("uploads"), _disk_error),
    "storage: the archive": Point(MemoryStorage, "put_if_absent", _stored_below("archives/"), _disk_error),
    "storage: a snapshot": Point(Storage, "put_new", _stored_below("snapshots/"), _disk_error),
    "storage: the clean-up": Point(Storage, "delete_tree", _stored_below("exchange/"), _disk_error),
    "storage: a sink is published": Point(job_master_ports, "_publish", lambda _: True, lambda _: OSError("the disk is full")),
    "Kafka: a request is copied": Point(PacedBus, "append", _appended_to("dispatcher.commands", b'"Client"'), None),
    "Kafka: an outcome": Point(PacedBus, "append", _appended_to("dispatcher.commands", b'"Outcome"'), None),
    "Kafka: a job is accepted": Point(PacedBus, "append", _appended_to("client.replies", b"JobAcceptedReply"), None),
    "Kafka: a job is started": Point(PacedBus, "append", _appended_to("job-master.commands", b"StartJob"), None),
    "Kafka: slots are wanted": Point(PacedBus, "append", _appended_to("resource-manager.commands", b"RequestSlots"), None),
    "Kafka: a slot is granted": Point(PacedBus, "append", _appended_to("task-manager.commands", b"AllocateSlot"), None),
    "Kafka: a slot is offered": Point(PacedBus, "append", _appended_to("job-master.commands", b"OfferSlots"), None),
    "Kafka: tasks are deployed": Point(PacedBus, "append", _appended_to("task-manager.commands", b"DeployTasks"), None),
    "Kafka: an attempt has ended": Point(PacedBus, "append", _appended_to("job-master.commands", b"FINISHED"), None),
    "Kafka: a job has ended": Point(PacedBus, "append", _appended_to("dispatcher.commands", b"JobEnded"), None),
    "Kafka: an end is told": Point(PacedBus, "append", _appended_to("job.events", b"JobFinished"), None),
    "Kafka: a job is retired": Point(PacedBus, "append", _appended_to("job-master.commands", b"JobRetired"), None),
    "slot: an attempt is launched": Point(SimulatedSlots, "launch", lambda _: True, None),
}  # fmt: skip


class Failpoint:
    """Makes `what` happen once, `when` the call number `number` of a point comes, in whichever process it comes."""

    def __init__(
        self, patch: pytest.MonkeyPatch, cluster: Cluster, point: Point, when: When, what: What, number: int
    ) -> None:
        self.cluster, self.point, self.when, self.what = cluster, point, when, what
        self.fired: str | None = None  # the process that it happened to
        self._left, self._acting = number, ""
        self._again_ms = 0
        self._guarded: dict[str, Process] = {}
        called = getattr(point.owner, point.method)
        patch.setattr(point.owner, point.method, lambda *given, **named: self._call(called, given, named))

    def step(self) -> None:
        """A step of the cluster; a process that was killed is started again some time later."""
        for name, process in self.cluster.processes.items():
            if self._guarded.get(name) is not process:
                self._guarded[name] = process
                self._watch(name, process)
        self.cluster.step()
        name, now_ms = self.fired, self.cluster.world.clock.now_ms()
        if self.what == "kill" and name is not None and not self.cluster.processes[name].alive and now_ms > self._again_ms:
            self.cluster.start(name)

    def _watch(self, name: str, process: Process) -> None:
        ready = process.ready
        process.ready = lambda: [self._guard(name, process, step) for step in ready()]

    def _guard(self, name: str, process: Process, step: Callable[[], bool]) -> Callable[[], bool]:
        def guarded() -> bool:
            before, self._acting = self._acting, name
            try:
                return step()
            except Killed:
                process.kill()
                self._again_ms = self.cluster.world.clock.now_ms() + DOWN_MS
                return True
            finally:
                self._acting = before

        return guarded

    def _call(self, called: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if self.fired is not None or not self._acting or not self.point.meant(given):
            return called(*given, **named)
        self._left -= 1
        if self._left:
            return called(*given, **named)
        self.fired = self._acting
        if self.when == "before":
            self._happen()
            return called(*given, **named)
        result = called(*given, **named)
        if isinstance(given[0], PacedBus):
            given[0].deliver()  # the broker has it, and the process does not know
        self._happen()
        return result

    def _happen(self) -> None:
        if self.what == "kill":
            raise Killed
        if self.what == "error":
            assert self.point.error is not None
            raise self.point.error(self.when)
        name = self.fired
        assert name is not None
        self.cluster.paused[name] = None
        until_ms = self.cluster.world.clock.now_ms() + ASLEEP_MS
        while self.cluster.world.clock.now_ms() < until_ms:
            self.step()
        del self.cluster.paused[name]
