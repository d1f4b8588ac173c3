"""Builders for tests of the replica core: two small machines, and a log that one replica folds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from millrace.core.fold import Fold
from millrace.core.machine import Do, Envelope, Output, Publish, Say, Ticked
from millrace.core.messages.effects import FindJob
from millrace.core.messages.jobs import JobMasterStarted
from millrace.core.messages.records import Hello, Message, Part, Tick
from millrace.core.replica import Action, Append, Replica, Speak
from millrace.core.topics import Topology

ME, OTHER = "dispatcher", "job-master/0"
TOPOLOGY = Topology()


@dataclass
class Heard:
    names: list[str] = field(default_factory=list)
    ticks: int = 0


class Echo:
    """Counts what it is told; answers each JobMasterStarted with a message, an effect and an event."""

    scope = ME
    peers = (OTHER,)
    state_type = Heard

    def blank(self) -> Heard:
        return Heard()

    def is_idle(self, state: Heard) -> bool:
        return "Busy" not in state.names

    def handle(self, state: Heard, envelope: Envelope) -> Iterator[Output]:
        body = envelope.body
        state.names.append(type(body).__name__)
        if isinstance(body, Ticked):
            state.ticks += 1
        if isinstance(body, JobMasterStarted):
            yield Say(OTHER, JobMasterStarted(job=body.job, status="HEARD"))
            yield Do(f"jobs/{body.job}", FindJob(job=body.job))
            yield Publish("job.events", body.job, JobMasterStarted(job=body.job, status="EVENT"))


class Log:
    """One inbox and the replicas that fold it; stamps advance as told."""

    def __init__(self, replicas: int = 1) -> None:
        self.records: list[tuple[int, Part]] = []
        self.stamp = 1_000_000
        self.replicas = [self.replica(f"r{n}") for n in range(replicas)]
        self.actions: list[list[Action]] = [[] for _ in self.replicas]

    @staticmethod
    def replica(who: str) -> Replica:
        core = Fold(Echo(), TOPOLOGY)
        return Replica(core, core.blank(1, 0), who=who, build="b1", settings={"x": 1})

    def append(self, record: Part, ms: int = 100) -> list[Action]:
        """Appends a record, has all replicas fold it, and carries out appends of the leader; the first one's actions."""
        self.stamp += ms
        offset = len(self.records)
        self.records.append((self.stamp, record))
        first: list[Action] = []
        for replica, done in zip(self.replicas, self.actions, strict=True):
            actions = replica.record(offset, self.stamp, record, self.stamp)
            done += actions
            first = first or actions
        return first

    def elect(self, epoch: int = 10, which: int = 0) -> list[Action]:
        (append,) = self.replicas[which].won(epoch)
        assert isinstance(append, Append)
        return self.append(append.record)

    def tick(self, **changes: Any) -> list[Action]:
        folded = self.replicas[0].folded
        tick = {"epoch": folded.epoch, "n": folded.tick + 1, "published_through": 0, "digest": folded.ticked_digest}
        return self.append(Tick(**{**tick, **changes}))


def heard(n: int, prev: int | None, *, life: int = 1, to_life: int = 1, body: Any = None) -> Message:
    key, before = (n, 0), None if prev is None else (prev, 0)
    body = body or (Hello() if prev is None else JobMasterStarted(job=f"j{n}", status="RUNNING"))
    return Message(to=ME, to_life=to_life, sender=OTHER, life=life, key=key, prev=before, body=body)


def names(actions: list[Action]) -> list[str]:
    return [
        f"{type(a).__name__} {a.spoken.seq} {a.spoken.type}" if isinstance(a, Speak) else type(a).__name__
        for a in actions
    ]
