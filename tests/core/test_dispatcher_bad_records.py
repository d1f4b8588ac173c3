"""What the Dispatcher makes of a record that was passed over because it ended processes [R26]: nobody waits for it for ever."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.core.machine import Born, Configured, Do, Output, PassedOver, PeerBorn, Say
from millrace.core.messages import client, effects, jobs
from services.dispatcher.core import waiting
from services.dispatcher.core.state import Recovery
from tests.core.of_dispatcher import JOB, OTHER, SHARD, SINKS, World, asks, bodies, ended, settled, stored

FAULT = "a fault of Millrace in handling this request: KeyError: 'x'"


def passed(world: World, body: Any, sender: str = "") -> list[Output]:
    return world.tell(PassedOver(body, "KeyError: 'x'"), sender)


def test_a_bad_end_of_a_job_fails_it() -> None:
    world = settled()
    stands = world.accept(graph=SINKS)
    [do] = passed(world, ended(JOB, stands.acceptance), SHARD)
    ending = do.effect.ending
    assert (ending.state, ending.status, ending.staging) == ("dirty", "FAILED", [f"/data/.out.staging/{stands.acceptance}"])
    assert ending.cause.message == "a fault of Millrace in handling the end of this job: KeyError: 'x'"
    [_, retired, _] = bodies(world.tell(effects.JobResultStored(job=JOB, stands=ending)))
    assert retired == jobs.JobRetired(job=JOB, acceptance=stands.acceptance)


def test_a_bad_outcome_about_a_job_is_an_answer_to_all_who_wait_for_it() -> None:
    put, sought = settled(), settled()
    put.submit()
    put.request(asks(client.DescribeJob))
    sought.request(asks(client.AwaitJobResult))
    sought.submit()
    told = bodies(passed(put, effects.JobGraphStored(job=JOB, stands=stored())))
    assert [(type(each), each.kind, each.reason) for each in told] == [
        (client.JobRejected, "internal", FAULT),
        (client.RequestRefused, "internal", FAULT),
    ]
    told = bodies(passed(sought, effects.JobFound(job=JOB, stands=stored())))
    assert [type(each) for each in told] == [client.RequestRefused, client.JobRejected]
    for world in (put, sought):
        assert not world.state.lookups
        assert [type(each) for each in bodies(world.request(asks(client.GetJobStatus)))] == [effects.FindJob]


def test_a_shard_says_an_end_again_to_the_next_life_after_a_bad_outcome() -> None:
    world = World()
    world.tell(Configured({}))
    world.tell(Born())
    world.tell(PeerBorn(SHARD, 1), SHARD)
    world.request(asks(client.DescribeJob))
    world.tell(ended(JOB, "0.9"), SHARD)
    passed(world, effects.JobFound(job=JOB, stands=stored()))
    assert bodies(world.tell(effects.JobsRecovered(jobs={}))) == []


def test_after_a_bad_outcome_of_its_end_a_job_has_ended_here_and_stays_dirty_in_etcd() -> None:
    world = settled()
    world.accept()
    world.request(asks(client.AwaitJobResult))
    ending = world.end(JOB).ending
    retired, refused = passed(world, effects.JobResultStored(job=JOB, stands=ending))
    assert retired == Say(SHARD, jobs.JobRetired(job=JOB, acceptance=ending.acceptance))
    assert (refused.body.kind, refused.body.reason) == ("internal", FAULT)
    [result] = bodies(world.request(asks(client.AwaitJobResult)))
    assert result.status == "FINISHED"


def test_of_a_bad_page_each_job_is_recovered_by_itself() -> None:
    world = World()
    world.tell(Configured({}))
    world.tell(Born())
    page = {JOB: stored(JOB), OTHER: stored(OTHER, "dirty"), "c": stored("c", "clean")}
    more = Do("jobs", effects.RecoverJobs(after="c", retained=10_000))
    finds = [Do(f"jobs/{job}", effects.FindJob(job=job)) for job in (JOB, OTHER)]
    assert passed(world, effects.JobsRecovered(jobs=page, through="c")) == [*finds, more]
    assert passed(world, effects.JobsRecovered(jobs={}, through=None)) == []
    assert world.state.recovery is Recovery.DONE
    assert passed(world, effects.JobFound(job=OTHER, stands=stored(OTHER, "dirty"))) == []
    world.tell(effects.JobFound(job=JOB, stands=stored(JOB)))
    assert list(world.state.live) == [JOB] and not world.state.lookups


def test_of_a_bad_page_each_job_is_recovered_however_many_requests_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "WAITING_MOST", 1)
    world = World()
    world.tell(Configured({}))
    world.tell(Born())
    world.request(asks(client.DescribeJob, OTHER))
    [find] = passed(world, effects.JobsRecovered(jobs={JOB: stored(JOB), OTHER: stored(OTHER)}))
    assert find == Do(f"jobs/{JOB}", effects.FindJob(job=JOB))


def test_who_waits_for_a_list_that_is_a_bad_record_is_refused() -> None:
    world = settled()
    world.state.unlisted_ms = 5
    world.request(client.ListJobDetails(reply_to="c", correlation="2"))
    listed = effects.StoredJobsListed(number=1, jobs=[], more=False)
    assert bodies(passed(world, listed)) == [client.RequestRefused(correlation="2", kind="internal", reason=FAULT)]
    assert world.state.listings == {} and passed(world, listed) == []
