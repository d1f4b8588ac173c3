"""Subtasks that run again though they had finished or still ran: rows of the exchange that are gone, and full restarts."""

from __future__ import annotations

from typing import Any

from millrace.core.machine import Say, Ticked
from millrace.core.messages import jobs, slots
from millrace.core.messages.attempts import Fault
from millrace.core.states import JobStatus
from services.job_master.core.execution_graph import describe
from services.job_master.core.plans import running_plan
from services.job_master.core.resetting import lost_producers, readers_of, reset
from services.job_master.core.scheduling import PART_MS
from tests.core.of_job_master import RM, TM, TWO, USER, Shard, kinds
from tests.core.test_job_master_restarts import FOUR, fail

CHAIN: dict[str, Any] = {
    "name": "chain",
    "vertices": {
        "a": {"sql": "SELECT 1 AS x"},
        "b": {"sql": "SELECT x FROM a", "parallelism": 2, "inputs": {"a": "hash(x)"}},
        "c": {"sql": "SELECT x FROM b", "inputs": {"b": "broadcast"}},
    },
}
FOLDERS = {"a": "0-a", "b": "1-b", "c": "2-c"}


def lost(*places: str) -> dict[str, Any]:
    folders = "\n".join(f"/x/acc-j/1/{place}" for place in places)
    return {"kind": "infrastructure", "retryable": False, "condition": "EXCHANGE_LOST", "message": "gone", "lost": folders}


def word(shard: Shard, allocation: str, state: str, **more: Any) -> list[Any]:
    held = shard.job.slots[allocation]
    row = shard.job.tasks[held.task].rows[held.subtask]
    if state == "FINISHED":
        more = {"report": {"outputs": {held.task: {"schema": "{}", "rows": 1, "bytes": 9}}}}
    attempt = f"j/{FOLDERS[held.task]}/{held.subtask}/1.{row.attempt}"
    return shard(slots.TaskStateChanged(allocation=allocation, attempt=attempt, state=state, **more), TM)


def states(shard: Shard) -> dict[str, list[str]]:
    return {
        name: [f"{row.state.value} {row.attempt}" for _, row in sorted(task.rows.items())] for name, task in shard.job.tasks.items()
    }


def begun(graph: dict[str, Any] = TWO, **more: Any) -> Shard:
    """a has finished, and both subtasks of b are deployed, in a1 and a2."""
    shard = Shard()
    shard.start({**graph, **more})
    shard.offer("a1")
    word(shard, "a1", "FINISHED")
    shard.offer("a2")
    return shard


def specs(said: list[Any]) -> list[Any]:
    sent = [each.body for each in said if isinstance(each, Say) and isinstance(each.body, slots.DeployTasks)]
    return [task.spec.json_value() for body in sent for task in body.tasks]


def test_rows_that_are_gone_are_made_anew_and_all_that_read_of_them_runs_again() -> None:
    shard = begun()
    said = word(shard, "a1", "FAILED", error=lost("0-a/0/1/0-a"))
    assert kinds(said) == [
        "event AttemptStateChanged FAILED",
        "task-manager DeployTasks",
        "event AttemptStateChanged DEPLOYING",
        "task-manager CancelTasks",
    ]
    assert said[-1].body.attempts == ["j/1-b/1/1.1"] and specs(said)[0]["attempt"] == 2
    assert states(shard) == {"a": ["DEPLOYING 2"], "b": ["CREATED 1", "CANCELING 1"]}
    decided = shard.job.failures[0].error.decided.json_value()
    assert decided == {"number": 1, "then": "restart", "why": "lost exchange data: made anew, time 1 of 20", "delay_ms": 0}
    assert kinds(word(shard, "a2", "CANCELED")) == [
        "event AttemptStateChanged CANCELED", "task-manager FreeSlots", "resource-manager RequestSlots 1",
    ]  # fmt: skip
    said = word(shard, "a1", "FINISHED")
    assert [each["vertices"][0]["inputs"]["a"]["folders"] for each in specs(said)] == [["/x/acc-j/1/0-a/0/2/0-a"]]
    shard.offer("a3")
    assert states(shard) == {"a": ["FINISHED 2"], "b": ["DEPLOYING 2", "DEPLOYING 2"]}
    word(shard, "a1", "FINISHED")
    assert kinds(word(shard, "a3", "FINISHED"))[-1] == "dispatcher JobEnded FINISHED"
    assert (shard.job.restarts, shard.job.recomputed) == (0, 1), "it spends nothing of the strategy"


def test_what_has_finished_after_reading_of_them_runs_again_too() -> None:
    shard = begun(CHAIN)
    word(shard, "a1", "FINISHED")
    word(shard, "a2", "FINISHED")
    assert states(shard) == {"a": ["FINISHED 1"], "b": ["FINISHED 1", "FINISHED 1"], "c": ["DEPLOYING 1"]}
    [allocation] = shard.job.slots
    word(shard, allocation, "FAILED", error=lost("1-b/1/1/0-b"))
    assert states(shard) == {"a": ["FINISHED 1"], "b": ["FINISHED 1", "DEPLOYING 2"], "c": ["CREATED 1"]}
    shard.job.recomputed = 0  # without the delay of a second time
    said = word(shard, allocation, "FAILED", error=lost("0-a/0/1/0-a"))
    assert states(shard) == {"a": ["DEPLOYING 2"], "b": ["CREATED 1", "CREATED 2"], "c": ["CREATED 1"]}
    assert specs(said)[0]["task"] == "a"
    word(shard, allocation, "FINISHED")
    shard.offer("b2")
    assert states(shard) == {"a": ["FINISHED 2"], "b": ["DEPLOYING 2", "DEPLOYING 3"], "c": ["CREATED 1"]}
    word(shard, "b2", "FINISHED")
    said = word(shard, allocation, "FINISHED")
    folders = specs(said)[0]["vertices"][0]["inputs"]["b"]["folders"]
    assert [each.split("/")[-3:-1] for each in folders] == [["0", "2"], ["1", "3"]]
    assert kinds(word(shard, allocation, "FINISHED"))[-1] == "dispatcher JobEnded FINISHED"


def test_who_misses_rows_that_are_made_anew_already_waits_for_them() -> None:
    shard = begun()
    plan = running_plan(shard.state, shard.job)
    shard.job.tasks["a"].rows[0].attempt = 2  # it has run again since
    assert lost_producers(shard.job, plan, "b", 0, Fault.model_validate(lost("0-a/0/1/0-a"))) == []
    assert lost_producers(shard.job, plan, "b", 0, Fault.model_validate(lost("0-a/0/2/0-a"))) == [("a", 0)]
    assert lost_producers(shard.job, plan, "b", 0, Fault.model_validate(lost("9-z/0/2/0-a"))) is None, "it reads no such rows"
    assert lost_producers(shard.job, plan, "b", 0, Fault.model_validate({**lost(), "lost": None})) is None
    assert readers_of(shard.job, plan, [("a", 0)]) == [("a", 0), ("b", 0), ("b", 1)]


def test_rows_that_are_lost_again_and_again_fail_the_job() -> None:
    shard = begun()
    shard.job.recomputed = 20
    said = word(shard, "a1", "FAILED", error=lost("0-a/0/1/0-a"))
    assert kinds(said)[1:2] == ["task-manager CancelTasks"] and shard.job.status is JobStatus.FAILING
    assert shard.job.cause.decided.why == "lost exchange data: made anew 20 of 20 times"


def test_the_second_time_waits_and_the_job_is_restarting_meanwhile() -> None:
    shard = begun()
    shard.job.recomputed = 1
    said = word(shard, "a1", "FAILED", error=lost("0-a/0/1/0-a"))
    assert shard.job.status is JobStatus.RESTARTING and not specs(said)
    word(shard, "a2", "CANCELED")
    assert states(shard) == {"a": ["CREATED 1"], "b": ["CREATED 1", "CREATED 1"]}
    shard.now += 300
    assert kinds(shard(Ticked(), ""))[0] == "resource-manager RequestSlots 1"
    assert shard.job.status is JobStatus.RUNNING


def test_a_cancel_while_subtasks_wait_to_run_again() -> None:
    shard = begun()
    shard.job.recomputed = 1
    word(shard, "a1", "FAILED", error=lost("0-a/0/1/0-a"))
    assert kinds(shard(jobs.CancelStartedJob(job="j"))) == [
        "dispatcher JobStatusChanged CANCELLING", "event JobStateChanged CANCELLING",
    ], "its one living attempt is canceled already"  # fmt: skip
    assert kinds(word(shard, "a2", "CANCELED"))[-1] == "dispatcher JobEnded CANCELED"


def test_a_full_restart_runs_all_subtasks_again_after_one_failure() -> None:
    shard = Shard()
    shard.start({**FOUR, "restart": {"scope": "full", "delay_ms": 100}})
    shard.offer("a0", "a1", "a2", "a3")
    shard.told("a3", "FINISHED", attempt="j/3-d/0/1.1", report={"outputs": {"d": {"schema": "{}"}}})
    assert fail(shard, 0) == [
        "event AttemptStateChanged FAILED",
        "task-manager CancelTasks",
        "task-manager FreeSlots",
        "resource-manager RequestSlots 2",
        "dispatcher JobStatusChanged RESTARTING",
        "event JobStateChanged RESTARTING",
    ]
    for number, task in ((1, "b"), (2, "c")):
        attempt = f"j/{number}-{task}/0/1.1"
        shard(slots.TaskStateChanged(allocation=f"a{number}", attempt=attempt, state="CANCELED"), TM)
    assert states(shard) == {task: ["CREATED 1"] for task in "abcd"} and shard.job.wanted == 0
    shard.now += 300
    assert kinds(shard(Ticked(), ""))[0] == "resource-manager RequestSlots 4"
    shard.offer("b0", "b1", "b2", "b3")
    assert states(shard) == {task: ["DEPLOYING 2"] for task in "abcd"}
    assert describe(None, shard.job).json_value()["restarts"] == 1


def test_a_lost_task_manager_restarts_all_of_a_job_whose_restarts_are_full() -> None:
    shard = Shard()
    shard.start({**FOUR, "restart": {"scope": "full"}})
    shard.offer("a0", "a1")
    shard.offer("a2", "a3", tm="task-manager/t2")
    said = shard(jobs.TaskManagerLost(task_manager="t1", incarnation=1, reason="silent"), RM)
    assert [each.to for each in said if isinstance(each, Say) and isinstance(each.body, slots.CancelTasks)] == ["task-manager/t2"]
    assert states(shard) == {"a": ["SCHEDULED 1"], "b": ["SCHEDULED 1"], "c": ["CANCELING 1"], "d": ["CANCELING 1"]}
    assert USER and (shard.job.restarts, len(shard.job.failures)) == (0, 1)


def test_the_columns_of_a_withdrawn_attempt_count_no_more() -> None:
    """A pivot of rows that are made anew may have others."""
    shard = begun()
    before = shard.job.kept_bytes
    word(shard, "a1", "FAILED", error=lost("0-a/0/1/0-a"))
    assert (shard.job.tasks["a"].schemas, shard.job.kept_bytes < before) == ({}, True)
    attempt = f"j/0-a/0/1.{shard.job.tasks['a'].rows[0].attempt}"
    report = {"outputs": {"a": {"schema": "{other}", "rows": 1, "bytes": 9}}}
    shard(slots.TaskStateChanged(allocation="a1", attempt=attempt, state="FINISHED", report=report), TM)
    assert (shard.job.status, shard.job.tasks["a"].schemas) == (JobStatus.RUNNING, {"a": "{other}"})


def test_a_retry_that_waits_is_not_shortened_by_what_is_made_anew() -> None:
    shard = begun(restart={"delay_ms": 60_000})
    word(shard, "a2", "FAILED", error=USER)
    word(shard, "a1", "FAILED", error=lost("0-a/0/1/0-a"))
    assert shard.job.status is JobStatus.RESTARTING
    shard.now += 59_000
    shard(Ticked(), "")
    assert states(shard)["a"] == ["CREATED 1"]
    shard.now += 2_000
    shard(Ticked(), "")
    assert states(shard)["a"] == ["SCHEDULED 1"]


def test_two_delays_at_once_last_as_long_as_the_longer_one() -> None:
    shard = begun()
    for recomputed in (3, 3):
        places = [("b", 0), ("b", 1)]
        reset(shard.state, shard.job, places, 1_000 * recomputed, shard.job.accepted_ms)
    assert shard.job.held_until_ms == shard.state.now_ms + 3_000


def test_a_failure_long_after_rows_were_lost_stands_for_itself() -> None:
    shard = begun()
    word(shard, "a1", "FAILED", error=lost("0-a/0/1/0-a"))
    word(shard, "a2", "CANCELED")
    word(shard, "a1", "FAILED", error=USER)
    assert [each.error.decided.concurrent_with for each in shard.job.failures] == [None, None]


def test_the_next_attempt_has_nothing_of_a_canceled_one() -> None:
    shard = begun()
    word(shard, "a1", "FAILED", error=lost("0-a/0/1/0-a"))
    word(shard, "a2", "CANCELED")
    assert shard.job.tasks["b"].rows[1].canceling_ms
    word(shard, "a1", "FINISHED")
    shard.offer("a3")
    assert states(shard)["b"] == ["DEPLOYING 2", "DEPLOYING 2"]
    assert not any(row.canceling_ms or row.files for row in shard.job.tasks["b"].rows.values())


def test_readers_are_given_whose_folders_have_a_note_of_their_files() -> None:
    """A producer of a build before made none: its folders are read as they are."""
    for listed in (True, False):
        shard = Shard()
        shard.start(TWO)
        shard.offer("a1")
        report = {"outputs": {"a": {"schema": "{}", "rows": 1, "bytes": 9, **({"listed": True} if listed else {})}}}
        shard(slots.TaskStateChanged(allocation="a1", attempt="j/0-a/0/1.1", state="FINISHED", report=report), TM)
        [spec] = specs(shard.offer("a2"))
        assert spec["vertices"][0]["inputs"]["a"].get("listed", False) is listed


GANG: dict[str, Any] = {
    "name": "gang", "together": True, "restart": {"delay_ms": 0},
    "vertices": {
        "a": {"sql": "SELECT 1 AS x"},
        "b": {"sql": "SELECT x FROM a", "parallelism": 3, "inputs": {"a": "hash(x)"}},
    },
}  # fmt: skip


def gang() -> Shard:
    """a has finished; the three subtasks of b run in b1 and b2 of t1, and b3 of t2."""
    shard = Shard()
    shard.start(GANG)
    shard.offer("a1")
    said = kinds(word(shard, "a1", "FINISHED"))
    assert said[-2:] == ["task-manager FreeSlots", "resource-manager RequestSlots 3"], "it keeps no part of what it wants at once"
    shard.offer("b1")
    shard.offer("b2")
    shard.offer("b3", tm="task-manager/t2")
    assert states(shard)["b"] == ["DEPLOYING 1"] * 3
    return shard


def test_a_gang_that_loses_a_slot_gives_the_others_back_and_waits_for_all_at_once() -> None:
    shard = gang()
    said = shard(jobs.TaskManagerLost(task_manager="t2", incarnation=1, reason="silent"), RM)
    assert "task-manager CancelTasks" in kinds(said) and states(shard)["b"] == ["CANCELING 1", "CANCELING 1", "CREATED 1"]
    first = kinds(word(shard, "b1", "CANCELED"))
    assert "task-manager DeployTasks" not in first and states(shard)["b"] == ["CREATED 1", "CANCELING 1", "CREATED 1"]
    last = kinds(word(shard, "b2", "CANCELED"))
    assert last[-2:] == ["task-manager FreeSlots", "resource-manager RequestSlots 3"] and "task-manager DeployTasks" not in last
    assert not shard.job.slots and states(shard) == {"a": ["FINISHED 1"], "b": ["SCHEDULED 1"] * 3}
    shard.offer("c1", "c2", "c3")
    assert states(shard)["b"] == ["DEPLOYING 2"] * 3


def test_a_gang_of_which_one_fails_runs_again_as_a_whole_with_those_that_had_finished() -> None:
    shard = gang()
    word(shard, "b1", "FINISHED")
    word(shard, "b2", "FAILED", error=USER)
    assert states(shard)["b"] == ["CREATED 1", "CREATED 1", "CANCELING 1"]
    assert shard.job.tasks["b"].finished == 0 and shard.job.restarts == 1
    word(shard, "b3", "CANCELED")
    assert shard.job.wanted == 3 and states(shard) == {"a": ["FINISHED 1"], "b": ["SCHEDULED 1"] * 3}


def test_a_gang_that_is_canceled_while_it_begins_again_ends() -> None:
    shard = gang()
    word(shard, "b2", "FAILED", error=USER)
    shard(jobs.CancelStartedJob(job="j"))
    word(shard, "b1", "CANCELED")
    assert kinds(word(shard, "b3", "CANCELED"))[-1] == "dispatcher JobEnded CANCELED"


def half() -> Shard:
    """Two of the three slots that were granted together have been offered, by one TaskManager; the other one's is lost."""
    shard = Shard()
    shard.start(GANG)
    shard.offer("a1")
    word(shard, "a1", "FINISHED")
    shard.offer("b1", "b2")
    assert states(shard)["b"] == ["DEPLOYING 1", "DEPLOYING 1", "SCHEDULED 0"] and shard.state.due == {"j": shard.now + PART_MS}
    return shard


def later(shard: Shard, ms: int) -> list[Any]:
    shard.now += ms
    return shard(Ticked(), "")


def test_a_gang_whose_last_slots_never_come_gives_back_what_it_has_and_wants_all_at_once() -> None:
    """A slot was lost before it was offered. The gang waited for another one, beside a gang that held the other half and did the same."""
    shard = half()
    assert later(shard, PART_MS - 1) == []
    assert kinds(later(shard, 1)) == ["task-manager CancelTasks", "resource-manager RequestSlots 2"]
    word(shard, "b1", "CANCELED")
    last = word(shard, "b2", "CANCELED")
    assert kinds(last)[-2:] == ["task-manager FreeSlots", "resource-manager RequestSlots 3"]
    assert [each.body.given_back for each in last if each.body.type == "RequestSlots"] == [["b2"]]
    assert not shard.job.slots and states(shard)["b"] == ["SCHEDULED 1", "SCHEDULED 1", "SCHEDULED 0"]
    assert (shard.job.part_due_ms, shard.state.due, shard.job.failed, shard.job.restarts) == (None, {}, 0, 0)
    shard.offer("c1", "c2", "c3")
    assert states(shard)["b"] == ["DEPLOYING 2", "DEPLOYING 2", "DEPLOYING 1"]


def test_a_gang_that_gets_the_others_in_time_goes_on() -> None:
    shard = half()
    later(shard, PART_MS - 1)
    shard.offer("b3", tm="task-manager/t2")
    assert (shard.job.part_due_ms, shard.state.due) == (None, {})
    assert later(shard, PART_MS) == [] and states(shard)["b"] == ["DEPLOYING 1"] * 3


def test_a_gang_that_is_suspended_or_canceled_with_a_part_of_its_slots_has_no_timer() -> None:
    for body in (jobs.SuspendJobs(), jobs.CancelStartedJob(job="j")):
        shard = half()
        shard(body)
        assert shard.state.due == {} and kinds(later(shard, PART_MS)) == []


BESIDE: dict[str, Any] = {
    "name": "beside", "together": True,
    "vertices": {
        "a": {"sql": "SELECT 1 AS x"},
        "b": {"sql": "SELECT 2 AS x", "parallelism": 1},
        "c": {"sql": "SELECT x FROM a", "parallelism": 3, "inputs": {"a": "hash(x)"}},
    },
}  # fmt: skip


def test_a_slot_that_an_attempt_leaves_is_no_beginning_for_those_that_wait_for_more() -> None:
    """All three of c wait to begin at once. The slot of b would have run one of them."""
    shard = Shard()
    shard.start(BESIDE)
    shard.offer("a1", "b1")
    of = lambda name: {"report": {"outputs": {name: {"schema": "{}", "rows": 1, "bytes": 9}}}}  # noqa: E731
    shard(slots.TaskStateChanged(allocation="a1", attempt="j/0-a/0/1.1", state="FINISHED", **of("a")), TM)
    assert (shard.job.wanted, states(shard)["c"]) == (4, ["SCHEDULED 0"] * 3)
    said = shard(slots.TaskStateChanged(allocation="b1", attempt="j/1-b/0/1.1", state="FINISHED", **of("b")), TM)
    assert kinds(said)[-2:] == ["task-manager FreeSlots", "resource-manager RequestSlots 3"] and not shard.job.slots
