"""Slow attempts, and second ones beside them [R38]: whichever finishes counts, whoever dies meanwhile. Run as a seed says."""

from __future__ import annotations

import random
from typing import Any

from millrace.core.messages.events import AttemptStateChanged
from tests.replay.simulated import STANDBY
from tests.simulation import workload
from tests.simulation.audit import audit
from tests.simulation.behaviour import Behaviour, Script
from tests.simulation.cluster import CONTROL, Cluster
from tests.simulation.trial import quiet_logs

RULE = {"baseline_ratio": 0.5, "baseline_multiplier": 2, "baseline_lower_bound_ms": 600}
JOBS = ("wide", "sink", "both")
ENOUGH_MS = 90_000
WIDE = 4
SEVERAL = ("numbers", "sums", "kept", "left")
"""Tasks of several subtasks. One without siblings is never slow."""


def slow(seed: int) -> Script:
    """Of each task of several subtasks a first attempt or two hangs, runs for long, or fails after long; second ones of those, too,
    sometimes, but none of them hangs."""

    def behaves(spec: dict[str, Any]) -> Behaviour:
        chance = random.Random(f"slow {seed}/{spec['job']}/{spec['task']}/{spec['subtask']}/{spec['attempt']}")
        if spec["task"].partition("+")[0] not in SEVERAL or spec["subtask"] % WIDE != seed % WIDE:
            return Behaviour(run_ms=chance.randint(10, 200))
        how = chance.choice(("hang", "long", "long", "fail")) if spec["attempt"] == 1 else chance.choice(("finish", "long", "fail"))
        if how == "hang":
            return Behaviour("hang")
        return Behaviour("fail" if how == "fail" else "finish", run_ms=chance.randint(800, 2_500) if how != "finish" else 100)

    return behaves


def second_attempts(seed: int) -> Cluster:
    """Three jobs with slow subtasks on three TaskManagers; meanwhile a leader of the JobMaster dies, or a TaskManager, or a job is
    canceled. All end, with the output of one attempt a subtask, and nothing is left in any slot. The cluster as it is then."""
    quiet_logs()
    chance = random.Random(f"speculating {seed}")
    cluster = Cluster(seed=seed, task_managers=3, slots=2, script=slow(seed), control=(*CONTROL, STANDBY))
    cluster.run(cluster.ready, most_ms=20_000)
    options = {"speculative": RULE, "restart": {"attempts": 20, "delay_ms": 100}}
    cluster.client.submit("wide", workload.wide("wide", WIDE, **options))
    cluster.client.submit("sink", workload.sink("sink", WIDE, **options))
    cluster.client.submit("both", workload.diamond("both", **{**options, "timeouts": {"run_ms": 4_000}}))
    cluster.run(lambda: bool(beside(cluster)) or cluster.ended(*JOBS), most_ms=ENOUGH_MS)
    cluster.run(most_ms=chance.randint(0, 400))
    happens = chance.choice(("leader", "task-manager", "cancel", "nothing"))
    if happens == "leader":
        cluster.kill(next(name for name in (f"job-master#{1}", STANDBY) if cluster.processes[name].leads("job-master/0")))
    elif happens == "task-manager":
        cluster.kill(dies := f"task-manager/{chance.choice((1, 2, 3))}")
        cluster.run(most_ms=2_000)
        cluster.start(dies)
    elif happens == "cancel":
        cluster.client.cancel(chance.choice(JOBS))
    cluster.run(lambda: cluster.ended(*JOBS), most_ms=ENOUGH_MS)
    assert {*cluster.statuses().values()} <= {"FINISHED", "CANCELED"}, f"[R38]: {cluster.statuses()}"
    cluster.run(cluster.ready, most_ms=20_000)
    cluster.run(most_ms=3_000)
    for job in JOBS:
        _assert_one_of_two(cluster, job)
    audit(cluster)
    return cluster


def beside(cluster: Cluster) -> list[AttemptStateChanged]:
    """What was told of attempts that had another one beside them."""
    return [each for job in JOBS for each in cluster.client.events(job) if isinstance(each, AttemptStateChanged) and each.beside]


def _assert_one_of_two(cluster: Cluster, job: str) -> None:
    """Each subtask has one attempt that FINISHED; none starts or finishes behind that; two that live are on two TaskManagers."""
    finished: dict[tuple[str, int], int] = {}
    places: dict[tuple[str, int], dict[int, str | None]] = {}
    for each in cluster.client.events(job):
        if not isinstance(each, AttemptStateChanged):
            continue
        place = each.task, each.subtask
        lives = places.setdefault(place, {})
        if each.state == "DEPLOYING":
            assert place not in finished, f"[R38]: {place} of {job} has finished, and attempt {each.attempt} starts"
            lives[each.attempt] = each.task_manager
            where = [*lives.values()]
            assert each.beside is None or len({*where}) == len(where), f"[R38]: two attempts of {place} of {job} are on {where}"
        elif each.state != "RUNNING":
            lives.pop(each.attempt, None)
        if each.state == "FINISHED":
            assert place not in finished, f"[R38]: attempts {finished[place]} and {each.attempt} of {place} of {job} both count"
            finished[place] = each.attempt
