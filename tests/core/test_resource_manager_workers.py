"""TaskManagers that a provider starts [R33]: when slots are short, so many, and again when that fails. Exact outputs."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.core.machine import Configured, Do, Forget, PassedOver, Publish, Say
from millrace.core.messages.events import ProviderConfigured
from millrace.core.messages.slots import (
    DisconnectTaskManager,
    RegisterTaskManager,
    ReleaseTaskManager,
    ReportedSlot,
    SlotSpec,
)
from millrace.core.messages.worker_effects import ListWorkers, WorkersListed, WorkerStarted, WorkerStopped
from services.resource_manager.core import workers
from tests.core.of_resource_manager import Driver, queued
from tests.core.of_workers import SETTINGS, W1, W2, W3, Provided, grants

NOT_THERE = "no TaskManager is registered"


def test_a_job_that_finds_no_slot_has_a_task_manager_started() -> None:
    driver = Provided()
    driver.ask("j")
    assert driver.tick() == [*driver.starts(W1), queued("j", f"{NOT_THERE}; {W1} is being started", 1)]
    assert driver.tick() == []
    assert driver.started() == [driver.changed(W1, "STARTING")]
    said = driver.comes()
    assert grants(said) == [("j", W1)] and driver.changed(W1, "REGISTERED") in said
    assert driver.states() == {W1: "REGISTERED"}


def test_without_a_provider_nobody_is_started() -> None:
    driver = Driver().declared()
    driver.core(Configured({**SETTINGS, "provider": ""}))
    driver.ask("j", 10)
    assert [driver.tick() for _ in range(5)] == [[queued("j", f"0 of 10 slots: {NOT_THERE}", 1)], [], [], [], []]


def test_one_that_registers_before_its_provider_answers_is_there() -> None:
    driver = Provided()
    driver.ask("j")
    driver.tick()
    driver.comes()
    assert driver.started() == [] and driver.states() == {W1: "REGISTERED"}
    assert driver.started(problem="it says so late") == []


def test_where_slots_are_busy_they_are_waited_for_a_moment() -> None:
    driver = Provided()
    driver.ask("busy", 2)
    driver.tick()
    driver.runs()
    driver.ask("j")
    busy = "all 2 slots of 1 TaskManager are busy"
    assert driver.tick() == [queued("j", busy, 1)]
    driver.beat()
    assert driver.tick() == []
    driver.beat()
    driver.events = driver.state.workers.changes
    assert driver.tick() == driver.starts(W2)
    assert queued("j", f"{busy}; {W2} is being started", 1) in driver.wait(1_000)


def test_a_job_that_is_served_in_that_moment_has_nobody_started() -> None:
    driver = Provided()
    driver.ask("busy", 2)
    driver.tick()
    driver.runs()
    driver.ask("j")
    driver.wait(100)
    driver.ask("busy", 1)
    driver.free(f"task-manager/{W1}", 0)
    driver.wait(1_000)
    assert driver.states() == {W1: "REGISTERED"}


def test_as_many_are_started_as_the_waiting_jobs_need_and_no_more_than_may_be() -> None:
    driver = Provided(task_managers_max=3)
    driver.ask("j", 3)
    assert [each.key for each in driver.tick() if isinstance(each, Do)] == [f"workers/{W1}", f"workers/{W2}"]
    driver.ask("k", 100)
    assert [each.key for each in driver.tick() if isinstance(each, Do)] == [f"workers/{W3}"]
    driver.wait(2_000)
    assert driver.state.jobs["k"].sent_reason == f"0 of 100 slots: {NOT_THERE}; 3 TaskManagers are being started"


def test_slots_that_are_warmed_up_are_waited_for() -> None:
    driver = Provided()
    driver.ask("j", 2)
    driver.tick()
    driver.started()
    driver.comes(states=_states("STARTING", "STARTING"))
    driver.wait(2_000)
    assert driver.states() == {W1: "REGISTERED"}


@pytest.mark.parametrize(
    ("limit", "may"),
    [
        ({"task_managers_max": 1}, 1), ({"slots_max": 5}, 2), ({"slots_max": 1}, 0), ({"memory_mb_max": 4_500}, 2),
        ({"cores_max": 7, "worker_cores": 2}, 3), ({"cores_max": 1, "worker_cores": 0}, 4), ({"cores_max": 0}, 0),
    ],
)  # fmt: skip
def test_each_limit_holds_and_is_named(limit: dict[str, int], may: int) -> None:
    driver = Provided(**{"task_managers_max": 4, **limit})
    driver.ask("j", 100)
    driver.tick()
    names = list(driver.states())
    assert len(names) == may
    for life, name in enumerate(names, 7):
        driver.started(name)
        driver.comes(name, life)
    driver.wait(2_000)
    [(name, most)] = [each for each in limit.items() if each[0] != "worker_cores"]
    if may < 4:
        assert (driver.state.jobs["j"].sent_reason or "").endswith(f"; no more are started: {name} is {most}")


def test_limits_count_those_that_came_by_themselves() -> None:
    driver = Provided(task_managers_max=2)
    driver.register("task-manager/by-hand", 5, (1024,))
    driver.ask("j", 9)
    driver.wait(500)
    assert list(driver.states()) == [W1]


def test_the_limit_of_cores_counts_the_slots_of_those_that_came_by_themselves() -> None:
    driver = Provided(task_managers_max=9, cores_max=5, worker_cores=2)
    slots = [SlotSpec(slot=0, memory_mb=1024, cores=3)]
    states = [ReportedSlot(slot=0, state="FREE")]
    driver.say("task-manager/by-hand", RegisterTaskManager(host="h", slots=slots, states=states), 5)
    driver.ask("j", 9)
    driver.wait(500)
    assert list(driver.states()) == [W1]


def test_a_job_for_which_no_slot_would_be_large_enough_has_nobody_started() -> None:
    driver = Provided()
    driver.ask("j", memory_mb=2048)
    assert driver.tick() == [queued("j", "needs 2048 MB a slot, the largest has 1024 MB", None)]


def test_the_least_are_there_without_a_job() -> None:
    driver = Provided(task_managers_min=2, task_managers_max=3)
    assert driver.tick() == [*driver.starts(W1), *driver.starts(W2)]
    assert driver.tick() == []


def test_spare_ones_are_there_while_a_job_runs() -> None:
    driver = Provided(task_managers_spare=1, task_managers_max=3)
    assert driver.wait(1_000) == []
    driver.ask("j")
    driver.tick()
    assert list(driver.states()) == [W1, W2], "one for the job, one to spare"


# failures


def test_one_that_is_not_started_is_stopped_and_the_job_is_told_in_the_providers_words() -> None:
    driver = Provided()
    driver.ask("j")
    driver.tick()
    driver.events = 1
    assert driver.started(problem="no room") == driver.stops(W1, "no room", True)
    assert driver.tick() == [Do("workers", ListWorkers(number=2)), *driver.starts(W2)], "the first failure costs no pause"
    driver.core(WorkersListed(number=2, workers={}))
    assert driver.states() == {W1: "STOPPING", W2: "REQUESTED"}
    assert driver.stopped() == [driver.changed(W1, "STOPPED")]
    assert queued("j", f"{NOT_THERE}; {W2} is being started ({W1}: no room)", 1) in driver.wait(1_000)


def test_failures_are_followed_by_ever_longer_pauses() -> None:
    driver = Provided()
    driver.ask("j")
    pauses, since = [], driver.now_ms
    for _ in range(9):
        while not (wanted := workers.pending(driver.state)):
            driver.tick()
            if driver.state.workers.expected is not None:
                driver.core(WorkersListed(number=driver.state.workers.lists))
        pauses.append((driver.now_ms - since) // 1000)
        driver.started(wanted[0], "no room")
        driver.stopped(wanted[0])
        since = driver.now_ms
    assert pauses == [0, 0, 1, 2, 4, 8, 16, 30, 30]


def test_after_a_failure_one_is_tried_at_a_time() -> None:
    driver = Provided(task_managers_max=4)
    driver.ask("j", 8)
    driver.tick()
    for name in list(driver.states()):
        driver.started(name, "no room")
        driver.stopped(name)
    driver.state.workers.failures = 1
    driver.tick()
    driver.core(WorkersListed(number=2))
    driver.tick()
    assert driver.states() == {W1: "REQUESTED"}
    driver.runs(W1)
    driver.wait(300)
    assert list(driver.states()) == [W1, W2, W3, "task-manager-4"]


def test_those_that_fail_together_cost_no_more_than_the_first_pause() -> None:
    """The host of seven dies."""
    driver = Provided(task_managers_min=7, task_managers_max=7)
    driver.tick()
    for life, name in enumerate(list(driver.states()), 7):
        driver.started(name)
        driver.comes(name, life)
    while driver.state.task_managers:
        driver.tick()
    assert set(driver.states().values()) == {"STOPPING"} and len(driver.states()) == 7
    assert workers.resume_ms(driver.state.workers) == driver.now_ms + workers.PAUSE_FIRST_MS


def test_one_that_does_not_register_in_time_is_replaced() -> None:
    driver = Provided()
    driver.ask("j")
    driver.tick()
    driver.started()
    driver.state.workers.list_ms = driver.now_ms + 60_000
    driver.wait(4_900)
    assert driver.states() == {W1: "STARTING"}
    driver.events = driver.state.workers.changes
    why = "it has not registered within 5000 ms"
    assert driver.tick() == [
        *driver.stops(W1, why, True), Do("workers", ListWorkers(number=2)), *driver.starts(W2),
        queued("j", f"{NOT_THERE}; {W2} is being started ({W1}: {why})", 1),
    ]  # fmt: skip


def test_one_whose_process_has_ended_is_found_in_the_list_that_is_asked_for_each_second_meanwhile() -> None:
    driver = Provided()
    driver.ask("j")
    driver.tick()
    driver.started()
    said = [each for each in driver.wait(1_000) if isinstance(each, Do)]
    assert said == [Do("workers", ListWorkers(number=2))]
    driver.events = driver.state.workers.changes
    why = "it ended with 2: no Java"
    assert driver.core(WorkersListed(number=2, workers={W1: why})) == driver.stops(W1, why, True)


def test_one_that_the_provider_has_lost_is_replaced() -> None:
    driver = Provided()
    driver.ask("j")
    driver.tick()
    driver.started()
    driver.wait(1_000)
    driver.events = driver.state.workers.changes
    assert driver.core(WorkersListed(number=2)) == driver.stops(W1, "its provider does not have it any more", True)


def test_while_the_provider_is_away_nothing_is_started_and_the_job_is_told() -> None:
    driver = Provided(listed={})
    driver.core(WorkersListed(number=1, problem="no answer at :9"))
    driver.ask("j")
    assert driver.tick() == [queued("j", f"{NOT_THERE}; the provider of TaskManagers does not answer: no answer at :9", 1)]
    assert driver.wait(2_000) == [Do("workers", ListWorkers(number=2))]
    driver.core(WorkersListed(number=2))
    assert driver.tick() == driver.starts(W1)


def test_of_a_part_of_the_provider_that_is_left_out_the_job_that_waits_is_told_and_the_others_go_on() -> None:
    driver = Provided(listed={})
    away = "the agent at http://b:1 does not answer"
    driver.core(WorkersListed(number=1, left_out=[away, "another"]))
    driver.ask("j")
    told = queued("j", f"{NOT_THERE}; {W1} is being started; {away} (and 1 more)", 1)
    assert driver.tick() == [*driver.starts(W1), told]
    driver.started()
    driver.wait(1_000)
    driver.core(WorkersListed(number=driver.state.workers.lists, workers={W1: None}))
    assert driver.state.workers.left_out == []


def test_one_that_is_being_stopped_counts_and_keeps_its_id_until_nothing_of_it_runs() -> None:
    driver = Provided(task_managers_max=1)
    driver.ask("j")
    driver.tick()
    driver.started(problem="no answer")
    for _ in range(20):
        driver.tick()
        if driver.state.workers.expected is not None:
            driver.core(WorkersListed(number=driver.state.workers.lists, workers={W1: None}))
    assert driver.states() == {W1: "STOPPING"}
    driver.stopped()
    driver.tick()
    assert driver.states() == {W1: "REQUESTED"}


# what becomes of its TaskManager


def test_one_that_is_silent_is_stopped_and_replaced() -> None:
    driver = Provided()
    driver.ask("j")
    driver.tick()
    driver.runs()
    said = []
    while W1 in driver.state.task_managers:
        said = driver.tick()
    reason = next(each.body.reason for each in said if isinstance(each, Say) and isinstance(each.body, ReleaseTaskManager))
    assert all(each in said for each in driver.stops(W1, reason, True))
    assert driver.states() == {W1: "STOPPING", W2: "REQUESTED"}


def test_one_whose_process_begins_anew_has_as_long_to_register_as_the_first_time() -> None:
    driver = Provided(task_managers_min=1)
    driver.tick()
    driver.runs()
    driver.comes(life=9)
    assert driver.states() == {W1: "REGISTERED"} and driver.state.task_managers[W1].incarnation == 9


def test_one_that_leaves_in_order_is_replaced_if_it_is_needed() -> None:
    driver = Provided(task_managers_min=1)
    driver.tick()
    driver.runs()
    stops = driver.stops(W1, "it was stopped")
    said = driver.say(f"task-manager/{W1}", DisconnectTaskManager(reason="it was stopped"))
    assert all(each in said for each in stops) and driver.states() == {W1: "STOPPING"}
    assert driver.tick() == driver.starts(W2), "its process may not have ended yet: its id and its place are taken"
    assert driver.stopped() == [driver.changed(W1, "STOPPED")] and driver.state.workers.failures == 0


def test_a_stranger_with_the_id_of_a_worker_is_turned_away() -> None:
    driver = Provided()
    scope = f"task-manager/{W2}"
    assert driver.comes(W2) == [
        *driver.stops(W2, workers.UNKNOWN),
        Say(scope, ReleaseTaskManager(incarnation=7, reason=workers.UNKNOWN)),
        Forget(scope, 7),
    ]
    assert W2 not in driver.state.task_managers
    driver.stopped(W2)
    assert driver.states() == {}


def test_one_that_is_being_stopped_is_turned_away() -> None:
    driver = Provided()
    driver.ask("j")
    driver.tick()
    driver.started(problem="no answer")
    said = driver.comes()
    why = "its provider is asked to stop it"
    assert said == [Say(f"task-manager/{W1}", ReleaseTaskManager(incarnation=7, reason=why)), Forget(f"task-manager/{W1}", 7)]


@pytest.mark.parametrize("name", ["by-hand", "task-manager-", "task-manager-x", "1"])
def test_others_are_welcome(name: str) -> None:
    driver = Provided()
    driver.register(f"task-manager/{name}", 5)
    assert name in driver.state.task_managers and driver.states() == {}


# a new leader, a new life


def test_a_new_leader_asks_what_there_is_and_starts_nothing_before() -> None:
    driver = Provided()
    driver.ask("j")
    driver.tick()
    driver.started()
    assert driver.core(Configured(SETTINGS)) == driver.configures(2)
    driver.ask("k", 9)
    driver.wait(1_000)
    assert driver.core(WorkersListed(number=1, workers={})) == [], "the answer to the one before"
    assert list(driver.states()) == [W1]
    driver.core(WorkersListed(number=2, workers={W1: None}))
    driver.tick()
    assert list(driver.states()) == [W1, W2]


def test_who_registers_before_the_list_has_come_is_taken() -> None:
    """What an earlier life has started may run what jobs need."""
    driver = Provided(listed={})
    driver.comes(W3)
    assert driver.states() == {W3: "REGISTERED"}
    driver.core(WorkersListed(number=1, workers={W3: None}))
    assert driver.states() == {W3: "REGISTERED"}


def test_a_new_life_takes_over_what_runs_within_the_limits() -> None:
    driver = Provided(listed={})
    said = driver.core(WorkersListed(number=1, workers={W3: None, W1: "ended", W2: None, "task-manager-4": None, "other": None}))
    assert said == [
        driver.changed(W2, "STARTING"), driver.changed(W3, "STARTING"),
        *driver.stops("task-manager-4", "nobody has asked for it"), *driver.stops(W1, "ended"),
    ]  # fmt: skip


def test_later_what_nobody_asked_for_is_stopped() -> None:
    driver = Provided()
    said = driver.wait(60_000)
    assert said == [Do("workers", ListWorkers(number=2))]
    assert driver.core(WorkersListed(number=2, workers={W2: None})) == driver.stops(W2, "nobody has asked for it")


def test_what_a_stack_starts_beforehand_is_taken_for_the_least() -> None:
    driver = Provided(task_managers_min=1)
    driver.core(Configured({**SETTINGS, "task_managers_min": 1}))
    assert driver.core(WorkersListed(number=2, workers={W1: None})) == [driver.changed(W1, "STARTING")]
    assert driver.tick() == []


def test_without_a_provider_any_more_workers_are_forgotten_and_stay() -> None:
    driver = Provided(task_managers_min=1)
    driver.tick()
    driver.runs()
    gone = ProviderConfigured(provider="standalone", at_ms=driver.now_ms, count=2)
    assert driver.core(Configured({"provider": ""})) == [Publish("cluster.events", "provider", gone)]
    assert driver.states() == {} and W1 in driver.state.task_managers


# records that end processes [R26]


def test_answers_that_are_passed_over_leave_nothing_that_waits_for_ever() -> None:
    driver = Provided()
    driver.ask("j")
    driver.tick()
    driver.core(PassedOver(WorkerStarted(worker=W1, problem="x"), "KeyError"))
    assert driver.states() == {W1: "STARTING"}
    driver.wait(1_000)
    driver.core(PassedOver(WorkersListed(number=2), "KeyError"))
    assert driver.state.workers.expected is None and driver.state.workers.away == "KeyError"
    driver.wait(5_000)
    driver.core(PassedOver(WorkerStopped(worker=W1), "KeyError"))
    assert W1 not in driver.states()


def _states(*states: Any) -> list[Any]:
    return [ReportedSlot(slot=number, state=state) for number, state in enumerate(states)]

