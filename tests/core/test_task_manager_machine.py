"""The TaskManager's handlers: a state, one message, the exact list of what is said and done."""

from __future__ import annotations

from typing import Any

from millrace.core.machine import PeerBorn, Say, Ticked
from millrace.core.messages.effects import AttemptLaunched
from millrace.core.messages.jobs import SlotSpec
from millrace.core.messages.slots import (
    AllocateSlots,
    AttemptEnded,
    AttemptRunning,
    FailSlot,
    FreeSlots,
    OfferSlots,
    RegisterTaskManager,
    ReportedSlot,
    SlotAllocation,
    SlotBroken,
    SlotReady,
    SlotReplacing,
    SlotUnused,
    TaskManagerRegistered,
)
from services.task_manager.core import slot_table
from tests.core.of_task_manager import (
    JM0,
    JM1,
    RM,
    Driver,
    changed,
    freed,
    infrastructure,
    launch,
    offer,
    report,
)

# registration and heartbeats


def test_registers_with_each_life_of_the_resource_manager_as_it_is():
    driver = Driver(2, ready=False)
    driver.local(SlotReady(slot=1))
    driver.allocate(1)
    assert driver.say(RM, PeerBorn(RM, 3)) == [Say(RM, RegisterTaskManager(
        host="host-a",
        slots=[SlotSpec(slot=0, memory_mb=1024), SlotSpec(slot=1, memory_mb=1024)],
        states=[
            ReportedSlot(slot=0, state="STARTING"), ReportedSlot(slot=1, state="ALLOCATED", allocation="al", job="j")
        ],
    ))]  # fmt: skip


def test_heartbeats_carry_the_slots_when_they_changed_and_now_and_then():
    driver = Driver()
    driver.say(RM, PeerBorn(RM, 3))
    free = [ReportedSlot(slot=0, state="FREE")]

    def beats(count: int) -> list[Any]:
        said = []
        for _ in range(count):
            driver.now_ms += 100
            said += driver.local(Ticked())
        assert all(each.to == RM for each in said)
        return [each.body.states for each in said]

    assert beats(12) == [free, None]  # slowly, while nothing of it is given away
    driver.allocate()
    held = [ReportedSlot(slot=0, state="ALLOCATED", allocation="al", job="j")]
    assert beats(10) == [held, *[None] * 7, held, None]
    assert driver.say(RM, TaskManagerRegistered(heartbeat_interval_ms=200, lost_after_ms=800)) == []
    assert beats(4) == [None, None]


def test_a_tick_that_comes_a_little_early_still_beats():
    driver = Driver()
    driver.say(RM, PeerBorn(RM, 3))
    driver.allocate()
    driver.now_ms += 97
    assert driver.local(Ticked()) != []


# the slot's own events


def test_a_slot_is_reported_when_it_becomes_free():
    driver = Driver(ready=False)
    assert driver.local(SlotReady(slot=0)) == [report(0, "FREE")]
    assert driver.local(SlotReady(slot=0)) == []


def test_a_free_slot_whose_jvm_is_replaced_is_free_no_more():
    driver = Driver()
    assert driver.local(SlotReplacing(slot=0, reason="old")) == [report(0, "STARTING")]
    assert driver.local(SlotReplacing(slot=0, reason="old")) == []
    assert driver.local(SlotReady(slot=0)) == [report(0, "FREE")]


def test_a_broken_slot_is_reported_and_may_heal():
    driver = Driver()
    assert driver.local(SlotBroken(slot=0, reason="no disk")) == [report(0, "BROKEN", broken="no disk")]
    assert driver.local(SlotBroken(slot=0, reason="no disk")) == []
    assert driver.local(SlotReady(slot=0)) == [report(0, "FREE")]


def test_a_slot_that_breaks_fails_its_attempt_and_its_allocation():
    driver = Driver().run()
    assert driver.local(SlotBroken(slot=0, reason="no disk")) == [
        changed("FAILED", error=infrastructure("the slot broke: no disk")),
        Say(JM0, FailSlot(allocation="al", job="j", reason="no disk")),
        freed("BROKEN"),
    ]
    assert driver.end("killed") == []


def test_a_slot_that_breaks_with_an_idle_allocation():
    driver = Driver()
    driver.allocate()
    failed = Say(JM0, FailSlot(allocation="al", job="j", reason="no disk"))
    assert driver.local(SlotBroken(slot=0, reason="no disk")) == [failed, freed("BROKEN")]


def test_a_slot_that_breaks_while_it_is_given_back():
    driver = Driver().run()
    driver.say(JM0, FreeSlots(allocations=["al"]))
    assert driver.local(SlotBroken(slot=0, reason="no disk")) == [freed("BROKEN")]


def test_a_slot_that_is_given_back_counts_as_used_while_an_attempt_lives_in_it():
    """Its JobMaster may have lost its log and want a slot for the same subtask."""
    driver = Driver().run()
    driver.say(JM0, FreeSlots(allocations=["al"]))
    assert driver.slot() == "RELEASING"
    assert slot_table.reported(0, driver.state.slots[0]).state == "ACTIVE"
    driver.state.changed = False
    driver.local(AttemptEnded(slot=0, attempt="j/t/0/1", status="killed"))
    assert slot_table.reported(0, driver.state.slots[0]).state == "RELEASING"
    assert driver.state.changed, "the next heartbeat tells it"


# allocation


def test_an_allocated_slot_is_offered_to_its_shard_at_once():
    driver = Driver()
    assert driver.allocate(shard=1) == [Say(JM1, OfferSlots(offers=[offer()]))]
    assert driver.slot() == "ALLOCATED"


def test_slots_that_are_allocated_together_are_offered_together_and_those_that_cannot_be_go_back():
    driver = Driver(3)
    driver.local(SlotBroken(slot=1, reason="no disk"))
    given = [SlotAllocation(slot=number, allocation=name) for number, name in enumerate(("a", "b", "c"))]
    assert driver.say(RM, AllocateSlots(job="j", shard=1, slots=given)) == [
        freed("BROKEN", 1, "b"), Say(JM1, OfferSlots(offers=[offer(0, "a"), offer(2, "c")])),
    ]
    assert [driver.slot(number) for number in range(3)] == ["ALLOCATED", "BROKEN", "ALLOCATED"]


def test_a_slot_that_was_free_a_moment_ago_is_taken_too():
    driver = Driver()
    driver.local(SlotReplacing(slot=0, reason="old"))
    assert driver.allocate() == [Say(JM0, OfferSlots(offers=[offer()]))]
    assert driver.deploy() == []
    assert driver.local(SlotReady(slot=0)) == [launch()]


def test_slots_that_cannot_be_given_go_back_as_what_they_are():
    driver = Driver(2)
    driver.local(SlotBroken(slot=0, reason="no disk"))
    assert driver.allocate(0) == [freed("BROKEN")]
    assert driver.allocate(9) == [freed("BROKEN", 9)]
    driver.allocate(1)
    actual = report(1, "ALLOCATED", allocation="al", job="j")
    assert driver.allocate(1, "other") == [freed("STARTING", 1, "other"), actual]


def test_an_allocation_that_nobody_uses_is_given_back():
    driver = Driver()
    driver.allocate()
    assert driver.tick(9_900) == []
    reason = "no task was deployed on it for 10000 ms"
    unused = Say("resource-manager", SlotUnused(slot=0, allocation="al"))
    assert driver.tick(100) == [Say(JM0, FailSlot(allocation="al", job="j", reason=reason)), unused, freed()]
    assert driver.slot() == "FREE"


def test_an_allocation_that_was_used_once_stays_for_its_ending_is_kept():
    driver = Driver().run()
    driver.end()
    driver.local(SlotReady(slot=0))
    assert driver.tick(60_000) == []
    assert driver.slot() == "ALLOCATED"


# deployment


def test_an_attempt_is_launched_runs_and_finishes():
    driver = Driver()
    driver.allocate()
    assert driver.deploy() == [launch()]
    assert driver.local(AttemptLaunched(attempt="j/t/0/1")) == []
    assert driver.local(AttemptRunning(slot=0, attempt="j/t/0/1")) == [changed("RUNNING")]
    assert driver.local(AttemptRunning(slot=0, attempt="j/t/0/1")) == []
    assert driver.end(report={"outputs": {}}) == [changed("FINISHED", report={"outputs": {}})]
    assert driver.end() == []
    assert driver.slot() == "ALLOCATED"


def test_the_next_task_of_the_allocation_waits_for_the_reset():
    driver = Driver().run()
    driver.end()
    assert driver.deploy("j/u/0/1") == []
    assert driver.local(SlotReady(slot=0)) == [launch("j/u/0/1")]


def test_a_failed_attempt_says_why():
    driver = Driver().run()
    error = {"kind": "user", "retryable": False, "message": "no"}
    assert driver.end("failed", error=error) == [changed("FAILED", error=error)]
    driver = Driver().run()
    assert driver.end("killed") == [changed("FAILED", error=infrastructure("the attempt ended without a reason"))]


def test_a_deployment_that_cannot_be_fails_and_may_run_elsewhere():
    driver = Driver().run()
    assert driver.deploy() == []  # the same again
    busy = infrastructure("its slot is busy with j/t/0/1")
    assert driver.deploy("j/u/0/1") == [changed("FAILED", "j/u/0/1", error=busy)]
    gone = infrastructure("its slot is no longer the job's")
    assert driver.deploy("j/u/0/1", "unknown") == [changed("FAILED", "j/u/0/1", "unknown", error=gone)]
    driver.say(JM0, FreeSlots(allocations=["al"]))
    assert driver.deploy("j/u/0/1") == [changed("FAILED", "j/u/0/1", error=gone)]


def test_an_attempt_whose_folder_is_not_named_has_one_of_its_own():
    driver = Driver()
    driver.allocate()
    (launched,) = driver.deploy(folder="")
    assert launched.effect.folder == "ac/j/t/0/1"
