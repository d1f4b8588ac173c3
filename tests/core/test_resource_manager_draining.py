"""Idle TaskManagers are stopped [R33]: only those that are still idle, agree, and are not needed. Exact outputs."""

from __future__ import annotations

from typing import Any

from millrace.core.machine import Configured, Do, Forget, PeerBorn, Publish, Say
from millrace.core.messages.client import ClusterDeregistered
from millrace.core.messages.effects import FenceTaskManager
from millrace.core.messages.events import TaskManagerGone
from millrace.core.messages.jobs import Query, QuestionAnswered
from millrace.core.messages.slots import DrainAnswered, DrainTaskManager, ReleaseTaskManager
from millrace.core.messages.worker_effects import ListWorkers, WorkersListed
from millrace.core.topics import Scope
from services.resource_manager.core.providing import DEREGISTERED
from tests.core.of_resource_manager import lost
from tests.core.of_workers import SETTINGS, W1, W2, W3, Provided, grants

IDLE_MS = 3_000
WHY = f"none of its slots was needed for {IDLE_MS} ms"


def idle(**settings: Any) -> Provided:
    """One worker that registered just now, and that nobody needs any more."""
    driver = Provided(**settings)
    driver.ask("j")
    driver.tick()
    driver.runs()
    driver.ask("j", 0)
    driver.free(f"task-manager/{W1}")
    driver.events = driver.state.workers.changes
    return driver


def asked(driver: Provided, worker: str = W1) -> list[Any]:
    return [driver.changed(worker, "DRAINING"), Say(f"task-manager/{worker}", DrainTaskManager(incarnation=7))]


def of_workers(said: list[Any]) -> list[Any]:
    """Without the lists that are asked for."""
    return [each for each in said if not (isinstance(each, Do) and isinstance(each.effect, ListWorkers))]


def answer(driver: Provided, refused: str | None = None, worker: str = W1) -> list[Any]:
    return driver.say(f"task-manager/{worker}", DrainAnswered(refused=refused))


def test_one_that_is_idle_is_asked_and_stopped_when_it_agrees() -> None:
    driver = idle()
    assert of_workers(driver.wait(IDLE_MS)) == []
    assert of_workers(driver.wait(100)) == asked(driver)
    assert of_workers(driver.wait(100)) == [], "it is asked once"
    scope = f"task-manager/{W1}"
    assert answer(driver) == [
        *driver.stops(W1, WHY),
        lost(W1, 7, WHY),
        Say(scope, ReleaseTaskManager(incarnation=7, reason=WHY)),
        Do(f"task-managers/{W1}", FenceTaskManager(task_manager=W1, incarnation=7)),
        Forget(scope, 7),
        Publish("cluster.events", W1, TaskManagerGone(task_manager=W1, incarnation=7, reason=WHY, at_ms=driver.now_ms)),
    ]
    assert driver.stopped() == [driver.changed(W1, "STOPPED")]
    assert of_workers(driver.wait(1_000)) == [] and driver.states() == {}


def test_one_that_refuses_is_asked_again_when_it_was_idle_for_as_long_once_more() -> None:
    driver = idle()
    driver.wait(IDLE_MS + 100)
    assert answer(driver, "slot 0 is x's") == []
    assert driver.states() == {W1: "REGISTERED"}
    driver.events = driver.state.workers.changes
    assert of_workers(driver.wait(IDLE_MS)) == []
    assert of_workers(driver.wait(100)) == asked(driver)


def test_a_slot_that_is_granted_meanwhile_keeps_it() -> None:
    driver = idle()
    driver.wait(IDLE_MS + 100)
    assert grants(driver.ask("k")) == [("k", W1)]
    assert driver.states() == {W1: "REGISTERED"}
    assert answer(driver) == []
    assert W1 in driver.state.task_managers


def test_an_answer_that_does_not_come_is_asked_for_again() -> None:
    driver = idle()
    driver.wait(IDLE_MS + 100)
    driver.wait(IDLE_MS)
    assert driver.states() == {W1: "REGISTERED"}
    assert driver.wait(IDLE_MS)[-1:] == [Say(f"task-manager/{W1}", DrainTaskManager(incarnation=7))]


def test_the_least_stay() -> None:
    driver = idle(task_managers_min=1)
    assert of_workers(driver.wait(3 * IDLE_MS)) == []


def test_the_one_with_the_highest_number_goes_first_and_one_at_a_time_above_the_least() -> None:
    driver = Provided(task_managers_min=1)
    driver.ask("j", 4)
    driver.tick()
    driver.runs(W1).runs(W2)
    driver.ask("j", 0)
    for worker in (W1, W2):
        for slot in (0, 1):
            driver.free(f"task-manager/{worker}", slot)
    driver.events = driver.state.workers.changes
    assert of_workers(driver.wait(IDLE_MS + 100)) == asked(driver, W2)
    answer(driver, worker=W2)
    driver.stopped(W2)
    assert of_workers(driver.wait(2 * IDLE_MS)) == []


def test_spare_slots_stay_while_a_job_runs() -> None:
    driver = Provided(task_managers_spare=1)
    driver.ask("j")
    driver.tick()
    driver.runs(W1).runs(W2)
    assert of_workers(driver.wait(2 * IDLE_MS)) == []
    driver.ask("j", 0)
    driver.free(f"task-manager/{W1}")
    assert [each.to for each in of_workers(driver.wait(2 * IDLE_MS)) if isinstance(each, Say)][:2] == [
        f"task-manager/{W2}", f"task-manager/{W1}",
    ]  # fmt: skip


def test_one_that_came_by_itself_is_never_asked() -> None:
    driver = Provided()
    driver.register("task-manager/by-hand", 5, (1024,))
    driver.wait(2 * IDLE_MS)
    assert driver.state.task_managers["by-hand"].slots[0].allocation is None
    assert not [each for each in driver.wait(2 * IDLE_MS) if isinstance(each, Say)]


def test_a_cluster_that_is_deregistered_stops_its_workers_and_starts_none_until_that_is_undone() -> None:
    driver = Provided(task_managers_max=3)
    driver.register("task-manager/by-hand", 5, (512,))
    driver.ask("j", 4)
    driver.wait(300)
    driver.runs(W1)
    query = Query(what="deregister", reply_to="c", correlation="1", number=4)
    assert driver.say("dispatcher", query) == [
        Publish("client.replies", "c", ClusterDeregistered(correlation="1", workers=2)),
        Say("dispatcher", QuestionAnswered(number=4)),
    ]
    said = driver.tick()
    assert all(each in said for each in driver.stops(W1, DEREGISTERED)[1:]) and lost(W1, 7, DEREGISTERED) in said
    assert driver.states() == {W1: "STOPPING", W2: "STOPPING"} and list(driver.state.task_managers) == ["by-hand"]
    driver.stopped(W1)
    driver.stopped(W2)
    driver.core(Configured({**SETTINGS, "task_managers_max": 3}))
    driver.core(WorkersListed(number=driver.state.workers.lists, workers={W3: None}))
    driver.wait(1_000)
    assert driver.states() == {W3: "STOPPING"}, "also for the next leader"
    reason = driver.state.jobs["j"].sent_reason or ""
    assert reason.endswith("no more are started: the cluster is deregistered (millrace deregister --undo)")
    driver.stopped(W3)
    assert driver.say("dispatcher", Query(what="register", reply_to="", correlation="2")) == []
    driver.wait(300)
    assert driver.states() == {W1: "REQUESTED", W2: "REQUESTED"}


def drained(driver: Provided) -> bool:
    return any(isinstance(each, Say) and isinstance(each.body, DrainTaskManager) for each in driver.wait(2 * IDLE_MS))


def test_nobody_is_stopped_while_a_job_waits_that_may_get_its_slots() -> None:
    driver = idle(task_managers_max=1)
    driver.register("task-manager/by-hand", 5, (512,))
    driver.ask("gang", 3, together=True)
    driver.ask("other", 0)
    assert not drained(driver)


def test_a_job_that_no_slot_is_for_keeps_nobody() -> None:
    for settings, wants in (({}, {"memory_mb": 512_000}), ({"tenants": {"x": {"slots": 0}}}, {"tenant": "x"})):
        driver = idle(**settings)
        driver.ask("waits", **wants)
        assert drained(driver)


def test_a_few_short_jobs_go_to_those_that_have_work_so_that_others_become_idle() -> None:
    """They went round all TaskManagers, for the slot that was free longest was granted, and none was ever idle."""
    driver = Provided()
    driver.ask("j", 4)
    driver.tick()
    driver.runs(W1).runs(W2)
    driver.ask("j", 0)
    for slot in (0, 1):
        driver.free(f"task-manager/{W2}", slot)
    for slot in (0, 1):
        driver.free(f"task-manager/{W1}", slot)
    for number in range(IDLE_MS // 500 + 1):
        driver.wait(500)
        said = driver.ask(f"job-{number}")
        assert grants(said) == [(f"job-{number}", W1)]
        driver.ask(f"job-{number}", 0)
        driver.free(f"task-manager/{W1}", next(n for n, slot in driver.state.task_managers[W1].slots.items() if slot.allocation))
    assert driver.states() == {W1: "REGISTERED", W2: "DRAINING"}


def test_a_dispatcher_that_deregisters_for_itself_learns_how_many_are_left() -> None:
    driver = Provided(task_managers_max=3)
    driver.ask("j", 2)
    driver.wait(300)
    driver.runs(W1)
    for number, left in ((1, 1), (2, 1)):
        query = Query(what="deregister", reply_to="", correlation="", number=number)
        assert driver.say("dispatcher", query) == [Say("dispatcher", QuestionAnswered(number=number, workers=left))]
        driver.tick()
    driver.stopped(W1)
    assert driver.say("dispatcher", Query(what="deregister", reply_to="", correlation="", number=3)) == [
        Say("dispatcher", QuestionAnswered(number=3, workers=0))
    ]


def test_to_shut_a_cluster_down_and_open_it_again_undoes_nothing_that_a_user_did() -> None:
    driver = idle()
    driver.say("dispatcher", Query(what="deregister", reply_to="c", correlation="1", number=4))
    for number, what in ((5, "deregister"), (6, "register")):
        driver.say("dispatcher", Query(what=what, reply_to="", correlation="", number=number))
    assert (driver.state.workers.deregistered, driver.state.workers.closing) == (True, False)
    driver.say("dispatcher", Query(what="register", reply_to="c", correlation="2", number=7))
    assert not driver.state.workers.released


def test_a_dispatcher_that_lost_its_log_shuts_nothing_down_any_more() -> None:
    driver = idle()
    driver.say("dispatcher", Query(what="deregister", reply_to="", correlation="", number=5))
    assert driver.state.workers.released
    driver.core(PeerBorn(Scope("dispatcher"), 2))
    assert not driver.state.workers.released


def test_what_a_provider_has_is_not_nothing_before_it_was_asked() -> None:
    driver = Provided(listed={})
    query = Query(what="deregister", reply_to="", correlation="", number=1)
    assert driver.say("dispatcher", query) == [Say("dispatcher", QuestionAnswered(number=1, workers=1))]
