"""Schedules while leaders die and etcd loses answers: each time is run once, and none is left out. Run as a seed says."""

from __future__ import annotations

import json
import random
from collections import Counter

from millrace.core.messages import schedules
from millrace.core.topics import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, Topology
from services.dispatcher.schedules import times
from tests.simulation import workload
from tests.simulation.audit import audit
from tests.simulation.behaviour import Timing
from tests.simulation.cluster import Cluster

MINUTE_MS = 60_000
MINUTES = 4
FAULTS = 8
ENOUGH_MS = 90_000
SCHEDULES = {"each": {"missed": "all", "overlap": "wait"}, "other": {"missed": "all", "overlap": "wait", "time_zone": "Asia/Kathmandu"}}


def schedules_run(seed: int) -> None:
    """A job each minute, twice. AssertionError when a time has no job, or two, or when what else must hold does not."""
    chance = random.Random(f"schedules {seed}")
    dispatchers = [f"{DISPATCHER}#1", f"{DISPATCHER}#2"]
    cluster = Cluster(
        Topology(shards=1), seed=seed, task_managers=1, slots=2, control=(*dispatchers, f"{RESOURCE_MANAGER}#1", f"{JOB_MASTER}#1"),
        timing=Timing(run=(100, 2_500)), snapshot_records=chance.choice((20, 1_000)),
    )  # fmt: skip
    cluster.run(cluster.ready, most_ms=20_000)
    begin_ms = cluster.world.clock.now_ms()
    for name, policy in SCHEDULES.items():
        cluster.client.ask(schedules.SetSchedule, schedule=name, graph=workload.single(name), cron="* * * * *", **policy)
    cluster.run(lambda: cluster.world.has_schedules)
    for _ in range(FAULTS):
        to_minute = MINUTE_MS - cluster.world.clock.now_ms() % MINUTE_MS
        cluster.run(most_ms=to_minute + chance.choice((0, 20, 100, 500, 600, 1_100, 1_200, 5_000)) if chance.random() < 0.5 else 300)
        name = chance.choice(dispatchers)
        if cluster.processes[name].alive:
            cluster.kill(name)
            cluster.start(name)
    _run_until_minute(cluster, begin_ms)
    until_ms = cluster.world.clock.now_ms()
    for name in SCHEDULES:
        cluster.client.ask(schedules.PauseSchedule, schedule=name)
    due = {
        name: [times.job_id(name, each) for each in times.between("* * * * *", "UTC", begin_ms, until_ms, 1_000)] for name in SCHEDULES
    }
    cluster.run(lambda: cluster.ended(*(job for jobs in due.values() for job in jobs)), most_ms=ENOUGH_MS)
    cluster.run(cluster.ready, most_ms=20_000)
    cluster.run(most_ms=3_000)
    accepted = Counter(job for name in SCHEDULES for job in accepted_jobs(cluster) if job.startswith(f"{name}-"))
    assert accepted == Counter(job for jobs in due.values() for job in jobs), f"{accepted} are accepted, and due are {due}"
    audit(cluster)


def _run_until_minute(cluster: Cluster, begin_ms: int) -> None:
    """At least so many minutes in all, and to the middle of one: what is due then was submitted long ago."""
    while (now_ms := cluster.world.clock.now_ms()) < begin_ms + MINUTES * MINUTE_MS or not 25_000 < now_ms % MINUTE_MS < 35_000:
        cluster.run(most_ms=1_000)


def accepted_jobs(cluster: Cluster) -> list[str]:
    """The jobs that were accepted, each as often as it was; what is published again by a new leader has the same id, and counts once."""
    found: dict[bytes, str] = {}
    for partition in range(cluster.world.topology.job_event_partitions):
        for record in cluster.world.broker.log("job.events", partition).records:
            event = json.loads(record.value)
            if event["type"] == "JobAccepted":
                found[dict(record.headers)["ce_id"] or b""] = event["job"]
    return list(found.values())
