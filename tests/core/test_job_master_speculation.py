"""Second attempts of slow subtasks [R38]: when, where, which of the two counts, and what the other one costs."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from millrace.core.jobgraph.model import Speculation
from millrace.core.machine import Do, Publish, Say, Ticked
from millrace.core.messages import blocklist, jobs, slots
from millrace.core.messages.events import AttemptStateChanged
from millrace.core.messages.execution import JobDetail
from millrace.core.states import JobStatus
from services.job_master.core import speculation
from services.job_master.core.execution_graph import describe
from services.job_master.core.plans import plan_of
from services.job_master.core.publication import publish_sinks
from services.job_master.core.state import Settings, State, Task, check
from tests.core.of_job_master import RM, TM, USER, Shard, kinds, undeclared
from tests.core.test_job_master_rescaling import ask, deployed, word

OTHER = "task-manager/t2"
RULE = {"baseline_ratio": 0.5, "baseline_multiplier": 2, "baseline_lower_bound_ms": 1000}
SLOW: dict[str, Any] = {
    "name": "slow",
    "speculative": RULE,
    "restart": {"strategy": "none"},
    "vertices": {
        "a": {"sql": "SELECT 1 AS x"},
        "b": {"sql": "SELECT x FROM a", "parallelism": 4, "inputs": {"a": "hash(x)"}},
    },
}
MADE = {"outputs": {"a": {"schema": "{}", "rows": 1, "bytes": 9}}}
DONE = {"outputs": {"b": {"schema": "{}", "rows": 1, "bytes": 9}}}
SNAPSHOT: TypeAdapter[State] = TypeAdapter(State)


def at(shard: Shard, ms: int) -> list[Any]:
    """A tick at this moment."""
    shard.now = ms
    return shard(Ticked(), "")


def begun(graph: dict[str, Any] = SLOW) -> Shard:
    """`a` is done; of `b` all four run on one TaskManager since 2,000, and two have finished after 700 and 900 ms."""
    shard = Shard()
    shard.start(graph)
    shard.offer("b0")
    at(shard, 2_000)
    shard.told("b0", "FINISHED", report=MADE)
    shard.offer("b1", "b2", "b3")
    for each in range(4):
        shard.told(f"b{each}", "RUNNING")
    for each, ms in ((0, 2_700), (1, 2_900)):
        at(shard, ms)
        shard.told(f"b{each}", "FINISHED", report=DONE)
    return shard


def second() -> Shard:
    """The third subtask has a second attempt on the other TaskManager since 3,900; it runs."""
    shard = begun()
    at(shard, 3_500)
    shard.told("b3", "FINISHED", report=DONE)
    at(shard, 3_900)
    shard.offer("r2", tm=OTHER)
    shard.told("r2", "RUNNING", "j/1-b/2/1.2")
    return shard


def said(outputs: list[Any]) -> list[tuple[Any, ...]]:
    """The events of attempts, and what is said to TaskManagers and the ResourceManager."""
    found: list[tuple[Any, ...]] = []
    for each in outputs:
        if isinstance(each, Publish) and isinstance(each.body, AttemptStateChanged):
            found.append((each.body.subtask, each.body.attempt, each.body.state, each.body.beside))
        elif isinstance(each, Say) and isinstance(each.body, slots.CancelTasks):
            found.append(("cancel", each.to, each.body.attempts))
        elif isinstance(each, Say) and isinstance(each.body, slots.DeployTasks):
            found.append(("deploy", each.to, [task.attempt for task in each.body.tasks]))
        elif isinstance(each, Say) and isinstance(each.body, slots.FreeSlots):
            found.append(("free", each.to, each.body.allocations))
        elif isinstance(each, Say) and isinstance(each.body, jobs.RequestSlots):
            found.append(("request", each.body.slots, each.body.spare))
    return found


def row(shard: Shard, index: int = 2) -> Any:
    return shard.job.tasks["b"].rows[index]


@pytest.mark.parametrize(
    ("rule", "parallelism", "took", "slow_ms"),
    [
        ({}, 4, {0: 90_000, 1: 50_000}, None),  # half is less than 0.75
        ({}, 4, {0: 90_000, 1: 50_000, 2: 60_000}, 90_000),  # 1.5 times their median
        ({}, 4, {0: 9_000, 1: 5_000, 2: 6_000}, 60_000),  # the lower bound
        ({}, 4, {0: 90_000, 1: 50_000, 2: 60_000, 3: 55_000}, 82_500),  # of the fastest three
        (RULE, 4, {0: 700, 1: 900}, 1_800),
        (RULE, 3, {0: 700}, None),  # two are half of three, rounded up
        ({"baseline_ratio": 1, "baseline_lower_bound_ms": 0}, 2, {0: 10, 1: 30}, 45),
        (RULE, 1, {}, None),
    ],
)
def test_what_is_slow(rule: dict[str, Any], parallelism: int, took: dict[int, int], slow_ms: int | None) -> None:
    assert speculation.slow_after_ms(Speculation(**rule), parallelism, took) == slow_ms


def test_a_slow_subtask_wants_a_slot_elsewhere_at_its_time_and_not_before() -> None:
    shard = begun()
    assert (shard.job.seconds["b"].took, shard.job.slow_due_ms, shard.state.due) == ({0: 700, 1: 900}, 3_800, {"j": 3_800})
    assert said(at(shard, 3_799)) == []
    assert said(at(shard, 3_800)) == [("request", 2, ["t1", "t1"])]
    assert shard.state.due == {} and said(at(shard, 9_000)) == [], "asked once"


def test_without_the_option_nothing_is_slow() -> None:
    shard = begun({name: value for name, value in SLOW.items() if name != "speculative"})
    assert said(at(shard, 1_000_000)) == [] and (shard.job.seconds, shard.state.due) == ({}, {})


def test_a_second_attempt_runs_on_another_task_manager_alone() -> None:
    shard = begun()
    at(shard, 3_900)
    assert said(shard.offer("r0")) == [("free", TM, ["r0"])], "both run there"
    assert said(shard.offer("r2", tm=OTHER)) == [
        ("deploy", OTHER, ["j/1-b/2/1.2"]), (2, 2, "DEPLOYING", 1), ("request", 3, ["t1"]),
    ]  # fmt: skip
    assert said(shard.told("r2", "RUNNING", "j/1-b/2/1.2")) == [(2, 2, "RUNNING", 1)]
    assert (row(shard).attempt, row(shard).state.value, shard.job.status) == (1, "RUNNING", JobStatus.RUNNING)
    found = describe(plan_of(shard.state, shard.job), shard.job)
    detail = found.json_value()
    assert JobDetail.model_validate(detail).json_value() == detail and not [*undeclared(found)]
    subtask = detail["tasks"][1]["subtasks"][2]
    assert subtask["concurrent_attempts"] == [{
        "attempt": 2, "state": "RUNNING", "task_manager": "t2", "created_ms": 3_900, "scheduled_ms": 3_900, "deployed_ms": 3_900,
        "running_ms": 3_900,
    }]  # fmt: skip
    assert [each["attempt"] for each in subtask["logs"]] == [1, 2]


def test_waiting_first_attempts_go_first() -> None:
    shard = begun({**SLOW, "restart": {"delay_ms": 50}})
    at(shard, 3_900)
    shard.told("b3", "FAILED", error=USER)
    at(shard, 4_000)
    assert said(shard.offer("r0", tm=OTHER)) == [("deploy", OTHER, ["j/1-b/3/1.2"]), (3, 2, "DEPLOYING", None)]


def test_the_second_attempt_finishes_first_and_counts_and_the_first_is_canceled() -> None:
    shard = second()
    at(shard, 4_500)
    assert said(shard.told("r2", "FINISHED", "j/1-b/2/1.2", report=DONE)) == [
        (2, 2, "FINISHED", None), ("cancel", TM, ["j/1-b/2/1.1"]), ("free", OTHER, ["r2"]), ("request", 1, []),
    ]  # fmt: skip
    assert (row(shard).attempt, row(shard).state.value, shard.job.seconds["b"].took[2]) == (2, "FINISHED", 600)
    assert shard.job.status is JobStatus.RUNNING, "what has lost is in its slot"
    outputs = shard.told("b2", "CANCELED", "j/1-b/2/1.1")
    assert said(outputs) == [(2, 1, "CANCELED", 2), ("free", TM, ["b2"]), ("request", 0, [])]
    assert shard.job.status is JobStatus.FINISHED and (shard.job.failed, shard.job.restarts) == (0, 0)


def test_the_first_attempt_finishes_first_and_the_second_is_canceled() -> None:
    shard = second()
    assert said(shard.told("b2", "FINISHED", "j/1-b/2/1.1", report=DONE)) == [
        (2, 1, "FINISHED", None), ("cancel", OTHER, ["j/1-b/2/1.2"]), ("free", TM, ["b2"]), ("request", 1, []),
    ]  # fmt: skip
    assert said(shard.told("r2", "CANCELED", "j/1-b/2/1.2"))[0] == (2, 2, "CANCELED", 1)
    assert (row(shard).attempt, shard.job.status) == (1, JobStatus.FINISHED)


def test_what_finishes_though_it_was_canceled_is_not_published() -> None:
    shard = second()
    shard.told("r2", "FINISHED", "j/1-b/2/1.2", report=DONE)
    late = {"outputs": {"b": {"schema": "{}", "rows": 7, "bytes": 9}}}
    assert said(shard.told("b2", "FINISHED", "j/1-b/2/1.1", report=late))[0] == (2, 1, "CANCELED", 2)
    assert (row(shard).attempt, row(shard).outputs) == (2, {"b": (1, 9)})


def test_of_a_sink_the_folder_of_the_attempt_that_counts_is_moved_alone() -> None:
    graph = {
        "name": "sink", "speculative": RULE,
        "vertices": {
            "a": {"sql": "SELECT 1 AS x"},
            "b": {"sink": {"format": "parquet", "path": "/out"}, "parallelism": 2, "inputs": {"a": "hash(x)"}},
        },
    }  # fmt: skip
    shard = Shard()
    shard.start(graph)
    shard.offer("b0")
    shard.told("b0", "FINISHED", report=MADE)
    shard.offer("b1")
    shard.told("b0", "FINISHED", "j/1-b/0/1.1", report=DONE)
    at(shard, 9_000)
    shard.offer("r1", tm=OTHER)
    outputs = shard.told("r1", "FINISHED", "j/1-b/1/1.2", report=DONE)
    assert not any("PublishSink" in each for each in kinds(outputs)), "not before the other one has ended"
    [effect] = [each.effect for each in shard.told("b1", "CANCELED", "j/1-b/1/1.1") if isinstance(each, Do)]
    assert [each[-3:] for each in effect.staged] == ["0/1", "1/2"]
    assert list(publish_sinks(shard.job, plan_of(shard.state, shard.job))) == []


@pytest.mark.parametrize(("first", "left", "number"), [("b2", "r2", 2), ("r2", "b2", 1)])
def test_the_failure_of_one_is_none_of_the_subtask(first: str, left: str, number: int) -> None:
    """Whichever it is; the strategy is none, so that any other failure would fail the job."""
    shard = second()
    failed = 3 - number
    outputs = shard.told(first, "FAILED", f"j/1-b/2/1.{failed}", error=USER)
    freed = TM if first == "b2" else OTHER
    assert said(outputs) == [(2, failed, "FAILED", number), ("free", freed, [first]), ("request", 1, [])]
    decided = shard.job.failures[-1].error.decided
    assert (decided.then, decided.why) == ("none", f"attempt {number} of the subtask goes on")
    assert (row(shard).attempt, row(shard).state.value, shard.job.seconds["b"].rivals) == (number, "RUNNING", {})
    assert said(shard.told(left, "FINISHED", f"j/1-b/2/1.{number}", report=DONE))[0] == (2, number, "FINISHED", None)
    assert (shard.job.status, shard.job.restarts) == (JobStatus.FINISHED, 0)


def test_the_failure_of_the_last_one_is_the_subtasks() -> None:
    shard = second()
    shard.told("b2", "FAILED", "j/1-b/2/1.1", error=USER)
    shard.told("r2", "FAILED", "j/1-b/2/1.2", error=USER)
    assert shard.job.status is JobStatus.FAILED


def test_after_one_in_vain_the_next_comes_later_and_no_number_is_given_twice() -> None:
    shard = second()
    shard.told("r2", "FAILED", "j/1-b/2/1.2", error=USER)
    assert said(at(shard, 13_899)) == [], "another one may fail as fast"
    assert said(at(shard, 13_900)) == [("request", 1, ["t1"])]
    assert said(shard.offer("r3", tm=OTHER))[0] == ("deploy", OTHER, ["j/1-b/2/1.3"])
    other = second()
    other.job.graph["restart"] = {"delay_ms": 0}
    other.state.plans.clear()
    other.told("r2", "FAILED", "j/1-b/2/1.2", error=USER)
    assert ("deploy", TM, ["j/1-b/2/1.3"]) in said(other.told("b2", "FAILED", "j/1-b/2/1.1", error=USER))
    assert said(at(other, 5_700)) == [("request", 1, ["t1"])], "that one may have one"


def test_no_number_is_given_twice_though_the_job_was_rescaled_meanwhile() -> None:
    """Their folders are those of the names: logs of two attempts would be in one."""
    full = {"strategy": "fixed-delay", "attempts": 5, "delay_ms": 0, "scope": "full"}
    reader = {"c": {"sql": "SELECT x FROM b", "parallelism": 2, "inputs": {"b": "broadcast"}}}
    shard = begun({**SLOW, "restart": full, "vertices": {**SLOW["vertices"], **reader}})
    at(shard, 3_500)
    shard.told("b3", "FINISHED", report=DONE)
    at(shard, 3_900)
    assert said(shard.offer("r2", tm=OTHER))[0] == ("deploy", OTHER, ["j/1-b/2/1.2"])
    shard.told("b2", "FINISHED", report=DONE)
    shard.told("r2", "CANCELED", "j/1-b/2/1.2")
    for parallelism in (3, 4):  # the second time before any attempt has begun
        ask(shard, parallelism, c=parallelism)
        for allocation, slot in list(shard.job.slots.items()):
            if slot.task is not None:
                word(shard, allocation, "CANCELED")
    assert [(row(shard, index).state.value, row(shard, index).attempt) for index in range(4)] == [("FINISHED", 1)] * 4
    shard.offer("c0")
    outputs = word(shard, "c0", "FAILED", error=USER)
    shard.offer(*(f"a{each}" for each in range(4)))
    for allocation, slot in list(shard.job.slots.items()):
        if slot.task is not None:
            outputs += word(shard, allocation, "CANCELED" if slot.task == "c" else "FINISHED")
    outputs += at(shard, 9_000) + shard.offer("z0", "z1", "z2", "z3")
    assert [each for each in deployed(outputs) if "-b/" in each] == ["j/1-b/0/1.2", "j/1-b/1/1.2", "j/1-b/2/1.3", "j/1-b/3/1.2"]


def test_a_lost_task_manager_costs_no_move_where_the_other_attempt_goes_on() -> None:
    shard = second()
    outputs = shard(jobs.TaskManagerLost(task_manager="t1", incarnation=1, reason="gone"), RM)
    assert said(outputs) == [(2, 1, "FAILED", 2), ("request", 1, [])]
    assert (row(shard).attempt, row(shard).moves, row(shard).task_manager) == (2, 0, OTHER)


def test_a_canceled_job_cancels_both() -> None:
    shard = second()
    assert said(shard(jobs.CancelStartedJob(job="j")))[:2] == [
        ("cancel", TM, ["j/1-b/2/1.1"]), ("cancel", OTHER, ["j/1-b/2/1.2"]),
    ]  # fmt: skip
    assert said(shard.told("r2", "CANCELED", "j/1-b/2/1.2"))[0] == (2, 2, "CANCELED", 1)
    assert shard.job.status is JobStatus.CANCELLING
    assert said(shard.told("b2", "CANCELED", "j/1-b/2/1.1"))[0] == (2, 1, "CANCELED", None)
    assert shard.job.status is JobStatus.CANCELED


def test_a_suspended_job_goes_on_with_one() -> None:
    shard = second()
    assert ("cancel", OTHER, ["j/1-b/2/1.2"]) in said(shard(jobs.SuspendJobs()))
    shard.told("b2", "CANCELED", "j/1-b/2/1.1")
    shard.told("r2", "CANCELED", "j/1-b/2/1.2")
    assert (shard.job.status, shard.job.slots) == (JobStatus.SUSPENDED, {})
    shard(jobs.ResumeJobs())
    at(shard, 5_000)
    assert said(shard.offer("c2"))[0] == ("deploy", TM, ["j/1-b/2/1.3"])


def test_on_an_evacuated_host_the_one_that_is_elsewhere_goes_on() -> None:
    shard = second()
    host = blocklist.BlockedTaskManagers(host="h", task_managers=["t1"], evacuate=True, reason="")
    assert said(shard(blocklist.TaskManagersBlocked(hosts=[host]), RM)) == [("cancel", TM, ["j/1-b/2/1.1"])]
    assert said(shard.told("b2", "CANCELED", "j/1-b/2/1.1"))[0] == (2, 1, "CANCELED", 2)
    assert (row(shard).attempt, row(shard).state.value) == (2, "RUNNING")


def test_a_slot_that_comes_too_late_is_given_back() -> None:
    shard = begun()
    at(shard, 3_900)
    shard.told("b2", "FINISHED", report=DONE)
    assert said(shard.told("b3", "FINISHED", report=DONE))[-1] == ("request", 0, [])
    other = begun()
    at(other, 3_900)
    assert said(other.told("b2", "FINISHED", report=DONE))[-1] == ("request", 1, ["t1"])
    other.offer("r3", tm=OTHER)
    assert said(other.offer("r4", tm=OTHER)) == [("free", OTHER, ["r4"])]


def test_a_new_leader_goes_on_in_the_middle() -> None:
    """A snapshot has all of it; and one of a build before has none of it."""
    shard = second()
    stored = SNAPSHOT.dump_json(shard.state)
    shard.state = SNAPSHOT.validate_json(stored)
    shard.state.plans = {}
    check(shard.state)
    assert said(shard.told("r2", "FINISHED", "j/1-b/2/1.2", report=DONE))[:2] == [
        (2, 2, "FINISHED", None), ("cancel", TM, ["j/1-b/2/1.1"]),
    ]  # fmt: skip
    assert Task(1) == TypeAdapter(Task).validate_python({"parallelism": 1}) and Settings().moves_most == 20
