"""Messages between services that no transcript has: each is sent in a cluster in memory, and what it is for holds."""

from __future__ import annotations

import pytest

from millrace.core.messages.base import Body
from millrace.core.messages.jobs import (
    DeclareAgain,
    JobMasterDeclared,
    JobMasterHeartbeat,
    JobQueued,
    NotEnoughResources,
    ReconcileSlots,
    TaskManagersParted,
)
from millrace.core.messages.records import Forked, Hello, Message, decode
from millrace.core.messages.slots import FailSlot, FreeUnused, SlotUnused, TaskManagerHeartbeat
from tests.simulation import workload
from tests.simulation.audit import audit
from tests.simulation.cluster import Cluster
from tests.simulation.silent import a_shard_is_given_up, a_shard_stays_away, an_end_is_passed_over
from tests.simulation.trial import quiet_logs

RM = "resource-manager"


@pytest.fixture(autouse=True)
def _quiet() -> None:
    quiet_logs()


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster(task_managers=2, slots=1, seed=1)
    made.run(made.ready, most_ms=20_000)
    return made


def messages(cluster: Cluster) -> list[Message]:
    """What scopes have sent each other, in the order of all inboxes together."""
    inboxes = {cluster.world.topology.inbox(scope)[0] for scope in (*cluster.world.topology.scopes(), "task-manager/1")}
    records = (decode(each.value) for each in cluster.world.broker.journal if each.topic in inboxes)
    return [record for record in records if isinstance(record, Message)]


def sent(cluster: Cluster) -> set[type[Body]]:
    return {type(each.body) for each in messages(cluster)}


def cut(cluster: Cluster, scope: str, end: int) -> None:
    """Its log loses its records from this offset on."""
    cluster.world.broker.truncate(*cluster.world.topology.inbox(scope), end)
    cluster.world.book.cut(scope, end)


def rest(cluster: Cluster, *jobs: str) -> None:
    cluster.run(lambda: cluster.ended(*jobs))
    cluster.run(cluster.ready, most_ms=20_000)
    cluster.run(most_ms=3_000)
    audit(cluster)


def test_a_log_that_was_cut_while_nobody_had_read_it_is_found_by_a_peer(cluster: Cluster) -> None:
    """The ResourceManager dies, and its log loses the record that it had sent JobQueued for. Its next leader cannot know of that message,
    and sends another one in its place."""
    for job in ("one", "two", "waits"):
        cluster.client.submit(job, workload.single(job))
    cluster.run(lambda: JobQueued in sent(cluster))
    cluster.kill(f"{RM}#1")
    [lost] = [each.key[0] for each in messages(cluster) if isinstance(each.body, JobQueued)]
    cut(cluster, RM, lost)
    cluster.start(f"{RM}#1")
    rest(cluster, "one", "two", "waits")
    leader = cluster.leader(RM)
    assert leader is not None and leader.generation == 2
    assert {Forked, Hello} <= sent(cluster)


def test_a_reborn_resource_manager_learns_from_shards_who_is_lost(cluster: Cluster) -> None:
    """A TaskManager dies and is declared lost; then the ResourceManager loses its log."""
    cluster.kill("task-manager/2")
    cluster.run(lambda: len(cluster.leader(RM).state.task_managers) == 1)
    cluster.run(most_ms=500)
    cut(cluster, RM, cluster.world.broker.log(*cluster.world.topology.inbox(RM)).end - 5)
    cluster.run(lambda: cluster.leader("job-master/0").state.declared_to == 2)
    cluster.client.submit("one", workload.single("one"))
    rest(cluster, "one")
    assert "2" in cluster.leader(RM).state.parted
    assert {TaskManagersParted, JobMasterDeclared, TaskManagerHeartbeat} <= sent(cluster)


def test_a_slot_that_a_dead_shard_does_not_use_is_taken_back() -> None:
    cluster = a_shard_stays_away(0)
    assert {FailSlot, SlotUnused, DeclareAgain} <= sent(cluster)


def test_what_a_shard_holds_unused_that_stays_away_is_freed() -> None:
    cluster = a_shard_is_given_up(0)
    assert {FreeUnused, FailSlot} <= sent(cluster)


def test_what_nobody_was_notified_of_is_reconciled() -> None:
    cluster = an_end_is_passed_over(0)
    assert {JobMasterHeartbeat, ReconcileSlots} <= sent(cluster)


def test_a_job_that_no_slot_is_large_enough_for_fails_after_a_while() -> None:
    cluster = Cluster(task_managers=1, slots=1, seed=1, deciding={RM: {"not_enough_resources_ms": 2_000}})
    cluster.run(cluster.ready, most_ms=20_000)
    cluster.client.submit("large", workload.single("large", resources={"memory_mb": 1 << 20}))
    rest(cluster, "large")
    assert cluster.statuses()["large"] == "FAILED" and NotEnoughResources in sent(cluster)
