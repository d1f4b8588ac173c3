"""Who dies in a scene that has one death: drawn from its seed."""

from __future__ import annotations

import random

from tests.replay.simulated import STANDBY
from tests.simulation.cluster import Cluster

DOWN_MS = 2_000


def one_dies(cluster: Cluster, chance: random.Random) -> None:
    """The leader of the JobMaster, for good; or one of two TaskManagers, for two seconds; or nobody."""
    happens = chance.choice(("leader", "task-manager", "nothing"))
    if happens == "leader":
        cluster.kill(next(name for name in ("job-master#1", STANDBY) if cluster.processes[name].leads("job-master/0")))
    elif happens == "task-manager":
        cluster.kill(dies := f"task-manager/{chance.choice((1, 2))}")
        cluster.run(most_ms=DOWN_MS)
        cluster.start(dies)
