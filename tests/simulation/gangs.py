"""Two gangs whose slots are lost before they are offered: each has a part, and nothing is free [R35]. Run as a seed says."""

from __future__ import annotations

import random
from typing import Any

from millrace.core.states import SlotState
from millrace.core.topics import RESOURCE_MANAGER
from tests.simulation import workload
from tests.simulation.audit import audit
from tests.simulation.behaviour import Behaviour
from tests.simulation.cluster import Cluster

GANGS = ("gang-1", "gang-2")
SIZE = 4
ENOUGH_MS = 60_000


def together(spec: dict[str, Any]) -> Behaviour:
    """As in distributed training: an attempt ends only after all of its job have run beside it."""
    return Behaviour(mates=SIZE) if spec["job"] in GANGS else Behaviour()


def two_halves(seed: int) -> Cluster:
    """Two gangs of four are granted all eight slots. One of the two TaskManagers dies before it has offered its own, and stays away, so
    that the four that are left are a part of each gang, mostly. Both end all the same. The cluster as it is then."""
    chance = random.Random(f"halves {seed}")
    cluster = Cluster(seed=seed, task_managers=2, slots=SIZE, script=together)
    cluster.run(cluster.ready, most_ms=20_000)
    before = [f"before-{number}" for number in range(3 * SIZE)]  # so that slots of both are free in any order
    for job in before:
        cluster.client.submit(job, workload.single(job))
    cluster.run(lambda: cluster.ended(*before) and _granted(cluster) == 0, most_ms=ENOUGH_MS)
    dies = f"task-manager/{chance.choice((1, 2))}"
    cluster.paused[dies] = None  # it reads nothing, and so offers nothing
    for gang in GANGS:
        cluster.client.submit(gang, workload.roots(gang, together=True))
    cluster.run(lambda: _granted(cluster) == 2 * SIZE, most_ms=1_000)
    cluster.kill(dies)
    cluster.run(lambda: cluster.ended(*GANGS), most_ms=ENOUGH_MS)
    assert set(cluster.statuses().values()) == {"FINISHED"}, f"[R35]: {cluster.statuses()}"
    cluster.start(dies)
    cluster.run(cluster.ready, most_ms=20_000)
    cluster.run(most_ms=3_000)
    audit(cluster)
    return cluster


def _granted(cluster: Cluster) -> int:
    folded = cluster.leader(RESOURCE_MANAGER)
    assert folded is not None, "nobody leads"
    return sum(
        slot.state is not SlotState.FREE for each in folded.state.task_managers.values() for slot in each.slots.values()
    )
