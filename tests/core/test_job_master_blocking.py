"""Slots on blocked hosts: what runs there goes on or is moved, and no failure is counted. Exact outputs."""

from __future__ import annotations

from typing import Any

from millrace.core.machine import Output, PeerBorn, Say
from millrace.core.messages import jobs, slots
from millrace.core.messages.blocklist import BlockedTaskManagers, TaskManagersBlocked
from millrace.core.states import ExecutionState, JobStatus
from tests.core.of_job_master import PLANNED, REPORT, RM, TM, TWO, Shard, kinds

TM2 = "task-manager/t2"
WIDE: dict[str, Any] = {"name": "wide", "vertices": {"q": {"sql": "SELECT 1"}, "a": {"sql": "SELECT 2"}}}
GANG = {**TWO, "together": True}
OUT = {"outputs": {"a": {"schema": "{}", "rows": 1, "bytes": 9}}}


def block(shard: Shard, *names: str, evacuate: bool = False) -> list[Output]:
    hosts = [BlockedTaskManagers(host="h", reason="a disk fails", evacuate=evacuate, task_managers=list(names))] if names else []
    return shard(TaskManagersBlocked(hosts=hosts), RM)


def running(graph: Any, *allocations: str) -> Shard:
    shard = Shard()
    shard.start(graph)
    shard.offer(*allocations)
    for each in allocations:
        shard.told(each, "RUNNING")
    return shard


def test_what_runs_on_a_blocked_host_goes_on_and_its_slot_is_given_back_when_it_is_over() -> None:
    shard = running(TWO, "a1")
    assert block(shard, "t1") == []
    assert kinds(shard.told("a1", "FINISHED", report=OUT)) == [
        "event AttemptStateChanged FINISHED", "task-manager FreeSlots", "resource-manager RequestSlots 2",
    ]  # fmt: skip
    assert [row.state for row in shard.job.tasks["b"].rows.values()] == [ExecutionState.SCHEDULED] * 2
    assert kinds(shard.offer("b1", tm=TM2))[0] == "task-manager DeployTasks"


def test_a_slot_that_was_granted_before_is_given_back_as_it_is_offered() -> None:
    shard = Shard()
    shard.start()
    block(shard, "t1")
    assert shard.offer("a1") == [Say(TM, slots.FreeSlots(allocations=["a1"]))], "the job wants as many as before"
    block(shard)
    assert kinds(shard.offer("a2"))[0] == "task-manager DeployTasks"


def test_an_evacuated_attempt_is_canceled_and_runs_elsewhere_and_nothing_is_spent() -> None:
    shard = running(WIDE, "a1")
    shard.offer("a2", tm=TM2)
    said = block(shard, "t1", evacuate=True)
    assert said == [Say(TM, slots.CancelTasks(attempts=["j/0-q/0/1.1"], reason="host h is evacuated: a disk fails"))]
    assert block(shard, "t1", "t3", evacuate=True) == [], "it is canceled once"
    assert kinds(shard.told("a1", "CANCELED")) == ["event AttemptStateChanged CANCELED", "task-manager FreeSlots"]
    row = shard.job.tasks["q"].rows[0]
    assert (row.state, row.moves, row.broken, shard.job.restarts, shard.job.failed) == (ExecutionState.SCHEDULED, 0, 0, 0, 0)
    assert kinds(shard.offer("a3", tm=TM2))[0] == "task-manager DeployTasks" and row.attempt == 2
    assert shard.job.status is JobStatus.RUNNING


def test_what_ends_before_it_is_canceled_counts_as_canceled_and_runs_again() -> None:
    shard = running(WIDE, "a1")
    block(shard, "t1", evacuate=True)
    assert kinds(shard.told("a1", "FINISHED", report=REPORT))[0] == "event AttemptStateChanged CANCELED"
    assert shard.job.tasks["q"].rows[0].state is ExecutionState.SCHEDULED


def test_a_plan_attempt_is_moved_too() -> None:
    shard = running(PLANNED, "a1")
    assert kinds(block(shard, "t1", evacuate=True)) == ["task-manager CancelTasks"]
    shard.told("a1", "CANCELED")
    assert kinds(shard.offer("a2", tm=TM2))[0] == "task-manager DeployTasks"


def test_a_job_that_is_ending_or_suspended_is_left_alone() -> None:
    for ask in (jobs.CancelStartedJob(job="j"), jobs.SuspendJobs()):
        shard = running(TWO, "a1")
        shard(ask)
        assert block(shard, "t1", evacuate=True) == []


def gang() -> Shard:
    """Both subtasks of b run, one on each TaskManager."""
    shard = running(GANG, "a1")
    shard.told("a1", "FINISHED", report=OUT)
    shard.offer("b1")
    shard.offer("b2", tm=TM2)
    return shard


def test_of_a_gang_all_that_runs_begins_again_together() -> None:
    shard = gang()
    assert kinds(block(shard, "t1", evacuate=True)) == ["task-manager CancelTasks", "task-manager CancelTasks"]
    assert kinds(shard.told("b1", "CANCELED")) == [
        "event AttemptStateChanged CANCELED", "task-manager FreeSlots", "resource-manager RequestSlots 1",
    ]  # fmt: skip
    attempt = f"j/1-b/{shard.job.slots['b2'].subtask}/1.1"
    said = shard(slots.TaskStateChanged(allocation="b2", attempt=attempt, state="CANCELED"), TM2)
    assert kinds(said) == ["event AttemptStateChanged CANCELED", "task-manager FreeSlots", "resource-manager RequestSlots 2"]
    assert said[-1].body.given_back == ["b2"]


def test_a_gang_goes_on_with_its_slots_on_a_host_that_is_only_blocked() -> None:
    shard = running(GANG, "a1")
    block(shard, "t1")
    shard.told("a1", "FINISHED", report=OUT)
    assert kinds(shard.offer("b1"))[0] == "task-manager DeployTasks", "it was granted before, with those that run"


def test_a_gang_that_cannot_have_a_slot_it_was_granted_begins_again_together() -> None:
    shard = running(GANG, "a1")
    shard.told("a1", "FINISHED", report=OUT)
    shard.offer("b1", tm=TM2)
    block(shard, "t1", evacuate=True)
    said = shard.offer("b2")
    assert kinds(said) == ["task-manager CancelTasks", "task-manager FreeSlots", "resource-manager RequestSlots 1"]


def test_a_new_life_of_the_resource_manager_says_it_anew() -> None:
    shard = running(TWO, "a1")
    block(shard, "t1")
    shard(PeerBorn(RM, 2), RM, 2)
    assert shard.state.blocked == {}
