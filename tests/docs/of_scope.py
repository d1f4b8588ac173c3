"""One hosted scope over Kafka and etcd in memory, for the tests of rules."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millrace.core.fold import ScopeState
from millrace.core.messages.records import decode
from millrace.core.topics import TOPICS, Topology
from millrace.io.storage.store import Storage
from millrace.runtime.hosting import Hosted, Surroundings
from millrace.runtime.loop import ScopeLoop
from services.resource_manager.core.machine import ResourceManager
from services.resource_manager.ports import blocklist_ports
from tests.simulation import Clock
from tests.simulation.bus import MemoryBroker, MemoryBus
from tests.simulation.store import MemoryEtcd, MemoryStore

TOPIC, SCOPE = "resource-manager.commands", "resource-manager"
TOPOLOGY = Topology()


@dataclass
class World:
    """One process that hosts the ResourceManager; `turn` lets it work, with its view of the leader key up to date."""

    folder: Path
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.broker, self.etcd = MemoryBroker(self.clock), MemoryEtcd(self.clock)
        self.broker.ensure_topics([(topic.name, topic.count(TOPOLOGY), topic.config()) for topic in TOPICS])
        self.fatal: list[str] = []
        self.bus = MemoryBus(self.broker, client_id="p", on_fatal=self.fatal.append)
        self.store = MemoryStore(self.etcd, "/test/")
        self.storage = Storage(str(self.folder))
        self.lease = self.store.grant(5)
        self.loop = self.host()

    def host(self, who: str = "p", build: str = "b1") -> ScopeLoop:
        around = Surroundings(
            self.bus, self.store, self.storage, TOPOLOGY, who, build, lambda: self.lease, self.fatal.append,
            clock=self.clock.now_ms, wait=lambda event, seconds: None, beside=lambda make, then: then(b"".join(make())),
        )  # fmt: skip
        return ScopeLoop(Hosted(ResourceManager(1), blocklist_ports(self.store), {}), around)

    def turn(self, times: int = 1, ms: int = 100) -> None:
        for _ in range(times):
            self.clock.advance(ms)
            self.store.keep_alive(self.lease)
            self.loop.key.watched(self.store.get(f"leaders/{SCOPE}"))
            self.loop.turn()

    def lead(self) -> ScopeState:
        self.turn(6)
        assert self.loop.replica is not None and self.loop.replica.leads
        return self.loop.replica.folded

    def generation(self) -> dict[str, Any]:
        return json.loads(self.store.get(f"generations/{SCOPE}").value)

    def records(self) -> list[Any]:
        return [decode(each.value) for each in self.broker.log(TOPIC, 0).records]


def replaced(world: World, who: str, build: str) -> None:
    """Another process hosts the scope now; the one before was killed."""
    world.loop = world.host(who, build)
    world.store.revoke(world.lease)
    world.lease = world.store.grant(5)
