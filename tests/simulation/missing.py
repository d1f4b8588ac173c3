"""What is made up for of a schedule's times that came while nobody led, and runs that follow each other [R36]. Run as a seed says."""

from __future__ import annotations

import json
import random
from typing import Any

from millrace.core.messages import schedules
from millrace.core.topics import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, Topology
from services.dispatcher.schedules import times
from services.dispatcher.schedules.deciding import LATE_MS
from tests.simulation import workload
from tests.simulation.audit import audit
from tests.simulation.behaviour import Timing
from tests.simulation.cluster import Cluster
from tests.simulation.scheduling import accepted_jobs

MINUTE_MS = 60_000
EVERY = 10  # minutes: longer than a time may be late without being missed
MISSED = ("skip", "latest", "all")
ENOUGH_MS = 120_000


def _cluster(seed: int, timing: Timing) -> Cluster:
    control = (f"{DISPATCHER}#1", f"{RESOURCE_MANAGER}#1", f"{JOB_MASTER}#1")
    cluster = Cluster(Topology(shards=1), seed=seed, task_managers=1, slots=2, control=control, timing=timing)
    cluster.run(cluster.ready, most_ms=20_000)
    return cluster


def _until(cluster: Cluster, at_ms: int) -> None:
    while cluster.world.clock.now_ms() < at_ms:
        cluster.run(most_ms=min(10_000, at_ms - cluster.world.clock.now_ms()))


def missed_times(seed: int) -> None:
    """Three times come. The Dispatcher is away for the first two, and for longer than they may be late."""
    chance = random.Random(f"missed {seed}")
    cluster = _cluster(seed, Timing(run=(100, 2_500)))
    for missed in MISSED:
        graph = workload.single(missed)
        cluster.client.ask(schedules.SetSchedule, schedule=missed, graph=graph, cron=f"*/{EVERY} * * * *", missed=missed, overlap="wait")
    cluster.run(lambda: cluster.world.has_schedules)
    begin_ms = cluster.world.clock.now_ms()
    cluster.run(most_ms=2_000)
    first, second, third = times.between(f"*/{EVERY} * * * *", "UTC", begin_ms, begin_ms + 3 * EVERY * MINUTE_MS, 3)
    _until(cluster, first - chance.randint(1_000, 20_000))
    cluster.kill(f"{DISPATCHER}#1")
    _until(cluster, second + LATE_MS + chance.randint(1_000, 60_000))
    cluster.start(f"{DISPATCHER}#1")
    _until(cluster, third + 20_000)
    due = {"skip": [third], "latest": [second, third], "all": [first, second, third]}
    wanted = {times.job_id(name, each) for name, its in due.items() for each in its}
    cluster.run(lambda: cluster.ended(*wanted), most_ms=ENOUGH_MS)
    cluster.run(most_ms=3_000)
    found = accepted_jobs(cluster)
    assert sorted(found) == sorted(wanted), f"[R36]: {sorted(found)} are accepted, and due are {sorted(wanted)}"
    audit(cluster)


def one_at_a_time(seed: int) -> None:
    """Each run takes longer than a minute, and a time comes each minute: `wait` runs them one after the other, `skip` leaves out."""
    cluster = _cluster(seed, Timing(run=(70_000, 100_000)))
    for overlap in ("wait", "skip"):
        graph = workload.single(overlap)
        cluster.client.ask(schedules.SetSchedule, schedule=overlap, graph=graph, cron="* * * * *", missed="all", overlap=overlap)
    begin_ms = cluster.world.clock.now_ms()
    _until(cluster, begin_ms + 5 * MINUTE_MS)
    for overlap in ("wait", "skip"):
        cluster.client.ask(schedules.PauseSchedule, schedule=overlap)
    cluster.run(most_ms=2_000)
    due = {overlap: [times.job_id(overlap, each) for each in times.between("* * * * *", "UTC", begin_ms, begin_ms + 5 * MINUTE_MS, 9)]
           for overlap in ("wait", "skip")}  # fmt: skip
    lives: dict[str, str] = {}
    found: list[str] = []
    for event in _job_events(cluster):
        schedule = event["job"].partition("-")[0]
        if event["type"] == "JobAccepted" and event["job"] not in found:
            assert schedule not in lives, f"[R36]: {event['job']} begins while {lives[schedule]} goes on"
            lives[schedule] = event["job"]
            found.append(event["job"])
        elif event["type"] == "JobFinished":
            lives.pop(schedule, None)
    waited, skipped = ([job for job in found if job in due[overlap]] for overlap in ("wait", "skip"))
    assert len(waited) >= 2 and waited == due["wait"][: len(waited)], f"[R36]: {waited} of {due['wait']}"
    assert len(skipped) >= 2 and skipped != due["skip"][: len(skipped)], f"[R36]: {skipped} of {due['skip']}, and none is left out"


def _job_events(cluster: Cluster) -> list[dict[str, Any]]:
    """In the order of their times."""
    logs = [cluster.world.broker.log("job.events", number) for number in range(cluster.world.topology.job_event_partitions)]
    events: list[dict[str, Any]] = [json.loads(record.value) for log in logs for record in log.records]
    return sorted(events, key=lambda event: event["at_ms"])


def policies_hold(seed: int) -> None:
    (one_at_a_time if seed % 2 else missed_times)(seed)
