"""Storage that attempts cannot write to for a while [R28]: jobs wait, say why, and spend no move of theirs. Run as a seed says."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from typing import Any

from millrace.core.messages.events import AttemptStateChanged, JobWaiting
from millrace.core.topics import DISPATCHER
from tests.replay.simulated import STANDBY
from tests.simulation import workload
from tests.simulation.audit import audit
from tests.simulation.behaviour import Behaviour
from tests.simulation.cluster import CONTROL, Cluster
from tests.simulation.deaths import one_dies
from tests.simulation.trial import quiet_logs

FULL = {"kind": "infrastructure", "retryable": True, "message": "[Errno 28] No space left on device", "condition": "NOT_WRITABLE"}
JOBS = ("wide", "sink", "single")
MOVES = 2
AWAY_MS = (40_000, 90_000)  # a subtask tries again every ten seconds: more often than it may be moved
ENOUGH_MS = 90_000


def storage_is_away(seed: int) -> None:
    """Three jobs on two TaskManagers. Meanwhile a leader of the JobMaster dies, or a TaskManager, or nothing happens. All finish."""
    quiet_logs()
    chance = random.Random(f"storing {seed}")
    away = True

    def behaves(spec: dict[str, Any]) -> Behaviour:
        return Behaviour("fail", error=FULL) if away else Behaviour()

    cluster = Cluster(
        seed=seed, task_managers=2, slots=2, script=behaves, control=(*CONTROL, STANDBY), deciding={"job-master": {"moves_most": MOVES}}
    )  # fmt: skip
    cluster.run(cluster.ready, most_ms=20_000)
    for job in JOBS:
        cluster.client.submit(job, getattr(workload, job)(job, restart={"strategy": "none"}))
    cluster.run(most_ms=chance.randint(0, 15_000))
    one_dies(cluster, chance)
    cluster.run(most_ms=chance.randint(*AWAY_MS))
    over = [job for job in JOBS if cluster.ended(job)]
    assert not over, f"[R28]: {over} ended while storage could not be written: {cluster.statuses()}"
    _assert_waits(cluster)
    away = False
    cluster.run(lambda: cluster.ended(*JOBS), most_ms=ENOUGH_MS)
    assert {*cluster.statuses().values()} == {"FINISHED"}, f"[R28]: {cluster.statuses()}"
    cluster.run(cluster.ready, most_ms=20_000)
    cluster.run(most_ms=3_000)
    audit(cluster)


def _assert_waits(cluster: Cluster) -> None:
    """Each job waits, and clients are told for what; and a subtask of it has failed more often than it may be moved."""
    for job in JOBS:
        cluster.run(partial(_waits, cluster, job), most_ms=30_000)
        told = [each.reason for each in cluster.client.events(job) if isinstance(each, JobWaiting)]
        assert any(FULL["message"] in reason for reason in told), f"{job} tells of no storage: {told}"
        events = [each for each in cluster.client.events(job) if isinstance(each, AttemptStateChanged) and each.error is not None]
        failed = Counter((each.task, each.subtask) for each in events)
        assert max(failed.values()) > MOVES, f"{job}: {failed}"


def _waits(cluster: Cluster, job: str) -> bool:
    dispatcher = cluster.leader(DISPATCHER)
    return dispatcher is not None and FULL["message"] in (dispatcher.state.live[job].waiting or "")
