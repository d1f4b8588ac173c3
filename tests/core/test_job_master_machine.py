"""The JobMaster: a state, one message, the exact list of outputs; invariants of the state after each."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.core.machine import Envelope, PeerBorn, Publish, Say, Ticked
from millrace.core.messages import effects, jobs, slots
from millrace.core.messages.links import LINKS
from millrace.core.states import EXECUTION_TRANSITIONS, JOB_TRANSITIONS, ExecutionState, JobStatus
from services.job_master.core.machine import HANDLERS
from services.job_master.core.state import State
from tests.core.of_job_master import ONE, PLANNED, REPORT, RM, TM, TWO, USER, D, Shard, kinds


def test_start_job_asks_for_slots_first() -> None:
    shard = Shard()
    said = shard.start()
    assert kinds(said) == [
        "resource-manager RequestSlots 1",
        "dispatcher JobMasterStarted RUNNING",
        "event JobStateChanged RUNNING",
    ]
    assert said[0] == Say(RM, jobs.RequestSlots(job="j", slots=1, priority=0, since_ms=500))


def test_start_job_of_a_known_job_answers_with_its_state() -> None:
    shard = Shard()
    shard.start()
    assert kinds(shard.start()) == ["dispatcher JobMasterStarted RUNNING"]


def test_start_job_of_a_graph_that_this_build_cannot_read_fails_that_job_alone() -> None:
    shard = Shard()
    said = shard.start({"name": "x", "vertices": {}})
    assert kinds(said) == ["dispatcher JobEnded FAILED", "dispatcher JobMasterStarted FAILED"]
    assert kinds(shard.start(job="k"))[0] == "resource-manager RequestSlots 1"


def test_an_offer_is_deployed_at_once() -> None:
    shard = Shard()
    shard.start()
    said = shard.offer("a1")
    assert kinds(said) == ["task-manager DeployTasks", "event AttemptStateChanged DEPLOYING"]
    task = said[0].body.tasks[0]
    assert (task.allocation, task.attempt, task.folder) == ("a1", "j/0-q/0/1.1", "acc-j/0-q.0.1.1")
    assert [each.json_value() for each in task.spec.outputs] == [{"vertex": "q", "edge": "result", "rows": 1000}]


def test_an_offer_that_nobody_needs_is_given_back() -> None:
    shard = Shard()
    shard.start()
    shard.offer("a1")
    assert shard.offer("a2") == [Say(TM, slots.FreeSlots(allocations=["a2"]))]
    assert shard.offer("a3", job="unknown") == [Say(TM, slots.FreeSlots(allocations=["a3"]))]
    assert shard.offer("a1") == []


def test_an_offer_with_an_attempt_of_another_life_is_given_back() -> None:
    shard = Shard()
    shard.start()
    report = slots.OfferedAttempt(allocation="a9", attempt="j/0-q/0/0.1", state="RUNNING")
    offer = slots.SlotOffer(slot=0, allocation="a9", job="j", memory_mb=1)
    assert shard(slots.OfferSlots(offers=[offer], attempts=[report]), TM) == [
        Say(TM, slots.FreeSlots(allocations=["a9"]))
    ]


def test_running_then_finished_ends_the_job_and_frees_the_slot() -> None:
    shard = Shard()
    shard.start()
    shard.offer("a1")
    assert kinds(shard.told("a1", "RUNNING")) == ["event AttemptStateChanged RUNNING"]
    said = shard.told(
        "a1", "FINISHED", report={**REPORT, "result": {"columns": ["1"], "types": ["int"], "rows": [[1]]}}
    )
    assert kinds(said) == [
        "event AttemptStateChanged FINISHED",
        "task-manager FreeSlots",
        "resource-manager RequestSlots 0",
        "dispatcher JobEnded FINISHED",
    ]
    ended = said[-1].body
    assert ended.archive.result.json_value() == {"columns": ["1"], "types": ["int"], "rows": [[1]], "truncated": False}
    assert shard(jobs.JobRetired(job="j", acceptance="acc-j")) == []
    assert shard.state == State(settings=shard.state.settings, now_ms=shard.now, ticked_ms=shard.now)


def test_a_late_word_of_an_old_attempt_changes_nothing() -> None:
    shard = Shard()
    shard.start()
    shard.offer("a1")
    for state in ("RUNNING", "FINISHED", "FAILED", "CANCELED"):
        assert shard.told("a1", state, attempt="j/0-q/0/1.0") == []
        assert shard.told("gone", state, attempt="j/0-q/0/1.1") == []
    assert shard.job.tasks["q"].rows[0].state is ExecutionState.DEPLOYING


def test_finished_without_running_counts() -> None:
    shard = Shard()
    shard.start()
    shard.offer("a1")
    assert kinds(shard.told("a1", "FINISHED", report=REPORT))[-1] == "dispatcher JobEnded FINISHED"


def test_a_retryable_failure_waits_its_delay_and_runs_as_the_next_attempt() -> None:
    shard = Shard()
    shard.start()
    shard.offer("a1")
    assert kinds(shard.told("a1", "FAILED", error=USER)) == [
        "event AttemptStateChanged FAILED",
        "task-manager FreeSlots",
        "resource-manager RequestSlots 0",
        "dispatcher JobStatusChanged RESTARTING",
        "event JobStateChanged RESTARTING",
    ]
    shard.now += 999
    assert shard(Ticked(), "") == []
    shard.now += 1
    assert kinds(shard(Ticked(), "")) == [
        "resource-manager RequestSlots 1",
        "dispatcher JobStatusChanged RUNNING",
        "event JobStateChanged RUNNING",
    ]
    assert shard.offer("a2")[0].body.tasks[0].attempt == "j/0-q/0/1.2"


def test_after_its_restarts_the_job_fails_with_the_cause() -> None:
    shard = Shard()
    shard.start({**ONE, "restart": {"attempts": 1, "delay_ms": 0}})
    shard.offer("a1")
    assert "task-manager DeployTasks" in kinds(shard.told("a1", "FAILED", error=USER))
    said = shard.told("a1", "FAILED", error=USER)
    assert kinds(said)[-1] == "dispatcher JobEnded FAILED"
    decided = {"number": 2, "then": "fail", "why": "fixed-delay: 1 of 1 restarts used"}
    assert shard.job.cause.json_value() == {**USER, "decided": decided, "task": "q", "subtask": 0, "attempt": 2}


def test_an_error_that_cannot_heal_is_never_retried() -> None:
    shard = Shard()
    shard.start()
    shard.offer("a1")
    error = {"kind": "analysis", "retryable": False, "message": "no column x"}
    assert kinds(shard.told("a1", "FAILED", error=error))[-1] == "dispatcher JobEnded FAILED"


def test_a_lost_task_manager_moves_its_attempts_without_counting_a_failure() -> None:
    shard = Shard()
    shard.start({**ONE, "restart": {"strategy": "none"}})
    shard.offer("a1")
    shard.told("a1", "RUNNING")
    lost = jobs.TaskManagerLost(task_manager="t1", incarnation=1, reason="no heartbeat for 600 ms")
    assert kinds(shard(lost, RM)) == ["event AttemptStateChanged FAILED", "forget task-manager/t1 1"]
    assert (shard.job.tasks["q"].rows[0].state, shard.job.tasks["q"].rows[0].attempt) == (ExecutionState.SCHEDULED, 1)
    assert (shard.job.restarts, shard.job.wanted, shard.job.status) == (0, 1, JobStatus.RUNNING)
    assert kinds(shard.offer("a2", tm="task-manager/t2"))[0] == "task-manager DeployTasks"


def test_a_lost_earlier_incarnation_leaves_the_slots_of_the_later_one() -> None:
    shard = Shard()
    shard.start()
    offer = slots.SlotOffer(slot=0, allocation="a1", job="j", memory_mb=1)
    shard(slots.OfferSlots(offers=[offer]), TM, life=7)
    shard(jobs.TaskManagerLost(task_manager="t1", incarnation=6, reason="x"), RM)
    assert list(shard.job.slots) == ["a1"]
    shard(PeerBorn(TM, 8), TM, life=8)
    assert shard.job.slots == {}


def test_too_many_moves_fail_the_job() -> None:
    shard = Shard()
    shard.start()
    for n in range(21):
        shard.now += 10_000
        shard(Ticked(), "")
        shard.offer(f"a{n}")
        said = shard(slots.FailSlot(allocation=f"a{n}", job="j", reason="the slot broke"), TM)
    assert kinds(said)[-1] == "dispatcher JobEnded FAILED"


@pytest.mark.parametrize("moment", ["before an offer", "deploying", "running", "waiting for its retry"])
def test_cancel_at_any_moment(moment: str) -> None:
    shard = Shard()
    shard.start()
    if moment != "before an offer":
        shard.offer("a1")
    if moment == "running":
        shard.told("a1", "RUNNING")
    if moment == "waiting for its retry":
        shard.told("a1", "FAILED", error=USER)
    said = kinds(shard(jobs.CancelStartedJob(job="j")))
    if moment in ("deploying", "running"):
        assert said == [
            "task-manager CancelTasks",
            "dispatcher JobStatusChanged CANCELLING",
            "event JobStateChanged CANCELLING",
        ]
        assert shard(jobs.CancelStartedJob(job="j")) == []
        said = kinds(shard.told("a1", "CANCELED"))
    assert said[-1] == "dispatcher JobEnded CANCELED"
    assert shard(jobs.CancelStartedJob(job="j")) == []


def test_finished_in_the_midst_of_a_cancel_is_canceled() -> None:
    shard = Shard()
    shard.start()
    shard.offer("a1")
    shard(jobs.CancelStartedJob(job="j"))
    assert kinds(shard.told("a1", "FINISHED", report=REPORT))[-1] == "dispatcher JobEnded CANCELED"


def test_started_with_cancel_ends_without_running() -> None:
    shard = Shard()
    assert "dispatcher JobEnded CANCELED" in kinds(shard.start(cancel=True))


def test_a_consumer_runs_when_its_producers_have_published_and_reads_their_attempts() -> None:
    shard = Shard()
    assert kinds(shard.start(TWO))[0] == "resource-manager RequestSlots 1"
    shard.offer("a1")
    said = shard.told("a1", "FINISHED", report={"outputs": {"a": {"schema": "{a}"}}})
    assert kinds(said) == [
        "event AttemptStateChanged FINISHED",
        "task-manager DeployTasks",
        "event AttemptStateChanged DEPLOYING",
        "resource-manager RequestSlots 2",
    ]
    spec = said[1].body.tasks[0].spec.json_value()
    assert spec["vertices"][0]["inputs"]["a"]["folders"] == ["/x/acc-j/1/0-a/0/1/0-a"]
    assert kinds(shard.offer("a2"))[0] == "task-manager DeployTasks"
    shard.told("a1", "FINISHED", report={"outputs": {"b": {"schema": "{b}"}}})
    assert kinds(shard.told("a2", "FINISHED", report={"outputs": {"b": {"schema": "{b}"}}}))[-1] == (
        "dispatcher JobEnded FINISHED"
    )


def test_a_failed_subtask_fails_its_siblings_only_with_the_job() -> None:
    shard = Shard()
    shard.start({**TWO, "restart": {"strategy": "none"}})
    shard.offer("a1")
    shard.told("a1", "FINISHED", report={"outputs": {"a": {"schema": "{a}"}}})
    shard.offer("a2")
    said = shard.told("a1", "FAILED", error=USER)
    assert kinds(said)[:3] == ["event AttemptStateChanged FAILED", "task-manager CancelTasks", "task-manager FreeSlots"]
    assert kinds(shard.told("a2", "CANCELED"))[-1] == "dispatcher JobEnded FAILED"


def test_an_attempt_too_large_to_be_told_fails_its_job_alone() -> None:
    shard = Shard()
    shard.start(PLANNED)
    shard.offer("a1")
    files = [[f"/data/part-{n:07d}.csv", 1, 1] for n in range(30_000)]
    pinned = {"pinned": {"s": {"schema": "{}", "files": files, "split_bytes": 1}}, "schemas": {}, "key_types": {}}
    said = shard.told("a1", "FINISHED", report=pinned)
    assert kinds(said)[-1] == "dispatcher JobEnded FAILED"
    assert "larger than 800000 bytes" in shard.job.cause.message


def test_the_plan_attempt_goes_first_and_its_report_goes_to_all() -> None:
    shard = Shard()
    shard.start(PLANNED)
    said = shard.offer("a1")
    assert said[0].body.tasks[0].spec.kind == "plan"
    pinned = {"pinned": {"s": {"schema": "{}", "files": [], "split_bytes": 1}}, "schemas": {}, "key_types": {}}
    said = shard.told("a1", "FINISHED", report=pinned)
    spec = said[1].body.tasks[0].spec.json_value()
    assert (spec["kind"], spec["task"], spec["pinned"]) == ("run", "s", pinned["pinned"])


def test_a_job_says_that_it_is_failing_while_attempts_of_it_live() -> None:
    shard = Shard()
    shard.start(TWO)
    shard.offer("a1")
    shard.told("a1", "FINISHED", report={"outputs": {"a": {"schema": "{}", "rows": 1, "bytes": 9}}})
    shard.offer("b1", "b2")
    said = shard.told("b1", "FAILED", error={**USER, "retryable": False})
    assert kinds(said)[-2:] == ["dispatcher JobStatusChanged FAILING", "event JobStateChanged FAILING"]
    assert said[-1].body.cause.message == "boom"


def test_a_job_that_waits_says_why_and_where_it_stands() -> None:
    shard = Shard()
    shard.start()
    queued = jobs.JobQueued(job="j", reason="all 2 slots are busy", position=3)
    assert kinds(shard(queued, RM)) == ["dispatcher JobStatusChanged RUNNING", "event JobWaiting"]
    assert shard(queued, RM) == []
    assert kinds(shard(jobs.JobQueued(job="j", reason=None, position=None), RM)) == [
        "dispatcher JobStatusChanged RUNNING"
    ]


def test_when_a_job_was_first_given_a_slot_is_told_when_it_waits_no_more_and_at_its_end() -> None:
    shard = Shard()
    shard.start()
    shard(jobs.JobQueued(job="j", reason="all 2 slots are busy", position=1), RM)
    shard.now = 1_700
    [told] = shard(jobs.JobQueued(job="j", reason=None, position=None), RM)
    first_ms = told.body.running_ms
    assert first_ms == 1_700
    shard.now = 1_705
    shard.offer("a")
    [ended] = [said for said in shard.told("a", "FINISHED") if getattr(said, "body", None).__class__ is jobs.JobEnded]
    assert ended.body.running_ms == first_ms


def test_a_dispatcher_that_starts_a_known_job_is_told_again_why_it_waits() -> None:
    shard = Shard()
    shard.start()
    assert kinds(shard.start()) == ["dispatcher JobMasterStarted RUNNING"]
    shard(jobs.JobQueued(job="j", reason="all 2 slots are busy", position=3), RM)
    said = shard.start()
    assert kinds(said) == ["dispatcher JobMasterStarted RUNNING", "dispatcher JobStatusChanged RUNNING"]
    assert (said[1].body.waiting, said[1].body.position) == ("all 2 slots are busy", 3)


def test_why_a_job_waits_is_for_a_new_life_of_the_resource_manager_to_say() -> None:
    """It says nothing to a job that holds all that it wants."""
    shard = Shard()
    shard.start()
    shard(jobs.JobQueued(job="j", reason="all 2 slots are busy", position=3), RM)
    said = shard(PeerBorn(RM, 2), RM)
    assert kinds(said) == ["resource-manager RequestSlots 1", "dispatcher JobStatusChanged RUNNING", "resource-manager JobMasterDeclared"]
    assert (said[1].body.waiting, said[1].body.position) == (None, None)


def test_the_queue_time_out_fails_a_job_that_got_no_slot() -> None:
    shard = Shard()
    shard.start({**ONE, "timeouts": {"queue_ms": 5000}})
    shard.now += 5000
    said = shard(Ticked(), "")
    assert kinds(said)[-1] == "dispatcher JobEnded FAILED"
    assert shard.job.cause.message == "no slot within 5500 ms (timeouts.queue_ms): slots are short"


def test_no_timer_ends_early_for_machine_time_stands_between_two_ticks() -> None:
    """In a cluster at rest for two seconds; but a broker's clock that jumps makes no timer late by more than that."""
    for passed_ms, due_ms in ((1990, 6990), (3_600_000, 7000), (-3_600_000, 5000)):
        shard = Shard()
        at_ms = shard.now + passed_ms
        graph = {**ONE, "timeouts": {"queue_ms": 5000}}
        start = jobs.StartJob(job="j", acceptance="acc-j", graph=graph, accepted_ms=500)
        list(shard.machine.handle(shard.state, Envelope(D, 1, shard.now, "1.9", start, at_ms)))
        assert shard.job.queue_due_ms == shard.now + due_ms


def test_the_queue_time_out_does_not_touch_a_job_that_had_a_slot() -> None:
    shard = Shard()
    shard.start({**ONE, "timeouts": {"queue_ms": 5000}})
    shard.offer("a1")
    shard.now += 9000
    assert shard(Ticked(), "") == []


def test_a_reborn_dispatcher_is_told_of_every_job_and_a_reborn_resource_manager_of_every_want() -> None:
    shard = Shard()
    shard.start()
    shard.start(job="k")
    shard.offer("a1")
    shard.told("a1", "FINISHED", report=REPORT)
    assert kinds(shard(PeerBorn(D, 2), D)) == [
        "dispatcher JobEnded FINISHED",
        "dispatcher JobMasterStarted RUNNING",
        "dispatcher JobStatusChanged RUNNING",
        "event JobStateChanged RUNNING",
    ]
    shard.offer("a2", job="k")
    said = shard(PeerBorn(RM, 2), RM)
    assert kinds(said) == ["resource-manager RequestSlots 1", "resource-manager JobMasterDeclared"]
    assert said[-1].body.task_managers == {"t1": 1}


def test_a_reborn_resource_manager_is_told_of_lost_task_managers_that_were_not_heard_again() -> None:
    shard = Shard()
    shard(jobs.TaskManagerLost(task_manager="t1", incarnation=7, reason="silent"), RM)
    shard(jobs.TaskManagerLost(task_manager="t2", incarnation=8, reason="silent"), RM)
    shard(PeerBorn("task-manager/t2", 9), "task-manager/t2", 9)
    assert [each.body for each in shard(PeerBorn(RM, 3), RM)] == [
        jobs.TaskManagersParted(lost={"t1": 7}), jobs.JobMasterDeclared(task_managers={})
    ]  # fmt: skip


def test_retired_while_running_frees_everything() -> None:
    shard = Shard()
    shard.start()
    shard.offer("a1")
    said = shard(jobs.JobRetired(job="j", acceptance="acc-j"))
    assert kinds(said) == ["task-manager FreeSlots", "resource-manager RequestSlots 0"]
    assert shard.state.jobs == {}


def test_retired_of_another_acceptance_is_of_another_job() -> None:
    shard = Shard()
    shard.start()
    assert shard(jobs.JobRetired(job="j", acceptance="other")) == []
    assert "j" in shard.state.jobs


def test_describe_answers_from_the_state() -> None:
    shard = Shard()
    shard.start()
    ask = jobs.DescribeStartedJob(job="j", reply_to="me", correlation="c")
    (answer,) = shard(ask)
    assert isinstance(answer, Publish) and answer.topic == "client.replies" and answer.key == "me"
    assert answer.body.detail.tasks[0].states == {"SCHEDULED": 1}
    (refused,) = shard(ask.model_copy(update={"job": "none"}))
    assert refused.body.kind == "not_found"


def test_every_message_that_may_come_has_a_handler_and_no_job_is_needed_for_it() -> None:
    shard = Shard()
    for (_, receiver), bodies in LINKS.items():
        if receiver == "job-master":
            for body in bodies:
                assert body in HANDLERS, body
    nobody: list[tuple[Any, str]] = [
        (jobs.CancelStartedJob(job="none"), D),
        (jobs.JobRetired(job="none", acceptance="x"), D),
        (jobs.JobQueued(job="none", reason="x", position=1), RM),
        (jobs.NotEnoughResources(job="none", reason="x"), RM),
        (slots.FailSlot(allocation="none", job="none", reason="x"), TM),
        (effects.SinkPublished(job="none", vertex="v"), ""),
        (PeerBorn(TM, 3), TM),
        (Ticked(), ""),
    ]
    for body, sender in nobody:
        assert shard(body, sender) == []


def test_the_tables_are_total_and_nothing_leaves_an_end() -> None:
    assert set(JOB_TRANSITIONS) == set(JobStatus)
    assert set(EXECUTION_TRANSITIONS) == set(ExecutionState)
    for status in (JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELED):
        assert JOB_TRANSITIONS[status] == ()
    assert EXECUTION_TRANSITIONS[ExecutionState.CANCELED] == ()
    for state in (ExecutionState.FINISHED, ExecutionState.FAILED):
        assert EXECUTION_TRANSITIONS[state] == (ExecutionState.CREATED,), "it may run again, as its next attempt, and nothing else"


@pytest.mark.parametrize("told", ["RUNNING", "FINISHED", "FAILED", "CANCELED"])
@pytest.mark.parametrize("before", ["deploying", "running", "canceling"])
def test_every_word_about_the_current_attempt_is_defined_in_every_state(before: str, told: str) -> None:
    shard = Shard()
    shard.start()
    shard.offer("a1")
    if before == "running":
        shard.told("a1", "RUNNING")
    if before == "canceling":
        shard(jobs.CancelStartedJob(job="j"))
    shard.told("a1", told, **({"report": REPORT} if told == "FINISHED" else {}))
    expected = {
        "RUNNING": ExecutionState.CANCELING if before == "canceling" else ExecutionState.RUNNING,
        "FINISHED": ExecutionState.CANCELED if before == "canceling" else ExecutionState.FINISHED,
        "FAILED": ExecutionState.CANCELED if before == "canceling" else ExecutionState.CANCELED,
        "CANCELED": ExecutionState.CANCELED,
    }
    if before != "canceling" and told in ("FAILED", "CANCELED"):
        assert shard.job.status is JobStatus.FAILED
        assert shard.job.tasks["q"].rows[0].state is ExecutionState.FAILED
    else:
        assert shard.job.tasks["q"].rows[0].state is expected[told]


def test_the_first_move_goes_at_once_and_the_next_ones_ever_later() -> None:
    shard = Shard()
    shard.start()
    delays = []
    for n in range(9):
        shard.now = max(shard.now, shard.state.due.get("j", 0))
        shard(Ticked(), "")
        shard.offer(f"a{n}")
        shard(slots.FailSlot(allocation=f"a{n}", job="j", reason="storage is away"), TM)
        delays.append(shard.state.due.get("j", shard.now) - shard.now)
    assert delays == [0, 100, 200, 400, 800, 1600, 3200, 6400, 10_000]


def test_an_id_accepted_anew_is_another_job() -> None:
    shard = Shard()
    shard.start()
    shard.offer("a1")
    said = shard(jobs.StartJob(job="j", acceptance="later", graph=ONE, accepted_ms=900))
    assert kinds(said)[:2] == ["task-manager FreeSlots", "resource-manager RequestSlots 0"]
    assert (shard.job.acceptance, shard.job.wanted) == ("later", 1)
