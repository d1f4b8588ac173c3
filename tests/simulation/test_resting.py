"""A cluster without standbys that comes to rest: its leaders tick slowly then, as they promise and not before."""

from __future__ import annotations

import json

import pytest

from millrace.core.election import ATTENDED_MS, QUIET_TICK_MS
from millrace.core.topics import RESOURCE_MANAGER
from tests.simulation import workload
from tests.simulation.audit import assert_nothing_left
from tests.simulation.behaviour import Behaviour, Timing
from tests.simulation.cluster import Cluster
from tests.simulation.trial import REST_MS, quiet_logs

CONTROL = ("dispatcher#1", "resource-manager#1", "resource-manager#2", "job-master#1")
LOST_MOST_MS = 1_000  # within which the tasks of a dead TaskManager run elsewhere
IDLE_LOST_MOST_MS = 9_000  # within which one is missed that dies while the whole cluster rests


@pytest.fixture(autouse=True)
def _quiet() -> None:
    quiet_logs()


def is_resting(cluster: Cluster) -> bool:
    """Whether the ResourceManager's leader has said that it ticks slowly from here on."""
    folded = cluster.leader(RESOURCE_MANAGER)
    return folded is not None and folded.next_ms == QUIET_TICK_MS


def gone_ms(cluster: Cluster) -> list[int]:
    """When TaskManagers were declared lost."""
    events = [json.loads(each.value) for each in cluster.world.broker.log("cluster.events", 0).records]
    return [each["at_ms"] for each in events if each["type"] == "TaskManagerGone"]


@pytest.mark.parametrize("seed", range(3))
def test_a_task_manager_that_dies_when_its_cluster_had_just_come_to_rest_is_lost_within_a_second(seed: int) -> None:
    """Were the first slow tick later than the one before it had promised, the detector would take that for a pause of the log, after which
    everybody has time to come back."""
    cluster = Cluster(task_managers=2, slots=1, seed=seed, script=lambda _: Behaviour("hang"), control=CONTROL)
    cluster.run(cluster.ready, most_ms=20_000)
    standby = next(name for name in CONTROL[1:3] if not cluster.processes[name].leads(RESOURCE_MANAGER))
    cluster.kill(standby)
    assert not is_resting(cluster)
    cluster.run(lambda: is_resting(cluster), most_ms=2 * ATTENDED_MS)
    cluster.client.submit("job", workload.single("job"))
    cluster.run(lambda: bool(cluster.world.book.living))
    (dying,) = [each.name for each in cluster.task_managers() if each.state is not None and each.state.slots[0].allocation]
    killed_ms = cluster.world.clock.now_ms()
    cluster.kill(dying)
    cluster.run(lambda: bool(gone_ms(cluster)))
    assert gone_ms(cluster)[0] - killed_ms < LOST_MOST_MS


def test_one_that_dies_while_nothing_runs_anywhere_is_missed_after_some_slow_ticks() -> None:
    cluster = Cluster(task_managers=2)
    cluster.run(cluster.ready, most_ms=20_000)
    cluster.run(lambda: is_resting(cluster))
    cluster.run(most_ms=REST_MS)
    killed_ms = cluster.world.clock.now_ms()
    cluster.kill("task-manager/2")
    cluster.run(lambda: bool(gone_ms(cluster)), most_ms=60_000)
    assert gone_ms(cluster)[0] - killed_ms < IDLE_LOST_MOST_MS


def test_one_that_dies_while_its_slots_start_is_waited_for_before_nothing_may_be_left() -> None:
    """It has no free slot that could be missed; nothing runs on it, so that it may be silent for long."""
    cluster = Cluster(task_managers=1, timing=Timing(start=(2_000, 2_000)))
    cluster.run(cluster.ready, most_ms=20_000)
    cluster.start("task-manager/2")
    cluster.run(lambda: (folded := cluster.leader(RESOURCE_MANAGER)) is not None and "2" in folded.state.task_managers)
    cluster.kill("task-manager/2")
    cluster.run(cluster.ready, most_ms=20_000)
    cluster.run(most_ms=REST_MS)
    assert_nothing_left(cluster)
