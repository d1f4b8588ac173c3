"""A simulated cluster as a source of recorded logs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence

from millrace.core.fold import Folded
from millrace.core.topics import TOPICS
from millrace.io.interfaces import Received
from millrace.io.snapshots import thaw
from services.replay.core.recorded import Facts, Log, Recorded, Scope
from services.replay.machines import fold_of
from tests.simulation.cluster import Cluster
from tests.simulation.world import PREFIX


class Simulated:
    """See `services.replay.source.Source`. What is read is the logs as they are then."""

    def __init__(self, cluster: Cluster) -> None:
        self._world = world = cluster.world
        scopes = {}
        for name in world.topology.scopes():
            entry = world.etcd.entry(f"{PREFIX}generations/{name}")
            assert entry is not None
            value, (topic, partition) = json.loads(entry.value), world.topology.inbox(name)
            scopes[name] = Scope(name, topic, partition, value["generation"], value["log_id"], value["first_offset"])
        self.facts = Facts("simulated", world.topology, scopes)

    def logs(self) -> list[Log]:
        broker = self._world.broker
        return [
            Log(topic.name, partition, broker.log_id(topic.name), log.first, log.end)
            for topic in TOPICS
            for partition in range(topic.count(self.facts.topology))
            for log in [broker.log(topic.name, partition)]
        ]

    def read(self, log: Log, first: int, ids: bool = True) -> Iterator[Recorded]:
        found = self._world.broker.log(log.topic, log.partition)
        return (_recorded(each) for each in found.records[max(0, first - found.first) : log.end - found.first])

    def scan(self, log: Log, pattern: Callable[[], re.Pattern[bytes]]) -> Iterator[Recorded]:
        return (each for each in self.read(log, log.first) if pattern().search(each.value))

    def offset_at(self, log: Log, stamp_ms: int) -> int:
        return next((each.offset for each in self.read(log, log.first) if each.stamp_ms >= stamp_ms), log.end)

    def snapshots(self, scope: Scope) -> Sequence[int]:
        return sorted(self._snapshots(scope))

    def snapshot(self, scope: Scope, offset: int) -> Folded:
        data = self._world.storage.get(self._snapshots(scope)[offset])
        return thaw(fold_of(scope.name, self.facts.topology).machine, data)

    def _snapshots(self, scope: Scope) -> dict[int, str]:
        found = {}
        for entry in self._world.storage.list(f"snapshots/{scope.name}"):
            generation, offset, _ = entry.path.rpartition("/")[2].split("-", 2)
            if int(generation) == scope.generation:
                found[int(offset)] = entry.path
        return found

    def close(self) -> None:
        pass


def _recorded(received: Received) -> Recorded:
    id = next((value.decode() for name, value in received.headers if name == "ce_id"), "")
    key = (received.key or b"").decode()
    return Recorded(received.topic, received.partition, received.offset, received.stamp_ms, key, received.value, id)
