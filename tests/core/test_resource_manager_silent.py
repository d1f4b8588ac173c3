"""A JobMaster shard that is away is away for its own jobs [R31]."""

from __future__ import annotations

import pytest

from millrace.core.machine import PassedOver, PeerBorn, Say
from millrace.core.messages.jobs import DeclareAgain, JobMasterDeclared
from millrace.core.messages.slots import ReportedSlot, SlotUnused, TaskManagerHeartbeat
from services.resource_manager.core.state import DECLARE_MS
from tests.core.of_resource_manager import JM0, JM1, TM_A, Driver, granted, queued


def unused(driver: Driver) -> list:
    return driver.say(TM_A, SlotUnused(slot=0, allocation=driver.allocation()))


def test_a_slot_that_a_silent_shard_did_not_use_goes_to_others_and_not_to_it_again() -> None:
    """Its job was first in the queue, and was given each slot that became free, for ten seconds at a time."""
    driver = Driver(shards=2).declared(JM0, JM1)
    driver.register()
    driver.ask("a", since_ms=1)
    driver.ask("b", since_ms=2)
    driver.ask("c", shard=JM1, since_ms=3)
    driver.tick()
    assert unused(driver) == [Say(JM0, DeclareAgain())]
    assert granted("c", f"1.{driver.record + 1}.1", shard=1) in driver.free()
    driver.ask("c", 0, shard=JM1)
    assert driver.free() == [], "the other job of the silent shard waits as well"


def test_a_shard_that_is_heard_again_is_granted_again_in_its_old_place() -> None:
    driver = Driver(shards=2).declared(JM0, JM1)
    driver.register()
    driver.ask("a", since_ms=1)
    driver.ask("c", shard=JM1, since_ms=3)
    driver.tick()
    unused(driver)
    assert unused(driver) == [], "it is asked once"
    driver.free()
    driver.ask("d", shard=JM1, since_ms=4)
    assert driver.say(JM0, JobMasterDeclared()) == []
    assert granted("a", f"1.{driver.record + 1}.2") in driver.free()


def test_a_bad_answer_of_a_silent_shard_is_an_answer() -> None:  # [R26]
    driver = Driver(shards=2).declared(JM0, JM1)
    driver.register()
    driver.ask("a")
    unused(driver)
    driver.free()
    before = driver.state.open_ms
    assert driver.say(JM0, PassedOver(JobMasterDeclared(), "KeyError"))[0].body.job == "a"
    assert driver.state.open_ms == before


def test_what_is_said_of_another_allocation_or_by_nobody_silences_nobody() -> None:
    driver = Driver().declared()
    driver.register()
    driver.ask("a")
    assert driver.say(TM_A, SlotUnused(slot=0, allocation="another")) == []
    assert driver.say(TM_A, SlotUnused(slot=9, allocation="another")) == []
    assert driver.say("task-manager/x", SlotUnused(slot=0, allocation="another")) == []
    assert driver.state.silent == {}


def test_a_reborn_resource_manager_grants_to_others_when_one_shard_stays_silent() -> None:
    """One silent shard kept everybody from slots, without end."""
    driver = Driver(shards=2, generation=2).declared(JM1)
    driver.register()
    driver.ask("c", shard=JM1)
    said = []
    for _ in range(DECLARE_MS // 100 - 1):
        driver.say(TM_A, TaskManagerHeartbeat())
        said += driver.tick()
    assert not [each for each in said if each.to == TM_A]
    reason = "the ResourceManager has just started and waits to hear from 1 JobMaster shard"
    assert said[0] == queued("c", reason, 1, JM1)
    driver.say(TM_A, TaskManagerHeartbeat())
    assert granted("c", f"2.{driver.record + 1}.0", shard=1) in driver.tick()


def test_what_a_silent_shard_holds_stays_its_own_and_what_it_wants_waits_for_its_declaration() -> None:
    """Only then is it known where it holds slots: a task of it may run on a TaskManager that has not registered."""
    driver = Driver(shards=2, generation=2).declared(JM1)
    driver.register(memory_mb=(1024, 1024), states=[
        ReportedSlot(slot=0, state="ACTIVE", allocation="1.5.0", job="a"), ReportedSlot(slot=1, state="FREE"),
    ])  # fmt: skip
    for _ in range(DECLARE_MS // 100):
        driver.say(TM_A, TaskManagerHeartbeat())
        driver.tick()
    assert driver.ask("c", 2, shard=JM1) == [granted("c", f"2.{driver.record}.0", 1, shard=1)]
    driver.ask("c", 0, shard=JM1)
    driver.free(slot=1)
    driver.say(JM0, PeerBorn(JM0, 1))
    assert driver.ask("a", 2) == []
    assert [each for each in driver.tick() if each.to == TM_A] == []
    assert driver.say(JM0, JobMasterDeclared()) == [granted("a", f"2.{driver.record}.1", 1)]


@pytest.mark.parametrize("late", [0, 1])
def test_who_declares_in_time_is_not_passed_over(late: int) -> None:
    driver = Driver(shards=2).declared(JM0)
    for _ in range(DECLARE_MS // 100 - 1 + late):
        driver.tick()
    driver.declared(JM1)
    driver.tick()
    assert driver.state.silent == {} and driver.state.open
