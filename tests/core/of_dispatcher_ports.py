"""Builders for tests of the Dispatcher's ports: etcd in memory and a real folder, with a leader."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from millrace.core.messages import effects
from millrace.core.messages.effects import StoredJob
from millrace.io.interfaces import Put, Txn
from millrace.io.storage.store import Storage
from millrace.runtime import troubles
from millrace.runtime.performer import Fence
from services.dispatcher.ports import JobStore
from services.dispatcher.staging import Staging
from tests.core import of_dispatcher
from tests.core.of_dispatcher import JOB, stored
from tests.simulation import Clock
from tests.simulation.store import MemoryEtcd, MemoryStore


class World:
    """etcd with a leader, and the ports of that leader."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.etcd = MemoryEtcd(self.clock)
        self.store = MemoryStore(self.etcd, "/m/")
        self.storage = Storage(str(folder))
        self.fence = self.elect()
        self.ports = JobStore(self.store, self.storage, self.clock.now_ms, Staging(patience_s=5))
        self.clean = self.ports.ports()[effects.CleanJob]

    def elect(self) -> Fence:
        self.store.txn(Txn([], [Put("leaders/dispatcher", b"me")]))
        return Fence("dispatcher", self.store.get("leaders/dispatcher").mod_revision)

    def put(self, *some: effects.PutJobGraph) -> list[StoredJob | str | None]:
        outcomes = self.ports.put_graphs(some, self.fence)
        return [outcome and (outcome.stands or "nothing") for outcome in outcomes]

    def recover(self, effect: effects.RecoverJobs, fence: Fence) -> effects.JobsRecovered:
        [outcome] = self.ports.ports()[effects.RecoverJobs]([effect], fence)
        return outcome

    def troubles(self, kind: troubles.Kind) -> list[str]:
        return [job for job, _, _ in troubles.noted(self.store, kind)]

    def holds(self, job: str = JOB) -> StoredJob | None:
        entry = self.store.get(f"jobs/{job}")
        return StoredJob.model_validate_json(entry.value) if entry else None

    def set(self, stands: StoredJob, job: str = JOB) -> None:
        self.store.txn(Txn([], [Put(f"jobs/{job}", stands.model_dump_json().encode())]))


def puts(names: Sequence[str], **fields: object) -> list[effects.PutJobGraph]:
    return [effects.PutJobGraph(job=name, stored=stored(name, **fields)) for name in names]


def end_effect(job: str = JOB, **fields: object) -> effects.EndJob:
    return of_dispatcher.end_effect(job, stored(job, "dirty", **fields))


def clean_effect(job: str = JOB, staging: Sequence[str] = ()) -> effects.CleanJob:
    return effects.CleanJob(job=job, tombstone=stored(job, "clean"), exchange="exchange/0.9", staging=list(staging))
