"""The ResourceManager's handlers: a state, one message, the exact list of what is said."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.core.machine import Born, Configured, Do, PassedOver, PeerBorn, Publish, Say, Ticked
from millrace.core.messages.client import ClusterOverview, RequestRefused, SlotInfo, TaskManagerInfo, TaskManagersListed
from millrace.core.messages.effects import EFFECTS_OF, FenceTaskManager
from millrace.core.messages.events import SlotChanged, TaskManagerJoined
from millrace.core.messages.jobs import JobMasterDeclared, Query, RequestSlots
from millrace.core.messages.links import LINKS
from millrace.core.messages.slots import (
    AllocateSlots,
    DisconnectTaskManager,
    ReportedSlot,
    SlotAllocation,
    SlotFreed,
    SlotReport,
    TaskManagerHeartbeat,
    TaskManagerRegistered,
)
from services.resource_manager.core.machine import HANDLERS
from tests.core.of_resource_manager import JM0, JM1, REGISTERED, TM_A, TM_B, Driver, granted, lost, queued


def test_registers_a_task_manager():
    driver = Driver().declared()
    assert driver.register(memory_mb=(1024, 2048)) == [
        Say(TM_A, REGISTERED),
        Publish("cluster.events", "a", TaskManagerJoined(
            task_manager="a", incarnation=7, host="host-a", slots=2, at_ms=1_000_000, states=["FREE", "FREE"]
        )),
    ]  # fmt: skip


def test_a_request_is_granted_in_the_record_that_brings_it():
    driver = Driver().declared()
    driver.register()
    assert driver.ask("j") == [granted("j", "1.5.0")]


def test_what_a_job_is_granted_of_one_task_manager_goes_in_one_message():
    driver = Driver().declared()
    driver.register(memory_mb=(1024, 1024), build="0.2")
    driver.register(TM_B, memory_mb=(1024, 1024), build="0.2")
    both = [SlotAllocation(slot=0, allocation="1.6.0"), SlotAllocation(slot=1, allocation="1.6.1")]
    assert driver.ask("first", 3) == [
        Say(TM_A, AllocateSlots(job="first", shard=0, slots=both), after="TaskManagerLost"), granted("first", "1.6.2", scope=TM_B),
    ]


def test_a_task_manager_of_0_1_0_is_granted_slots_one_by_one():
    driver = Driver().declared()
    driver.register(memory_mb=(1024, 1024))
    assert driver.ask("j", 2) == [granted("j", "1.5.0"), granted("j", "1.5.1", 1)]


def test_a_job_that_gets_its_slot_before_the_next_tick_is_never_told_to_wait():
    driver = Driver().declared()
    driver.ask("j")
    assert driver.register()[-1] == granted("j", "1.5.0")
    assert driver.tick() == []


def test_a_waiting_job_is_told_why_and_its_place_and_that_it_waits_no_more():
    driver = Driver().declared()
    assert driver.ask("first", since_ms=1) == []
    assert driver.ask("second", 3, since_ms=2) == []
    assert driver.tick() == [
        queued("first", "no TaskManager is registered", 1),
        queued("second", "0 of 3 slots: no TaskManager is registered", 2),
    ]
    assert driver.tick() == []
    assert driver.register(memory_mb=(1024, 1024))[2:] == [
        granted("first", "1.8.0"),
        granted("second", "1.8.1", 1),
        queued("first", None, None),
    ]
    # Once a second, if it is another place or reason. The heartbeat keeps the TaskManager alive meanwhile.
    said = []
    for _ in range(10):
        driver.say(TM_A, TaskManagerHeartbeat())
        said += driver.tick()
    assert said == [queued("second", "1 of 3 slots: all 2 slots of 1 TaskManager are busy", 1)]


def test_the_reason_counts_slots_by_what_they_are():
    driver = Driver().declared()
    driver.register(memory_mb=(1024, 1024, 1024), states=[
        ReportedSlot(slot=0, state="STARTING"),
        ReportedSlot(slot=1, state="BROKEN"),
        ReportedSlot(slot=2, state="ACTIVE", allocation="old", job="other"),
    ])  # fmt: skip
    driver.ask("j")
    reason = "of 3 slots of 1 TaskManager 1 is busy, 1 is starting, 1 is broken"
    assert driver.tick() == [queued("j", reason, 1)]


@pytest.mark.parametrize(
    ("state", "reason"),
    [("STARTING", "the 1 slot of 1 TaskManager is starting"), ("BROKEN", "the 1 slot of 1 TaskManager is broken")],
)
def test_the_reason_of_a_single_slot(state: Any, reason: str):
    driver = Driver().declared()
    driver.register(states=[ReportedSlot(slot=0, state=state)])
    driver.ask("j")
    assert driver.tick() == [queued("j", reason, 1)]


def test_a_job_that_waits_for_broken_slots_is_told_why_they_are() -> None:
    """It waited for a slot that had broken, and only the log of a TaskManager said that a package was missing."""
    driver = Driver().declared()
    why = "The Python /p cannot load pyspark.sql: ImportError: no numpy"
    driver.register(memory_mb=(1024, 1024), states=[ReportedSlot(slot=n, state="BROKEN", broken=why) for n in range(2)])
    driver.ask("j")
    assert driver.tick() == [queued("j", f"all 2 slots of 1 TaskManager are broken ({TM_A.partition('/')[2]}: {why})", 1)]
    driver.say(TM_A, SlotReport(states=[ReportedSlot(slot=0, state="STARTING"), ReportedSlot(slot=1, state="STARTING")]))
    assert all(slot.broken is None for each in driver.state.task_managers.values() for slot in each.slots.values())


def test_a_slot_too_small_is_never_given_and_the_reason_says_so():
    driver = Driver().declared()
    driver.register(memory_mb=(1024,))
    assert driver.ask("large", memory_mb=4096, since_ms=1) == []
    assert driver.ask("small", memory_mb=1024, since_ms=2) == [granted("small", "1.6.0")]
    driver.ask("later", since_ms=3)
    assert driver.tick() == [
        queued("large", "needs 4096 MB a slot, the largest has 1024 MB", None),
        queued("later", "the 1 slot of 1 TaskManager is busy", 1),  # who cannot be served stands in nobody's way
    ]
    assert driver.register(TM_B, memory_mb=(8192,))[2:] == [
        granted("large", "1.9.1", 0, TM_B),
        queued("large", None, None),
    ]


def test_the_smallest_slot_that_fits_is_given():
    driver = Driver().declared()
    driver.register(memory_mb=(8192, 1024, 4096))
    assert driver.ask("a", memory_mb=2000) == [granted("a", "1.5.0", 2)]
    assert driver.ask("b") == [granted("b", "1.6.1", 1)]


def test_priority_goes_first_then_who_waits_longest_then_the_smaller_id():
    driver = Driver().declared()
    for job, priority, since_ms in (("c", 0, 5), ("b", 0, 5), ("a", 0, 9), ("high", 1, 50_000), ("old", 0, -20_000)):
        driver.ask(job, priority=priority, since_ms=since_ms)
    driver.register(memory_mb=(1,) * 5)
    slots = driver.state.task_managers["a"].slots
    # One step of priority outweighs a minute of waiting, no more: "old" has waited 70 s longer than "high".
    assert [slots[n].job for n in range(5)] == ["old", "high", "b", "c", "a"]


def test_a_freed_slot_goes_to_the_next_in_the_queue():
    driver = Driver().declared()
    driver.register()
    driver.ask("first")
    driver.ask("second", since_ms=1)
    driver.ask("first", 0)
    assert driver.free() == [granted("second", "1.8.1")]
    assert driver.state.jobs.keys() == {"second"}


def test_a_slot_that_is_not_ready_when_it_is_freed_is_given_when_it_is():
    driver = Driver().declared()
    driver.register()
    driver.ask("first")
    driver.ask("second", since_ms=1)
    driver.ask("first", 0)
    told = {"task_manager": "a", "incarnation": 7, "slot": 0, "at_ms": 1_000_000}
    assert driver.free(state="STARTING") == [
        Publish("cluster.events", "a", SlotChanged(**told, state="STARTING", count=1))
    ]
    assert driver.say(TM_A, SlotReport(states=[ReportedSlot(slot=0, state="FREE")])) == [
        Publish("cluster.events", "a", SlotChanged(**told, state="FREE", count=2)),
        granted("second", "1.9.1"),
    ]


def test_what_was_said_of_a_slot_is_counted_on_when_its_task_manager_registers_again():
    driver = Driver().declared()
    broken, free = (SlotReport(states=[ReportedSlot(slot=0, state=state)]) for state in ("BROKEN", "FREE"))
    driver.register()
    counts = [driver.say(TM_A, report)[0].body.count for report in (broken, free)]
    driver.register()
    counts += [driver.say(TM_A, report)[0].body.count for report in (broken, free)]
    assert counts == [1, 2, 3, 4]


def test_an_allocation_that_ends_while_the_job_wants_it_is_replaced():
    driver = Driver().declared()
    driver.register(memory_mb=(1, 1))
    driver.ask("j")
    assert driver.free(state="BROKEN") == [
        Publish("cluster.events", "a", SlotChanged(
            task_manager="a", incarnation=7, slot=0, state="BROKEN", at_ms=1_000_000
        )),
        granted("j", "1.6.1", 1),
    ]


def test_a_report_older_than_the_grant_does_not_take_it_back():
    driver = Driver().declared()
    driver.register()
    driver.ask("j")
    allocation = driver.allocation()
    assert driver.say(TM_A, TaskManagerHeartbeat(states=[ReportedSlot(slot=0, state="FREE")])) == []
    assert driver.allocation() == allocation
    confirmed = [ReportedSlot(slot=0, state="ALLOCATED", allocation=allocation, job="j")]
    assert driver.say(TM_A, TaskManagerHeartbeat(states=confirmed)) == []
    # From then on the TaskManager's word counts.
    assert driver.say(TM_A, TaskManagerHeartbeat(states=[ReportedSlot(slot=0, state="FREE")])) == [granted("j", "1.8.1")]


def test_freed_allocations_that_are_not_known_change_nothing():
    driver = Driver().declared()
    driver.register()
    driver.ask("j")
    assert driver.say(TM_A, SlotFreed(slot=0, allocation="0.1.1")) == []
    assert driver.say(TM_A, SlotFreed(slot=9, allocation="0.1.1")) == []
    assert driver.state.jobs["j"].held == 1


def test_a_released_slot_counts_no_more_for_its_job():
    driver = Driver().declared()
    driver.register(memory_mb=(1, 1))
    driver.ask("j")
    allocation = driver.allocation()
    releasing = [ReportedSlot(slot=0, state="RELEASING", allocation=allocation, job="j")]
    driver.say(TM_A, SlotReport(states=[ReportedSlot(slot=0, state="ALLOCATED", allocation=allocation, job="j")]))
    assert driver.say(TM_A, SlotReport(states=releasing)) == [granted("j", "1.7.1", 1)]
    assert driver.say(TM_A, SlotFreed(slot=0, allocation=allocation)) == []


def test_a_job_that_wants_less_keeps_what_it_has_and_is_told_nothing():
    driver = Driver().declared()
    driver.register()
    driver.ask("j", 2)
    driver.tick()
    assert driver.ask("j", 1) == [queued("j", None, None)]
    assert driver.ask("j", 0) == []
    assert driver.state.jobs["j"].held == 1
    assert driver.free() == []
    assert driver.state.jobs == {}


def test_who_wants_nothing_leaves_the_queue_without_a_word():
    driver = Driver().declared()
    driver.ask("j")
    driver.tick()
    assert driver.ask("j", 0) == []
    assert (driver.state.jobs, driver.state.waiting.places) == ({}, {})
    assert driver.ask("never", 0) == []


def test_a_task_manager_that_registers_again_is_taken_as_it_is():
    driver = Driver().declared()
    driver.register()
    driver.ask("j")
    allocation = driver.allocation()
    held = [ReportedSlot(slot=0, state="ACTIVE", allocation=allocation, job="j")]
    assert driver.register(states=held) == [Say(TM_A, REGISTERED)]
    assert driver.allocation() == allocation


def test_a_reborn_resource_manager_grants_only_when_every_shard_has_declared():
    driver = Driver(shards=2)
    driver.register(states=[ReportedSlot(slot=0, state="FREE")])
    assert driver.ask("j") == []
    assert driver.tick() == [
        queued("j", "the ResourceManager has just started and waits to hear from 2 JobMaster shards", 1)
    ]
    assert driver.say(JM0, JobMasterDeclared()) == []
    assert driver.say(JM1, JobMasterDeclared()) == [granted("j", "1.7.0"), queued("j", None, None)]


def test_a_reborn_resource_manager_takes_over_the_allocations_that_are_reported():
    driver = Driver()
    driver.register(memory_mb=(1, 1), states=[
        ReportedSlot(slot=0, state="ACTIVE", allocation="0.9.3", job="j"), ReportedSlot(slot=1, state="FREE"),
    ])  # fmt: skip
    driver.ask("j", 1)
    assert driver.declared().tick() == []
    assert driver.ask("j", 2) == [granted("j", "1.7.0", 1)]
    assert driver.say(TM_A, SlotFreed(slot=0, allocation="0.9.3")) == [granted("j", "1.8.1")]


def test_a_reborn_resource_manager_tells_a_shard_of_the_task_managers_that_it_missed():
    driver = Driver()
    driver.register(TM_A, life=9)
    known = {"a": 9, "b": 5, "c": 6}
    assert driver.say(JM0, JobMasterDeclared(task_managers=known)) == []
    assert driver.register(TM_B, life=8)[0] == lost("b", 5, "it was started anew")
    for _ in range(21):
        driver.say(TM_A, TaskManagerHeartbeat())
        driver.say(TM_B, TaskManagerHeartbeat())
        assert driver.tick() == []
    driver.say(TM_A, TaskManagerHeartbeat())
    driver.say(TM_B, TaskManagerHeartbeat())
    assert driver.tick() == [
        lost("c", 6, "it did not register with the restarted ResourceManager"),
        Do("task-managers/c", FenceTaskManager(task_manager="c", incarnation=6)),
    ]
    assert driver.say(JM0, JobMasterDeclared(task_managers={"a": 4}))[0] == lost("a", 4, "it was started anew")


def test_a_reborn_shard_is_forgotten_until_it_declares_and_what_its_jobs_hold_stays():
    driver = Driver().declared()
    driver.register()
    driver.ask("held")
    driver.ask("waiting")
    driver.tick()
    assert driver.say(JM0, PeerBorn(JM0, 8), 8) == []
    assert (driver.state.waiting.places, set(driver.state.jobs)) == ({}, {"held"})
    assert driver.ask("waiting") == []
    assert driver.tick() == [queued("waiting", "the 1 slot of 1 TaskManager is busy", 1)]
    assert driver.ask("held") == []


def test_all_know_their_place_and_a_flood_is_told_little_by_little():
    driver = Driver().declared()
    for n in range(150):
        driver.ask(f"j{n:03}", since_ms=n)
    said = [each for _ in range(15) for each in driver.tick()]
    assert sorted(said, key=lambda each: each.body.job) == [queued(f"j{n:03}", "no TaskManager is registered", n + 1) for n in range(150)]
    driver.ask("urgent", priority=9)
    assert driver.tick() == [queued("urgent", "no TaskManager is registered", 1)]
    said = [each for _ in range(11) for each in driver.tick()]
    assert sorted(said, key=lambda each: each.body.job) == [
        queued(f"j{n:03}", "no TaskManager is registered", n + 2) for n in range(150)
    ]

def test_questions_are_answered():
    driver = Driver().declared()
    driver.register(memory_mb=(1024, 2048))
    driver.ask("j")
    driver.ask("k", memory_mb=9999)
    ask = {"reply_to": "client-1", "correlation": "c"}
    assert driver.say("dispatcher", Query(what="overview", jobs={"RUNNING": 1}, **ask)) == [
        Publish("client.replies", "client-1", ClusterOverview(
            correlation="c", jobs={"RUNNING": 1}, task_managers=1, slots=2, free_slots=1, waiting_jobs=1
        ))
    ]  # fmt: skip
    assert driver.say("dispatcher", Query(what="task_managers", **ask)) == [
        Publish("client.replies", "client-1", TaskManagersListed(correlation="c", total=1, task_managers=[
            TaskManagerInfo(
                task_manager="a", incarnation=7, host="host-a", since_ms=1_000_000, last_beat_ms=1_000_000,
                slots=[
                    SlotInfo(slot=0, state="PENDING", job="j", memory_mb=1024),
                    SlotInfo(slot=1, state="FREE", memory_mb=2048),
                ],
            )
        ]))
    ]  # fmt: skip
    assert driver.say("dispatcher", Query(what="overview", reply_to="", correlation="")) == []


def test_an_answer_stays_within_what_a_record_takes():
    driver = Driver().declared()
    driver.checks = False  # 14,400 slots are checked once
    for n in range(120):
        driver.register(f"task-manager/{n:03}", memory_mb=(1,) * 120)
    driver.checks = True
    (answer,) = driver.say("dispatcher", Query(what="task_managers", reply_to="c", correlation=""))
    assert answer.body.total == 120 and 60 < len(answer.body.task_managers) < 120
    assert len(answer.body.model_dump_json()) < 900_000


def test_heartbeats_of_many_stay_below_the_limit():
    driver = Driver().declared()
    for n in range(100):
        driver.register(f"task-manager/{n}")
    slower = TaskManagerRegistered(heartbeat_interval_ms=200, lost_after_ms=800)
    said = driver.register("task-manager/100")
    assert said[:102] == [Say(f"task-manager/{n}", slower) for n in [*range(101), 100]]
    assert driver.register("task-manager/101")[0] == Say("task-manager/101", slower)
    # Well below the limit it is quick again.
    said = [driver.say(f"task-manager/{n}", DisconnectTaskManager(reason="")) for n in range(55)]
    assert [sum(isinstance(each.body, TaskManagerRegistered) for each in all if isinstance(each, Say)) for all in said] == [
        *(0 for _ in range(51)), 50, 0, 0, 0,
    ]  # fmt: skip
    assert driver.state.interval_ms == 100


@pytest.mark.parametrize("slow", ["settings", "many"])
@pytest.mark.parametrize("jobs", [[], ["j"]])
def test_who_beats_as_slowly_as_it_was_told_is_not_lost_when_all_are_told_to_beat_faster(slow: str, jobs: list[str]):
    driver = Driver().declared()
    driver.core(Configured({"heartbeat_interval_ms": 1000} if slow == "settings" else {"beats_per_s_max": 3}))
    for n in range(1 if slow == "settings" else 4):
        driver.register(f"task-manager/{n}")
    assert driver.state.interval_ms >= 1000
    for job in jobs:
        driver.ask(job)
    for _ in range(9 if jobs else 49):
        driver.tick(100)
    if slow == "settings":
        said = driver.core(Configured({}))
    else:
        driver.core(Configured({"beats_per_s_max": 10}))
        said = [each for n in (1, 2, 3) for each in driver.say(f"task-manager/{n}", DisconnectTaskManager(reason=""))]
    assert Say("task-manager/0", REGISTERED) in said
    assert [driver.tick(100) for _ in range(5)] == [[]] * 5, "it has not heard of it yet"
    for _ in range(60 if jobs else 100):
        driver.tick(100)
    assert "0" not in driver.state.task_managers, "and is missed if it never beats again"


def test_settings_that_decide_come_as_a_record():
    driver = Driver().declared()
    driver.register()
    driver.ask("j")
    quick = {"lost_after_ms": 300, "heartbeat_interval_ms": 50, "ageing_ms": 1, "other": True}
    assert driver.core(Configured(quick)) == [
        Say(TM_A, TaskManagerRegistered(heartbeat_interval_ms=50, lost_after_ms=400))
    ]
    assert driver.core(Configured(quick)) == []
    assert [driver.tick(200), driver.tick(100), driver.tick(100), driver.tick(100)] == [[], [], [], []], "it was promised 600"
    assert driver.tick(100)[0] == lost("a", 7, "no heartbeat for 400 ms"), "four ticks, for it looks once a tick"


def test_every_message_to_it_has_a_handler_and_nothing_else():
    links = {body for (_, receiver), bodies in LINKS.items() if receiver == "resource-manager" for body in bodies}
    outcomes = {outcome for outcome in EFFECTS_OF["resource-manager"].values() if outcome is not None}
    assert set(HANDLERS) == links | {Born, Configured, Ticked, PassedOver, PeerBorn} | outcomes


def test_who_waits_for_slots_that_a_bad_record_asked_for_is_told_why():  # [R26]
    driver = Driver().declared()
    reason = "its request for slots was not taken, by a fault of Millrace: KeyError: 'x'; cancel the job"
    ask = RequestSlots(job="j", slots=1, priority=0, since_ms=0)
    assert driver.say(JM0, PassedOver(ask, "KeyError: 'x'")) == [queued("j", reason, None)]
    assert driver.say(JM0, PassedOver(ask.model_copy(update={"slots": 0}), "KeyError: 'x'")) == []
    assert driver.say(TM_A, PassedOver(TaskManagerHeartbeat(), "KeyError: 'x'")) == []


def test_a_bad_query_is_refused():  # [R26]
    driver = Driver().declared()
    query = Query(what="overview", reply_to="me", correlation="c", jobs={})
    reason = "a fault of Millrace in handling this request: KeyError: 'x'"
    refused = RequestRefused(correlation="c", kind="internal", reason=reason)
    assert driver.say("dispatcher", PassedOver(query, "KeyError: 'x'")) == [Publish("client.replies", "me", refused)]
    assert driver.say("dispatcher", PassedOver(query.model_copy(update={"reply_to": ""}), "KeyError: 'x'")) == []


SLOT_STATES = ("STARTING", "FREE", "ALLOCATED", "ACTIVE", "RELEASING", "BROKEN")


@pytest.mark.parametrize("before", [*SLOT_STATES, "PENDING"])
@pytest.mark.parametrize("message", ["report", "freed", "freed of another", *(f"reported {s}" for s in SLOT_STATES)])
def test_any_word_on_a_slot_in_any_state_leaves_a_sound_state(before: str, message: str):
    driver = Driver().declared()
    allocated = before in ("ALLOCATED", "ACTIVE", "RELEASING")
    given = ReportedSlot(slot=0, state="FREE" if before == "PENDING" else before,
                      allocation="x" if allocated else None, job="j" if allocated else None)  # fmt: skip
    driver.register(states=[given])
    driver.ask("j")
    allocation = driver.state.task_managers["a"].slots[0].allocation or "none"
    kind, _, state = message.partition(" ")
    if kind == "freed":
        body: Any = SlotFreed(slot=0, allocation="another" if state else allocation)
    else:
        body = SlotReport(states=[ReportedSlot(slot=0, state=state or "ALLOCATED", allocation=None, job=None)])
    driver.say(TM_A, body)
    driver.tick()
