"""Logs that lose their ends while attempts run that take their time to die: what runs anew never meets its forerunner [R11]."""

from __future__ import annotations

import pytest

from tests.simulation import workload
from tests.simulation.behaviour import Timing
from tests.simulation.cluster import Cluster
from tests.simulation.trial import quiet_logs

LOGS = {"one": ("job-master/0",), "two": ("job-master/0", "resource-manager"), "all": ("resource-manager", "job-master/0", "dispatcher")}
LAST = (3, 10, 40)  # records that are lost


def cut(cluster: Cluster, scope: str) -> None:
    broker, inbox = cluster.world.broker, cluster.world.topology.inbox(scope)
    end = max(broker.log(*inbox).end - cluster.world.random.choice(LAST), 0)
    broker.truncate(*inbox, end)
    cluster.world.book.cut(scope, end)


def test_a_slot_of_a_task_manager_that_dies_unheard_by_a_reborn_resource_manager_is_not_waited_for() -> None:
    """It was granted by the life before, and offered when the shard had declared that it holds nothing there [R11]."""
    quiet_logs()
    cluster = Cluster(task_managers=2, slots=1, seed=7)
    shard, inbox = ("job-master.commands", 0), cluster.world.topology.inbox("resource-manager")
    cluster.run(cluster.ready, most_ms=20_000)
    doomed = cluster.processes["task-manager/2"]
    doomed.bus.mute = True
    cluster.client.submit("job", workload.roots("job"))
    cluster.run(lambda: shard in doomed.bus.queued())
    cluster.world.broker.truncate(*inbox, cluster.world.broker.log(*inbox).end - 2)
    cluster.world.book.cut("resource-manager", cluster.world.broker.log(*inbox).end)
    cluster.run(lambda: cluster.leader("job-master/0").state.declared_to == 2)
    doomed.bus.mute = False
    assert doomed.bus.deliver(only=shard), "there was no offer on its way"
    cluster.kill("task-manager/2")
    cluster.run(lambda: cluster.ended("job"))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("logs", LOGS)
def test_no_attempt_starts_while_one_of_a_life_before_lives(logs: str, seed: int) -> None:
    """Four tasks that wait for nothing, on two TaskManagers: the first slot that is free again is not that of the first task. The book of
    the simulator asserts that a subtask has one living attempt."""
    quiet_logs()
    cluster = Cluster(task_managers=2, slots=2, seed=seed, timing=Timing(run=(1_500, 4_000), kill=(5, 1_500)))
    scopes = cluster.world.topology.scopes()
    cluster.run(cluster.ready, most_ms=20_000)
    cluster.client.submit("job", workload.roots("job"))
    for _ in range(2):
        cluster.run(lambda: len(cluster.world.book.living) > 1)
        cluster.run(most_ms=cluster.world.random.choice((0, 50, 400)))
        for scope in LOGS[logs]:
            cut(cluster, scope)
        cluster.run(lambda: all(cluster.leader(scope) for scope in scopes), most_ms=20_000)
    cluster.run(lambda: cluster.ended("job"), most_ms=120_000)
    assert len(cluster.world.book.launched) > 4, "nothing was run anew"


@pytest.mark.parametrize("seed", range(2))
def test_what_runs_where_nothing_is_read_ends_when_a_reborn_resource_manager_has_it_run_elsewhere(seed: int) -> None:
    """It is heard all the time, but by a life of the ResourceManager that it has not heard, and to which it does not register."""
    quiet_logs()
    cluster = Cluster(task_managers=5, slots=1, seed=seed, timing=Timing(run=(20_000, 20_001)))
    book = cluster.world.book
    cluster.run(cluster.ready, most_ms=20_000)
    cluster.client.submit("job", workload.roots("job"))
    cluster.run(lambda: len(book.living) == 4)
    cluster.run(most_ms=500)
    process = next(iter(book.living.values())).task_manager
    deaf = next(each for each in cluster.task_managers() if each.slots.process == process)
    deaf.bus.deaf = True
    book.unheard[process] = None  # beside what runs elsewhere, until it has looked into etcd
    cut(cluster, "resource-manager")
    cluster.run(lambda: len(book.launched) > 4, most_ms=10_000)
    cluster.run(most_ms=300)
    assert not deaf.alive, "it has not read that it was declared lost"
