"""The ResourceManager's machine: who is silent, who left, who came again; what a pause of the log changes."""

from __future__ import annotations

import pytest

from millrace.core.machine import Do, Forget, PeerBorn, Publish, Say
from millrace.core.messages.effects import FenceTaskManager
from millrace.core.messages.events import TaskManagerGone, TaskManagerJoined
from millrace.core.messages.jobs import JobMasterDeclared
from millrace.core.messages.slots import (
    AllocateSlot,
    DisconnectTaskManager,
    ReleaseTaskManager,
    TaskManagerHeartbeat,
    TaskManagerRegistered,
)
from tests.core.of_resource_manager import JM0, JM1, TM_A, TM_B, Driver, granted, lost, queued


def test_a_silent_task_manager_is_lost_once_and_its_jobs_wait_or_move():
    driver = Driver(shards=2).declared(JM0, JM1)
    driver.register(TM_A)
    driver.ask("j", shard=JM1)
    driver.register(TM_B)
    for _ in range(5):
        driver.say(TM_B, TaskManagerHeartbeat())
        assert driver.tick() == []
    driver.say(TM_B, TaskManagerHeartbeat())
    assert driver.tick() == [
        lost("a", 7, "no heartbeat for 600 ms", JM0),
        lost("a", 7, "no heartbeat for 600 ms", JM1),
        Say(TM_A, ReleaseTaskManager(incarnation=7, reason="no heartbeat for 600 ms")),
        Do("task-managers/a", FenceTaskManager(task_manager="a", incarnation=7)),
        Forget(TM_A, 7),
        Publish("cluster.events", "a", TaskManagerGone(
            task_manager="a", incarnation=7, reason="no heartbeat for 600 ms", at_ms=1_000_600
        )),
        granted("j", "1.19.1", 0, TM_B, 1),
    ]  # fmt: skip
    assert driver.say(TM_A, TaskManagerHeartbeat()) == []  # what it said before it heard
    assert "a" not in driver.state.task_managers


def test_a_task_manager_of_which_nothing_is_given_away_may_be_silent_for_longer():
    driver = Driver().declared()
    driver.register()
    assert [driver.tick() for _ in range(29)] == [[]] * 29
    assert driver.tick()[0] == lost("a", 7, "no heartbeat for 3000 ms")


def test_from_its_first_slot_on_it_must_beat_as_often_as_the_others():
    driver = Driver().declared()
    driver.register()
    for _ in range(20):
        driver.tick()
    driver.ask("j")
    assert [driver.tick() for _ in range(5)] == [[]] * 5
    assert driver.tick()[0] == lost("a", 7, "no heartbeat for 600 ms")


def test_silence_counts_from_the_heartbeat_and_not_from_the_tick_before_it():
    driver = Driver().declared()
    driver.register()
    driver.ask("j")
    driver.tick()
    driver.now_ms += 99  # the record's stamp; machine time goes on at ticks
    driver.say(TM_A, TaskManagerHeartbeat())
    assert driver.tick(1) == []
    assert [driver.tick() for _ in range(4)] == [[]] * 4, "501 ms since the tick, 402 since the heartbeat"
    assert driver.tick()[0] == lost("a", 7, "no heartbeat for 501 ms")


def test_a_heartbeat_while_the_brokers_clock_jumps_buys_half_a_second():
    driver = Driver().declared()
    driver.register()
    driver.ask("j")
    driver.away_ms += 3_600_000
    driver.say(TM_A, TaskManagerHeartbeat())
    driver.away_ms -= 3_600_000
    assert [driver.tick() for _ in range(10)] == [[]] * 10
    assert driver.tick()[0] == lost("a", 7, "no heartbeat for 600 ms")


def test_a_pause_of_the_broker_makes_nobody_lost():
    driver = Driver().declared()
    driver.register()
    driver.ask("j")
    assert driver.tick(1_000) == []  # machine time itself goes on by no more than two promised intervals
    driver.say(TM_A, TaskManagerHeartbeat())
    assert driver.tick() == []


def test_after_a_pause_everybody_has_time_to_come_back_and_then_the_whole_time():
    driver = Driver().declared()
    driver.register()
    driver.ask("j")
    for _ in range(4):
        driver.tick()
    assert driver.tick(200, away_ms=60_000) == []
    assert [driver.tick() for _ in range(35)] == [[]] * 35
    assert driver.tick()[0] == lost("a", 7, "no heartbeat for 600 ms")


def test_after_a_short_pause_it_is_as_long_as_the_pause_was():
    """1. The partitions have no leader for a second, for all cores are busy; 2. the ResourceManager's tick is back first."""
    driver = Driver().declared()
    driver.register()
    driver.ask("j")
    driver.tick()
    assert driver.tick(200, away_ms=500) == [], "no more than a leader's death"
    assert [driver.tick() for _ in range(2)] == [[]] * 2
    assert driver.tick(200, away_ms=1_000) == []
    assert [driver.tick() for _ in range(15)] == [[]] * 15
    assert driver.tick()[0] == lost("a", 7, "no heartbeat for 600 ms")


def test_a_pause_that_begins_as_the_cluster_wakes_is_one_too():
    """1. The leader rests, its next tick is promised within two seconds; 2. a first slot is given away; 3. the broker ends before the tick
    and is back after 3.7 s, for which the promise allows machine time to go on; 4. the TaskManager finds it later than the leader."""
    driver = Driver().declared()
    driver.register()
    driver.tick()
    driver.ask("j")
    assert driver.tick(3_700) == []
    assert [driver.tick() for _ in range(22)] == [[]] * 22
    assert driver.tick()[0] == lost("a", 7, "no heartbeat for 600 ms")


def test_a_heartbeat_that_was_on_its_way_before_a_pause_does_not_shorten_that():
    """1. The broker pauses with a heartbeat on its way, and goes on; 2. the heartbeat is there at once; 3. the partitions have no leader
    for a moment, and this TaskManager finds the new one a second after the ResourceManager."""
    driver = Driver().declared()
    driver.register()
    driver.ask("j")
    driver.tick()
    assert driver.tick(200, away_ms=10_000) == []
    driver.say(TM_A, TaskManagerHeartbeat())
    assert [driver.tick() for _ in range(35)] == [[]] * 35
    driver.say(TM_A, TaskManagerHeartbeat())
    assert [driver.tick() for _ in range(5)] == [[]] * 5
    assert driver.tick()[0] == lost("a", 7, "no heartbeat for 600 ms"), "from then on as ever"


def test_a_slot_given_after_a_pause_does_not_shorten_that_either():
    driver = Driver().declared()
    driver.register()
    driver.tick()
    driver.tick(200, away_ms=10_000)
    driver.ask("j")
    assert [driver.tick() for _ in range(35)] == [[]] * 35
    assert driver.tick()[0] == lost("a", 7, "no heartbeat for 600 ms")


def test_who_has_to_register_has_time_to_come_back_after_a_pause_too():
    driver = Driver()
    driver.say(JM0, JobMasterDeclared(task_managers={"a": 7}))
    driver.tick()
    driver.tick(200, away_ms=10_000)
    assert [driver.tick() for _ in range(51)] == [[]] * 51
    assert driver.tick()[0] == lost("a", 7, "it did not register with the restarted ResourceManager")


def test_a_task_manager_that_leaves_in_order_is_lost_at_once():
    driver = Driver().declared()
    driver.register()
    driver.ask("j")
    assert driver.say(TM_A, DisconnectTaskManager(reason="it was stopped")) == [
        lost("a", 7, "it was stopped"),
        Forget(TM_A, 7),
        Publish("cluster.events", "a", TaskManagerGone(
            task_manager="a", incarnation=7, reason="it was stopped", at_ms=1_000_000
        )),
    ]  # fmt: skip
    assert driver.tick() == [queued("j", "no TaskManager is registered", 1)]
    assert driver.say(TM_A, DisconnectTaskManager(reason="it was stopped")) == []


@pytest.mark.parametrize("first", ["PeerBorn", "RegisterTaskManager"])
def test_a_newer_incarnation_replaces_the_older_and_its_slots(first: str):
    driver = Driver().declared()
    driver.register()
    driver.ask("j")
    gone = [
        lost("a", 7, "it was started anew"),
        Forget(TM_A, 7),
        Publish("cluster.events", "a", TaskManagerGone(
            task_manager="a", incarnation=7, reason="it was started anew", at_ms=1_000_000
        )),
    ]  # fmt: skip
    if first == "PeerBorn":
        assert driver.say(TM_A, PeerBorn(TM_A, 8), 8) == gone
        gone = []
    said = driver.register(life=8)
    assert said[: len(gone)] == gone
    assert [type(each.body) for each in said[len(gone) :]] == [TaskManagerRegistered, TaskManagerJoined, AllocateSlot]
