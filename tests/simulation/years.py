"""Years of uptime [R32]: what a cluster is made of has the same size after two years as after one.

Two years of five jobs a second are 315 million jobs, which nobody folds in a test. So each bound is scaled down, with what reaches it:
24 months pass, by the clock alone, and in each six jobs run, two TaskManagers with names of their own come and two are lost. 10 ended
jobs are kept in state instead of 10,000, 4 TaskManagers that are gone instead of 5,000, and an inbox has a snapshot each 30 KB instead
of each 64 MB: every bound is reached within two months. What has a time of its own (retention, `keep_hours`) has the real one. Machines,
shells, ports and the housekeeping are the real ones; what Kafka's retention deletes is deleted here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from millrace.core.topics import DISPATCHER, TOPICS
from millrace.runtime.snapshots import freeze
from tests.simulation import workload
from tests.simulation.cluster import Cluster
from tests.simulation.control import ControlProcess

MONTHS, DAY_MS = 24, 24 * 3_600_000
JOBS, COME = 6, 2
PAD = "x" * 2_000  # of each graph
BOUNDS = {
    "millrace.core.fold.PARTED_KEPT": 4,
    "services.job_master.core.holding.LOST_KEPT": 4,
    "services.resource_manager.core.registration.LOST_KEPT": 4,
    "millrace.runtime.saving.SNAPSHOT_BYTES": 30_000,
    "millrace.runtime.saving.KEPT_BYTES": 10_000,
    "millrace.runtime.saving.MARK_BYTES": 1_000,
    "tests.simulation.control.FIRST_S": 0.2,
}
MORE = 1.2  # a size of the second year is below the largest of the half year before, times this, and a little
LITTLE = {"inbox": 10_000, "state": 60, "peers": 2, "keys": 3, "files": 6, "records": 10}


def years_pass(seed: int) -> None:
    """AssertionError when something grows."""
    with _scaled():
        cluster = Cluster(
            seed=seed, task_managers=1, slots=2, snapshot_records=1 << 40, deciding={DISPATCHER: {"retained_jobs": 10}}
        )
        sizes = [_month(cluster, month) for month in range(MONTHS)]
    first, second = sizes[MONTHS // 4 : MONTHS // 2], sizes[MONTHS // 2 :]
    for name in sizes[-1]:
        before, after = max(each.get(name, 0) for each in first), max(each[name] for each in second)
        allowed = before * MORE + LITTLE[name.partition(" ")[0]]
        assert after <= allowed, f"[R32]: {name} grow: {[each.get(name, 0) for each in sizes]}"


@contextmanager
def _scaled() -> Iterator[None]:
    """A bound that is lifted (by a mutant) stays so."""
    with ExitStack() as stack:
        for place, value in BOUNDS.items():
            module, _, name = place.rpartition(".")
            found = getattr(__import__(module, fromlist=[name]), name)
            if found < 1 << 30:
                stack.enter_context(patch(place, value))
        yield


def _month(cluster: Cluster, month: int) -> dict[str, int]:
    """What happens in it, and how large all is at its end."""
    world = cluster.world
    for number in range(COME):
        cluster.start(f"task-manager/{month}-{number}")
    cluster.run(cluster.ready, most_ms=60_000)
    jobs = [f"job-{month}-{number}" for number in range(JOBS)]
    for job in jobs:
        cluster.client.submit(job, workload.single(job, parameters={"pad": PAD}))
    cluster.run(lambda: cluster.ended(*jobs), most_ms=60_000)
    for job in jobs:  # what simulated attempts do not write, and what could not be deleted at the end of a job
        acceptance = cluster.stored(job).acceptance
        for path in (f"logs/{acceptance}/1/out", f"results/{acceptance}/1/r", f"exchange/{acceptance}/1/p", f"blobs/{job}/{acceptance}/m"):
            world.storage.put_if_absent(path, b"x")
    for process in cluster.task_managers()[:COME]:
        cluster.kill(process.name)
    cluster.run(cluster.ready, most_ms=60_000)
    world.clock.advance(30 * DAY_MS)
    _retain(cluster)
    cluster.run(cluster.ready, most_ms=60_000)
    cluster.run(most_ms=3_000)  # a sweep is due
    return _sizes(cluster)


def _retain(cluster: Cluster) -> None:
    """As Kafka does."""
    broker, now_ms = cluster.world.broker, cluster.world.clock.now_ms()
    for topic in TOPICS:
        for partition in range(topic.count(cluster.world.topology) if topic.retention_ms >= 0 else 0):
            log = broker.log(topic.name, partition)
            old = sum(record.stamp_ms < now_ms - topic.retention_ms for record in log.records)
            cluster.client._bus.delete_below(topic.name, partition, log.first + old)


def _sizes(cluster: Cluster) -> dict[str, int]:
    world = cluster.world
    sizes = {"keys in etcd": len(world.etcd.entries("")), "files in storage": len(world.storage.list())}
    for topic in TOPICS:
        logs = [world.broker.log(topic.name, partition) for partition in range(topic.count(world.topology))]
        if topic.retention_ms >= 0:
            sizes[f"records of {topic.name}"] = sum(len(log.records) for log in logs)
        else:
            sizes[f"inbox {topic.name}"] = sum(len(record.value) for log in logs for record in log.records)
    for process in cluster.processes.values():
        if isinstance(process, ControlProcess):
            for loop in process.loops:
                if loop.replica is not None:
                    sizes[f"state of {loop.scope}"] = len(freeze(loop.hosted.machine, loop.replica.folded))
                    sizes[f"peers of {loop.scope}"] = len(loop.replica.folded.peers)
    return sizes
