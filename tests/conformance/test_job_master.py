"""The JobMaster's machine, in the scenarios of Flink's tests of JobMaster and schedulers. Each test names the one that it stands for."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from millrace.core.machine import Born, Configured, PeerBorn, Publish, Say, Ticked
from millrace.core.messages import jobs, slots
from millrace.core.states import ENDED_JOB, ExecutionState, JobStatus
from tests.core.of_job_master import ONE, REPORT, RM, TM, TWO, USER, D, Shard, kinds

WIDE: dict[str, Any] = {"name": "wide", "vertices": {"q": {"sql": "SELECT 1", "parallelism": 2}}}
T2 = "task-manager/t2"
FATAL = {"kind": "analysis", "retryable": False, "message": "no column x"}
CANCEL = jobs.CancelStartedJob(job="j")


def wide(**graph: Any) -> Shard:
    """A job with two subtasks, both RUNNING, in a1 and a2."""
    shard = Shard()
    shard.start({**WIDE, **graph})
    shard.offer("a1", "a2")
    shard.told("a1", "RUNNING")
    shard.told("a2", "RUNNING")
    return shard


def states(shard: Shard) -> list[str]:
    return [row.state.value for _, row in sorted(shard.job.tasks["q"].rows.items())]


def deploys(said: list[Any]) -> list[str]:
    sent = (each.body for each in said if isinstance(each, Say) and isinstance(each.body, slots.DeployTasks))
    return [task.attempt for body in sent for task in body.tasks]


def ends(said: list[Any]) -> list[str]:
    return [each.body.status for each in said if isinstance(each, Say) and isinstance(each.body, jobs.JobEnded)]


# slots and TaskManagers


def test_a_slot_that_is_offered_again_is_taken_once() -> None:
    """JobMasterTest.testJobMasterAcknowledgesDuplicateTaskExecutorRegistrations: what a TaskManager says twice changes nothing."""
    shard = Shard()
    shard.start()
    assert deploys(shard.offer("a1")) == ["j/0-q/0/1.1"]
    before = copy.deepcopy(shard.state)
    assert shard.offer("a1") == [] and shard.state == before
    shard(PeerBorn(TM, 1), TM)
    assert shard.state == before, "it is of the same life"


def test_a_slot_that_is_offered_for_a_job_that_is_not_here_is_given_back() -> None:
    """JobMasterTest.testJobMasterRejectsTaskExecutorRegistrationIfJobIdsAreNotEqual."""
    shard = Shard()
    shard.start()
    assert shard.offer("a1", job="another") == [Say(TM, slots.FreeSlots(allocations=["a1"]))]
    assert shard.job.slots == {} and deploys(shard.offer("a2"))


def test_a_task_manager_that_came_again_has_lost_what_it_held_before() -> None:
    """JobMasterTest.testJobMasterDisconnectsOldTaskExecutorIfNewSessionIsSeen."""
    shard = wide()
    shard(PeerBorn(TM, 2), TM, life=2)
    assert shard.job.slots == {} and states(shard) == ["SCHEDULED", "SCHEDULED"]
    assert (shard.job.restarts, shard.job.wanted) == (0, 2)


@pytest.mark.parametrize("reason", ["it was stopped", "no heartbeat for 600 ms"])
def test_attempts_of_a_lost_task_manager_run_elsewhere(reason: str) -> None:
    """JobMasterTest.testHeartbeatTimeoutWithTaskManager, testTaskManagerBecomesUnreachableTriggersDisconnect,
    testJobFailureWhenGracefulTaskExecutorTermination, testJobFailureWhenTaskExecutorHeartbeatTimeout: there the job restarts or fails;
    here the lost attempts alone run anew, also where restarts are not allowed."""
    shard = Shard()
    shard.start({**WIDE, "restart": {"strategy": "none"}})
    shard.offer("a1")
    shard.offer("a2", tm=T2)
    shard(jobs.TaskManagerLost(task_manager="t2", incarnation=1, reason=reason), RM)
    assert states(shard) == ["DEPLOYING", "SCHEDULED"] and shard.job.status is JobStatus.RUNNING
    assert deploys(shard.offer("a3")) == ["j/0-q/1/1.2"]


def test_a_new_life_of_the_resource_manager_is_declared_to_and_nothing_that_runs_is_touched() -> None:
    """JobMasterTest.testHeartbeatTimeoutWithResourceManager, testReconnectionAfterDisconnect, testResourceManagerConnectionAfterStart."""
    shard = wide()
    assert kinds(shard(PeerBorn(RM, 2), RM, life=2)) == ["resource-manager RequestSlots 2", "resource-manager JobMasterDeclared"]
    assert states(shard) == ["RUNNING", "RUNNING"]


def test_what_is_declared_has_no_slot_that_is_given_back() -> None:
    """JobMasterTest.testAllocatedSlotReportDoesNotContainStaleInformation."""
    shard = Shard()
    shard.start(WIDE)
    shard.offer("a1")
    shard.offer("a2", tm=T2)
    declared = [each.body for each in shard(PeerBorn(RM, 2), RM, life=2)][-1]
    assert declared.task_managers == {"t1": 1, "t2": 1}
    shard.told("a1", "FINISHED", report=REPORT)
    declared = [each.body for each in shard(PeerBorn(RM, 3), RM, life=3)][-1]
    assert declared.task_managers == {"t2": 1}


def test_a_job_is_kept_until_its_end_is_stored() -> None:
    """JobMasterTest.testJobMasterOnlyTerminatesAfterTheSchedulerHasClosed: each life of the Dispatcher is sent the end again."""
    shard = Shard()
    shard.start()
    shard.offer("a1")
    shard.told("a1", "FINISHED", report=REPORT)
    for life in (2, 3):
        assert ends(shard(PeerBorn(D, life), D, life=life)) == ["FINISHED"]
    shard(jobs.JobRetired(job="j", acceptance="acc-j"))
    assert "j" not in shard.state.jobs and shard(PeerBorn(D, 4), D, life=4) == []


def test_an_end_that_was_observed_counts_for_the_next_leader() -> None:
    """JobMasterServiceLeadershipRunnerTest, FLINK-39704: what ended before the leader was lost is folded, so the next one has it, and does
    not run the job again."""
    shard = Shard()
    shard.start({**ONE, "restart": {"strategy": "none"}})
    shard.offer("a1")
    assert ends(shard.told("a1", "FAILED", error=USER)) == ["FAILED"]
    shard(Configured({"exchange_url": "/x"}), "")  # another replica leads, with the same state
    assert ends(shard.start()) == ["FAILED"] and deploys(shard.offer("a2")) == []


# attempts


@pytest.mark.parametrize("allocation, attempt", [("gone", "j/0-q/0/1.1"), ("a1", "j/0-q/0/1.2"), ("a1", "j/0-q/9/1.1"), ("a1", "other")])
def test_the_state_of_an_attempt_that_is_not_known_changes_nothing(allocation: str, attempt: str) -> None:
    """DefaultSchedulerTest.updateTaskExecutionStateReturnsFalseIfExecutionDoesNotExist."""
    shard = wide()
    before = copy.deepcopy(shard.state)
    for state in ("RUNNING", "FINISHED", "FAILED", "CANCELED"):
        assert shard.told(allocation, state, attempt) == [] and shard.state == before


def test_a_slot_that_comes_after_a_restart_is_given_the_new_attempt() -> None:
    """DefaultSchedulerTest.skipDeploymentIfVertexVersionOutdated: the slot was requested for the attempt before."""
    shard = Shard()
    shard.start({**ONE, "restart": {"delay_ms": 0}})
    shard.offer("a1")
    shard(slots.FailSlot(allocation="a1", job="j", reason="it broke"), TM)
    assert deploys(shard.offer("a2")) == ["j/0-q/0/1.2"]


@pytest.mark.parametrize("end", ["it fails", "it is canceled"])
def test_a_slot_that_comes_when_its_job_ends_is_given_back(end: str) -> None:
    """DefaultSchedulerTest.releaseSlotIfVertexVersionOutdated."""
    shard = Shard()
    shard.start(WIDE)
    shard.offer("a1")
    shard.told("a1", "RUNNING")
    shard(CANCEL) if end == "it is canceled" else shard.told("a1", "FAILED", error=FATAL)
    assert shard.offer("a2") == [Say(TM, slots.FreeSlots(allocations=["a2"]))]


def test_a_job_is_restarting_while_one_of_its_subtasks_waits_for_its_restart() -> None:
    """DefaultSchedulerTest.jobStatusIsRestartingIfOneVertexIsWaitingForRestart."""
    shard = wide()
    shard.told("a1", "FAILED", error=USER)
    assert (shard.job.status, states(shard)) == (JobStatus.RESTARTING, ["CREATED", "RUNNING"])
    shard.now += 1_000
    shard(Ticked(), "")
    assert (shard.job.status, states(shard)) == (JobStatus.RUNNING, ["SCHEDULED", "RUNNING"])


def test_two_failures_at_one_moment_are_both_kept_in_their_order() -> None:
    """DefaultSchedulerTest.testExceptionHistoryConcurrentRestart."""
    shard = wide()
    shard.told("a2", "FAILED", error={**USER, "message": "first"})
    shard.told("a1", "FAILED", error={**USER, "message": "second"})
    assert [(each.subtask, each.error.message) for each in shard.job.failures] == [(1, "first"), (0, "second")]


def test_of_the_failures_of_a_subtask_the_last_ones_are_kept() -> None:
    """DefaultSchedulerTest.testExceptionHistoryTruncation."""
    shard = Shard()
    shard.start({**ONE, "restart": {"attempts": 9, "delay_ms": 0}})
    shard.offer("a1")
    for number in range(5):
        shard.told("a1", "FAILED", error={**USER, "message": str(number)})
    assert [each.error.message for each in shard.job.failures] == ["2", "3", "4"]


# cancels and failures that meet


def test_a_cancel_while_one_subtask_waits_for_its_restart_waits_for_the_running_one() -> None:
    """DefaultSchedulerTest.cancelWhileRestartingShouldWaitForRunningTasks; ExecutionGraphRestartTest.testCancelWhileRestarting."""
    shard = wide()
    shard.told("a1", "FAILED", error=USER)
    said = shard(CANCEL)
    assert ends(said) == [] and (shard.job.status, states(shard)) == (JobStatus.CANCELLING, ["CANCELED", "CANCELING"])
    assert ends(shard.told("a2", "CANCELED")) == ["CANCELED"]
    shard.now += 10_000
    assert shard(Ticked(), "") == [], "the restart is called off"


def test_a_cancel_while_the_job_fails_makes_it_canceled() -> None:
    """ExecutionGraphRestartTest.testCancelWhileFailing."""
    shard = wide()
    shard.told("a1", "FAILED", error=FATAL)
    assert shard.job.status is JobStatus.FAILING
    shard(CANCEL)
    assert shard.job.status is JobStatus.CANCELLING
    assert ends(shard.told("a2", "CANCELED")) == ["CANCELED"]


def test_a_failure_while_the_job_is_canceled_does_not_make_it_failed() -> None:
    """ExecutionGraphRestartTest.testFailWhileCanceling, testFailExecutionAfterCancel; ExecutionVertexCancelTest: a late failure behind a
    cancel."""
    shard = wide()
    shard(CANCEL)
    assert ends(shard.told("a1", "FAILED", error=FATAL)) == []
    assert ends(shard.told("a2", "FAILED", error=USER)) == ["CANCELED"]
    assert states(shard) == ["CANCELED", "CANCELED"]


def test_what_does_not_run_yet_is_canceled_at_once_and_without_a_message() -> None:
    """ExecutionVertexCancelTest: from CREATED and SCHEDULED."""
    shard = Shard()
    shard.start(TWO)
    said = shard(CANCEL)
    assert ends(said) == ["CANCELED"] and not any(isinstance(each, Say) and each.to.startswith("task-manager") for each in said)


def test_a_cancel_that_is_repeated_is_sent_to_its_task_manager_once() -> None:
    """ExecutionVertexCancelTest: from DEPLOYING and RUNNING, repeated."""
    shard = wide()
    sent = [each.body for each in shard(CANCEL) if isinstance(each, Say) and each.to == TM]
    assert [each.attempts for each in sent] == [["j/0-q/0/1.1", "j/0-q/1/1.1"]]
    assert shard(CANCEL) == [] == shard(CANCEL)


@pytest.mark.parametrize("end", ["FINISHED", "FAILED", "CANCELED"])
def test_nothing_leaves_an_end(end: str) -> None:
    """ExecutionGraphSuspendTest: from FAILED and CANCELED unchanged."""
    shard = Shard()
    shard.start({**ONE, "restart": {"strategy": "none"}})
    shard.offer("a1")
    if end == "CANCELED":
        shard(CANCEL)
    shard.told("a1", end, **({"error": USER} if end == "FAILED" else {}))
    assert shard.job.status in ENDED_JOB and shard.job.status.value == end
    before = copy.deepcopy(shard.state)
    for body, sender in (
        (CANCEL, D),
        (jobs.TaskManagerLost(task_manager="t1", incarnation=0, reason="x"), RM),
        (slots.FailSlot(allocation="a1", job="j", reason="x"), TM),
        (jobs.JobQueued(job="j", reason="x", position=1), RM),
    ):
        said = shard(body, sender)
        assert ends(said) == [] and not any(isinstance(each, Publish) for each in said)
    before.lost = shard.state.lost
    assert shard.state == before


def test_a_job_that_no_build_can_read_fails_and_others_start() -> None:
    """DispatcherTest.testJobManagerRunnerInitializationFailureFailsJob."""
    shard = Shard()
    assert ends(shard.start({"name": "x", "vertices": {"q": {"nobody": "knows"}}}, job="strange")) == ["FAILED"]
    assert shard.state.jobs["strange"].cause.kind == "infrastructure"
    assert "resource-manager RequestSlots 1" in kinds(shard.start())


def test_a_shard_that_is_born_anew_adopts_no_attempt_of_the_life_before() -> None:
    """TaskExecutorTest.testDisconnectFromJobMasterWhenNewLeader: the log was lost, so the slots of the life before are given back and what
    runs in them is killed; a leader that dies costs no attempt, for the next one has the same state."""
    shard = Shard(generation=2)
    shard(Born(), "")
    shard.start()
    offer = slots.SlotOffer(slot=0, allocation="1.5.0.1", job="j", memory_mb=512)
    running = slots.OfferedAttempt(allocation="1.5.0.1", attempt="j/0-q/0/1.1", state="RUNNING")
    said = shard(slots.OfferSlots(offers=[offer], attempts=[running]), TM)
    assert said == [Say(TM, slots.FreeSlots(allocations=["1.5.0.1"]))]
    assert shard.job.tasks["q"].rows[0].state is ExecutionState.SCHEDULED
