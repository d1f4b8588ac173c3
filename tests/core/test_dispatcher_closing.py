"""ShutDownCluster: the cluster's end in order, and how it is opened again."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.core.machine import Configured, Do, Output, PeerBorn, Publish, Say, Ticked
from millrace.core.messages import client, effects, jobs
from services.dispatcher.core import closing
from services.dispatcher.core.closing import ASK_MS, RELEASE_MS, SUSPEND_MS
from services.dispatcher.core.submission import CLOSED
from tests.core.of_dispatcher import JOB, OTHER, SHARD, World, asks, bodies, settled, stored

RM = "resource-manager"
SHARDS = ["job-master/0", "job-master/1"]


def ask(world: World, correlation: str = "2", wait: bool = False, **found: Any) -> list[Output]:
    return world.request(client.ShutDownCluster(reply_to="c", correlation=correlation, wait=wait), **found)


def later(world: World, ms: int) -> list[Output]:
    world.now_ms += ms
    return world.tell(Ticked())


def told(step: str, correlation: str = "2", **fields: Any) -> Publish:
    known = {"since_ms": 1_000_000, "live": 0, "suspended": 0, "workers": 0, **fields}
    return Publish("client.replies", "c", client.ClusterShutDown(correlation=correlation, shut_down=client.ShutDown(step=step, **known)))


def suspended(world: World, scope: str, count: int = 0) -> list[Output]:
    return world.tell(jobs.JobsSuspended(jobs=count), sender=scope)


def deregister(number: int) -> Say:
    return Say(RM, jobs.Query(what="deregister", reply_to="", correlation="", number=number))


def end(world: World, **fields: Any) -> Do:
    name = world.state.closing.name
    return Do("shutdown", effects.EndCluster(name=name, shut_down=told("ENDING", **fields).body.shut_down), after_said=True)


def test_it_goes_step_by_step_and_is_answered_at_once_and_at_the_end() -> None:
    world = settled()
    world.accept()
    assert ask(world) == [*(Say(shard, jobs.SuspendJobs()) for shard in SHARDS), told("SUSPENDING", live=1, suspended=1)]
    assert ask(world, "3", wait=True) == []
    world.tell(jobs.JobStatusChanged(job=JOB, status="SUSPENDED"), sender=SHARD)
    assert suspended(world, SHARDS[0]) == [] and later(world, 100) == []
    assert suspended(world, SHARDS[1], 1) == [deregister(1)]
    assert world.tell(jobs.QuestionAnswered(number=1, workers=2), sender=RM) == []
    assert later(world, ASK_MS - 1) == [] and later(world, 1) == [deregister(2)]
    assert world.tell(jobs.QuestionAnswered(number=1, workers=0), sender=RM) == [], "an answer to an older question"
    kept = {"live": 1, "suspended": 1}
    assert world.tell(jobs.QuestionAnswered(number=2, workers=0), sender=RM) == [told("ENDING", "3", **kept), end(world, **kept)]
    assert world.machine.is_idle(world.state)
    assert ask(world, "4", wait=True) == [told("ENDING", "4", **kept)]
    assert world.tell(effects.ClusterEnded(name=world.state.closing.name)) == [] and later(world, 60_000) == []


def test_who_does_not_answer_is_waited_for_and_named() -> None:
    world = settled()
    ask(world)
    suspended(world, SHARDS[0])
    assert later(world, SUSPEND_MS - 1) == [] and later(world, 1) == [deregister(1)]
    said = [each for each in later(world, RELEASE_MS)]
    assert said == [end(world, silent=[SHARDS[1], RM])]
    assert suspended(world, SHARDS[1]) == []


def test_a_resource_manager_that_was_never_received_from_is_not_asked() -> None:
    world = settled()
    del world.state.received_from[RM]
    ask(world)
    assert [suspended(world, shard) for shard in SHARDS] == [[], []]
    assert later(world, RELEASE_MS) == [end(world, silent=[RM])]


def test_from_then_on_no_job_is_accepted() -> None:
    world = settled()
    world.accept()
    [put] = world.submit(OTHER)
    ask(world)
    [rejected] = bodies(world.submit("late"))
    assert (rejected.kind, rejected.reason, rejected.retry_after_ms) == ("busy", CLOSED, 1_000)
    assert [each.status for each in bodies(world.submit(JOB))] == ["INITIALIZING"], "a repeat is the same job"
    said = world.tell(effects.JobGraphStored(job=OTHER, stands=put.effect.stored))
    assert [type(each).__name__ for each in bodies(said)] == ["JobAccepted", "JobAcceptedReply"], "it is kept, and not begun"
    assert world.request(asks(client.GetJobStatus, "unknown")) != []
    world.submit("unknown")
    [_, late] = bodies(world.tell(effects.JobFound(job="unknown", stands=None)))
    assert (late.kind, late.reason) == ("busy", CLOSED)


def test_a_job_can_be_canceled_and_end_meanwhile() -> None:
    world = settled()
    world.accept()
    ask(world)
    assert isinstance(bodies(world.request(asks(client.CancelJob)))[0], jobs.CancelStartedJob)
    world.finish(status="CANCELED")
    assert [suspended(world, shard) for shard in SHARDS][-1] == [deregister(1)]
    assert world.tell(jobs.QuestionAnswered(number=1), sender=RM) == [end(world)]


def test_a_new_life_of_a_shard_suspends_and_starts_nothing() -> None:
    world = settled()
    world.accept()
    ask(world)
    suspended(world, SHARD)
    assert world.tell(PeerBorn(SHARD, 2), sender=SHARD) == [Say(SHARD, jobs.SuspendJobs())]
    for shard in SHARDS:
        said = suspended(world, shard)
    assert said == [deregister(1)]
    assert world.tell(PeerBorn(SHARD, 3), sender=SHARD) == [Say(SHARD, jobs.SuspendJobs())]
    assert world.state.closing.shards == {}, "nobody waits for it any more"


def test_jobs_go_on_once_a_leader_was_told_that_the_cluster_was_opened_again() -> None:
    world = settled()
    world.accept()
    ask(world)
    name = world.state.closing.name
    for settings in ({}, {"reopened": "1.1"}):
        assert world.tell(Configured(settings)) == [], "a leader that takes over goes on with it"
    said = world.tell(Configured({"reopened": name}))
    starts = {each.to for each in said if isinstance(each, Say) and isinstance(each.body, jobs.StartJob)}
    resumes = [each.to for each in said if isinstance(each, Say) and isinstance(each.body, jobs.ResumeJobs)]
    assert said[0] == Say(RM, jobs.Query(what="register", reply_to="", correlation="", number=1))
    assert (world.state.closing, starts, sorted(resumes)) == (None, {SHARD}, SHARDS)
    assert isinstance(world.submit(OTHER)[0], Do), "and jobs are accepted"
    assert suspended(world, SHARD) == [] and later(world, SUSPEND_MS) != [told("ENDING")]


def test_a_request_that_a_dispatcher_without_its_log_reads_again_ends_nothing() -> None:
    world = settled()
    [refused] = bodies(ask(world, decided=True))
    assert (refused.kind, world.state.closing) == ("conflict", None)


def test_a_request_that_nobody_took_in_time_does_not_end_the_cluster_that_is_started_later() -> None:
    world = settled()
    late, other = (client.ShutDownCluster(reply_to="c", correlation="2", accept_before_ms=world.now_ms - ago) for ago in (1, 0))
    [said] = world.request(late)
    assert "it came too late" in said.body.reason and world.state.closing is None
    assert world.request(other) and world.state.closing is not None
    assert world.request(late) == [told("SUSPENDING")], "a repeat changes nothing, and is told"


def test_who_waits_for_the_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing, "AWAITING_MOST", 1)
    world = settled()
    assert [each for each in ask(world, wait=True) if isinstance(each, Publish)] == []
    [refused] = bodies(ask(world, "3", wait=True))
    assert (refused.kind, refused.reason) == ("busy", "1 requests wait for the end already; try again")


def test_jobs_that_are_recovered_meanwhile_are_kept() -> None:
    world = settled()
    ask(world)
    world.request(asks(client.GetJobStatus))
    said = world.tell(effects.JobFound(job=JOB, stands=stored()))
    assert [type(each).__name__ for each in bodies(said)] == ["JobAccepted", "JobStatusAnswered"]
