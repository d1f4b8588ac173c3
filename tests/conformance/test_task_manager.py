"""The TaskManager's machine, in the scenarios of Flink's TaskExecutorTest. Each test names the one that it stands for."""

from __future__ import annotations

import copy

import pytest

from millrace.core.machine import Do, PeerBorn, Say, Ticked
from millrace.core.messages.effects import EndProcess, LaunchAttempt
from millrace.core.messages.slots import (
    AttemptRunning,
    CancelTasks,
    DrainTaskManager,
    FailSlot,
    FreeSlots,
    OfferSlots,
    RegisterTaskManager,
    ReleaseTaskManager,
    SlotReady,
    SlotUnused,
    TaskManagerHeartbeat,
    TaskStateChanged,
)
from tests.core.of_task_manager import INCARNATION, JM0, JM1, RM, Driver, changed, freed, launch, offer


def test_of_offered_slots_the_used_one_is_active_and_the_other_is_freed_and_reported() -> None:
    """TaskExecutorTest.testSlotAcceptance: a JobMaster accepts a slot by deploying on it, and rejects one by giving it back."""
    driver = Driver(slots=2)
    driver.allocate(0, "used")
    driver.allocate(1, "refused")
    assert launch() in driver.deploy(allocation="used")
    assert driver.say(JM0, FreeSlots(allocations=["refused"])) == [freed(slot=1, allocation="refused")]
    assert (driver.slot(0), driver.slot(1)) == ("ACTIVE", "FREE")


def test_a_task_runs_though_nothing_has_accepted_its_slot_yet() -> None:
    """TaskExecutorTest.testSubmitTaskBeforeAcceptSlot: the deployment is the acceptance."""
    driver = Driver()
    assert driver.allocate() == [Say(JM0, OfferSlots(offers=[offer()]))]
    assert driver.deploy() == [launch()]


def test_a_slot_that_was_given_again_is_not_touched_by_what_comes_late_of_its_earlier_job() -> None:
    """TaskExecutorTest.testRejectedSlotNotFreedIfAnotherOfferIsPending, testAcceptedSlotNotActivatedIfAnotherOfferIsPending: an allocation
    is named once for ever, so a late message is of no allocation that there is."""
    driver = Driver()
    driver.allocate(allocation="first")
    driver.say(JM0, FreeSlots(allocations=["first"]))
    driver.allocate(allocation="second")
    before = copy.deepcopy(driver.state)
    assert driver.say(JM0, FreeSlots(allocations=["first"])) == []
    [failed] = driver.deploy(attempt="j/t/0/1", allocation="first")
    assert failed.body.state == "FAILED" and failed.body.error.kind == "infrastructure"
    assert driver.state == before


def test_each_life_of_the_resource_manager_is_reported_all_slots_with_the_registration() -> None:
    """TaskExecutorTest.testHeartbeatTimeoutWithResourceManager, testInitialSlotReportFailure: registration and first report are one
    message, so the second one cannot fail alone."""
    driver = Driver(slots=2)
    driver.allocate()
    for _ in range(2):
        [said] = driver.say(RM, PeerBorn(RM, 3))
        assert isinstance(said.body, RegisterTaskManager)
        assert [(each.slot, each.state, each.allocation) for each in said.body.states] == [(0, "ALLOCATED", "al"), (1, "FREE", None)]


def test_what_a_job_holds_is_offered_to_each_new_life_of_its_job_master_and_runs_on() -> None:
    """TaskExecutorTest.testHeartbeatTimeoutWithJobManager, testDisconnectFromJobMasterWhenNewLeader, testOfferSlotToJobMasterAfterTimeout:
    there its tasks are failed; here they run on, and are reported with the offer."""
    driver = Driver().run()
    for _ in range(2):
        [said] = driver.say(JM0, PeerBorn(JM0, 4))
        assert said.body.offers == [offer()]
        assert [(each.attempt, each.state) for each in said.body.attempts] == [("j/t/0/1", "RUNNING")]
    assert driver.say(JM1, PeerBorn(JM1, 4)) == [], "a shard that holds nothing here"
    assert driver.slot() == "ACTIVE"


def test_an_allocation_that_nobody_uses_is_given_back_and_both_masters_are_notified() -> None:
    """TaskExecutorTest.testReleaseInactiveSlots, and the time-out of an allocated slot: one that is used stays."""
    driver = Driver(slots=2).run()
    driver.allocate(1, "unused")
    said = driver.tick(10_100)
    reason = "no task was deployed on it for 10000 ms"
    assert said == [
        Say(JM0, FailSlot(allocation="unused", job="j", reason=reason)),
        Say(RM, SlotUnused(slot=1, allocation="unused")),
        freed(slot=1, allocation="unused"),
    ]
    assert driver.slot(0) == "ACTIVE"


def test_what_the_job_master_does_not_know_any_more_is_killed_and_freed() -> None:
    """TaskExecutorTest.testReleaseOfJobResourcesIfJobMasterIsNotCorrect: nobody is told how the attempt ends."""
    driver = Driver().run()
    [killed] = driver.say(JM0, FreeSlots(allocations=["al"]))
    assert isinstance(killed, Do) and killed.effect.attempt == "j/t/0/1"
    assert driver.end("killed") == [] and driver.slot() == "RELEASING"
    assert driver.local(SlotReady(slot=0)) == [freed()] and driver.slot() == "FREE"


@pytest.mark.parametrize("attempt", ["j/t/0/1", "other"])
def test_of_an_attempt_that_is_not_there_the_end_is_reported(attempt: str) -> None:
    """DefaultSchedulerTest and TaskExecutorGateway.cancelTask: an unknown attempt is over, and whoever cancels it is told so."""
    driver = Driver()
    driver.allocate()
    assert driver.say(JM0, CancelTasks(attempts=[attempt], reason="x")) == [changed("CANCELED", attempt, allocation="")]


def test_an_attempt_that_is_deployed_twice_runs_once() -> None:
    """TaskExecutorGateway.submitTask: an attempt that is present already."""
    driver = Driver()
    driver.allocate()
    assert driver.deploy() == [launch()]
    assert driver.deploy() == []
    driver.local(AttemptRunning(slot=0, attempt="j/t/0/1"))
    [busy] = driver.deploy(attempt="j/t/0/2")
    assert isinstance(busy.body, TaskStateChanged) and busy.body.state == "FAILED"
    assert not any(isinstance(each, Do) and isinstance(each.effect, LaunchAttempt) for each in [busy])


def test_what_is_meant_for_an_earlier_incarnation_ends_nobody() -> None:
    """TaskExecutorTest.testRMHeartbeatStopWhenLeadershipRevoked, testIgnoringSlotRequestsIfNotRegistered: an order of the ResourceManager
    names the incarnation that it is for."""
    driver = Driver().run()
    for order in (ReleaseTaskManager(incarnation=INCARNATION - 1, reason="x"), DrainTaskManager(incarnation=INCARNATION - 1)):
        assert driver.say(RM, order) == []
    [end] = driver.say(RM, ReleaseTaskManager(incarnation=INCARNATION, reason="x"))
    assert isinstance(end.effect, EndProcess) and end.effect.again, "it may come again, as another one"
    assert driver.deploy() == [], "nothing is handled any more"


def test_a_task_manager_that_is_not_registered_yet_beats_and_waits() -> None:
    """TaskExecutorTest.testMaximumRegistrationDuration: there it ends after five minutes; here what nobody uses may wait for ever. With an
    attempt in it, it ends when neither Kafka nor etcd answers."""
    driver = Driver()
    said = [driver.tick(1_000) for _ in range(600)]
    assert said == [[]] * 600 and driver.state.ending is None


def test_heartbeats_carry_the_slots_until_both_sides_agree() -> None:
    """TaskExecutorTest.testSyncSlotsWithJobMasterByHeartbeat, for the ResourceManager: a report that was lost with its log comes again."""
    driver = Driver()
    driver.allocate()
    reports = []
    for _ in range(20):
        driver.now_ms += 100
        reports += [each.body.states for each in driver.local(Ticked()) if isinstance(each.body, TaskManagerHeartbeat)]
    full = [[(each.slot, each.state, each.allocation) for each in states] for states in reports if states]
    assert len(full) >= 2 and all(each == [(0, "ALLOCATED", "al")] for each in full)
