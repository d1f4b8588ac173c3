"""Parts that stay away [R31]: a shard that never comes back, and lists of the longest names [R15]. Run as a seed says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from typing import Any

from millrace.core.machine import Envelope, Output
from millrace.core.messages import client, processes, slots
from millrace.core.messages.effects import StoredJob
from millrace.core.topics import DISPATCHER, RESOURCE_MANAGER, Topology
from millrace.io.interfaces import Put, Txn
from services.job_master.core.machine import HANDLERS as JOB_MASTER
from tests.simulation import workload
from tests.simulation.audit import audit
from tests.simulation.behaviour import Behaviour, Timing
from tests.simulation.cluster import Cluster
from tests.simulation.store import MemoryStore
from tests.simulation.world import PREFIX

AWAY = "job-master/0#1"
CONTROL = (f"{DISPATCHER}#1", f"{RESOURCE_MANAGER}#1", AWAY, "job-master/1#1")
ENOUGH_MS = 60_000  # of a shard that is there, beside one that is not
ANSWERED_MS = 10_000
LONG_NAMES = 1_000
LISTED = 60


def jobs_of(shard: int, topology: Topology, most: int) -> list[str]:
    return [job for job in map("job-{}".format, range(100)) if topology.shard_of(job) == shard][:most]


def a_shard_stays_away(seed: int) -> Cluster:
    """Jobs of two shards wait for slots; one shard dies, perhaps the ResourceManager's log loses its end as well, and the jobs of the
    other end. When it is back after all, its own do. AssertionError when something does not hold. The cluster as it is then."""
    chance, topology = random.Random(f"silent {seed}"), Topology(shards=2)
    cluster = Cluster(
        topology, seed=seed, task_managers=2, slots=1, control=CONTROL, timing=Timing(run=(1_500, 2_500), unanswered=1.0),
        deciding={"task-manager": {"allocation_timeout_ms": 400}},
    )  # fmt: skip
    cluster.run(cluster.ready, most_ms=20_000)
    away, there = jobs_of(0, topology, 4), jobs_of(1, topology, 4)
    for job in there[:2]:
        cluster.client.submit(job, workload.single(job))
    cluster.run(lambda: len(cluster.world.book.living) == 2, most_ms=20_000)
    for job in away:
        cluster.client.submit(job, workload.single(job))
    cluster.run(lambda: len(_state(cluster, RESOURCE_MANAGER).waiting) == len(away), most_ms=1_000)
    cluster.kill(AWAY)
    for job in there[2:]:
        cluster.client.submit(job, workload.single(job))
    if seed % 2:
        inbox = topology.inbox(RESOURCE_MANAGER)
        cluster.run(most_ms=chance.choice((0, 100, 600)))
        cluster.world.broker.truncate(*inbox, max(0, cluster.world.broker.log(*inbox).end - 3))
        cluster.world.book.cut(RESOURCE_MANAGER, cluster.world.broker.log(*inbox).end)
    asked = cluster.client.ask(client.DescribeJob, job=away[0])
    cluster.run(lambda: asked in cluster.client.replies(), most_ms=ANSWERED_MS)
    told = cluster.client.replies()[asked][0]
    assert told.silent == "job-master/0" and told.summary.job == away[0], f"[R31]: {told}"
    cluster.run(lambda: cluster.ended(*there), most_ms=ENOUGH_MS)
    cluster.start(AWAY)
    cluster.run(lambda: cluster.ended(*away), most_ms=ENOUGH_MS)
    asked = cluster.client.ask(processes.DescribeTaskManager, task_manager="1")
    cluster.run(lambda: asked in cluster.client.replies(), most_ms=ANSWERED_MS)
    told = cluster.client.replies()[asked][0]
    assert told.silent == "task-manager/1", f"[R31]: {told}"
    cluster.run(cluster.ready, most_ms=20_000)
    cluster.run(most_ms=3_000)
    audit(cluster)
    return cluster


def a_shard_is_given_up(seed: int) -> Cluster:
    """A shard dies while an attempt of it runs and its other jobs wait. It is excluded before any slot is free. Later its jobs are out of
    the queue, and the slot is free in which its attempt has ended: a job of the other shard that wants both slots has them. When it is back
    after all, that attempt counts, and its other jobs end."""
    topology = Topology(shards=2)
    away, there = jobs_of(0, topology, 3), jobs_of(1, topology, 2)
    takes_ms = {away[0]: 2_500, there[0]: 7_000}
    cluster = Cluster(
        topology, seed=seed, task_managers=2, slots=1, control=CONTROL,
        script=lambda spec: Behaviour(run_ms=takes_ms.get(spec["job"])),
        deciding={RESOURCE_MANAGER: {"job_master_silent_ms": 1_500, "job_timeout_ms": 3_000}},
    )  # fmt: skip
    cluster.run(cluster.ready, most_ms=20_000)
    for job in (away[0], there[0]):
        cluster.client.submit(job, workload.single(job))
    cluster.run(lambda: len(cluster.world.book.living) == 2, most_ms=5_000)
    for job in away[1:]:
        cluster.client.submit(job, workload.single(job))
    cluster.run(lambda: len(_state(cluster, RESOURCE_MANAGER).waiting) == 2, most_ms=1_000)
    cluster.run(lambda: 0 in _state(cluster, RESOURCE_MANAGER).heard_ms, most_ms=1_000)
    cluster.kill(AWAY)
    cluster.run(lambda: not _state(cluster, RESOURCE_MANAGER).waiting, most_ms=3_500)
    gang = there[1]
    cluster.client.submit(gang, workload.wide(gang, parallelism=2, together=True))
    if seed % 2:
        cluster.run(most_ms=random.Random(f"given up {seed}").randrange(4_000))
        cluster.kill(f"{RESOURCE_MANAGER}#1")
        cluster.start(f"{RESOURCE_MANAGER}#1")
    cluster.run(lambda: cluster.ended(*there), most_ms=ENOUGH_MS)
    cluster.start(AWAY)
    cluster.run(lambda: cluster.ended(*away), most_ms=ENOUGH_MS)
    first = [attempt for attempt in cluster.world.book.launched if attempt.startswith(f"{away[0]}/")]
    assert len(first) == 1, f"[R31]: what had ended runs again: {first}"
    cluster.run(cluster.ready, most_ms=20_000)
    cluster.run(most_ms=3_000)
    audit(cluster)
    return cluster


def an_end_is_passed_over(seed: int) -> Cluster:
    """A slot breaks with an attempt in it, and nothing is done of the two messages about that, as of records that end processes twice
    [R26]. The attempt runs elsewhere all the same: the ResourceManager knows that there is no such slot."""
    cluster = Cluster(
        seed=seed, task_managers=2, slots=1, script=lambda spec: Behaviour("break" if spec["attempt"] == 1 else "finish"),
    )  # fmt: skip
    originals = {message: JOB_MASTER[message] for message in (slots.TaskStateChanged, slots.FailSlot)}

    def passes_over(state: Any, body: Any, envelope: Envelope) -> Iterator[Output]:
        over = isinstance(body, slots.FailSlot) or body.state == "FAILED"
        return iter(()) if over else originals[type(body)](state, body, envelope)

    JOB_MASTER.update(dict.fromkeys(originals, passes_over))
    try:
        cluster.run(cluster.ready, most_ms=20_000)
        cluster.client.submit("one", workload.single("one"))
        cluster.run(lambda: cluster.ended("one"), most_ms=ENOUGH_MS)
    finally:
        JOB_MASTER.update(originals)
    assert cluster.statuses() == {"one": "FINISHED"}, f"[R31]: {cluster.statuses()}"
    return cluster


def parts_stay_away(seed: int) -> None:
    """All three."""
    a_shard_is_given_up(seed)
    an_end_is_passed_over(seed)
    a_shard_stays_away(seed)


def names_are_long(seed: int) -> None:
    """A thousand ended jobs with the longest names that there may be, and somebody who asks for all of them."""
    cluster = Cluster(seed=seed)
    store = MemoryStore(cluster.world.etcd, PREFIX)
    for number in range(LONG_NAMES):
        stored = StoredJob(
            state="clean", digest="0" * 64, acceptance="0.1", shard=0, accepted_ms=1, name="\U00010000" * 255, status="FINISHED",
            ended_ms=number + 1, archive=f"archives/{number}",
        )  # fmt: skip
        store.txn(Txn((), [Put(f"jobs/{number}", stored.model_dump_json().encode())]))
    cluster.run(lambda: cluster.ready() and len(_state(cluster, DISPATCHER).ended) == LONG_NAMES, most_ms=20_000)
    asked = cluster.client.ask(client.ListJobs, most=1_000)
    cluster.run(lambda: asked in cluster.client.replies(), most_ms=20_000)
    [listed] = cluster.client.replies()[asked]
    assert listed.type == "JobsListed" and 100 < len(listed.jobs) < LONG_NAMES, f"[R15]: {listed}"


def lists_go_on(seed: int) -> None:
    """Ended jobs of which the Dispatcher remembers few, and somebody who reads all of them page by page. Meanwhile others are submitted
    and end, and perhaps the Dispatcher dies."""
    chance = random.Random(f"lists {seed}")
    cluster = Cluster(seed=seed, slots=2, deciding={DISPATCHER: {"retained_jobs": chance.choice((0, 1, 20, 10_000))}})
    store, before = MemoryStore(cluster.world.etcd, PREFIX), []
    for number in range(LISTED):
        job, accepted_ms = f"old-{number}", chance.randrange(1, 20)
        stored = StoredJob(
            state="clean", digest="0" * 64, acceptance="0.1", shard=0, accepted_ms=accepted_ms, name=job, status="FINISHED",
            ended_ms=accepted_ms + chance.randrange(1, 50), archive=f"archives/{job}",
        )  # fmt: skip
        store.txn(Txn((), [Put(f"jobs/{job}", stored.model_dump_json().encode())]))
        before.append((accepted_ms, job))
    cluster.run(cluster.ready, most_ms=20_000)
    cluster.client.submit("new-0", workload.single("new-0"))
    cluster.run(lambda: cluster.ended("new-0") or chance.random() < 0.1, most_ms=20_000)
    found: list[tuple[int, str]] = []
    cursor: str | None = ""
    kill_at = chance.randrange(2 * LISTED)
    while cursor is not None:
        listed = _page(cluster, chance.choice((1, 7, 25)), cursor)
        found += [(each.accepted_ms, each.job) for each in listed.jobs]
        cursor = listed.next
        job = f"new-{len(cluster.client.requests)}"
        cluster.client.submit(job, workload.single(job))
        if len(found) > kill_at:
            kill_at = 1 << 40
            cluster.kill(f"{DISPATCHER}#1")
            cluster.start(f"{DISPATCHER}#1")
        cluster.run(most_ms=chance.choice((0, 100, 2_000)))
    missing = sorted({*before} - {*found}, reverse=True)
    assert not missing and found == sorted({*found}, reverse=True), f"[R15]: pages lack {missing}, or are in no order: {found}"


def large_lists(seed: int) -> None:
    """Both."""
    names_are_long(seed)
    lists_go_on(seed)


def _is_answered(cluster: Cluster, asked: str) -> bool:
    return asked in cluster.client.replies()


def _page(cluster: Cluster, limit: int, cursor: str) -> client.JobDetailsListed:
    """A page; one that is refused is asked for again."""
    while True:
        asked = cluster.client.ask(client.ListJobDetails, limit=limit, cursor=cursor)
        cluster.run(partial(_is_answered, cluster, asked), most_ms=ANSWERED_MS)
        [told] = cluster.client.replies()[asked]
        if isinstance(told, client.JobDetailsListed):
            return told
        assert isinstance(told, client.RequestRefused) and told.kind == "busy", told


def _state(cluster: Cluster, scope: str) -> Any:
    folded = cluster.leader(scope)
    assert folded is not None, f"nobody leads {scope}"
    return folded.state
