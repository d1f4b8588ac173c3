"""Parts that stay away [R31]: a shard that never comes back, and lists of the longest names [R15]. Run as a seed says."""

from __future__ import annotations

import random
from typing import Any

from millrace.core.messages import client
from millrace.core.messages.effects import StoredJob
from millrace.core.topics import DISPATCHER, RESOURCE_MANAGER, Topology
from millrace.io.interfaces import Put, Txn
from tests.simulation import workload
from tests.simulation.audit import audit
from tests.simulation.cluster import Cluster
from tests.simulation.slots import Timing
from tests.simulation.store import MemoryStore
from tests.simulation.world import PREFIX

AWAY = "job-master/0#1"
CONTROL = (f"{DISPATCHER}#1", f"{RESOURCE_MANAGER}#1", AWAY, "job-master/1#1")
ENOUGH_MS = 60_000  # of a shard that is there, beside one that is not
ANSWERED_MS = 10_000
LONG_NAMES = 1_000


def jobs_of(shard: int, topology: Topology, most: int) -> list[str]:
    return [job for job in map("job-{}".format, range(100)) if topology.shard_of(job) == shard][:most]


def a_shard_stays_away(seed: int) -> None:
    """Jobs of two shards wait for slots; one shard dies, perhaps the ResourceManager's log loses its end as well, and the jobs of the
    other end. When it is back after all, its own do. AssertionError when something does not hold."""
    chance, topology = random.Random(f"silent {seed}"), Topology(shards=2)
    cluster = Cluster(
        topology, seed=seed, task_managers=2, slots=1, control=CONTROL, timing=Timing(run=(1_500, 2_500)),
        deciding={"task-manager": {"allocation_timeout_ms": 400}},
    )  # fmt: skip
    cluster.run(cluster.ready, most_ms=20_000)
    away, there = jobs_of(0, topology, 4), jobs_of(1, topology, 4)
    for job in there[:2]:
        cluster.client.submit(job, workload.single(job))
    cluster.run(lambda: len(cluster.world.book.living) == 2, most_ms=20_000)
    for job in away:
        cluster.client.submit(job, workload.single(job))
    cluster.run(lambda: sum(map(len, _state(cluster, RESOURCE_MANAGER).queues.values())) == len(away), most_ms=1_000)
    cluster.kill(AWAY)
    for job in there[2:]:
        cluster.client.submit(job, workload.single(job))
    if seed % 2:
        inbox = topology.inbox(RESOURCE_MANAGER)
        cluster.run(most_ms=chance.choice((0, 100, 600)))
        cluster.world.broker.truncate(*inbox, max(0, cluster.world.broker.log(*inbox).end - 3))
        cluster.world.book.cut(RESOURCE_MANAGER, cluster.world.broker.log(*inbox).end)
    asked = cluster.client.ask(client.DescribeJob, job=away[0])
    cluster.run(lambda: asked in cluster.client.replies(), most_ms=ANSWERED_MS)
    told = cluster.client.replies()[asked][0]
    assert told.silent == "job-master/0" and told.summary.job == away[0], f"[R31]: {told}"
    cluster.run(lambda: cluster.ended(*there), most_ms=ENOUGH_MS)
    cluster.start(AWAY)
    cluster.run(lambda: cluster.ended(*away), most_ms=ENOUGH_MS)
    cluster.run(cluster.ready, most_ms=20_000)
    cluster.run(most_ms=3_000)
    audit(cluster)


def names_are_long(seed: int) -> None:
    """A thousand ended jobs with the longest names that there may be, and somebody who asks for all of them."""
    cluster = Cluster(seed=seed)
    store = MemoryStore(cluster.world.etcd, PREFIX)
    for number in range(LONG_NAMES):
        stored = StoredJob(
            state="clean", digest="0" * 64, acceptance="0.1", shard=0, accepted_ms=1, name="\U00010000" * 255, status="FINISHED",
            ended_ms=number + 1, archive=f"archives/{number}",
        )  # fmt: skip
        store.txn(Txn((), [Put(f"jobs/{number}", stored.model_dump_json().encode())]))
    cluster.run(lambda: cluster.ready() and len(_state(cluster, DISPATCHER).ended) == LONG_NAMES, most_ms=20_000)
    asked = cluster.client.ask(client.ListJobs, most=1_000)
    cluster.run(lambda: asked in cluster.client.replies(), most_ms=20_000)
    [listed] = cluster.client.replies()[asked]
    assert listed.type == "JobsListed" and 100 < len(listed.jobs) < LONG_NAMES, f"[R15]: {listed}"


def _state(cluster: Cluster, scope: str) -> Any:
    folded = cluster.leader(scope)
    assert folded is not None, f"nobody leads {scope}"
    return folded.state
