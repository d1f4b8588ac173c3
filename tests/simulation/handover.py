"""Clusters that go over to another build and back while jobs run [R27], as a seed says."""

from __future__ import annotations

import random

from millrace import __version__
from millrace.core.topics import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, Topology
from tests.simulation import workload
from tests.simulation.audit import audit
from tests.simulation.cluster import Cluster

SERVICES = (DISPATCHER, RESOURCE_MANAGER, JOB_MASTER)
OTHER = "99.0"
JOBS = 4  # submitted before each handover


def builds(cluster: Cluster) -> dict[str, str | None]:
    """Scope -> build of its leader."""
    led = {scope: cluster.leader(scope) for scope in cluster.world.topology.scopes()}
    return {scope: folded.build if folded is not None else None for scope, folded in led.items()}


def hand_over(cluster: Cluster, chance: random.Random, number: int, build: str) -> None:
    """Starts process `number` of each service as this build, and ends the ones before; each at some time of its own. Some die before and
    are started again as they were: while a build is alive the other one waits."""
    for service in SERVICES:
        cluster.start(f"{service}#{number}", build=build)
        cluster.run(most_ms=chance.randint(0, 300))
    old = [name for name, each in cluster.processes.items() if "#" in name and each.alive]
    old = [name for name in old if not name.endswith(f"#{number}")]
    for name in chance.sample(old, chance.randint(0, len(old))):
        cluster.kill(name)
        cluster.run(most_ms=chance.randint(0, 6_000))
        assert build not in builds(cluster).values(), "[R27]: nothing was handed over"
        cluster.start(name, build=cluster.processes[name].build)
    cluster.run(lambda: None not in builds(cluster).values(), most_ms=20_000)
    chance.shuffle(old)
    for name in old:
        cluster.stop(name)
        if chance.random() < 0.3:  # who watches it starts it again, as it was
            cluster.start(name, build=cluster.processes[name].build)
        cluster.run(most_ms=chance.randint(0, 200))
    for name in old:
        if cluster.processes[name].alive:
            cluster.stop(name)
    cluster.run(lambda: set(builds(cluster).values()) == {build}, most_ms=20_000)


def over_and_back(seed: int, times: int = 3) -> None:
    """Hands over so many times. AssertionError when something does not hold."""
    chance = random.Random(seed)
    control = tuple(f"{service}#{n}" for service in SERVICES for n in range(1, chance.choice((1, 2)) + 1))
    cluster = Cluster(
        Topology(shards=2), seed=seed, task_managers=2, script=workload.drawn_behaviour(seed), control=control,
        snapshot_records=chance.choice((5, 50, 50_000)),
    )  # fmt: skip
    workload.upload_module(cluster.world)
    cluster.run(cluster.ready)
    jobs = [f"job-{number}" for number in range(JOBS * times)]
    for turn, build in enumerate((OTHER, __version__, OTHER)[:times]):
        for job in jobs[JOBS * turn :][:JOBS]:
            cluster.client.submit(job, workload.drawn(seed, job))
        cluster.run(most_ms=chance.randint(0, 300))
        hand_over(cluster, chance, 11 + turn, build)
    cluster.run(lambda: cluster.ended(*jobs), most_ms=120_000)
    cluster.run(cluster.ready, most_ms=20_000)
    cluster.run(most_ms=3_000)
    audit(cluster)
