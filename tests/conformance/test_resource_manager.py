"""The ResourceManager's machine, in the scenarios of Flink's tests. Each test names the one that it stands for."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from millrace.core.fold import Fold
from millrace.core.machine import Configured, PeerBorn, Publish, Say
from millrace.core.messages.base import Body
from millrace.core.messages.client import ClusterOverview
from millrace.core.messages.jobs import NotEnoughResources, Query, SlotSpec, TaskManagerLost
from millrace.core.messages.profiles import WantedSlots
from millrace.core.messages.records import Elected, Hello, Message
from millrace.core.messages.slots import (
    DisconnectTaskManager,
    DrainAnswered,
    DrainTaskManager,
    RegisterTaskManager,
    ReportedSlot,
    SlotFreed,
    SlotReport,
    TaskManagerHeartbeat,
)
from millrace.core.messages.worker_effects import StartWorker, StopWorker
from millrace.core.topics import Topology
from services.resource_manager.core.machine import ResourceManager
from tests.core.of_resource_manager import JM0, JM1, TM_A, TM_B, Driver, granted, queued
from tests.core.of_workers import W1, W2, Provided, grants


def overview(driver: Driver) -> ClusterOverview:
    said = driver.say("dispatcher", Query(what="overview", reply_to="c", correlation="1"))
    [found] = [each.body for each in said if isinstance(each, Publish)]
    assert isinstance(found, ClusterOverview)
    return found


def effects(said: list[Any], kind: type[Body]) -> list[str]:
    return [each.effect.worker for each in said if isinstance(getattr(each, "effect", None), kind)]


# jobs and TaskManagers come and go


def test_a_job_that_has_ended_is_forgotten_and_its_slot_is_free() -> None:
    """ResourceManagerTest.testDisconnectJobManagerWithTerminalStatusShouldRemoveJob, testDisconnectJobManagerClearsRequirements."""
    driver = Driver().declared()
    driver.register()
    driver.ask("j")
    driver.ask("j", 0)
    driver.free()
    assert "j" not in driver.state.jobs and overview(driver).free_slots == 1


def test_what_a_job_holds_stays_while_its_job_master_is_away() -> None:
    """ResourceManagerTest.testDisconnectJobManagerWithNonTerminalStatusShouldNotRemoveJob: its next life requests anew."""
    driver = Driver().declared()
    driver.register(memory_mb=(1024, 1024))
    driver.ask("j")
    allocation = driver.allocation()
    driver.say(JM0, PeerBorn(JM0, 2), 2)
    assert driver.allocation() == allocation and overview(driver).free_slots == 1
    assert driver.state.jobs["j"].held == 1


def test_each_job_master_is_notified_once_when_a_task_manager_leaves() -> None:
    """ResourceManagerTest.testDisconnectTaskManagerInResourceManager."""
    driver = Driver(shards=2).declared(JM0, JM1)
    driver.register()
    said = driver.say(TM_A, DisconnectTaskManager(reason="stopped"))
    assert [each.to for each in said if isinstance(each, Say) and isinstance(each.body, TaskManagerLost)] == [JM0, JM1]
    assert driver.say(TM_A, DisconnectTaskManager(reason="stopped")) == [], "one that is not known: nothing"


def test_an_older_registration_that_comes_late_is_not_taken() -> None:
    """ResourceManagerTaskExecutorTest.testDelayedRegisterTaskExecutor: the chain of the earlier incarnation is over, in the log itself."""
    fold = Fold(ResourceManager(1), Topology())
    folded, offset = fold.blank(1, 0), 0

    def say(life: int, key: int, prev: int | None, body: Body) -> bool:
        nonlocal offset
        offset += 1
        before = None if prev is None else (prev, 0)
        message = Message(to="resource-manager", to_life=1, sender=TM_A, life=life, key=(key, 0), prev=before, body=body)
        return fold.fold(folded, offset, 1_000_000 + offset, message).taken

    fold.fold(folded, offset, 1_000_000, Elected(generation=1, epoch=1, build="b", who="r"))
    registers = RegisterTaskManager(host="h", slots=[SlotSpec(slot=0, memory_mb=1)], states=[ReportedSlot(slot=0, state="FREE")])
    assert say(8, 1, None, Hello()) and say(8, 2, 1, registers)
    assert not say(7, 9, None, Hello()) and not say(7, 10, 9, registers)
    assert folded.state.task_managers["a"].incarnation == 8


# heartbeats


def test_one_that_beats_just_in_time_is_never_lost() -> None:
    """HeartbeatManagerTest.testHeartbeatManagerResetsFailedRpcCountOnSuccessfulRpc, marks unreachable after the threshold: each heartbeat
    gives the whole time again."""
    driver = Driver().declared()
    driver.register()
    driver.ask("j")
    for _ in range(50):
        assert [driver.tick() for _ in range(5)] == [[]] * 5
        driver.say(TM_A, TaskManagerHeartbeat())
    for _ in range(5):
        driver.tick()
    assert any(isinstance(each, Say) and isinstance(each.body, TaskManagerLost) for each in driver.tick()), "and then it is silent"


def test_one_that_has_left_is_not_missed_any_more() -> None:
    """HeartbeatManagerTest.testTargetUnmonitoring."""
    driver = Driver().declared()
    driver.register()
    driver.say(TM_A, DisconnectTaskManager(reason="stopped"))
    assert [driver.tick(1_000) for _ in range(20)] == [[]] * 20


# the SlotManager


def test_slots_are_counted_from_the_registration_to_the_loss_of_their_task_manager() -> None:
    """FineGrainedSlotManagerTest.testTaskManagerRegistration, testTaskManagerUnregistration."""
    driver = Driver().declared()
    seen = []
    for act in (
        lambda: driver.register(TM_A, memory_mb=(1024, 1024)),
        lambda: driver.register(TM_B),
        lambda: driver.ask("j"),
        lambda: driver.say(TM_A, DisconnectTaskManager(reason="stopped")),
        lambda: driver.say(TM_B, DisconnectTaskManager(reason="stopped")),
    ):
        act()
        found = overview(driver)
        seen.append((found.task_managers, found.slots, found.free_slots, found.waiting_jobs))
    assert seen == [(1, 2, 2, 0), (2, 3, 3, 0), (2, 3, 2, 0), (1, 1, 0, 0), (0, 0, 0, 1)]


def test_a_worker_that_registers_is_awaited_no_more() -> None:
    """FineGrainedSlotManagerTest.testTaskManagerRegistrationDeductPendingTaskManager."""
    driver = Provided()
    driver.ask("j")
    driver.tick()
    assert overview(driver).provided.starting == 1
    driver.runs()
    assert overview(driver).provided.starting == 0
    assert effects(driver.wait(1_000), StartWorker) == []


def test_a_job_that_a_worker_was_started_for_gets_its_slot_before_those_behind_it() -> None:
    """FineGrainedSlotManagerTest.testSlotAllocationForPendingTaskManagerWillBeRespected: there the worker's slots are planned for one job;
    here they are for whoever is first in the queue, and that is who waited for longest."""
    driver = Provided(worker_slots=1, task_managers_max=1)
    driver.ask("first", since_ms=1)
    driver.tick()
    driver.ask("second", since_ms=2)
    driver.started()
    assert grants(driver.comes(slots=1)) == [("first", W1)]


@pytest.mark.parametrize("body", [
    TaskManagerHeartbeat(states=[ReportedSlot(slot=0, state="FREE")]), SlotReport(states=[ReportedSlot(slot=0, state="FREE")]),
    SlotFreed(slot=0, allocation="al"), DrainAnswered(),
], ids=lambda body: body.type)  # fmt: skip
def test_what_an_unknown_task_manager_reports_has_no_effect(body: Body) -> None:
    """FineGrainedSlotManagerTest.testReceivingUnknownSlotReport."""
    driver = Driver().declared()
    driver.register(TM_A)
    driver.ask("waits", 2)
    before = copy.deepcopy(driver.state)
    assert driver.say(TM_B, body) == []
    assert driver.state == before


def test_requests_between_two_ticks_start_what_they_need_once() -> None:
    """FineGrainedSlotManagerTest.testRequirementCheckOnlyTriggeredOnce, testRequestNewResourcesAccordingToStrategyResult."""
    driver = Provided(task_managers_max=5)
    for number in range(3):
        assert effects(driver.ask(f"j{number}", 2), StartWorker) == []
    assert effects(driver.tick(), StartWorker) == [W1, W2, "task-manager-3"]
    assert effects(driver.tick(), StartWorker) == []


def test_a_worker_that_comes_when_nobody_needs_it_any_more_is_stopped() -> None:
    """FineGrainedSlotManagerTest.testClearResourceRequirementsWithPendingTaskManager."""
    driver = Provided()
    driver.ask("j")
    driver.tick()
    driver.ask("j", 0)
    driver.runs()
    said = driver.wait(3_200)
    assert [each.to for each in said if isinstance(each, Say) and isinstance(each.body, DrainTaskManager)] == [f"task-manager/{W1}"]
    assert effects(driver.say(f"task-manager/{W1}", DrainAnswered()), StopWorker) == [W1]


def test_a_slot_whose_job_wants_it_no_more_goes_to_the_next_one_once_it_is_given_back() -> None:
    """FineGrainedSlotManagerTest.testReclaimInactiveSlotsOnClearRequirements: its JobMaster, or its TaskManager after a while, gives it
    back; until then it is not granted twice."""
    driver = Driver().declared()
    driver.register()
    driver.ask("first")
    allocation = driver.allocation()
    driver.ask("first", 0)
    assert driver.ask("next") == []
    said = driver.say(TM_A, SlotFreed(slot=0, allocation=allocation))
    assert said == [granted("next", driver.allocation())]


def test_a_job_is_told_why_no_slot_comes() -> None:
    """FineGrainedSlotManagerTest.testNotificationAboutNotEnoughResources: the job waits on, and its reason names the limit."""
    driver = Provided(task_managers_max=1, worker_slots=1)
    driver.ask("holds")
    driver.tick()
    driver.runs()
    driver.comes(slots=1)
    driver.ask("waits")
    assert queued("waits", "the 1 slot of 1 TaskManager is busy; no more are started: task_managers_max is 1", 1) in driver.wait(1_200)


def test_a_job_is_told_which_part_no_slot_has() -> None:
    """FineGrainedSlotManagerTest.testNotificationAboutNotEnoughResources, with a resource profile; it fails after the grace period."""
    driver = Driver().declared()
    driver.core(Configured({"not_enough_resources_ms": 3_000}))
    slot = SlotSpec(slot=0, memory_mb=1024, cores=2, extras={"gpu": 1})
    driver.say(TM_A, RegisterTaskManager(host="h", slots=[slot], states=[ReportedSlot(slot=0, state="FREE")]))
    driver.ask("j", profiles=[WantedSlots(slots=1, extras={"gpu": 2})])
    reason = "needs gpu 2 a slot, of at most 1"
    assert driver.tick() == [queued("j", reason, None)]
    said = []
    for _ in range(50):
        driver.say(TM_A, TaskManagerHeartbeat())
        said += [each.body for each in driver.tick() if isinstance(each, Say)]
    assert said == [NotEnoughResources(job="j", reason=reason)]


# workers


def test_a_worker_that_is_lost_and_not_needed_is_not_replaced() -> None:
    """ActiveResourceManagerTest.testWorkerTerminatedNoLongerRequired."""
    driver = Provided()
    driver.ask("j")
    driver.tick()
    driver.runs()
    driver.ask("j", 0)
    driver.free(f"task-manager/{W1}")
    driver.say(f"task-manager/{W1}", DisconnectTaskManager(reason="stopped"))
    driver.stopped()
    assert effects(driver.wait(5_000), StartWorker) == [] and driver.states() == {}


def test_a_worker_that_is_lost_and_needed_is_replaced() -> None:
    """ActiveResourceManagerTest.testWorkerTerminatedAfterRegister."""
    driver = Provided()
    driver.ask("j")
    driver.tick()
    driver.runs()
    driver.say(f"task-manager/{W1}", DisconnectTaskManager(reason="stopped"))
    driver.stopped()
    assert effects(driver.wait(1_000), StartWorker) == [W1], "its id is free again"
