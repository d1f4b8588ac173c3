"""The Dispatcher's machine: submissions."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.core.machine import Configured, Do, PassedOver, Publish, Say, Ticked
from millrace.core.messages import client, effects, events, jobs
from millrace.core.messages.kept import KEPT_BYTES_MOST
from millrace.core.messages.records import Client, Refusal
from services.dispatcher.core import answers, starting, waiting
from services.dispatcher.core.retirement import tombstone_of
from tests.core.of_dispatcher import (
    EXCERPT,
    GRAPH,
    JOB,
    OTHER,
    SHARD,
    TASKS,
    TOPOLOGY,
    World,
    asks,
    bodies,
    of_shard,
    settled,
    stored,
)  # fmt: skip


def accepted(correlation: str = "1", status: str = "INITIALIZING") -> Publish:
    body = client.JobAcceptedReply(
        correlation=correlation, job=JOB, status=status, events_partition=TOPOLOGY.events_partition(JOB)
    )
    return Publish("client.replies", "c", body)


def rejected(kind: str, reason: str, correlation: str = "1", **more: object) -> Publish:
    body = client.JobRejected(correlation=correlation, job=JOB, kind=kind, reason=reason, **more)
    return Publish("client.replies", "c", body)


def parked(world: World, kind: str, reason: str, offset: int | None = None) -> Publish:
    """The letter of the request that came last, or of the one at this offset of client.commands."""
    letter = events.DeadLetter(
        topic="client.commands", partition=0, offset=world.offset - 1 if offset is None else offset,
        reason=f"{kind}: SubmitJob of job {JOB}: {reason}", at_ms=world.now_ms, **EXCERPT.model_dump(),
    )  # fmt: skip
    return Publish("dead-letters", "client.commands", letter)


HOUR_MS = 3_600_000
CONFLICT = f"job {JOB} exists with another graph or other parameters; submit under another id"
LATE = "it came too late: accept_before_ms had passed by the Dispatcher's clock; submit again"


def test_a_submission_is_put_and_nothing_is_said_before_it_is_stored() -> None:
    world = settled()
    expected = stored(acceptance=f"1.{world.offset + 1}", accepted_ms=world.now_ms, asked_log="l", asked=4)
    put = effects.PutJobGraph(job=JOB, stored=expected, accept_before_ms=99)
    assert world.submit(accept_before_ms=99) == [Do(f"jobs/{JOB}", put)]


@pytest.mark.parametrize("read", [False, True])
def test_a_stored_submission_is_announced_then_starts_at_its_shard_and_is_acknowledged(read: bool) -> None:
    """Stored just now, or by an earlier try whose answer was lost, and read."""
    world = settled()
    [put] = world.submit()
    stands = put.effect.stored if read else put.effect.stored.model_copy(update={"graph": None})
    start = jobs.StartJob(job=JOB, acceptance=stands.acceptance, graph=GRAPH, accepted_ms=world.now_ms)
    told = events.JobAccepted(job=JOB, at_ms=world.now_ms, name="one", tasks=TASKS)
    assert world.tell(effects.JobGraphStored(job=JOB, stands=stands)) == [
        Publish("job.events", JOB, told),
        Say(SHARD, start, after="job.events"),
        accepted(),
    ]
    assert list(world.state.live) == [JOB]
    assert world.state.live_graphs == len(world.state.live[JOB].graph)


def test_while_many_wait_to_be_stored_few_are_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "FLOOD_A_TICK", 2)
    monkeypatch.setattr(starting, "FLOOD_STARTS_A_TICK", 1)
    world = settled()
    names = of_shard(5)
    puts = {job: put for job in names for put in world.submit(job)}

    def store(job: str) -> list[type]:
        return [type(each) for each in bodies(world.tell(effects.JobGraphStored(job=job, stands=puts[job].effect.stored)))]

    def tick() -> list[str]:
        return [each.job for each in bodies(world.tell(Ticked()))]

    held = [events.JobAccepted, client.JobAcceptedReply]
    assert [store(job) for job in names[:3]] == [held, held, held]
    described = world.request(client.DescribeJob(job=names[0], reply_to="c", correlation="2"))
    assert [type(each) for each in bodies(described)] == [client.JobDescribed], "its JobMaster has not heard of it"
    assert tick() == names[:1], "none of them waits for ever"
    assert store(names[3]) == held, "it waits behind the others"
    assert tick() == names[1:4], "nothing came since the last tick"
    assert store(names[4]) == [events.JobAccepted, jobs.StartJob, client.JobAcceptedReply]


def test_warnings_reach_the_client() -> None:
    world = settled()
    warning = client.Problem(place=["vertices", "v"], message="hm")
    request = client.SubmitJob(job=JOB, graph={}, reply_to="c", correlation="1")
    [put] = world.request(request, graph=GRAPH, digest="d", warnings=[warning])
    *_, reply = world.tell(effects.JobGraphStored(job=JOB, stands=put.effect.stored))
    assert reply.body.warnings == [warning]


def test_a_submission_that_wants_no_reply_gets_none() -> None:
    world = settled()
    [put] = world.request(client.SubmitJob(job=JOB, graph={}), graph=GRAPH, digest="d")
    outputs = world.tell(effects.JobGraphStored(job=JOB, stands=put.effect.stored))
    assert [type(body) for body in bodies(outputs)] == [events.JobAccepted, jobs.StartJob]


def test_an_invalid_submission_is_rejected_with_all_problems() -> None:
    world = settled()
    request = client.SubmitJob(job=JOB, graph={}, reply_to="c", correlation="1")
    problems = [client.Problem(place=["name"], message="is missing"), client.Problem(place=[], message="b")]
    assert world.request(request, problems=problems) == [rejected("invalid", "2 things are wrong", problems=problems)]
    [one] = world.request(request, problems=problems[:1])
    assert one == rejected("invalid", "is missing", problems=problems[:1])
    assert world.state.lookups == {}


def test_a_late_submission_is_rejected_and_leaves_nothing() -> None:
    world = settled()
    world.submit()
    assert world.tell(effects.JobGraphStored(job=JOB, stands=None)) == [rejected("late", LATE)]
    assert (world.state.live, world.state.lookups, world.state.putting) == ({}, {}, 0)


def test_the_same_submission_again_is_the_same_job_with_its_status() -> None:
    world = settled()
    world.accept()
    world.tell(jobs.JobStatusChanged(job=JOB, status="RUNNING"), sender=SHARD)
    assert world.submit() == [accepted(status="RUNNING")]
    world.finish()
    assert world.submit() == [accepted(status="FINISHED")]


def test_another_graph_under_a_known_id_is_a_conflict() -> None:
    world = settled()
    world.accept()
    assert world.submit(digest="x") == [rejected("conflict", CONFLICT)]
    world.finish()
    assert world.submit(digest="x") == [rejected("conflict", CONFLICT)]


def test_two_submissions_of_one_id_in_flight_are_one_acceptance() -> None:
    world = settled()
    [put] = world.submit()
    again = client.SubmitJob(job=JOB, graph={}, reply_to="c", correlation="2")
    other = client.SubmitJob(job=JOB, graph={}, reply_to="c", correlation="3")
    assert world.request(again, graph=GRAPH, digest="d") == []
    assert world.request(other, graph=GRAPH, digest="x") == []
    outputs = world.tell(effects.JobGraphStored(job=JOB, stands=put.effect.stored))
    assert [type(body) for body in bodies(outputs)] == [
        events.JobAccepted, jobs.StartJob, client.JobAcceptedReply, client.JobAcceptedReply, client.JobRejected,
    ]  # fmt: skip
    assert [body.correlation for body in bodies(outputs)[2:]] == ["1", "2", "3"]
    assert bodies(outputs)[4].kind == "conflict"


def test_after_a_late_one_the_next_in_line_is_put() -> None:
    world = settled()
    world.submit(accept_before_ms=1)
    world.request(asks(client.GetJobStatus, correlation="q"))
    again = client.SubmitJob(job=JOB, graph={}, reply_to="c", correlation="2")
    world.request(again, graph=GRAPH, digest="x")
    world.request(asks(client.GetJobStatus, correlation="w"))
    outputs = world.tell(effects.JobGraphStored(job=JOB, stands=None))
    late, unknown, put = bodies(outputs)
    assert (late.correlation, late.kind) == ("1", "late")
    assert (unknown.correlation, unknown.kind) == ("q", "not_found")
    assert (put.stored.digest, put.stored.acceptance) == ("x", f"1.{world.offset}")
    outputs = world.tell(effects.JobGraphStored(job=JOB, stands=put.stored))
    assert [body.correlation for body in bodies(outputs)[2:]] == ["2", "w"]


def test_an_id_that_etcd_knows_from_before_is_not_accepted_twice() -> None:
    world = settled()
    world.submit()
    assert world.tell(effects.JobGraphStored(job=JOB, stands=stored(state="clean"))) == [accepted(status="FINISHED")]
    assert (world.state.live, world.state.ended) == ({}, {}), "an old job stays out of the state"
    world.submit()
    [reply] = world.tell(effects.JobGraphStored(job=JOB, stands=stored(state="clean", digest="x")))
    assert reply.body.kind == "conflict"


def test_an_accepted_job_that_only_etcd_knows_is_started() -> None:
    world = settled()
    world.submit()
    outputs = world.tell(effects.JobGraphStored(job=JOB, stands=stored()))
    start = jobs.StartJob(job=JOB, acceptance="0.9", graph=GRAPH, accepted_ms=5)
    assert outputs[1:] == [Say(SHARD, start, after="job.events"), accepted()]


def test_a_repeat_long_after_the_end_keeps_the_tombstone() -> None:
    """It would go with the first submission, and a new generation that reads the repeat again would run the job a second time."""
    world = settled()
    world.accept()
    world.finish()
    for later_ms, kept in ((HOUR_MS, []), (24 * HOUR_MS, [effects.KeepJob])):
        world.now_ms += later_ms
        for fields in ({}, {"digest": "x"}):  # what is a conflict now would be accepted then
            told = bodies(world.submit(**fields))
            assert [type(each) for each in told][1:] == kept
            stones = [each.tombstone for each in told[1:]]
            assert stones == [tombstone_of(world.state.ended[JOB], TOPOLOGY.shard_of(JOB)) for _ in kept], "in case it is gone already"


def test_whoever_asks_about_a_key_that_holds_no_job_is_told_so() -> None:
    world = settled()
    world.request(asks(client.DescribeJob))
    [found] = world.tell(effects.JobFound(job=JOB, stands=None, unreadable="it is torn"))
    assert (found.body.type, found.body.kind) == ("RequestRefused", "internal") and "it is torn" in found.body.reason
    world.submit()
    world.submit()
    told = bodies(world.tell(effects.JobGraphStored(job=JOB, stands=None, unreadable="it is torn")))
    assert [(each.type, each.kind) for each in told] == [("JobRejected", "internal")] * 2
    assert not (world.state.lookups or world.state.waiting)


def test_an_ended_job_that_only_etcd_knows_is_cleaned_up() -> None:
    world = settled()
    world.submit()
    outputs = world.tell(effects.JobGraphStored(job=JOB, stands=stored(state="dirty")))
    assert [type(body) for body in bodies(outputs)] == [
        events.JobFinished, jobs.JobRetired, effects.CleanJob, client.JobAcceptedReply,
    ]  # fmt: skip
    assert list(world.state.ended) == [JOB]


def test_an_ended_job_under_a_name_that_a_cut_log_gave_again_is_not_accepted_once_more() -> None:
    world = settled()
    acceptance = world.submit()[0].effect.stored.acceptance
    outputs = world.tell(effects.JobGraphStored(job=JOB, stands=stored(state="dirty", acceptance=acceptance)))
    assert effects.CleanJob in [type(body) for body in bodies(outputs)] and not world.state.live


def test_without_room_a_submission_is_told_to_come_again() -> None:
    world = settled(max_live_jobs=2)
    world.accept(OTHER)
    world.submit("job-c")
    reason = "2 jobs are live, and max_live_jobs is 2; try again when some have ended"
    assert world.submit() == [rejected("busy", reason, retry_after_ms=1_000)]
    world.finish(OTHER)
    assert isinstance(world.submit()[0], Do)


def test_the_graphs_of_live_jobs_are_bounded() -> None:
    world = settled(max_live_graphs_mb=1)
    large = {"name": "one", "vertices": {"v": {"sql": f"SELECT '{'x' * 600_000}'"}}}
    [put] = world.submit(OTHER, graph=large)
    world.tell(effects.JobGraphStored(job=OTHER, stands=put.effect.stored))
    [reply] = world.submit(JOB, graph=large)
    assert (reply.body.kind, reply.body.retry_after_ms) == ("busy", 1_000)
    world.tell(Configured({"max_live_graphs_mb": 2}))
    assert isinstance(world.submit(JOB, graph=large)[0], Do)


def test_the_graphs_that_are_being_stored_are_bounded_with_those_of_live_jobs() -> None:
    """While etcd is away none of them becomes a live job: thousands were taken in."""
    world = settled(max_live_graphs_mb=1)
    large = {"name": "one", "vertices": {"v": {"sql": f"SELECT '{'x' * 250_000}'"}}}
    puts = [world.submit(f"job-{number}", graph=large)[0] for number in range(8)]
    assert [isinstance(each, Do) for each in puts] == [True] * 4 + [False] * 4
    assert puts[4].body.kind == "busy" and "max_live_graphs_mb" in puts[4].body.reason
    world.tell(effects.JobGraphStored(job="job-0", stands=puts[0].effect.stored))
    world.tell(effects.JobGraphStored(job="job-1", stands=None))
    assert world.state.live_graphs == 3 * len(world.state.live["job-0"].graph)
    assert isinstance(world.submit("job-9", graph=large)[0], Do)


def test_a_repair_counts_what_it_may_begin_with_until_that_is_known() -> None:
    world = settled(max_live_graphs_mb=1)
    repair = {"name": "one", "vertices": {"v": {"sql": "SELECT 1"}}, "origin": {"job": "job-b", "repair": True}}
    [put] = world.submit(OTHER, graph=repair)
    assert world.state.live_graphs > KEPT_BYTES_MOST
    world.tell(effects.JobGraphStored(job=OTHER, stands=put.effect.stored))
    assert world.state.live_graphs == len(world.state.live[OTHER].graph)


WIDE = {"name": "wide", "vertices": {f"v{n}": {"sql": "SELECT 1", "parallelism": 128} for n in range(3)}}  # 384 subtasks, 150 bytes


def test_what_live_jobs_may_come_to_cost_is_bounded_by_their_subtasks_however_small_their_graphs_are() -> None:
    world = settled(max_live_subtasks=800)
    [put] = world.submit(OTHER, graph=WIDE)
    assert world.submit("job-c", graph=WIDE) and world.state.live_subtasks == 768, "what is being stored counts as well"
    reason = "live jobs have 768 subtasks, this one 384, and max_live_subtasks is 800; try again when some have ended"
    assert world.submit(JOB, graph=WIDE) == [rejected("busy", reason, retry_after_ms=1_000)]
    assert isinstance(world.submit("job-d")[0], Do), "a small one finds room"
    world.tell(effects.JobGraphStored(job=OTHER, stands=put.effect.stored))
    world.finish(OTHER)
    assert isinstance(world.submit(JOB, graph=WIDE)[0], Do)


def test_a_graph_with_more_subtasks_than_all_live_jobs_may_have_is_invalid() -> None:
    world = settled(max_live_subtasks=383)
    [reply] = world.submit(JOB, graph=WIDE)
    reason = "its vertices have 384 subtasks in all, and max_live_subtasks is 383: lower their parallelism"
    assert (reply.body.kind, reply.body.reason, reply.body.problems[0].place) == ("invalid", reason, ["vertices"])
    assert not world.state.lookups and not world.state.live_subtasks


def test_while_a_disk_is_nearly_full_nothing_new_is_taken_and_what_is_known_is_answered() -> None:
    world = settled()
    world.accept(OTHER)
    lack = "the disk of /storage has 100 MB left, and min_free_mb is 512; try again when there is more"
    assert world.submit(lack=lack) == [rejected("busy", lack, retry_after_ms=1_000)]
    assert not world.state.lookups
    for _ in range(2):  # while it is live, and when it has ended
        [again] = world.submit(OTHER, lack=lack)
        assert isinstance(again.body, client.JobAcceptedReply)
        if world.state.live:
            world.finish(OTHER)
    assert world.fire(lack=lack) == [parked(world, "busy", lack)]
    assert isinstance(world.submit()[0], Do), "there is room again"


def test_what_is_no_request_is_parked() -> None:
    world = settled()
    refusal = Refusal(reason="not JSON", size_bytes=3, sha256="0" * 64, head_base64="eHl6")
    letter = events.DeadLetter(
        topic="client.commands", partition=0, offset=17, at_ms=world.now_ms, **refusal.model_dump()
    )
    record = Client(log="l", prev=16, offset=17, refusal=refusal)
    assert world.tell(record) == [Publish("dead-letters", "client.commands", letter)]


# refused, and nobody waits for the answer: a letter instead [R26]


def test_a_conflict_that_nobody_waits_for_is_parked() -> None:
    world = settled()
    world.accept()
    assert world.fire(digest="x") == [parked(world, "conflict", CONFLICT)]
    world.finish()
    assert world.fire(digest="x") == [parked(world, "conflict", CONFLICT)]


def test_a_conflict_with_a_job_that_only_etcd_knows_is_parked_when_that_is_known() -> None:
    world = settled()
    world.fire(digest="x")
    sent = world.offset - 1
    world.now_ms += 500
    stands = stored(state="clean")
    assert world.tell(effects.JobGraphStored(job=JOB, stands=stands)) == [parked(world, "conflict", CONFLICT, sent)]


def test_a_late_submission_that_nobody_waits_for_is_parked_and_leaves_nothing() -> None:
    world = settled()
    world.fire(accept_before_ms=1)
    sent = world.offset - 1
    world.now_ms += 500
    assert world.tell(effects.JobGraphStored(job=JOB, stands=None)) == [parked(world, "late", LATE, sent)]
    assert (world.state.live, world.state.lookups, world.state.putting) == ({}, {}, 0)


def test_without_room_a_submission_that_nobody_waits_for_is_parked_and_accepted_when_it_comes_again() -> None:
    world = settled(max_live_jobs=1)
    world.accept(OTHER)
    reason = "1 job is live, and max_live_jobs is 1; try again when some have ended"
    assert world.fire() == [parked(world, "busy", reason)]
    world.finish(OTHER)
    assert isinstance(world.fire()[0], Do)


def test_a_submission_that_waited_for_a_search_is_parked_when_there_is_no_room_behind_it() -> None:
    world = settled(max_live_jobs=1)
    world.accept(OTHER)
    world.request(asks(client.GetJobStatus))
    assert world.fire() == [], "the search may find that it is the same job"
    sent = world.offset - 1
    unknown, letter = world.tell(effects.JobFound(job=JOB, stands=None))
    assert unknown.body.kind == "not_found"
    reason = "1 job is live, and max_live_jobs is 1; try again when some have ended"
    assert letter == parked(world, "busy", reason, sent)


def test_where_too_many_wait_for_one_job_a_submission_that_nobody_waits_for_is_parked(monkeypatch: pytest.MonkeyPatch) -> None:
    world = settled()
    monkeypatch.setattr(waiting, "WAITING_A_JOB", 1)
    world.submit()
    assert world.fire() == []
    assert world.fire() == [parked(world, "busy", f"too many requests wait for job {JOB}")]
    assert world.submit() == [rejected("busy", f"too many requests wait for job {JOB}", retry_after_ms=1_000)]


@pytest.mark.parametrize("wants", ["c", ""])
def test_a_submission_that_ended_processes_is_told_to_who_waits_or_parked(wants: str) -> None:
    world = settled()
    request = client.SubmitJob(job=JOB, graph={}, reply_to=wants, correlation="1")
    record = Client(log="l", prev=6, offset=7, request=request, graph=GRAPH, digest="d", excerpt=None if wants else EXCERPT)
    reason = "a fault of Millrace in handling this request: KeyError: 'x'"
    told = rejected("internal", reason) if wants else parked(world, "internal", reason, 7)
    assert world.tell(PassedOver(record, "KeyError: 'x'")) == [told]


def test_the_same_submission_again_is_no_refusal_and_is_not_parked() -> None:
    world = settled()
    [put] = world.fire()
    assert world.fire() == [], "it waits for the first"
    outputs = world.tell(effects.JobGraphStored(job=JOB, stands=put.effect.stored))
    assert [type(body) for body in bodies(outputs)] == [events.JobAccepted, jobs.StartJob]
    assert world.fire() == []
    world.finish()
    assert world.fire() == []


@pytest.mark.parametrize("vertices", [{"a": None}, {"a": [1]}, {"a": 1}, [1], None, {"a": {"parallelism": -5}}, {"a": {"parallelism": ""}}])
def test_a_stored_graph_that_no_build_wrote_is_told_to_its_job_master_and_counts_nothing(vertices: Any) -> None:
    """It ended every Dispatcher that counted its subtasks; a negative number took from those of others."""
    world = settled()
    world.request(client.DescribeJob(job=JOB, reply_to="c", correlation="1"))
    told = world.tell(effects.JobFound(job=JOB, stands=stored(graph={"name": "x", "vertices": vertices})))
    assert any(isinstance(each, Say) and isinstance(each.body, jobs.StartJob) for each in told)
    assert world.state.live_subtasks == 0


def test_an_accepted_job_is_told_with_what_its_tasks_read_of_each_other() -> None:
    def vertex(parallelism: int, **inputs: object) -> dict[str, Any]:
        return {"sql": "SELECT 1", "parallelism": parallelism, "inputs": inputs}

    read = {"b": "hash(k)", "a": "broadcast"}
    vertices = {"a": vertex(2), "b": vertex(2, a="forward"), "c": vertex(3, **read), "d": vertex(1, c="broadcast")}
    tasks = [each.json_value() for each in answers.tasks_of({"vertices": vertices})]
    assert [(each["task"], each.get("inputs")) for each in tasks] == [
        ("a+b", None),
        ("c", [{"task": "a+b", "edge": "hash"}, {"task": "a+b", "edge": "broadcast"}]),
        ("d", [{"task": "c", "edge": "broadcast"}]),
    ]
