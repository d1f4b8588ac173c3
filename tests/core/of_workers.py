"""Builders for tests of a ResourceManager with a provider: what it has done, and what it answers."""

from __future__ import annotations

from typing import Any

from millrace.core.machine import Configured, Do, Publish, Say
from millrace.core.messages.events import ProviderConfigured, WorkerChanged
from millrace.core.messages.slots import AllocateSlot, TaskManagerHeartbeat
from millrace.core.messages.worker_effects import (
    ListWorkers,
    StartWorker,
    StopWorker,
    WorkersListed,
    WorkerStarted,
    WorkerStopped,
)
from tests.core.of_resource_manager import Driver

W1, W2, W3 = (f"task-manager-{number}" for number in (1, 2, 3))
SETTINGS = {
    "provider": "process", "task_managers_max": 2, "worker_slots": 2, "worker_memory_mb": 1024, "worker_start_ms": 5_000,
    "worker_idle_ms": 3_000,
}  # fmt: skip


def grants(said: list[Any]) -> list[tuple[str, str]]:
    """(job, TaskManager) of the slots that are granted."""
    return [(each.body.job, each.to.partition("/")[2]) for each in said if isinstance(each, Say) and isinstance(each.body, AllocateSlot)]


class Provided(Driver):
    """A ResourceManager with a provider, whose list has been taken unless `listed` is None."""

    def __init__(self, listed: dict[str, str | None] | None = None, **settings: Any) -> None:
        super().__init__()
        self.declared()
        self.events = 0
        assert self.core(Configured({**SETTINGS, **settings})) == self.configures(1, **settings)
        if listed is None:
            assert self.core(WorkersListed(number=1)) == []

    def configures(self, number: int, **settings: Any) -> list[Any]:
        """What follows a new leader's settings; `number`: of the list that it asks for."""
        given = {**SETTINGS, **settings}
        event = ProviderConfigured(
            provider=given["provider"], least=given.get("task_managers_min", 0), most=given["task_managers_max"], at_ms=self.now_ms,
            count=number,
        )  # fmt: skip
        return [Do("workers", ListWorkers(number=number)), Publish("cluster.events", "provider", event)]

    def changed(self, worker: str, state: Any, reason: str | None = None, failed: bool = False) -> Publish:
        """The next event about a worker."""
        self.events += 1
        at_ms = self.now_ms + self.away_ms
        event = WorkerChanged(worker=worker, state=state, reason=reason, failed=failed, at_ms=at_ms, count=self.events)
        return Publish("cluster.events", worker, event)

    def starts(self, worker: str) -> list[Any]:
        return [self.changed(worker, "REQUESTED"), Do(f"workers/{worker}", StartWorker(worker=worker))]

    def stops(self, worker: str, reason: str, failed: bool = False) -> list[Any]:
        return [self.changed(worker, "STOPPING", reason, failed), Do(f"workers/{worker}", StopWorker(worker=worker))]

    def started(self, worker: str = W1, problem: str | None = None) -> list[Any]:
        return self.core(WorkerStarted(worker=worker, problem=problem))

    def stopped(self, worker: str = W1) -> list[Any]:
        return self.core(WorkerStopped(worker=worker))

    def comes(self, worker: str = W1, life: int = 7, slots: int = 2, **states: Any) -> list[Any]:
        """Its TaskManager registers."""
        return self.register(f"task-manager/{worker}", life, (1024,) * slots, **states)

    def runs(self, worker: str = W1) -> Provided:
        """The next worker is requested already: it starts and registers."""
        self.started(worker)
        self.comes(worker)
        self.events = self.state.workers.changes
        return self

    def beat(self, *names: str) -> None:
        for name in names or self.state.task_managers:
            self.say(f"task-manager/{name}", TaskManagerHeartbeat())

    def wait(self, ms: int) -> list[Any]:
        """Time goes on, heartbeats come; all that is said."""
        said = []
        for _ in range(ms // 100):
            self.beat()
            said += self.tick()
        return said

    def states(self) -> dict[str, str]:
        return {name: worker.state.value for name, worker in self.state.workers.known.items()}
