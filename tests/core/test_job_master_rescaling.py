"""A job that runs gets another parallelism: what is canceled, what stays, what runs again, and under which names."""

from __future__ import annotations

from typing import Any

from millrace.core.machine import Output, Publish, Say, Ticked
from millrace.core.messages import jobs, slots
from millrace.core.messages.effects import SinkPublished
from millrace.core.messages.events import JobRescaled, SubtasksKept
from millrace.core.messages.requirements import Rescale
from millrace.core.states import JobStatus
from services.job_master.core.execution_graph import attempt_name, describe, task_folder
from services.job_master.core.plans import running_plan
from tests.core.of_job_master import PLANNED, RM, SINK, TM, TWO, USER, Shard, kinds

WIDE: dict[str, Any] = {
    "name": "wide",
    "vertices": {
        "a": {"sql": "SELECT 1 AS x"},
        "b": {"sql": "SELECT x FROM a", "parallelism": 2, "inputs": {"a": "hash(x)"}},
        "p": {"sql": "SELECT 1 AS x"},
        "d": {"sql": "SELECT b.x FROM b, p", "parallelism": 3, "inputs": {"b": "hash(x)", "p": "broadcast"}},
    },
}
LOG = "log-1"


def word(shard: Shard, allocation: str, state: str, **more: Any) -> list[Output]:
    """Of the attempt that is in this slot now."""
    job = shard.job
    held = job.slots[allocation]
    if state == "FINISHED":
        outputs = {vertex: {"schema": "{}", "rows": 1, "bytes": 9} for vertex in held.task.split("+")}
        more = {"report": {"outputs": {} if held.task == "@plan" else outputs}}
    folder = task_folder(running_plan(shard.state, job), held.task)
    attempt = attempt_name(job, folder, held.subtask, job.tasks[held.task].rows[held.subtask].attempt)
    return shard(slots.TaskStateChanged(allocation=allocation, attempt=attempt, state=state, **more), TM)


def ask(shard: Shard, offset: int = 1, log: str = LOG, number: int = 0, **parallelism: int) -> list[Output]:
    return shard(jobs.RescaleStartedJob(job="j", rescale=Rescale(parallelism=parallelism, log=log, offset=offset), number=number))


def answered(shard: Shard, offset: int, **parallelism: int) -> str | None:
    """Why it is refused, as the Dispatcher is told."""
    first = ask(shard, offset, number=7, **parallelism)[0]
    assert isinstance(first, Say) and first.to == "dispatcher" and isinstance(first.body, jobs.QuestionAnswered) and first.body.number == 7
    return first.body.refused


def states(shard: Shard) -> dict[str, list[str]]:
    return {
        name: [f"{row.state.value} {row.attempt}" for _, row in sorted(task.rows.items())] for name, task in shard.job.tasks.items()
    }


def told(said: list[Output]) -> list[Any]:
    return [each.body for each in said if isinstance(each, Publish) and isinstance(each.body, (JobRescaled, SubtasksKept))]


def deployed(said: list[Output]) -> list[str]:
    return [task.attempt for each in said if isinstance(body := getattr(each, "body", None), slots.DeployTasks) for task in body.tasks]


def running_b() -> Shard:
    """a and p have finished, and both subtasks of b are deployed."""
    shard = Shard()
    shard.start(WIDE)
    shard.offer("a1", "a2")
    word(shard, "a1", "FINISHED")
    word(shard, "a2", "FINISHED")
    assert states(shard) == {"a": ["FINISHED 1"], "b": ["DEPLOYING 1", "DEPLOYING 1"], "p": ["FINISHED 1"], "d": []}
    return shard


def test_what_runs_is_canceled_and_begins_again_beside_what_stays_the_same() -> None:
    shard = running_b()
    said = ask(shard, d=2)
    assert kinds(said) == [
        "task-manager CancelTasks", "dispatcher JobStatusChanged RESTARTING", "event JobStateChanged RESTARTING",
    ]  # fmt: skip
    assert (said[0].body.attempts, said[0].body.reason) == (["j/1-b/0/1.1", "j/1-b/1/1.1"], "the job gets another parallelism")
    assert kinds(word(shard, "a1", "CANCELED")) == [
        "event AttemptStateChanged CANCELED", "task-manager FreeSlots", "resource-manager RequestSlots 1",
    ]  # fmt: skip
    said = word(shard, "a2", "CANCELED")
    assert kinds(said) == [
        "event AttemptStateChanged CANCELED", "event JobRescaled", "event SubtasksKept", "event SubtasksKept",
        "task-manager DeployTasks", "event AttemptStateChanged DEPLOYING", "resource-manager RequestSlots 2",
        "dispatcher JobStatusChanged RUNNING", "event JobStateChanged RUNNING",
    ]  # fmt: skip
    rescaled, *kept = told(said)
    assert rescaled.parallelism == {"d": 2}
    assert [(each.task, each.parallelism) for each in rescaled.tasks] == [("a", 1), ("b", 2), ("p", 1), ("d", 2)]
    assert [(each.task, each.subtasks, each.kept_from) for each in kept] == [("a", [0], "j"), ("p", [0], "j")]
    assert deployed(said) == ["j/1-b/0/1.2"], "the number of an attempt is never used twice [R20]"
    assert states(shard) == {"a": ["FINISHED 1"], "b": ["DEPLOYING 2", "SCHEDULED 1"], "p": ["FINISHED 1"], "d": []}
    assert (shard.job.restarts, shard.job.failed, shard.job.recomputed) == (0, 0, 0), "it is no failure"
    assert describe(None, shard.job).json_value()["rescaled"] == {"d": 2}


def test_a_producer_by_hash_of_a_changed_vertex_runs_again_for_it_hands_on_other_shares() -> None:
    shard = running_b()
    ask(shard, b=4)
    word(shard, "a1", "CANCELED")
    said = word(shard, "a2", "CANCELED")
    assert [(each.task, each.subtasks) for each in told(said)[1:]] == [("p", [0])]
    assert states(shard) == {"a": ["DEPLOYING 2"], "b": [], "p": ["FINISHED 1"], "d": []}
    [deploy] = [each.body.tasks[0] for each in said if getattr(each, "body", None) and each.body.type == "DeployTasks"]
    assert deploy.spec.outputs[0].shares == 4
    word(shard, "a2", "FINISHED")
    assert kinds(shard.offer("b1", "b2", "b3"))[0] == "task-manager DeployTasks"
    assert states(shard)["b"] == ["DEPLOYING 2"] * 4


def test_subtasks_are_created_when_the_job_is_rescaled_and_what_stays_was_created_before() -> None:
    shard = running_b()
    shard.now = 2000
    ask(shard, d=2)
    word(shard, "a1", "CANCELED")
    word(shard, "a2", "CANCELED")
    shard.now = 3000
    shard.offer("c1")
    tasks = describe(None, shard.job).json_value()["tasks"]
    shown = {task["task"]: [each.get("created_ms") for each in task["subtasks"]] for task in tasks}
    assert (shown["a"], shown["b"], shown["p"]) == ([1000], [2000, 2000], [1000])


def test_a_job_runs_to_its_end_with_the_new_numbers() -> None:
    shard = running_b()
    ask(shard, b=1, d=1)
    word(shard, "a1", "CANCELED")
    said = word(shard, "a2", "CANCELED")
    assert [each.task for each in told(said)[0].tasks] == ["a+b+p+d"], "with parallelism 1 all of it is one task"
    [allocation] = shard.job.slots
    assert deployed(said) == ["j/4-d/0/1.1"], "its folder has a number that no task has had"
    assert kinds(word(shard, allocation, "FINISHED"))[-1] == "dispatcher JobEnded FINISHED"


def test_a_job_that_has_not_begun_is_rescaled_at_once() -> None:
    shard = Shard()
    shard.start(TWO)
    said = ask(shard, b=5)
    assert kinds(said) == ["event JobRescaled"], "it wants one slot, as before"
    shard.offer("a1")
    assert kinds(word(shard, "a1", "FINISHED"))[-1] == "resource-manager RequestSlots 5"


def test_the_same_numbers_change_nothing_and_no_request_is_taken_twice() -> None:
    shard = running_b()
    before = states(shard)
    assert ask(shard, 5, b=2, d=3) == []
    assert ask(shard, 5, b=4) == [], "read again by a Dispatcher that has lost its log"
    assert ask(shard, 4, b=4) == [], "older"
    assert ask(shard, 6, none=4) == [], "of a graph that another build accepted"
    assert ask(shard, 6, b=4) == []
    assert (states(shard), shard.job.status) == (before, JobStatus.RUNNING)
    assert kinds(ask(shard, 7, b=4))[0] == "task-manager CancelTasks"
    assert ask(shard, 8, b=4) == [], "it is on its way already"
    word(shard, "a1", "CANCELED")
    word(shard, "a2", "CANCELED")
    assert kinds(ask(shard, 1, log="log-2", b=3))[0] == "task-manager CancelTasks", "a new log counts anew"


def test_asked_again_while_attempts_end_the_last_one_counts_and_its_numbers_add_up() -> None:
    shard = running_b()
    ask(shard, 1, b=4)
    assert kinds(ask(shard, 2, b=2, d=1)) == []
    word(shard, "a1", "CANCELED")
    said = word(shard, "a2", "CANCELED")
    assert told(said)[0].parallelism == {"b": 2, "d": 1}
    assert [shard.job.graph["vertices"][each].get("parallelism", 1) for each in "bd"] == [2, 1]


def test_nothing_is_deployed_while_attempts_of_before_still_end() -> None:
    shard = running_b()
    ask(shard, d=2)
    assert kinds(shard.offer("b1", "b2")) == ["task-manager FreeSlots"]
    assert kinds(word(shard, "a1", "FINISHED"))[0] == "event AttemptStateChanged CANCELED", "it was canceled, whatever it says"
    assert "b1" not in shard.job.slots and states(shard)["b"] == ["CREATED 1", "CANCELING 1"]


def test_a_slot_that_is_lost_meanwhile_is_waited_for_no_more() -> None:
    shard = running_b()
    ask(shard, d=2)
    said = shard(jobs.TaskManagerLost(task_manager="t1", incarnation=1, reason="silent"), RM)
    assert "event JobRescaled" in kinds(said)
    assert (shard.job.slots, shard.job.wanted, shard.job.failed) == ({}, 2, 0)


def test_a_stale_report_of_an_attempt_of_before_changes_nothing() -> None:
    shard = running_b()
    ask(shard, d=2)
    word(shard, "a1", "CANCELED")
    word(shard, "a2", "CANCELED")
    [allocation] = shard.job.slots
    late = slots.TaskStateChanged(allocation=allocation, attempt="j/1-b/0/1.1", state="FINISHED", report={"outputs": {}})
    assert shard(late, TM) == []
    assert states(shard)["b"] == ["DEPLOYING 2", "SCHEDULED 1"]


def test_a_plan_attempt_goes_first_and_then_what_is_the_same_stays() -> None:
    graph = {**PLANNED, "vertices": {**PLANNED["vertices"], "p": {"sql": "SELECT 1 AS x"}, "d": {
        "sql": "SELECT x FROM p", "parallelism": 2, "inputs": {"p": "hash(x)"},
    }}}  # fmt: skip
    shard = Shard()
    shard.start(graph)
    shard.offer("a1")
    word(shard, "a1", "FINISHED")
    shard.offer("a2", "a3")
    for allocation in ("a1", "a2", "a3"):
        word(shard, allocation, "FINISHED")
    shard.offer("a4")
    assert states(shard) == {"@plan": ["FINISHED 1"], "s": ["FINISHED 1"] * 2, "p": ["FINISHED 1"], "d": ["DEPLOYING 1"] * 2}
    ask(shard, s=3)
    running = list(shard.job.slots)
    word(shard, running[0], "CANCELED")
    said = word(shard, running[1], "CANCELED")
    assert (deployed(said), [each.type for each in told(said)]) == (["j/plan/0/1.2"], ["JobRescaled"])
    assert states(shard) == {"@plan": ["DEPLOYING 2"], "s": [], "p": [], "d": []}
    assert (shard.job.planned, shard.job.kept_bytes > 0) == (None, True)
    word(shard, running[1], "RUNNING")
    assert kinds(ask(shard, 2, s=4))[0] == "task-manager CancelTasks", "a plan attempt of before is of no use"
    word(shard, running[1], "CANCELED")
    said = word(shard, running[1], "FINISHED")
    assert [(each.task, each.subtasks) for each in told(said)] == [("p", [0])]
    assert states(shard) == {
        "@plan": ["FINISHED 3"], "s": ["DEPLOYING 2", *["SCHEDULED 1"] * 3], "p": ["FINISHED 1"], "d": ["SCHEDULED 1"] * 2,
    }  # fmt: skip


def test_tasks_that_come_back_have_folders_and_attempts_of_their_own() -> None:
    """With parallelism 1 both vertices are one task; else they are two."""
    shard = Shard()
    shard.start({**TWO, "vertices": {**TWO["vertices"], "b": {**TWO["vertices"]["b"], "parallelism": 1}}})
    seen: list[str] = []
    seen += deployed(shard.offer("s0"))
    for offset, number in enumerate((2, 1, 3, 1, 2), 1):
        ask(shard, offset, b=number)
        [allocation] = shard.job.slots
        seen += deployed(word(shard, allocation, "CANCELED"))
    assert seen == ["j/0-b/0/1.1", "j/1-a/0/1.1", "j/3-b/0/1.1", "j/4-a/0/1.1", "j/6-b/0/1.1", "j/7-a/0/1.1"]
    assert len(set(seen)) == len(seen)


def test_a_finished_part_of_the_result_that_runs_again_counts_no_more() -> None:
    shard = Shard()
    shard.start(TWO)
    shard.offer("a1")
    word(shard, "a1", "FINISHED")
    rows = {"columns": ["x"], "types": ["int"], "rows": [[1]], "truncated": False}
    report = {"outputs": {"b": {"schema": "{}", "rows": 1, "bytes": 9}}, "result": rows}
    held = shard.job.slots["a1"]
    name = f"j/1-b/{held.subtask}/1.1"
    shard(slots.TaskStateChanged(allocation="a1", attempt=name, state="FINISHED", report=report), TM)
    [allocation] = shard.job.slots
    assert len(shard.job.results) == 1
    ask(shard, b=3)
    word(shard, allocation, "CANCELED")
    assert (shard.job.results, shard.job.kept_bytes) == ({}, 0)


def test_failures_of_before_stay_and_a_retry_that_was_due_later_begins_at_once() -> None:
    shard = Shard()
    shard.start(TWO)
    shard.offer("a1")
    word(shard, "a1", "FAILED", error=USER)
    assert shard.job.status is JobStatus.RESTARTING
    said = ask(shard, b=3)
    assert kinds(said)[0] == "event JobRescaled" and shard.job.status is JobStatus.RUNNING
    assert (shard.job.restarts, len(shard.job.failures), shard.state.due) == (1, 1, {})
    assert kinds(shard(Ticked(), "")) == []


def test_a_failure_after_a_rescale_counts_though_an_earlier_restart_would_be_due_later() -> None:
    """The rescale has ended that delay: the failure was merged into a restart that had begun, waited for it, and cost nothing."""
    shard = Shard()
    shard.start({**TWO, "restart": {"strategy": "exponential-delay", "initial_backoff_ms": 60_000, "jitter_factor": 0}})
    shard.offer("a1")
    word(shard, "a1", "FAILED", error=USER)
    began = shard.now
    shard.now += 5_000
    shard(Ticked(), "")
    ask(shard, b=3)
    shard.offer("a2")
    shard.now += 5_000
    shard(Ticked(), "")
    word(shard, "a2", "FAILED", error=USER)
    assert (shard.job.restarts, shard.job.failures[-1].error.decided.why) == (2, "exponential-delay: restart 2")
    assert shard.state.due == {"j": began + 10_000 + 60_000}


def test_one_that_comes_too_late_changes_nothing() -> None:
    shard = Shard()
    shard.start(SINK)
    shard.offer("a1")
    word(shard, "a1", "FINISHED")
    assert shard.job.sinks == {"out": False}
    assert ask(shard, q=2, out=2) == []
    assert answered(shard, 2, q=2, out=2) == "job j publishes its sinks: it ends with the parallelism that it has"
    shard(SinkPublished(job="j", vertex="out"), "")
    assert answered(shard, 3, q=2, out=2) == "job j has ended already: it is FINISHED"
    shard = running_b()
    shard(jobs.CancelStartedJob(job="j"))
    assert ask(shard, b=3) == []
    assert answered(shard, 2, b=3) == "job j is CANCELLING: it gets no other parallelism any more"
    assert ask(Shard()) == [], "of a job that is not known here, StartJob says it"
    assert answered(Shard(), 1) is None


def test_what_is_taken_is_told_and_told_again_to_who_asks_again() -> None:
    shard = running_b()
    assert answered(shard, 2, b=3) is None
    shard(jobs.CancelStartedJob(job="j"))
    assert answered(shard, 2, b=3) is None, "it was taken, and then the job was canceled"


def test_a_job_is_canceled_or_suspended_while_it_waits_for_its_attempts_to_end() -> None:
    shard = running_b()
    ask(shard, d=2)
    shard(jobs.CancelStartedJob(job="j"))
    word(shard, "a1", "CANCELED")
    assert kinds(word(shard, "a2", "CANCELED"))[-1] == "dispatcher JobEnded CANCELED"
    shard = running_b()
    ask(shard, d=2)
    shard(jobs.SuspendJobs())
    word(shard, "a1", "CANCELED")
    word(shard, "a2", "CANCELED")
    assert (shard.job.status, shard.job.rescaling) == (JobStatus.SUSPENDED, {"d": 2})
    said = shard(jobs.ResumeJobs())
    assert kinds(said)[:3] == ["event JobRescaled", "event SubtasksKept", "event SubtasksKept"]
    assert (shard.job.status, shard.job.rescaling, shard.job.wanted) == (JobStatus.RUNNING, None, 2)


def test_a_new_life_of_the_job_master_begins_with_what_was_asked_for() -> None:
    shard = Shard(generation=2)
    said = shard.start(TWO, rescale=Rescale(parallelism={"b": 3}, log=LOG, offset=9))
    assert kinds(said) == [
        "resource-manager RequestSlots 1", "dispatcher JobMasterStarted RUNNING", "event JobRescaled", "event JobStateChanged RUNNING",
    ]  # fmt: skip
    assert shard.job.tasks["b"].parallelism == 3
    assert ask(shard, 9, b=3) == ask(shard, 8, b=7) == []


def test_a_dispatcher_that_was_born_anew_says_again_what_a_job_is_to_have() -> None:
    shard = running_b()
    again = Rescale(parallelism={"d": 2}, log=LOG, offset=3)
    assert kinds(shard.start(WIDE, rescale=again))[:2] == ["dispatcher JobMasterStarted RUNNING", "task-manager CancelTasks"]
    [started] = shard.start(WIDE, rescale=again)
    assert (started.body.status, started.body.acceptance, started.body.rescale) == ("RESTARTING", "acc-j", again)


def test_a_gang_wants_all_its_slots_together_again() -> None:
    shard = Shard()
    shard.start({**TWO, "together": True})
    shard.offer("a1")
    word(shard, "a1", "FINISHED")
    shard.offer("b1", "b2")
    assert states(shard)["b"] == ["DEPLOYING 1"] * 2
    ask(shard, b=3)
    word(shard, "b1", "CANCELED")
    said = word(shard, "b2", "CANCELED")
    assert states(shard) == {"a": ["DEPLOYING 2"], "b": []}
    [allocation] = shard.job.slots
    said = word(shard, allocation, "FINISHED")
    assert "resource-manager RequestSlots 3" in kinds(said) and not shard.job.slots
    shard.offer("c1", "c2", "c3")
    assert states(shard)["b"] == ["DEPLOYING 2"] * 3
