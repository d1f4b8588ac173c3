"""Builders for tests of the Dispatcher's machine: a state, one message, the exact outputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from millrace.core.jobgraph.model import dump
from millrace.core.jobgraph.validate import validate
from millrace.core.machine import Configured, Envelope, Output, PeerBorn
from millrace.core.messages import base, client, effects, jobs
from millrace.core.messages.base import Body
from millrace.core.messages.effects import StoredJob
from millrace.core.messages.execution import Archive, JobDetail
from millrace.core.messages.records import Client, Excerpt
from millrace.core.topics import Topology
from services.dispatcher.core.machine import Dispatcher
from services.dispatcher.core.state import Recovery, State, check

TOPOLOGY = Topology(shards=2)
STATE = TypeAdapter(State)
GRAPH = dump(validate({"name": "one", "vertices": {"v": {"sql": "SELECT 1"}}}))
SINK = {"sink": {"format": "parquet", "path": "/data/out", "mode": "overwrite"}, "inputs": {"v": "forward"}}
SINKS = dump(validate({"name": "one", "vertices": {"v": {"sql": "SELECT 1"}, "out": SINK}}))
TASKS = [{"task": "v", "vertices": ["v"], "parallelism": 1}]
JOB, OTHER = "job-a", "job-b"
EXCERPT = Excerpt(size_bytes=3, sha256="0" * 64, head_base64="eHl6")
SHARD = f"job-master/{TOPOLOGY.shard_of(JOB)}"


@dataclass
class World:
    """One Dispatcher: `tell` folds one body and checks the state; records are numbered from 1 on."""

    machine: Dispatcher = field(default_factory=lambda: Dispatcher(TOPOLOGY))
    state: State = field(default_factory=State)
    offset: int = 0
    now_ms: int = 1_000_000

    def tell(self, body: Any, sender: str = "") -> list[Output]:
        self.offset += 1
        outputs = list(self.machine.handle(self.state, Envelope(sender, 1, self.now_ms, f"1.{self.offset}", body)))
        check(self.state)
        assert STATE.validate_json(STATE.dump_json(self.state)) == self.state, "a snapshot is the state"
        return outputs

    def request(self, request: base.Request, **found: Any) -> list[Output]:
        return self.tell(Client(log="l", prev=self.offset - 1, offset=self.offset, request=request, **found))

    def submit(
        self, job: str = JOB, digest: str = "d", graph: dict | None = None, lack: str = "", **fields: Any
    ) -> list[Output]:
        request = client.SubmitJob(job=job, graph={}, reply_to="c", correlation="1", **fields)
        return self.request(request, graph=graph or GRAPH, digest=digest, lack=lack)

    def fire(
        self, job: str = JOB, digest: str = "d", graph: dict | None = None, lack: str = "", **fields: Any
    ) -> list[Output]:
        """A submission that wants no answer."""
        request = client.SubmitJob(job=job, graph={}, **fields)
        return self.request(request, graph=graph or GRAPH, digest=digest, excerpt=EXCERPT, lack=lack)

    def accept(self, job: str = JOB, graph: dict | None = None) -> StoredJob:
        """Submits, and etcd stores it; returns what stands."""
        [put] = self.submit(job, graph=graph)
        self.tell(effects.JobGraphStored(job=job, stands=put.effect.stored))
        return put.effect.stored

    def end(self, job: str = JOB, status: str = "FINISHED", **fields: Any) -> effects.EndJob:
        """The JobMaster tells the end of a live job; returns the effect."""
        acceptance = self.state.live[job].acceptance
        [do] = self.tell(ended(job, acceptance, status, **fields), sender=f"job-master/{TOPOLOGY.shard_of(job)}")
        return do.effect

    def finish(self, job: str = JOB, status: str = "FINISHED", **fields: Any) -> StoredJob:
        """A live job ends, and etcd stores that."""
        stands = self.end(job, status, **fields).ending
        self.tell(effects.JobResultStored(job=job, stands=stands))
        return stands

    def hear_all(self) -> None:
        for peer in self.machine.peers:
            self.tell(PeerBorn(peer, 1), sender=peer)


def settled(**settings: Any) -> World:
    """A Dispatcher whose recovery is done and that has heard every peer."""
    world = World()
    world.tell(Configured(settings))
    world.state.recovery, world.state.unlisted_ms = Recovery.DONE, 0
    world.hear_all()
    return world


def stored(job: str = JOB, state: str = "accepted", **fields: Any) -> StoredJob:
    ended = (
        {} if state == "accepted" else {"status": "FINISHED", "ended_ms": 7, "archive": f"archives/{job}/0.9/0.11.json"}
    )
    graph = {"graph": GRAPH} if state == "accepted" else {}
    shard = TOPOLOGY.shard_of(job)
    known = {"digest": "d", "acceptance": "0.9", "shard": shard, "accepted_ms": 5, "name": "one", **ended, **graph}
    return StoredJob(**{"state": state, **known, **fields})


def described(job: str, acceptance: str, status: str = "FINISHED", **fields: Any) -> JobDetail:
    """A job as its JobMaster left it."""
    times = {"accepted_ms": 1_000, "since_ms": 2_000}
    return JobDetail(job=job, name="one", acceptance=acceptance, status=status, **{**times, "tasks": [], "result": None, **fields})


def ended(job: str, acceptance: str, status: str = "FINISHED", result: Any = None, **fields: Any) -> jobs.JobEnded:
    told = {"cause": None, "ended_ms": 2_000, "archive": described(job, acceptance, status, result=result)}
    return jobs.JobEnded(job=job, acceptance=acceptance, status=status, **{**told, **fields})


def end_effect(job: str, ending: StoredJob) -> effects.EndJob:
    """With an archive that holds what it must."""
    archive = Archive(job=job, name="one", status=ending.status or "FINISHED", accepted_ms=1_000, ended_ms=2_000)
    return effects.EndJob(job=job, ending=ending, archive=archive)


def bodies(outputs: list[Output]) -> list[Body]:
    return [getattr(output, "effect", None) or output.body for output in outputs]


def asks(kind: type[base.Request], job: str = JOB, correlation: str = "2") -> base.Request:
    return kind(job=job, reply_to="c", correlation=correlation)


def of_shard(count: int) -> list[str]:
    """Ids of jobs that belong to SHARD."""
    return [job for job in map("job-{}".format, range(1000)) if f"job-master/{TOPOLOGY.shard_of(job)}" == SHARD][:count]
