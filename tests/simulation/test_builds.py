"""Clusters that go over to another build and back while jobs run [27]."""

from __future__ import annotations

import random

import pytest

from millrace import __version__
from millrace.core.topics import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, Topology
from tests.simulation import workload
from tests.simulation.audit import audit
from tests.simulation.cluster import Cluster
from tests.simulation.trial import quiet_logs

SERVICES = (DISPATCHER, RESOURCE_MANAGER, JOB_MASTER)
OTHER = "99.0"


def builds(cluster: Cluster) -> dict[str, str | None]:
    """Scope -> build of its leader."""
    led = {scope: cluster.leader(scope) for scope in cluster.world.topology.scopes()}
    return {scope: folded.build if folded is not None else None for scope, folded in led.items()}


def hand_over(cluster: Cluster, chance: random.Random, number: int, build: str) -> None:
    """Starts process `number` of each service as this build, and ends the ones before; each at some time of its own."""
    for service in SERVICES:
        cluster.start(f"{service}#{number}", build=build)
        cluster.run(most_ms=chance.randint(0, 300))
    old = [name for name, each in cluster.processes.items() if "#" in name and each.alive]
    old = [name for name in old if not name.endswith(f"#{number}")]
    chance.shuffle(old)
    for name in old:
        cluster.stop(name)
        if chance.random() < 0.3:  # who watches it starts it again, as it was
            cluster.start(name, build=cluster.processes[name].build)  # type: ignore[union-attr]
        cluster.run(most_ms=chance.randint(0, 200))
    for name in old:
        if cluster.processes[name].alive:
            cluster.stop(name)
    cluster.run(lambda: set(builds(cluster).values()) == {build}, most_ms=20_000)


@pytest.mark.parametrize("seed", range(4))
def test_over_and_back_with_jobs_running(seed: int) -> None:
    quiet_logs()
    chance = random.Random(seed)
    control = tuple(f"{service}#{n}" for service in SERVICES for n in range(1, chance.choice((1, 2)) + 1))
    cluster = Cluster(
        Topology(shards=2), seed=seed, task_managers=2, script=workload.drawn_behaviour(seed), control=control,
        snapshot_records=chance.choice((5, 50, 50_000)),
    )  # fmt: skip
    workload.upload_module(cluster.world)
    cluster.run(cluster.ready)
    jobs = [f"job-{number}" for number in range(12)]
    for number, build in ((11, OTHER), (12, __version__), (13, OTHER)):
        for job in jobs[4 * (number - 11) :][:4]:
            cluster.client.submit(job, workload.drawn(seed, job))
        cluster.run(most_ms=chance.randint(0, 300))
        hand_over(cluster, chance, number, build)
    cluster.run(lambda: cluster.ended(*jobs), most_ms=120_000)
    cluster.run(cluster.ready, most_ms=20_000)
    cluster.run(most_ms=3_000)
    audit(cluster)
