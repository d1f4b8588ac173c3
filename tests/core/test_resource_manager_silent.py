"""A JobMaster shard that is away is away for its own jobs [R31]."""

from __future__ import annotations

import pytest

from millrace.core.machine import Configured, PassedOver, PeerBorn, Say
from millrace.core.messages.jobs import DeclareAgain, JobMasterDeclared, JobMasterHeartbeat
from millrace.core.messages.slots import FreeUnused, ReportedSlot, SlotUnused, TaskManagerHeartbeat
from services.resource_manager.core.shards import UNUSED_EVERY_MS
from services.resource_manager.core.state import DECLARE_MS, Settings
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


SILENT_MS, TIMEOUT_MS = Settings().job_master_silent_ms, Settings().job_timeout_ms
ALIVE = JobMasterHeartbeat(part=0, parts=1, held=[])


def pass_ms(driver: Driver, ms: int, *alive: str) -> list:
    """Ticks, with heartbeats of the TaskManager, and of these shards before each; what is sent to others than clients and the public."""
    said = []
    for _ in range(0, ms, 100):
        driver.say(TM_A, TaskManagerHeartbeat())
        for shard in alive:
            driver.say(shard, ALIVE)
        said += [each for each in driver.tick() if isinstance(each, Say) and each.body.type != "JobQueued"]
    return said


def two_shards() -> Driver:
    """A job of each shard waits for the one slot, which another job holds; the TaskManager has reported it."""
    driver = Driver(shards=2).declared(JM0, JM1)
    driver.register()
    driver.state.task_managers["a"].build = "0.1.0+1"
    driver.ask("holder", shard=JM1)
    driver.ask("a", since_ms=1)
    driver.ask("c", shard=JM1, since_ms=2)
    for shard in (JM0, JM1):
        driver.say(shard, ALIVE)
    return driver


def test_a_shard_of_a_build_that_sends_no_heartbeats_is_not_missed() -> None:
    driver = two_shards()
    driver.say(JM0, PeerBorn(JM0, 2), 2)
    driver.ask("a", since_ms=1)
    assert pass_ms(driver, 3 * SILENT_MS, JM1) == [] and driver.state.silent == {}


def test_a_shard_that_sends_nothing_is_granted_nothing_and_leaves_the_queue_before_a_slot_is_wasted_on_it() -> None:
    driver = two_shards()
    assert pass_ms(driver, SILENT_MS, JM1) == []
    assert pass_ms(driver, 100, JM1) == [Say(JM0, DeclareAgain())]
    assert list(driver.state.waiting.places) == ["c"]
    driver.ask("holder", 0, shard=JM1)
    assert granted("c", f"1.{driver.record + 1}.1", shard=1) in driver.free()


def test_a_heartbeat_alone_does_not_end_an_exclusion_and_its_declaration_does() -> None:
    driver = two_shards()
    pass_ms(driver, SILENT_MS + 100, JM1)
    assert driver.say(JM0, ALIVE) == [] and list(driver.state.waiting.places) == ["c"]
    driver.say(JM0, JobMasterDeclared())
    assert sorted(driver.state.waiting.places) == ["a", "c"]


def test_a_shard_whose_jobs_want_nothing_sends_nothing_and_is_not_missed() -> None:
    driver = two_shards()
    driver.ask("a", 0)
    assert pass_ms(driver, 3 * SILENT_MS, JM1) == [] and driver.state.silent == {}
    driver.ask("b")
    assert pass_ms(driver, SILENT_MS, JM1) == [], "its silence counts from then"


def test_a_pause_of_the_broker_is_no_silence_of_a_shard() -> None:
    driver = two_shards()
    driver.tick(60_000, away_ms=60_000)
    assert driver.state.silent == {}


def test_a_silent_shard_is_given_up_after_the_time_out_and_what_it_holds_unused_is_freed() -> None:
    driver = Driver(shards=2).declared(JM0, JM1)
    driver.core(Configured({"job_timeout_ms": 2_000}))
    driver.register(memory_mb=(1024, 1024, 1024))
    driver.state.task_managers["a"].build = "0.1.0+1"
    driver.ask("a", 3)
    driver.ask("c", shard=JM1, since_ms=2)
    driver.say(JM0, ALIVE)
    unused = driver.allocation(slot=1)
    states = ("ACTIVE", "ALLOCATED", "ACTIVE")
    driver.say(TM_A, TaskManagerHeartbeat(states=[
        ReportedSlot(slot=number, state=state, allocation=driver.allocation(slot=number), job="a") for number, state in enumerate(states)
    ]))  # fmt: skip
    assert pass_ms(driver, SILENT_MS + 100, JM1) == [Say(JM0, DeclareAgain())]
    assert pass_ms(driver, 1_900, JM1) == []
    told = pass_ms(driver, 200, JM1)
    assert told == [Say(JM0, DeclareAgain(requests=True)), Say(TM_A, FreeUnused(allocations=[unused]))]
    assert (driver.state.jobs["a"].wanted, driver.state.jobs["a"].held, driver.state.silent) == (0, 3, {0: None})
    assert pass_ms(driver, UNUSED_EVERY_MS, JM1) == [told[1]], "and what is unused by then"
    assert granted("c", f"1.{driver.record + 1}.3", 1, shard=1) in driver.free(slot=1)


def test_a_shard_that_is_back_after_it_was_given_up_asks_for_all_again() -> None:
    driver = two_shards()
    driver.core(Configured({"job_timeout_ms": 2_000}))
    pass_ms(driver, SILENT_MS + 2_200, JM1)
    assert "a" not in driver.state.jobs
    driver.ask("a", since_ms=1)
    assert list(driver.state.waiting.places) == ["c"]
    driver.say(JM0, JobMasterDeclared())
    assert sorted(driver.state.waiting.places) == ["a", "c"] and driver.state.silent == {}


def test_a_task_manager_of_0_1_0_is_not_asked_to_free_what_is_unused() -> None:
    driver = two_shards()
    driver.core(Configured({"job_timeout_ms": 2_000}))
    driver.say(TM_A, TaskManagerHeartbeat(states=[ReportedSlot(slot=0, state="ALLOCATED", allocation=driver.allocation(), job="holder")]))
    driver.state.task_managers["a"].build = ""
    assert [each for each in pass_ms(driver, SILENT_MS + 2_200) if each.to == TM_A] == []
