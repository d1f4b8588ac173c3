"""A cluster that is shut down in order and started again: nothing runs in between, and every job that was accepted ends. Run as a seed
says."""

from __future__ import annotations

import json
import random

from millrace.core.messages import client
from millrace.core.topics import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, Topology
from millrace.runtime import shut_down
from tests.simulation import workload
from tests.simulation.audit import audit
from tests.simulation.behaviour import Timing
from tests.simulation.cluster import Cluster
from tests.simulation.control import ControlProcess
from tests.simulation.store import MemoryStore
from tests.simulation.world import PREFIX

SERVICES = (DISPATCHER, RESOURCE_MANAGER, JOB_MASTER)
ENOUGH_MS = 90_000


def shut_down_and_up(seed: int) -> None:
    """Jobs run, wait, are submitted and canceled while the cluster is shut down; leaders die meanwhile. AssertionError when something does
    not hold."""
    chance = random.Random(f"shut down {seed}")
    shards, replicas = chance.choice((1, 2)), chance.choice((1, 2))
    control = tuple(f"{service}#{n}" for service in SERVICES for n in range(1, replicas + 1))
    cluster = Cluster(
        Topology(shards=shards), seed=seed, task_managers=2, slots=1, control=control, script=workload.drawn_behaviour(seed, 0.1),
        timing=Timing(run=(200, 2_500)), snapshot_records=chance.choice((20, 1_000)),
    )  # fmt: skip
    workload.upload_module(cluster.world)
    cluster.run(cluster.ready, most_ms=20_000)
    jobs = [f"job-{number}" for number in range(6)]
    for job in jobs[:4]:
        cluster.client.submit(job, workload.drawn(seed, job))
    cluster.run(most_ms=chance.choice((0, 300, 1_500)))
    asked = [cluster.client.ask(client.ShutDownCluster, wait=wait) for wait in (False, True)]
    late = {job: cluster.client.submit(job, workload.drawn(seed, job)) for job in jobs[4:]}
    if chance.random() < 0.4:
        cluster.client.cancel(chance.choice(jobs[:4]))
    for _ in range(chance.choice((0, 0, 1, 3))):
        cluster.run(most_ms=chance.choice((0, 50, 400, 2_000)))
        name = chance.choice([name for name in control if cluster.processes[name].alive] or [""])
        if name and not _is_shut_down(cluster):
            cluster.kill(name)
            cluster.start(name)
    dispatchers = [name for name in control if name.startswith(DISPATCHER)]
    if chance.random() < 0.5:  # before they have folded that the end stands in etcd

        def killed() -> None:
            for name in dispatchers:
                if _is_shut_down(cluster) and cluster.processes[name].alive:
                    cluster.kill(name)

        cluster.between = killed
    cluster.run(lambda: not any(cluster.processes[name].alive for name in control), most_ms=ENOUGH_MS)
    cluster.between = None
    _assert_shut_down(cluster, asked, late)
    cluster.run(most_ms=chance.choice((0, 2_000)))
    assert shut_down.reopen(MemoryStore(cluster.world.etcd, PREFIX)) is not None
    for name in control:
        cluster.start(name)
    cluster.run(lambda: all(cluster.leader(scope) for scope in cluster.world.topology.scopes()), most_ms=20_000)
    for job, correlation in late.items():
        if cluster.stored(job) is None:
            assert cluster.client.replies()[correlation][0].kind == "busy"
            cluster.client.submit(job, workload.drawn(seed, job))
    cluster.run(lambda: cluster.ended(*jobs), most_ms=ENOUGH_MS)
    cluster.run(cluster.ready, most_ms=20_000)
    cluster.run(most_ms=3_000)
    audit(cluster)


def _is_shut_down(cluster: Cluster) -> bool:
    return cluster.world.etcd.entry(f"{PREFIX}{shut_down.KEY}") is not None


def _assert_shut_down(cluster: Cluster, asked: list[str], late: dict[str, str]) -> None:
    """Nothing runs, no slot is held, each job is kept or has ended; whoever asked has an answer."""
    entry = cluster.world.etcd.entry(f"{PREFIX}{shut_down.KEY}")
    assert entry is not None
    told = json.loads(entry.value)["shut_down"]
    assert (told["step"], told["silent"], told["workers"]) == ("ENDING", [], 0), told
    assert not cluster.world.book.living, f"attempts run while the cluster is shut down: {cluster.world.book.living}"
    replies = cluster.client.replies()
    first, last = (replies[each][0] for each in asked)
    assert first.shut_down.since_ms == last.shut_down.since_ms == told["since_ms"] and last.shut_down.step == "ENDING"
    for job, correlation in late.items():
        [answer] = replies[correlation]
        assert answer.type == "JobRejected" and answer.kind == "busy" or cluster.stored(job) is not None, answer
    failed = [process for process in cluster.processes.values() if isinstance(process, ControlProcess) and process.failure]
    assert not failed, [process.failure for process in failed]
