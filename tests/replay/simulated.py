"""A simulated cluster as a source of recorded logs. `python -m tests.replay.simulated OUT` records an incident in one."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from millrace.core.fold import ScopeState
from millrace.core.topics import JOB_MASTER, TOPICS
from millrace.io.interfaces import Received
from millrace.runtime.snapshots import thaw
from services.replay.core.recorded import Facts, Log, Recorded, Scope
from services.replay.exporting import export
from services.replay.machines import fold_of
from tests.simulation import workload
from tests.simulation.cluster import CONTROL, Cluster
from tests.simulation.trial import quiet_logs
from tests.simulation.world import PREFIX

STANDBY = f"{JOB_MASTER}#2"


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

    def scan(self, logs: Sequence[Log], words: Callable[[], Sequence[bytes]]) -> Iterator[Recorded]:
        return (each for log in logs for each in self.read(log, log.first) if any(word in each.value for word in words()))

    def offset_at(self, log: Log, stamp_ms: int) -> int:
        return next((each.offset for each in self.read(log, log.first) if each.stamp_ms >= stamp_ms), log.end)

    def snapshots(self, scope: Scope) -> Sequence[int]:
        return sorted(self._snapshots(scope))

    def snapshot(self, scope: Scope, offset: int) -> ScopeState:
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


def incident() -> Cluster:
    """Two jobs are done; one is canceled; the leader died when the first was being deployed. At rest."""
    quiet_logs()
    made = Cluster(task_managers=2, slots=2, seed=7, snapshot_records=10**9, control=(*CONTROL, STANDBY))
    made.run(made.ready)
    made.client.submit("wide", workload.wide())
    made.client.submit("single", workload.single())
    deployed = made.world.topology.events_partition("wide")
    made.run(lambda: any(b'"DEPLOYING"' in each.value for each in made.world.broker.log("job.events", deployed).records))
    made.kill(next(name for name in (f"{JOB_MASTER}#1", STANDBY) if made.processes[name].leads(f"{JOB_MASTER}/0")))
    made.client.submit("late", workload.wide())
    made.run(lambda: made.stored("late") is not None)
    made.client.cancel("late")
    made.run(lambda: made.ended("wide", "single", "late"))
    made.run(made.at_rest)
    made.run(most_ms=500)
    return made


if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.unlink(missing_ok=True)
    print(export(Simulated(incident()), out, None, False, lambda *_: None))
