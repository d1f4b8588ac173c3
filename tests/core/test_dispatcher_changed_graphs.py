"""Graphs that others put into etcd, or take out of it: the Dispatcher's exact outputs."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.core.machine import Do, PassedOver, Publish, Say
from millrace.core.messages import client, effects, events, graphs, jobs
from services.dispatcher.core.changed_graphs import SPOILT_MOST
from services.dispatcher.core.state import Recovery
from tests.core.of_dispatcher import GRAPH, JOB, OTHER, SHARD, World, bodies, settled, stored

EXCERPT: dict[str, Any] = {"size_bytes": 3, "sha256": "0" * 64, "head_base64": "eHl6"}
FOREIGN = "0123abcd.1.7"


def added(job: str = JOB, acceptance: str = FOREIGN, **fields: Any) -> graphs.JobGraphAdded:
    told = {"job": job, "revision": 50, "acceptance": acceptance, "digest": "d", "graph": GRAPH, **EXCERPT}
    return graphs.JobGraphAdded(**{**told, **fields})


def changed(job: str = JOB, **fields: Any) -> graphs.JobGraphChanged:
    return graphs.JobGraphChanged(**{"job": job, "revision": 50, **EXCERPT, **fields})


def letter(world: World, kind: str, reason: str, job: str = JOB) -> Publish:
    topic = f"etcd jobs/{job}"
    why = f"{kind}: graph in etcd of job {job}: {reason}"
    told = events.DeadLetter(topic=topic, partition=0, offset=50, reason=why, at_ms=1_000_000, **EXCERPT)
    return Publish("dead-letters", topic, told)


def test_a_graph_that_somebody_else_has_put_there_is_accepted_by_an_acceptance_of_its_own_and_started() -> None:
    world = settled()
    [put] = world.tell(added())
    stands = stored(acceptance=f"1.{world.offset}", accepted_ms=1_000_000)
    assert put == Do(f"jobs/{JOB}", effects.PutJobGraph(job=JOB, stored=stands, replaces=50))
    accepted, start = world.tell(effects.JobGraphStored(job=JOB, stands=stands.model_copy(update={"graph": None})))
    assert accepted.body == events.JobAccepted(job=JOB, at_ms=1_000_000, name="one", tasks=accepted.body.tasks)
    assert start == Say(SHARD, jobs.StartJob(job=JOB, acceptance=stands.acceptance, graph=GRAPH, accepted_ms=1_000_000), after="job.events")
    assert world.state.live[JOB].acceptance == stands.acceptance


def test_what_is_known_or_being_stored_is_not_taken_for_somebody_elses() -> None:
    world = settled()
    [put] = world.submit(JOB)
    assert world.tell(added()) == [], "our own put is on its way"
    world.tell(effects.JobGraphStored(job=JOB, stands=put.effect.stored))
    assert world.tell(added()) == [], "it lives"
    world.finish()
    assert world.tell(added()) == [], "it has ended"


def test_a_notice_that_comes_twice_accepts_one_job() -> None:
    world = settled()
    [put] = world.tell(added())
    assert world.tell(added()) == []
    world.tell(effects.JobGraphStored(job=JOB, stands=put.effect.stored))
    assert world.tell(added()) == []
    assert list(world.state.live) == [JOB]


def test_nothing_is_taken_up_before_all_is_recovered_or_while_the_cluster_is_shut_down() -> None:
    world = settled()
    world.state.recovery = Recovery.RUNNING
    assert world.tell(added()) == []
    world.state.recovery = Recovery.DONE
    world.request(client.ShutDownCluster(reply_to="c", correlation="1"))
    assert world.tell(added()) == []


def test_a_malformed_graph_is_a_dead_letter_with_the_reason() -> None:
    world = settled()
    problem = client.Problem(place=["vertices"], message="is empty")
    assert world.tell(added(graph=None, problems=[problem])) == [letter(world, "invalid", "is empty")]
    several = letter(world, "invalid", "2 things are wrong: is empty; is empty")
    assert world.tell(added(graph=None, problems=[problem, problem])) == [several]
    assert not world.state.lookups


def test_what_changes_before_it_is_accepted_is_a_dead_letter_and_takes_no_room() -> None:
    world = settled()
    world.tell(added())
    refused = effects.RepairRefused(kind="conflict", reason="it was changed again")
    told = world.tell(effects.JobGraphStored(job=JOB, stands=None, refused=refused))
    assert told == [letter(world, "conflict", "it was changed again")]
    assert (world.state.live_subtasks, world.state.putting) == (0, 0)


def test_without_room_it_is_left_there_for_the_next_notice() -> None:
    world = settled(max_live_jobs=1)
    world.accept(OTHER)
    assert world.tell(added()) == []
    world.finish(OTHER)
    assert [type(each) for each in bodies(world.tell(added()))] == [effects.PutJobGraph]


@pytest.mark.parametrize("acceptance, ours", [("1.900", True), ("2.1", True), ("1.1", False), ("cluster.1.900", False), ("", False)])
def test_a_job_of_records_that_the_log_has_lost_keeps_its_acceptance(acceptance: str, ours: bool) -> None:
    """A shard may run it by this name."""
    [do] = settled().tell(added(acceptance=acceptance))
    assert type(do.effect) is (effects.FindJob if ours else effects.PutJobGraph)


def test_a_live_job_whose_key_somebody_deletes_is_canceled_once() -> None:
    world = settled()
    accepted = world.accept()
    removed = graphs.JobGraphRemoved(job=JOB, acceptance=accepted.acceptance)
    reason = "its graph was removed from etcd"
    cancelling = Publish("job.events", JOB, events.JobCancelling(job=JOB, at_ms=1_000_000, reason=reason), "", after="JobAccepted")
    assert world.tell(removed) == [Say(SHARD, jobs.CancelStartedJob(job=JOB)), cancelling]
    assert world.tell(removed) == [], "once"
    assert world.state.live[JOB].shown == "CANCELLING"
    assert world.finish(status="CANCELED").status == "CANCELED", "its ending is put where its graph was"


def test_a_delete_of_what_ends_or_of_an_earlier_job_of_the_id_cancels_nothing() -> None:
    world = settled()
    accepted = world.accept()
    assert world.tell(graphs.JobGraphRemoved(job=JOB, acceptance="another")) == []
    world.end()
    assert world.tell(graphs.JobGraphRemoved(job=JOB, acceptance=accepted.acceptance)) == []
    assert world.tell(graphs.JobGraphRemoved(job=OTHER, acceptance="x")) == []


def test_the_key_of_a_live_job_that_is_gone_though_nobody_has_deleted_it_is_put_back() -> None:
    world = settled()
    accepted = world.accept()
    [keep] = world.tell(changed(acceptance=accepted.acceptance, revision=0))
    assert keep == Do(f"jobs/{JOB}", effects.KeepJobGraph(job=JOB, stored=accepted))
    assert world.tell(effects.JobGraphKept(job=JOB)) == []
    assert JOB in world.state.live


def test_another_graph_over_a_live_job_is_a_dead_letter_and_the_jobs_own_is_put_back() -> None:
    world = settled()
    accepted = world.accept()
    parked, keep = world.tell(changed(acceptance=accepted.acceptance))
    why = "it lives, with what the log has of it: that is put back. To run another graph, put it under another id"
    assert parked == letter(world, "conflict", why)
    assert keep.effect == effects.KeepJobGraph(job=JOB, stored=accepted)


def test_a_graph_over_an_ended_job_runs_nothing_and_its_tombstone_is_put_back() -> None:
    world = settled()
    stone = world.accept() and world.finish()
    parked, keep = world.tell(changed(acceptance=stone.acceptance))
    why = "it has ended: it is FINISHED, and an id is one job for ever. Put it under another id"
    assert parked == letter(world, "conflict", why)
    assert (keep.effect.stored.state, keep.effect.stored.status, keep.effect.stored.acceptance) == ("clean", "FINISHED", stone.acceptance)
    assert world.tell(changed(acceptance=stone.acceptance, revision=0)) == [], "a tombstone that is gone was swept"
    assert world.tell(changed(acceptance="another")) == []


def test_who_asks_for_a_copy_before_it_is_noticed_does_not_have_it_run_by_the_originals_acceptance() -> None:
    world = settled()
    original = world.accept(OTHER)
    world.request(client.GetJobStatus(job=JOB, reply_to="c", correlation="2"))
    [answer] = world.tell(effects.JobFound(job=JOB, stands=stored(acceptance=original.acceptance)))
    assert answer.body.kind == "not_found"
    world.submit(JOB)
    [busy] = world.tell(effects.JobGraphStored(job=JOB, stands=stored(acceptance=FOREIGN)))
    assert (busy.body.kind, "somebody has put a graph under this id" in busy.body.reason) == ("busy", True)
    assert list(world.state.live) == [OTHER]


def test_a_new_life_leaves_what_names_another_cluster_to_be_noticed() -> None:
    world = settled()
    world.state.recovery = Recovery.RUNNING
    world.tell(effects.JobsRecovered(jobs={JOB: stored(acceptance=FOREIGN), OTHER: stored(OTHER)}))
    assert list(world.state.live) == [OTHER] and world.state.recovery is Recovery.DONE
    assert [type(each) for each in bodies(world.tell(added()))] == [effects.PutJobGraph]


def test_what_ended_processes_is_not_taken_up_again() -> None:
    world = settled()
    parked = world.tell(PassedOver(added(), "it ended two processes"))
    assert parked == [letter(world, "internal", "a fault of Millrace in handling it: it ended two processes")]
    assert world.tell(added()) == []
    for number in range(SPOILT_MOST):
        world.tell(PassedOver(added(f"job-{number}"), "x"))
    assert len(world.state.spoilt) == SPOILT_MOST and JOB not in world.state.spoilt
