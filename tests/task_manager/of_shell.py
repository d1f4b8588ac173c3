"""The TaskManager's loop over Kafka and etcd in memory, opposite peers that say what the test tells them to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millrace import __version__
from millrace.core.fold import TICK_MS, Fold, ScopeState
from millrace.core.machine import Output, Say
from millrace.core.messages.base import Body
from millrace.core.messages.records import Elected, Message, Tick, decode
from millrace.core.messages.slots import (
    AllocateSlot,
    DeployTask,
    DeployTasks,
    TaskManagerRegistered,
)
from millrace.core.topics import TOPICS, Topology, task_manager_key
from millrace.io.interfaces import Unavailable
from millrace.io.storage.store import Storage
from services.task_manager.core.state import check
from services.task_manager.journal import Journal
from services.task_manager.ports.slots import Slots
from services.task_manager.shell import Shell
from tests.core.of_attempts import spec_of
from tests.simulation import Clock
from tests.simulation.bus import MemoryBroker, MemoryBus
from tests.simulation.store import MemoryEtcd, MemoryStore
from tests.task_manager.simulated_slot import SimulatedSlot

TOPOLOGY = Topology(shards=1, task_manager_partitions=1)
SCOPE, RM, JM = "task-manager/a", "resource-manager", "job-master/0"
INBOX, PREFIX = "task-manager.commands", "/test/"


class Puppet:
    """A machine that hears everything and says, at its next tick, what the test put into `says`."""

    state_type = list
    peers: tuple[str, ...] = ()

    def __init__(self, scope: str) -> None:
        self.scope = scope
        self.heard: list[Any] = []
        self.says: list[Output] = []

    def blank(self) -> list[Any]:
        return []

    def handle(self, state: Any, envelope: Any) -> Iterator[Output]:
        if isinstance(envelope.body, Body):
            self.heard.append(envelope.body)
        elif type(envelope.body).__name__ == "Ticked":
            says, self.says = self.says, []
            yield from says


class Peer:
    """A scope whose machine is a puppet."""

    def __init__(self, world: World, scope: str, life: int = 5) -> None:
        self.world, self.puppet = world, Puppet(scope)
        self.fold = Fold(self.puppet, TOPOLOGY)
        self.folded: ScopeState = self.fold.blank(life, 0)
        topic, partition = TOPOLOGY.inbox(scope)
        self.reader = world.bus.reader(topic, partition, 0)
        self._take(Elected(generation=life, epoch=1, build="", who=""))

    def turn(self) -> None:
        for received in self.reader.poll(0):
            self._take(decode(received.value))
        folded = self.folded
        tick = Tick(epoch=1, n=folded.tick + 1, published_through=folded.said, digest=folded.ticked_digest)
        self._take(tick)

    def say(self, body: Any) -> None:
        self.puppet.says.append(Say(SCOPE, body))

    def heard(self, kind: str) -> list[Any]:
        return [body for body in self.puppet.heard if body.type == kind]

    def _take(self, record: Any) -> None:
        told = self.fold.fold(self.folded, self.folded.next_offset, self.world.clock.now_ms(), record)
        for said in told.said:
            self.world.bus.append(said.topic, said.partition, said.value.encode(), key=said.key.encode())


class AtOnce:
    """A probe that asks etcd when it is told to, on the same thread."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._heard: int | None = None

    def ask(self) -> None:
        try:
            entry = self._store.get(task_manager_key("a"))
            self._heard = entry.mod_revision if entry is not None else 0
        except Unavailable:
            pass

    def answered(self) -> int | None:
        heard, self._heard = self._heard, None
        return heard


class World:
    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, Clock()
        self.broker, self.etcd = MemoryBroker(self.clock), MemoryEtcd(self.clock)
        self.broker.ensure_topics([(t.name, t.count(TOPOLOGY), t.config()) for t in TOPICS])
        self.bus = MemoryBus(self.broker, client_id="test", on_fatal=pytest.fail)
        self.made: list[SimulatedSlot] = []

    def shell(self, *, prompt: bool = True, part_bytes: int = 1 << 20, **more: Any) -> Shell:
        bus = MemoryBus(self.broker, client_id="tm", on_fatal=pytest.fail)
        store = MemoryStore(self.etcd, PREFIX)
        deciding = {"host": "h", "allocation_timeout_ms": 10_000, "slots_memory_mb": [1024]}
        journal = Journal(self.folder / "journal", "a", TOPOLOGY, part_bytes)
        given = {"clock": self.clock.now_ms, "wall_ms": self.clock.now_ms, "build": __version__, **more}
        shell = Shell("a", TOPOLOGY, bus, store, deciding, journal, AtOnce(store), **given)

        def make(number: int, on_event: Any) -> SimulatedSlot:
            self.made.append(SimulatedSlot(number, on_event, prompt=prompt))
            return self.made[-1]

        storage = Storage(str(self.folder / "storage"))
        slots = Slots(make, 1, self.folder / "tm", storage, shell.inputs.post, submit=lambda do: do())
        shell.use(slots)
        slots.start()
        return shell

    def go(self, *parts: Any, times: int = 1) -> None:
        """A tenth of a second for everybody: they read, fold and say."""
        for _ in range(times):
            self.clock.advance(TICK_MS)
            for part in parts:
                if isinstance(part, Peer):
                    part.turn()
                    continue
                if not self.broker.paused:
                    part.inbox.read()
                while part.over is None and part.turn(0):
                    pass
                check(part.state)

    def written(self, to: str = SCOPE) -> list[Any]:
        """The bodies in an inbox, from its start."""
        topic, partition = TOPOLOGY.inbox(to)
        records = [decode(each.value) for each in self.broker.log(topic, partition).records]
        return [record.body for record in records if isinstance(record, Message) and record.to == to]


def deploy(attempt: str = "j/t/0/1", allocation: str = "al") -> DeployTasks:
    return DeployTasks(tasks=[DeployTask(
        allocation=allocation, attempt=attempt, acceptance="ac", folder=f"ac/{attempt}", spec=spec_of(),
        start_timeout_ms=None, run_timeout_ms=None,
    )])  # fmt: skip


def connected(world: World, **more: Any) -> tuple[Shell, Peer, Peer]:
    """A TaskManager that ResourceManager and JobMaster have heard, and that has heard them."""
    shell = world.shell(**more)
    shell.begin()
    rm, jm = Peer(world, RM), Peer(world, JM)
    world.go(shell, rm, jm, times=3)
    rm.say(TaskManagerRegistered(heartbeat_interval_ms=100, lost_after_ms=600))
    world.go(rm, jm, shell)
    return shell, rm, jm


def with_task_on_its_way(world: World) -> tuple[Shell, Peer, Peer]:
    """As `connected`, with a task that was sent to it and is not read yet."""
    shell, rm, jm = connected(world, prompt=False)
    world.made[0].ready()
    rm.say(AllocateSlot(slot=0, allocation="al", job="j", shard=0))
    world.go(rm, shell, jm)
    jm.say(deploy())
    jm.turn()
    return shell, rm, jm


def with_attempt(world: World) -> tuple[Shell, Peer, Peer]:
    """As `connected`, with an attempt that runs until the test ends it."""
    shell, rm, jm = with_task_on_its_way(world)
    world.go(shell)
    world.made[0].start()
    world.go(shell, rm, jm)
    assert [each.state for each in jm.heard("TaskStateChanged")] == ["RUNNING"]
    return shell, rm, jm
