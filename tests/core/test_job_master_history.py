"""The failure history of a job: each failure with its number, what was decided on it, and what it came with."""

from __future__ import annotations

from typing import Any

from millrace.core.faults import decision_text
from millrace.core.machine import Publish, Ticked
from millrace.core.messages import jobs, slots
from millrace.core.messages.attempts import Decided
from millrace.core.messages.events import AttemptStateChanged
from millrace.core.messages.execution import JobDetail
from services.job_master.core import failover
from services.job_master.core.execution_graph import describe
from tests.core.of_job_master import ONE, RM, TM, USER, Shard, undeclared
from tests.core.test_job_master_restarts import begin_four, fail


def history(shard: Shard) -> list[tuple[str, Any]]:
    return [(each.task, each.error.decided.json_value()) for each in shard.job.failures]


def test_each_failure_has_what_was_decided_on_it_in_its_event_and_in_the_detail() -> None:
    shard = Shard()
    shard.start({**ONE, "restart": {"attempts": 1, "delay_ms": 50}})
    shard.offer("a1")
    event = shard.told("a1", "FAILED", error={**USER, "decided": {"number": 7, "then": "move"}, "detail": "stack"})[0]
    decided = {"number": 1, "then": "restart", "why": "fixed-delay: restart 1 of 1", "delay_ms": 50}
    assert isinstance(event, Publish) and event.body.error.json_value() == {**USER, "decided": decided}
    found = describe(None, shard.job)
    assert not [*undeclared(found)]
    detail = found.json_value()
    [failure] = detail["tasks"][0]["subtasks"][0]["failures"]
    assert failure == {"attempt": 1, "at_ms": 1000, "task_manager": "t1", "error": {**USER, "decided": decided}}
    assert (detail["failed"], detail["restarts"]) == (1, 1)


def test_what_fails_while_a_restart_waits_is_concurrent_with_what_caused_it() -> None:
    shard = begin_four({"attempts": 3, "delay_ms": 100})
    fail(shard, 0)
    fail(shard, 1)
    shard.now += 100
    shard(Ticked(), "")
    fail(shard, 2)
    assert history(shard) == [
        ("a", {"number": 1, "then": "restart", "why": "fixed-delay: restart 1 of 3", "delay_ms": 100}),
        ("b", {"number": 2, "then": "restart", "why": "fixed-delay: restart 2 of 3", "delay_ms": 100, "concurrent_with": 1}),
        ("c", {"number": 3, "then": "restart", "why": "fixed-delay: restart 3 of 3", "delay_ms": 100}),
    ]


def test_the_attempts_of_one_lost_task_manager_are_one_entry() -> None:
    shard = begin_four({})
    shard(jobs.TaskManagerLost(task_manager="t1", incarnation=1, reason="no heartbeat for 600 ms"), RM)
    move = {"then": "move", "why": "lost executor: move 1 of 20", "delay_ms": 0}
    assert history(shard) == [
        (task, {"number": n, **move, **({"concurrent_with": 1} if n > 1 else {})}) for n, task in enumerate("abcd", 1)
    ]


def test_the_failure_that_fails_the_job_stands_for_itself_and_what_is_lost_with_it_comes_below() -> None:
    shard = begin_four({"attempts": 1, "delay_ms": 100})
    fail(shard, 0)
    fail(shard, 1)
    assert history(shard)[1] == ("b", {"number": 2, "then": "fail", "why": "fixed-delay: 1 of 1 restarts used"})
    assert shard.job.cause.decided.number == 2
    shard = begin_four({})
    shard.job.tasks["a"].rows[0].moves = 20
    shard(jobs.TaskManagerLost(task_manager="t1", incarnation=1, reason="silent"), RM)
    assert history(shard)[:2] == [
        ("a", {"number": 1, "then": "fail", "why": "lost executor: 20 of 20 moves used"}),
        ("b", {"number": 2, "then": "fail", "why": "the job is ending already", "concurrent_with": 1}),
    ]


def test_an_attempt_that_fails_after_a_cancel_is_canceled_and_no_failure() -> None:
    shard = begin_four({})
    shard(jobs.CancelStartedJob(job="j"))
    fail(shard, 0)
    assert history(shard) == [] and shard.job.failed == 0


def test_the_history_is_truncated_and_says_by_how_much() -> None:
    shard = Shard()
    shard.start({**ONE, "restart": {"attempts": 1000, "delay_ms": 0}})
    shard.offer("a1")
    for _ in range(10):
        shard.told("a1", "FAILED", error=USER)
    assert [each["number"] for _, each in history(shard)] == [8, 9, 10]
    detail = describe(None, shard.job).json_value()
    assert detail["failed"] - len(detail["tasks"][0]["subtasks"][0]["failures"]) == 10 - failover.KEPT_FAILURES


def test_a_job_without_failures_says_nothing_of_any() -> None:
    shard = Shard()
    shard.start()
    assert "failed" not in describe(None, shard.job).json_value()


def test_a_slot_that_breaks_is_infrastructure_or_lost_as_its_fault_says() -> None:
    shard = Shard()
    shard.start()
    shard.offer("a1")
    shard(slots.FailSlot(allocation="a1", job="j", reason="the slot broke"), TM)
    assert history(shard)[0][1]["why"] == "lost executor: move 1 of 20"


def test_a_decision_in_words() -> None:
    assert decision_text(None) == ""
    assert decision_text(Decided(number=1, then="restart", delay_ms=50, why="x")) == "restarted after 50 ms (x)"
    assert decision_text(Decided(number=1, then="move", delay_ms=0, why="x")) == "moved at once (x)"
    assert decision_text(Decided(number=1, then="fail", why="x")) == "the job failed (x)"
    assert decision_text(Decided(number=1, then="of a build to come")) == "of a build to come"


def test_each_state_that_a_job_and_a_subtask_came_into_has_its_time() -> None:
    shard = Shard()
    shard.start({**ONE, "restart": {"delay_ms": 50}})
    for at_ms, step in (
        (1_010, lambda: shard.offer("a1")),
        (1_020, lambda: shard.told("a1", "RUNNING")),
        (1_030, lambda: shard.told("a1", "FAILED", error=USER)),
        (1_150, lambda: shard(Ticked(), "")),
        (1_160, lambda: shard.offer("a2")),
        (1_170, lambda: shard.told("a2", "RUNNING")),
        (1_180, lambda: shard(jobs.CancelStartedJob(job="j"))),
        (1_190, lambda: shard.told("a2", "CANCELED")),
    ):
        shard.now = at_ms
        step()
    detail = describe(None, shard.job).json_value()
    assert detail["entered"] == {
        "CREATED": 1_000, "RUNNING": 1_150, "RESTARTING": 1_030, "CANCELLING": 1_180, "CANCELED": 1_190,
    }  # fmt: skip
    [subtask] = detail["tasks"][0]["subtasks"]
    times = {name: value for name, value in subtask.items() if name.endswith("_ms")}
    assert times == {
        "created_ms": 1_030, "scheduled_ms": 1_150, "deployed_ms": 1_160, "running_ms": 1_170, "canceling_ms": 1_180, "ended_ms": 1_190,
    }  # fmt: skip
    assert JobDetail.model_validate(detail).json_value() == detail


def test_a_subtask_that_never_ran_was_canceled_when_its_job_began_to_end() -> None:
    shard = Shard()
    shard.start()
    shard.now = 1_500
    shard(jobs.CancelStartedJob(job="j"))
    row = shard.job.tasks["q"].rows[0]
    assert (row.scheduled_ms, row.deployed_ms, row.ended_ms) == (1_000, 0, 1_500)


def test_an_attempts_first_event_has_the_times_of_the_states_before() -> None:
    shard = Shard()
    shard.start({**ONE, "restart": {"delay_ms": 50}})
    told = []
    for at_ms, step in (
        (1_010, lambda: shard.offer("a1")),
        (1_020, lambda: shard.told("a1", "RUNNING")),
        (1_030, lambda: shard.told("a1", "FAILED", error=USER)),
        (1_150, lambda: shard(Ticked(), "")),
        (1_160, lambda: shard.offer("a2")),
    ):
        shard.now = at_ms
        events = [each.body for each in step() if isinstance(each, Publish) and isinstance(each.body, AttemptStateChanged)]
        told += [(each.attempt, each.state, each.created_ms, each.scheduled_ms) for each in events]
    assert told == [
        (1, "DEPLOYING", 1_000, 1_000), (1, "RUNNING", None, None), (1, "FAILED", None, None), (2, "DEPLOYING", 1_030, 1_150),
    ]  # fmt: skip
