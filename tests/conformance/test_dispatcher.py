"""The Dispatcher's machine, in the scenarios of Flink's tests. Each test names the one that it stands for."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from millrace.core.machine import Born, PeerBorn, Ticked
from millrace.core.messages import base, client, effects, events, jobs
from millrace.core.timing import FORWARDED_ANSWER_MS
from services.dispatcher.core.state import State
from tests.core.of_dispatcher import EXCERPT, JOB, OTHER, SHARD, World, asks, bodies, ended, settled, stored


def listed(world: World, **fields: Any) -> client.JobsListed:
    [reply] = bodies(world.request(client.ListJobs(reply_to="c", correlation="l", **fields)))
    assert isinstance(reply, client.JobsListed)
    return reply


def status_of(world: World, job: str = JOB) -> str:
    [reply] = bodies(world.request(asks(client.GetJobStatus, job)))
    return reply.summary.status


def test_of_many_submissions_of_one_id_exactly_one_is_accepted() -> None:
    """DispatcherTest.testDuplicateJobSubmissionIsDetectedOnSimultaneousSubmission. Each has another graph; all are there before one is
    stored."""
    world = settled()
    [put] = world.submit(digest="0")
    for number in range(1, 50):
        assert world.submit(digest=str(number)) == []
    outputs = bodies(world.tell(effects.JobGraphStored(job=JOB, stands=put.effect.stored)))
    answers = [each for each in outputs if isinstance(each, base.Reply)]
    assert [type(each) for each in answers] == [client.JobAcceptedReply, *[client.JobRejected] * 49]
    assert {each.kind for each in answers[1:]} == {"conflict"}
    assert list(world.state.live) == [JOB] and world.state.live[JOB].digest == "0"


def test_a_job_master_that_never_answers_holds_up_neither_submissions_nor_statuses() -> None:
    """DispatcherTest.testNonBlockingJobSubmission."""
    world = settled()
    world.accept()
    for number in range(10):
        world.accept(f"job-{number}")
    assert status_of(world) == "INITIALIZING" == status_of(world, "job-9")
    assert listed(world).total == 11


def test_a_job_is_initializing_until_its_job_master_has_it() -> None:
    """JobMasterServiceLeadershipRunnerTest.testInitialJobStatusIsInitializing."""
    world = settled()
    world.accept()
    assert status_of(world) == "INITIALIZING"
    world.tell(jobs.JobMasterStarted(job=JOB, status="RUNNING"), sender=SHARD)
    assert status_of(world) == "RUNNING"


def test_the_status_of_a_job_is_served_while_its_end_is_stored_and_while_it_is_cleaned_up() -> None:
    """DispatcherTest.testJobStatusIsShownDuringTermination."""
    world = settled()
    world.accept()
    world.tell(jobs.JobMasterStarted(job=JOB, status="RUNNING"), sender=SHARD)
    stands = world.end().ending
    assert status_of(world) == "RUNNING", "its end counts when it is stored"
    world.tell(effects.JobResultStored(job=JOB, stands=stands))
    assert status_of(world) == "FINISHED", "it is dirty"
    world.tell(effects.JobCleaned(job=JOB))
    assert status_of(world) == "FINISHED"


def test_a_job_is_listed_once_at_every_moment_of_its_life() -> None:
    """DispatcherTest.testRequestMultipleJobDetails_returnsRunningOverSuspendedJob, _returnsFinishedOverSuspendedJob: what is live counts
    before what has ended, and nothing is there twice."""
    world, seen = settled(), []

    def look() -> None:
        found = listed(world)
        assert found.total == len(found.jobs) == len({each.job for each in found.jobs})
        seen.append([(each.job, each.status) for each in found.jobs])

    [put] = world.submit()
    look()
    world.tell(effects.JobGraphStored(job=JOB, stands=put.effect.stored))
    look()
    world.tell(jobs.JobMasterStarted(job=JOB, status="RUNNING"), sender=SHARD)
    stands = world.end().ending
    look()
    world.tell(effects.JobResultStored(job=JOB, stands=stands))
    world.submit()
    look()
    assert seen == [[], [(JOB, "INITIALIZING")], [(JOB, "RUNNING")], [(JOB, "FINISHED")]]


@pytest.mark.parametrize("kind", ["invalid", "late", "busy", "conflict"])
def test_a_submission_that_is_refused_leaves_nothing(kind: str) -> None:
    """DispatcherResourceCleanupTest.testGlobalCleanupWhenJobSubmissionFails: in the state; nothing of it was stored in etcd."""
    world = settled(max_live_jobs=1)
    if kind in ("busy", "conflict"):
        world.accept(JOB if kind == "conflict" else OTHER)
    before = copy.deepcopy(world.state)
    if kind == "invalid":
        outputs = world.request(client.SubmitJob(job=JOB, graph={}, reply_to="c", correlation="1"), excerpt=EXCERPT)
    elif kind == "late":
        world.submit(accept_before_ms=1)
        outputs = world.tell(effects.JobGraphStored(job=JOB, stands=None))
    else:
        outputs = world.submit(digest="another")
    [rejected] = [each for each in bodies(outputs) if isinstance(each, client.JobRejected)]
    assert rejected.kind == kind
    assert not any(isinstance(each, effects.PutJobGraph) for each in bodies(outputs))
    assert without_counts(world.state) == without_counts(before)


def without_counts(state: State) -> State:
    """Without how many submissions came since the last tick, which decides nothing but a pace."""
    state.put_since_tick = 0
    return state


def test_an_id_is_not_accepted_anew_while_the_end_of_its_job_is_stored() -> None:
    """DispatcherResourceCleanupTest.testJobSubmissionUnderSameJobId: there the submission waits for the runner before; here it is the same
    job, at every moment."""
    world = settled()
    world.accept()
    stands = world.end().ending
    [same] = bodies(world.submit())
    [other] = bodies(world.submit(digest="another"))
    assert (type(same), other.kind) == (client.JobAcceptedReply, "conflict")
    world.tell(effects.JobResultStored(job=JOB, stands=stands))
    [same] = bodies(world.submit())
    assert (type(same), same.status) == (client.JobAcceptedReply, "FINISHED")


def test_a_clean_up_cannot_be_canceled() -> None:
    """DispatcherCleanupITCase.testCleanupNotCancellable: nothing is sent to anybody but the client."""
    world = settled()
    world.accept()
    world.finish()
    for correlation in ("1", "2"):
        [refused] = bodies(world.request(asks(client.CancelJob, correlation=correlation)))
        assert (type(refused), refused.kind) == (client.RequestRefused, "conflict")
    assert bodies(world.tell(effects.JobCleaned(job=JOB))) == []


@pytest.mark.parametrize("status", ["FINISHED", "FAILED", "CANCELED"])
def test_the_end_of_a_job_is_cleaned_up_whatever_it_is(status: str) -> None:
    """DispatcherResourceCleanupTest.testGlobalCleanupWhenJobFinished, testGlobalCleanupWhenJobCanceled: its JobMaster forgets it, its
    exchange data and staged output are deleted, and a tombstone stays."""
    world = settled()
    world.accept()
    stands = world.end(JOB, status).ending
    outputs = bodies(world.tell(effects.JobResultStored(job=JOB, stands=stands)))
    [retired] = [each for each in outputs if isinstance(each, jobs.JobRetired)]
    [clean] = [each for each in outputs if isinstance(each, effects.CleanJob)]
    assert (retired.job, retired.acceptance) == (JOB, stands.acceptance)
    assert (clean.tombstone.state, clean.tombstone.status, clean.tombstone.graph) == ("clean", status, None)
    assert clean.exchange.startswith(f"exchange/{stands.acceptance}")


def test_a_dirty_end_without_a_graph_is_cleaned_up_and_starts_nothing() -> None:
    """DispatcherTest.testJobCleanupWithoutRecoveredJobGraph, testThatDirtilyFinishedJobsNotBeingRetriggered;
    SessionDispatcherLeaderProcessTest.testRecoveryWithMultipleExecutionPlansAndOneMatchingDirtyJobResult,
    testRecoveryWithoutExecutionPlanButDirtyJobResult."""
    world = World()
    world.hear_all()
    world.tell(Born())
    found = {JOB: stored(), OTHER: stored(OTHER, "dirty")}
    outputs = bodies(world.tell(effects.JobsRecovered(jobs=found)))
    assert [each.job for each in outputs if isinstance(each, jobs.StartJob)] == [JOB]
    assert [each.job for each in outputs if isinstance(each, effects.CleanJob)] == [OTHER]
    assert (list(world.state.live), list(world.state.ended)) == ([JOB], [OTHER])


def test_an_accepted_cancel_survives_the_death_of_the_job_master() -> None:
    """JobMasterServiceLeadershipRunnerTest.testJobStatusCancellingIsClearedOnLeadershipLoss: there the cancel is lost; here the next life
    of the shard is sent it with the job."""
    world = settled()
    world.accept()
    world.tell(jobs.JobMasterStarted(job=JOB, status="RUNNING"), sender=SHARD)
    world.request(asks(client.CancelJob))
    assert status_of(world) == "CANCELLING"
    [start] = [each for each in bodies(world.tell(PeerBorn(SHARD, 2), sender=SHARD)) if isinstance(each, jobs.StartJob)]
    assert start.cancel and status_of(world) == "CANCELLING"


def test_an_end_that_was_reported_twice_is_announced_once() -> None:
    """JobMasterServiceLeadershipRunnerTest, FLINK-39704: a shard that leads anew reports the end again, before and after it is stored.
    The first one counts, also where the second one says something else."""
    world = settled()
    world.accept()
    acceptance = world.state.live[JOB].acceptance
    stands = world.end(JOB, "FAILED").ending
    assert world.tell(ended(JOB, acceptance, "FINISHED"), sender=SHARD) == []
    told = bodies(world.tell(effects.JobResultStored(job=JOB, stands=stands)))
    assert [type(each) for each in told if isinstance(each, events.JobEvent)] == [events.JobFailed]
    assert bodies(world.tell(ended(JOB, acceptance, "FINISHED"), sender=SHARD)) == [jobs.JobRetired(job=JOB, acceptance=acceptance)]
    assert status_of(world) == "FAILED"


def test_jobs_of_a_silent_job_master_are_listed_all_the_same() -> None:
    """Flink leaves them out (FLINK-40602). What was asked of the shard and not answered marks it as silent; the list has its jobs."""
    world = settled()
    world.accept()
    world.request(asks(client.DescribeJob))
    world.now_ms += FORWARDED_ANSWER_MS
    [without] = bodies(world.tell(Ticked()))
    assert without.silent == SHARD
    assert [each.job for each in listed(world).jobs] == [JOB]
    assert listed(world).total == 1


def test_ended_jobs_are_listed_by_the_next_leader() -> None:
    """Flink forgets them with the process (FLINK-31709, FLINK-39989)."""
    world = World()
    world.hear_all()
    world.tell(Born())
    ends = {"job-0": "FINISHED", "job-1": "FAILED", "job-2": "CANCELED"}
    world.tell(effects.JobsRecovered(jobs={job: stored(job, "clean", status=status) for job, status in ends.items()}))
    assert {each.job: each.status for each in listed(world).jobs} == ends


def test_one_stored_job_that_cannot_be_read_holds_up_no_other() -> None:
    """DispatcherTest.testFatalErrorIfRecoveredJobsCannotBeStarted: there the process ends, again and again (FLINK-40554); here the job's
    shard is sent it, and fails it alone."""
    world = World()
    world.hear_all()
    world.tell(Born())
    strange = {"name": "one", "vertices": {"v": {"nobody": "knows"}}}
    outputs = bodies(world.tell(effects.JobsRecovered(jobs={JOB: stored(graph=strange), OTHER: stored(OTHER)})))
    assert sorted(each.job for each in outputs if isinstance(each, jobs.StartJob)) == sorted([JOB, OTHER])
