"""A whole cluster in memory: three leaders, scripted TaskManagers that answer at once, and a client whose requests are copied."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from millrace.core.fold import TICK_MS
from millrace.core.jobgraph.model import Limits
from millrace.core.messages import effects
from millrace.core.messages.attempts import AttemptReport, Fault
from millrace.core.messages.base import Body
from millrace.core.messages.client import SubmitJob
from millrace.core.messages.jobs import SlotSpec
from millrace.core.messages.records import Client
from millrace.core.messages.slots import (
    DeployTask,
    OfferSlots,
    RegisterTaskManager,
    ReportedSlot,
    SlotFreed,
    SlotOffer,
    TaskStateChanged,
)
from millrace.core.topics import DISPATCHER, RESOURCE_MANAGER, TASK_MANAGER, shard_scope, task_manager_scope
from millrace.edge.requests import check_graph
from services.dispatcher import metrics as dispatcher_metrics
from services.dispatcher.core.machine import Dispatcher
from services.job_master import metrics as job_master_metrics
from services.job_master.core.machine import JobMaster
from services.resource_manager import metrics as resource_manager_metrics
from services.resource_manager.core.machine import ResourceManager

from .in_memory import House, Peer, body_of, house

SLOT_MB = 4096
LOST_AFTER_MS = 3_600_000
"""Silent TaskManagers: what heartbeats cost is measured apart."""


class Cluster:
    """`holds`: attempts run until `finish` or `fail`; else they finish at once."""

    def __init__(self, around: House, task_managers: int, slots: int, holds: bool, retained_jobs: int) -> None:
        self.house, self.holds, self.submitted, self.slots = around, holds, 0, slots
        self.dispatcher = around.lead(Dispatcher(around.topology), {"retained_jobs": retained_jobs}, dispatcher_metrics.Measures().counts)
        self.resource_manager = around.lead(
            ResourceManager(around.topology.shards), {"lost_after_ms": LOST_AFTER_MS}, resource_manager_metrics.COUNTS
        )
        self.job_master = around.lead(JobMaster(0), {"exchange_url": "file:///exchange"}, job_master_metrics.COUNTS)
        self.running: dict[str, tuple[Peer, DeployTask]] = {}  # allocation -> its attempt
        self.counts: dict[str, int] = {}  # of public events, by type
        self._peers: dict[str, Peer] = {}
        self._jobs: dict[str, tuple[int, str]] = {}  # allocation -> its slot, its job
        around.begin()
        for number in range(task_managers):
            name = f"tm-{number}"
            peer = self._peers[name] = Peer(around, task_manager_scope(name), 10 + number, RESOURCE_MANAGER, shard_scope(0))
            peer.say(RESOURCE_MANAGER, RegisterTaskManager(
                host=f"host-{number}", slots=[SlotSpec(slot=slot, memory_mb=SLOT_MB) for slot in range(slots)],
                states=[ReportedSlot(slot=slot, state="FREE") for slot in range(slots)], build="bench",
            ))  # fmt: skip
        around.settle()

    def take(self, topic: str, key: str, value: bytes) -> None:
        if key.startswith(TASK_MANAGER):
            body: Any = body_of(value)
            if body.type in _TAKEN:
                _TAKEN[body.type](self, self._peers[key.partition("/")[2]], body)
        elif topic == "job.events":
            kind = value[9 : value.index(b'"', 9)].decode()  # {"type":"JobFinished",
            self.counts[kind] = self.counts.get(kind, 0) + 1

    def submit(self, graph: dict[str, Any], limits: Limits | None = None) -> str:
        """As the client port copies it. Nothing follows before time goes on, or all settles."""
        offset = self.submitted
        checked = check_graph(graph, {}, limits or Limits())
        assert checked.stored is not None, checked.problems
        job = f"job-{offset:06d}"
        request = SubmitJob(job=job, graph={}, reply_to="client", correlation=str(offset))
        record = Client(log="clients", prev=offset - 1, offset=offset, request=request, graph=checked.stored, digest=f"{offset:064x}")
        self.house.give(DISPATCHER, record)
        self.submitted += 1
        return job

    def tick(self, ticks: int = 1) -> None:
        for _ in range(ticks):
            self.house.advance(TICK_MS)

    def finish(self, allocation: str, reports: dict[str, Any] | None = None) -> None:
        """The attempt in this slot has finished, with one row of each vertex, or with what it `reports`."""
        peer, task = self.running.pop(allocation)
        outputs = {each.id: {"schema": "{}", "rows": 1, "bytes": 9} for each in task.spec.vertices}
        report = AttemptReport.model_validate(reports or {"outputs": outputs})
        peer.say(shard_scope(0), TaskStateChanged(allocation=allocation, attempt=task.attempt, state="FINISHED", report=report))

    def fail(self, allocation: str, error: Fault) -> None:
        peer, task = self.running.pop(allocation)
        peer.say(shard_scope(0), TaskStateChanged(allocation=allocation, attempt=task.attempt, state="FAILED", error=error))

    # what TaskManagers are sent

    def _allocate(self, peer: Peer, body: Any) -> None:
        self._offer(peer, body, [body])

    def _allocate_several(self, peer: Peer, body: Any) -> None:
        self._offer(peer, body, body.slots)

    def _offer(self, peer: Peer, body: Any, given: list[Any]) -> None:
        offers = []
        for each in given:
            self._jobs[each.allocation] = each.slot, body.job
            offers.append(SlotOffer(slot=each.slot, allocation=each.allocation, job=body.job, memory_mb=SLOT_MB, takes_runs=True))
        peer.say(shard_scope(body.shard), OfferSlots(offers=offers))

    def _deploy(self, peer: Peer, body: Any) -> None:
        for task in body.tasks:
            self.running[task.allocation] = peer, task
            peer.say(shard_scope(0), TaskStateChanged(allocation=task.allocation, attempt=task.attempt, state="RUNNING"))
            if not self.holds:
                self.finish(task.allocation)

    def _cancel(self, peer: Peer, body: Any) -> None:
        for attempt in body.attempts:
            for allocation, (_, task) in list(self.running.items()):
                if task.attempt == attempt:
                    del self.running[allocation]
                    peer.say(shard_scope(0), TaskStateChanged(allocation=allocation, attempt=attempt, state="CANCELED"))

    def _free(self, peer: Peer, body: Any) -> None:
        for allocation in body.allocations:
            slot, _ = self._jobs.pop(allocation)
            self.running.pop(allocation, None)
            peer.say(RESOURCE_MANAGER, SlotFreed(slot=slot, allocation=allocation))


_TAKEN = {
    "AllocateSlot": Cluster._allocate,
    "AllocateSlots": Cluster._allocate_several,
    "DeployTasks": Cluster._deploy,
    "CancelTasks": Cluster._cancel,
    "FreeSlots": Cluster._free,
}


def performed(effect: dict[str, Any]) -> Body:
    """The outcomes of effects, as etcd and storage give them to a cluster of its own."""
    job = effect.get("job", "")
    if effect["type"] == "PutJobGraph":
        return effects.JobGraphStored(job=job, stands=effects.StoredJob(**{**effect["stored"], "graph": None}))
    if effect["type"] == "EndJob":
        return effects.JobResultStored(job=job, stands=effects.StoredJob.model_validate(effect["ending"]))
    if effect["type"] == "CleanJob":
        return effects.JobCleaned(job=job)
    assert effect["type"] == "RecoverJobs", effect
    return effects.JobsRecovered(jobs={})


@contextmanager
def cluster(task_managers: int, slots: int, *, holds: bool = False, retained_jobs: int = 10_000) -> Iterator[Cluster]:
    made: list[Cluster] = []
    with house(lambda *sent: made[0].take(*sent) if made else None, performed) as around:
        made.append(Cluster(around, task_managers, slots, holds, retained_jobs))
        yield made[0]
