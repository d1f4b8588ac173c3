"""Jobs are suspended with the cluster, and go on: nothing of them runs meanwhile, what has FINISHED is kept."""

from __future__ import annotations

from millrace.core.machine import PeerBorn, Say, Ticked
from millrace.core.messages import effects, jobs, slots
from millrace.core.states import ExecutionState, JobStatus
from services.job_master.core.suspension import REASON
from tests.core.of_job_master import REPORT, SINK, TM, TWO, USER, Shard, kinds

TOLD = "dispatcher JobsSuspended"


def suspend(shard: Shard) -> list[str]:
    return kinds(shard(jobs.SuspendJobs()))


def test_what_runs_is_canceled_and_runs_again_later() -> None:
    shard = Shard()
    shard.start()
    shard.offer("a1")
    shard.told("a1", "RUNNING")
    said = shard(jobs.SuspendJobs())
    assert kinds(said) == ["task-manager CancelTasks", "dispatcher JobStatusChanged SUSPENDED", "event JobStateChanged SUSPENDED"]
    assert said[0] == Say(TM, slots.CancelTasks(attempts=["j/0-q/0/1.1"], reason=REASON))
    assert kinds(shard.told("a1", "CANCELED")) == [
        "event AttemptStateChanged CANCELED", "task-manager FreeSlots", "resource-manager RequestSlots 0", TOLD,
    ]  # fmt: skip
    assert shard.job.tasks["q"].rows[0].state is ExecutionState.CREATED and shard.state.due == {}
    shard.now += 60_000
    assert kinds(shard(Ticked(), "")) == []
    assert kinds(shard(jobs.ResumeJobs())) == [
        "resource-manager RequestSlots 1", "dispatcher JobStatusChanged RUNNING", "event JobStateChanged RUNNING",
    ]  # fmt: skip
    shard.offer("a2")
    assert (shard.job.tasks["q"].rows[0].attempt, shard.job.restarts) == (2, 0), "no failure"
    assert kinds(shard.told("a2", "FINISHED", report=REPORT))[-1] == "dispatcher JobEnded FINISHED"


def test_who_waits_for_a_slot_or_a_retry_is_suspended_at_once() -> None:
    shard = Shard()
    shard.start()
    shard.start({**TWO, "restart": {"attempts": 1, "delay_ms": 5_000}}, "k")
    shard.offer("b1", job="k")
    shard.told("b1", "FAILED", error=USER)
    assert suspend(shard) == [
        "resource-manager RequestSlots 0", "dispatcher JobStatusChanged SUSPENDED", "event JobStateChanged SUSPENDED",
        "dispatcher JobStatusChanged SUSPENDED", "event JobStateChanged SUSPENDED", TOLD,
    ]  # fmt: skip
    shard.now += 6_000
    assert kinds(shard(jobs.ResumeJobs())) == ["resource-manager RequestSlots 1", *[
        "dispatcher JobStatusChanged RUNNING", "event JobStateChanged RUNNING",
    ]] * 2  # fmt: skip


def test_what_has_finished_is_kept() -> None:
    shard = Shard()
    shard.start(TWO)
    shard.offer("a1")
    shard.told("a1", "FINISHED", report={"outputs": {"a": {"schema": "{a}"}}})
    shard.offer("a2")
    suspend(shard)
    for allocation in list(shard.job.slots):
        shard.told(allocation, "CANCELED")
    shard(jobs.ResumeJobs())
    assert [row.state for row in shard.job.tasks["a"].rows.values()] == [ExecutionState.FINISHED]
    assert [row.state for row in shard.job.tasks["b"].rows.values()] == [ExecutionState.SCHEDULED] * 2


def test_a_slot_that_is_offered_meanwhile_goes_back_and_a_loss_is_no_failure() -> None:
    shard = Shard()
    shard.start()
    shard.offer("a1")
    suspend(shard)
    lost = jobs.TaskManagerLost(task_manager="t1", incarnation=1, reason="it was stopped")
    assert kinds(shard(lost, "resource-manager")) == [
        "event AttemptStateChanged CANCELED", "resource-manager RequestSlots 0", "forget task-manager/t1 1", TOLD,
    ]  # fmt: skip
    assert kinds(shard.offer("a2", tm="task-manager/t2")) == ["task-manager FreeSlots"]
    assert shard.job.status is JobStatus.SUSPENDED


def test_a_job_that_is_ending_comes_to_its_end() -> None:
    shard = Shard()
    shard.start()
    shard.offer("a1")
    shard(jobs.CancelStartedJob(job="j"))
    assert suspend(shard) == []
    assert kinds(shard.told("a1", "CANCELED"))[-2:] == ["dispatcher JobEnded CANCELED", TOLD]


def test_sinks_that_are_being_published_are_waited_for() -> None:
    shard = Shard()
    shard.start(SINK)
    shard.offer("a1")
    shard.told("a1", "FINISHED", report={"outputs": {"q": {"schema": "{}"}, "out": {"rows": 1}}, "staged": {"out": "/data/.out.staging/x"}})
    assert shard.job.sinks and suspend(shard) == []
    assert kinds(shard(effects.SinkPublished(job="j", vertex="out"), ""))[-2:] == ["dispatcher JobEnded FINISHED", TOLD]


def test_a_suspended_job_can_be_canceled() -> None:
    shard = Shard()
    shard.start()
    assert suspend(shard)[-1] == TOLD
    assert kinds(shard(jobs.CancelStartedJob(job="j"))) == ["dispatcher JobEnded CANCELED"]


def test_asked_again_it_answers_again_and_a_job_that_comes_then_is_suspended() -> None:
    shard = Shard()
    assert suspend(shard) == [TOLD] == suspend(shard)
    said = kinds(shard.start())
    assert said[-3:] == ["resource-manager RequestSlots 0", "dispatcher JobStatusChanged SUSPENDED", "event JobStateChanged SUSPENDED"]


def test_a_new_life_of_the_dispatcher_knows_of_no_end_and_jobs_go_on() -> None:
    shard = Shard()
    shard.start()
    suspend(shard)
    said = kinds(shard(PeerBorn("dispatcher", 2), life=2))
    assert said[-3:] == ["resource-manager RequestSlots 1", "dispatcher JobStatusChanged RUNNING", "event JobStateChanged RUNNING"]
    assert not shard.state.suspending


def test_the_time_out_of_the_queue_begins_anew() -> None:
    shard = Shard()
    shard.start({"name": "one", "vertices": {"q": {"sql": "SELECT 1"}}, "timeouts": {"queue_ms": 3_000}})
    shard.now += 2_000
    suspend(shard)
    shard.now += 60_000
    shard(Ticked(), "")
    shard(jobs.ResumeJobs())
    shard.now += 2_000
    shard(Ticked(), "")
    assert shard.job.status is JobStatus.RUNNING
    shard.now += 2_000
    assert kinds(shard(Ticked(), ""))[-1] == "dispatcher JobEnded FAILED"


def test_a_job_whose_graph_this_build_cannot_read_fails_and_the_others_go_on() -> None:
    shard = Shard()
    shard.start()
    shard.start(TWO, "k")
    suspend(shard)
    shard.state.jobs["j"].planner = 99
    shard.state.plans = {}
    said = kinds(shard(jobs.ResumeJobs()))
    assert "dispatcher JobEnded FAILED" in said and shard.state.jobs["k"].status is JobStatus.RUNNING
