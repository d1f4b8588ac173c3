"""Jobs with a skewed edge: each is told of once, with what the attempts that count wrote, whoever fails or dies. Run as a seed says."""

from __future__ import annotations

import random
from typing import Any

from millrace.core.messages.events import EdgeSkewed
from tests.replay.simulated import STANDBY
from tests.simulation import workload
from tests.simulation.audit import audit
from tests.simulation.behaviour import Behaviour, Script
from tests.simulation.cluster import CONTROL, Cluster
from tests.simulation.deaths import one_dies
from tests.simulation.slots import report
from tests.simulation.trial import quiet_logs

JOBS = ("wide", "again", "even")
WIDE = 4
SHARES = [1_900_000, 100_000]
"""Of each subtask, but of a job whose shares are even."""


def skewed(seed: int) -> Script:
    """First attempts of a job that begins again as a whole fail here and there, behind others that have finished."""

    def behaves(spec: dict[str, Any]) -> Behaviour:
        chance = random.Random(f"skewed {seed}/{spec['job']}/{spec['task']}/{spec['subtask']}/{spec['attempt']}")
        ms = chance.randint(10, 300)
        if spec["task"] != "numbers" or spec["kind"] == "plan":
            return Behaviour(run_ms=ms)
        if spec["job"] == "again" and spec["attempt"] == 1 and spec["subtask"] == seed % WIDE:
            return Behaviour("fail", run_ms=400)
        made = report(spec)
        rows = SHARES if spec["job"] != "even" else [sum(SHARES) // 2] * 2
        hashed = {"keys": ["k"], "share_rows": rows, "share_bytes": [8 * each for each in rows]}
        made["outputs"]["numbers"]["hashed"] = [{**hashed, "heaviest": [{"share": 0, "key": ["7"], "rows_about": 1_800_000}]}]
        return Behaviour(report=made, run_ms=ms)

    return behaves


def uneven_edges(seed: int) -> Cluster:
    """Three jobs on two TaskManagers; meanwhile a leader of the JobMaster dies, or a TaskManager. The cluster as it is then."""
    quiet_logs()
    chance = random.Random(f"skewing {seed}")
    cluster = Cluster(seed=seed, task_managers=2, slots=3, script=skewed(seed), control=(*CONTROL, STANDBY))
    cluster.run(cluster.ready, most_ms=20_000)
    full = {"attempts": 20, "delay_ms": 100, "scope": "full"}
    for job in JOBS:
        cluster.client.submit(job, workload.wide(job, WIDE, restart=full if job == "again" else {"attempts": 20, "delay_ms": 100}))
    cluster.run(most_ms=chance.randint(100, 1_500))
    one_dies(cluster, chance)
    cluster.run(lambda: cluster.ended(*JOBS), most_ms=90_000)
    assert {*cluster.statuses().values()} == {"FINISHED"}, f"{cluster.statuses()}"
    for job in JOBS:
        told = {each.count: each.edge for each in cluster.client.events(job) if isinstance(each, EdgeSkewed)}
        rows = [(each.rows, each.rows_in_all, each.heaviest[0].rows) for each in told.values()]
        right = [] if job == "even" else [(WIDE * SHARES[0], WIDE * sum(SHARES), WIDE * 1_800_000)]
        assert rows == right, f"[R16]: of {job} is told {rows}, and its attempts wrote {right}"
    cluster.run(cluster.ready, most_ms=20_000)
    cluster.run(most_ms=3_000)
    audit(cluster)
    return cluster
