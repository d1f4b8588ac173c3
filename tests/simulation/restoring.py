"""etcd restored from an older backup, then `millrace recover` [R24], with jobs as a seed says."""

from __future__ import annotations

import copy
import random
from typing import Any
from unittest.mock import patch

from deploy.recover import recover
from millrace import __version__
from millrace.core.topics import DISPATCHER, JOB_MASTER, TOPICS, Topology
from tests.simulation import workload
from tests.simulation.audit import assert_nothing_left, assert_replay, assert_said_is_taken, replay_all
from tests.simulation.bus import MemoryBus
from tests.simulation.cluster import CONTROL, Cluster
from tests.simulation.store import MemoryEtcd, MemoryStore
from tests.simulation.world import PREFIX

JOBS = 6
WRITES = 500  # of others, between the backup and the end of etcd
FORGOTTEN_MS = 8_000  # in which nobody leads beside an older etcd

Backup = tuple[dict[str, Any], int]


def backup(etcd: MemoryEtcd) -> Backup:
    return copy.deepcopy(etcd._entries), etcd.revision


def restore(cluster: Cluster, saved: Backup) -> None:
    """Leases of the backup have ended; control services are ended before, TaskManagers go on."""
    for name in CONTROL:
        if cluster.processes[name].alive:
            cluster.stop(name)
    etcd = cluster.world.etcd
    etcd._entries, etcd.revision = copy.deepcopy(saved[0]), saved[1]
    for key in [key for key in etcd._entries if key.startswith(f"{PREFIX}leaders/")]:
        del etcd._entries[key]


def put_right(cluster: Cluster) -> list[str]:
    """What `millrace recover` says."""
    world, said = cluster.world, list[str]()
    bus = MemoryBus(world.broker, client_id="recover", on_fatal=said.append)
    with patch("deploy.recover.build_of", lambda machines: __version__):  # as simulated processes are named
        recover(bus, MemoryStore(world.etcd, PREFIX), world.storage, world.topology, said.append)
    return said


def start(cluster: Cluster) -> None:
    for name in CONTROL:
        cluster.start(name)
    cluster.run(lambda: all(cluster.leader(scope) for scope in cluster.world.topology.scopes()), most_ms=20_000)


def replace_log(cluster: Cluster) -> None:
    """The Dispatcher's log is lost, and the requests went by age: it knows what stands in etcd, and nothing else."""
    broker = cluster.world.broker
    broker.delete_topics(["dispatcher.commands"])
    broker.ensure_topics((each.name, each.count(cluster.world.topology), each.config()) for each in TOPICS)
    cluster.client.delete_below(broker.log("client.commands", 0).end)


def cut_log(cluster: Cluster) -> None:
    """A shard begins a new generation."""
    scope = f"{JOB_MASTER}/0"
    end = max(0, cluster.world.broker.log("job-master.commands", 0).end - 3)
    cluster.stop("job-master#1")
    cluster.world.broker.truncate("job-master.commands", 0, end)
    cluster.world.book.cut(scope, end)
    cluster.start("job-master#1")
    cluster.run(lambda: (folded := cluster.leader(scope)) is not None and folded.generation == 2, most_ms=20_000)


def restored(seed: int) -> None:
    """Jobs before and after a backup, which is restored then. AssertionError when something does not hold."""
    chance = random.Random(f"restored {seed}")
    cluster = Cluster(
        Topology(shards=chance.choice((1, 2))), seed=seed, task_managers=2, script=workload.drawn_behaviour(seed),
        snapshot_records=chance.choice((5, 40, 50_000)),
        deciding={DISPATCHER: {"retained_jobs": chance.choice((1, 10_000))}},
    )  # fmt: skip
    workload.upload_module(cluster.world)
    cluster.run(cluster.ready)
    jobs = [f"job-{number}" for number in range(JOBS)]
    for job in jobs[: JOBS // 2]:
        cluster.client.submit(job, workload.drawn(seed, job))
    cluster.run(lambda: len(cluster.statuses()) == JOBS // 2)
    cluster.run(most_ms=chance.choice((0, 300, 3_000)))
    saved = backup(cluster.world.etcd)
    for job in jobs[JOBS // 2 :]:
        cluster.client.submit(job, workload.drawn(seed, job))
    cluster.run(lambda: len(cluster.statuses()) == JOBS)
    early, cut = chance.choice(((False, False), (False, False), (True, False), (False, True)))
    if early:
        cluster.world.etcd.revision += WRITES
    cluster.run(most_ms=3_000 if early else chance.choice((0, 300, 3_000)))
    if cut:
        cut_log(cluster)
    _back_and_on(cluster, chance, saved, jobs, early)


def _back_and_on(cluster: Cluster, chance: random.Random, saved: Backup, jobs: list[str], early: bool) -> None:
    """`early`: the control services are started before `millrace recover`, in vain."""
    for name in CONTROL:
        cluster.stop(name)
    before = {job: cluster.stored(job) for job in jobs}
    highest = cluster.world.etcd.revision
    restore(cluster, saved)
    if early:
        for name in CONTROL:
            cluster.start(name)
        cluster.run(most_ms=FORGOTTEN_MS)
        led = [scope for scope in cluster.world.topology.scopes() if cluster.leader(scope)]
        assert not led, f"[R24]: {led} are led, and etcd is older than their logs"
        for name in CONTROL:
            cluster.stop(name)
    put_right(cluster)
    assert cluster.world.etcd.revision > highest or not early, "[R24]: an epoch is given a second time"
    if chance.random() < 0.3:
        replace_log(cluster)
    start(cluster)
    cluster.run(lambda: cluster.ended(*jobs), most_ms=120_000)
    cluster.run(cluster.ready, most_ms=20_000)
    cluster.run(most_ms=3_000)
    for job, was in before.items():
        now = cluster.stored(job)
        assert was is not None and now is not None and now.acceptance == was.acceptance, f"I3: {job} was accepted anew"
        assert was.status in (None, now.status), f"I4: {job} had ended {was.status}, and is now {now.status}"
    assert_nothing_left(cluster)
    replayed = replay_all(cluster)
    assert_replay(cluster, replayed)
    assert_said_is_taken(cluster, replayed)
