"""The Dispatcher's machine: a job's parallelism is told, and changed."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.core.jobgraph.model import dump
from millrace.core.jobgraph.validate import validate
from millrace.core.machine import PeerBorn, Publish, Say, Ticked
from millrace.core.messages import base, client, jobs, requirements
from millrace.core.messages.records import Client
from millrace.core.messages.requirements import Rescale
from millrace.core.timing import FORWARDED_ANSWER_MS
from services.dispatcher.core.requirements import UNDECIDED_MOST
from tests.core.of_dispatcher import JOB, SHARD, World, asks, bodies, described, ended, settled

GRAPH = dump(validate({
    "name": "one",
    "vertices": {
        "a": {"sql": "SELECT 1 AS x"},
        "b": {"sql": "SELECT x FROM a", "parallelism": 2, "inputs": {"a": "hash(x)"}},
        "c": {"sql": "SELECT x FROM b", "parallelism": 2, "inputs": {"b": "forward"}},
    },
}))  # fmt: skip
ALONE = "parallelism 2 needs an input by forward or hash: else every subtask computes the same rows"


def accepted(**settings: Any) -> World:
    world = settled(**settings)
    world.accept(graph=GRAPH)
    return world


def listed(b: int = 2) -> list[requirements.VertexRequirement]:
    one = requirements.VertexRequirement(vertex="a", parallelism=1, most=1, group="a", why=ALONE)
    return [one, *(requirements.VertexRequirement(vertex=name, parallelism=b, most=128, group="b") for name in "bc")]


def update(parallelism: int | None = None, **vertices: int) -> requirements.UpdateRequirements:
    return requirements.UpdateRequirements(job=JOB, parallelism=parallelism, vertices=vertices, reply_to="c", correlation="2")


def refused(world: World, request: base.Request) -> client.RequestRefused:
    [said] = world.request(request)
    assert isinstance(said, Publish) and isinstance(said.body, client.RequestRefused)
    return said.body


def decided(world: World, sent: Any, reason: str | None = None) -> base.Reply:
    """What the client is answered once the JobMaster has decided."""
    [answer] = world.tell(jobs.QuestionAnswered(number=sent.number, refused=reason), sender=SHARD)
    assert isinstance(answer, Publish) and (answer.topic, answer.key) == ("client.replies", "c")
    return answer.body


def described_by(world: World) -> list[requirements.VertexRequirement]:
    [answer] = bodies(world.request(asks(requirements.DescribeRequirements)))
    vertices: list[requirements.VertexRequirement] = answer.vertices
    return vertices


def started(world: World) -> jobs.StartJob:
    """What a new life of the JobMaster begins with."""
    [start] = [each for each in bodies(world.tell(PeerBorn(SHARD, 2), sender=SHARD)) if isinstance(each, jobs.StartJob)]
    return start


def test_what_a_job_has_and_may_have() -> None:
    answer = requirements.JobRequirements(correlation="2", job=JOB, vertices=listed())
    assert accepted().request(asks(requirements.DescribeRequirements)) == [Publish("client.replies", "c", answer)]


def test_another_parallelism_is_noted_sent_to_the_job_master_and_answered() -> None:
    world = accepted()
    [sent] = world.request(update(c=4))
    rescale = Rescale(parallelism={"b": 4, "c": 4}, log="l", offset=world.offset - 1)
    assert sent == Say(SHARD, jobs.RescaleStartedJob(job=JOB, rescale=rescale, number=1))
    taken = requirements.RequirementsUpdated(correlation="2", job=JOB, changed={"b": 4, "c": 4}, vertices=listed(4))
    assert decided(world, sent.body) == taken
    assert world.tell(jobs.QuestionAnswered(number=1), sender=SHARD) == [], "once"
    assert (world.state.live[JOB].subtasks, world.state.live_subtasks) == (9, 9)
    start = started(world)
    assert (start.rescale, start.graph) == (rescale, GRAPH), "a new life of the JobMaster begins with it"


def test_the_same_numbers_are_answered_and_nobody_is_asked() -> None:
    world = accepted()
    [answer] = bodies(world.request(update(2)))
    assert (answer.changed, answer.vertices, world.state.live[JOB].rescaled) == ({}, listed(), None)
    [sent] = bodies(world.request(update(3)))
    assert decided(world, sent).changed == {"b": 3, "c": 3}
    [again] = bodies(world.request(update(3)))
    assert (again.changed, again.vertices) == ({}, listed(3))


def test_what_was_asked_for_adds_up_and_back_again_is_a_change_as_any_other() -> None:
    world = accepted()
    world.request(update(5))
    [sent] = bodies(world.request(update(b=2)))
    assert sent.rescale.parallelism == {"b": 2, "c": 2}


@pytest.mark.parametrize(("request_", "reason"), [
    (update(a=2), f"a: stays at 1, not 2: {ALONE}"),
    (update(d=2), "d: no vertex is called d (did you mean a?)"),
    (update(b=129), "b: must be at most 128, not 129"),
    (update(), "nothing is asked for: give `parallelism`, or `vertices` with a number for each"),
    (update(b=3, c=4), "c: has 4, and b has 3: forward needs equal parallelism"),
    (update(a=2, d=2), "2 things are wrong"),
])  # fmt: skip
def test_what_cannot_be_is_refused_with_the_reason(request_: base.Request, reason: str) -> None:
    world = accepted()
    said = refused(world, request_)
    assert (said.kind, said.reason.replace("vertices are a, b, c", "did you mean a?"), bool(said.problems)) == ("invalid", reason, True)
    assert world.state.live[JOB].rescaled is None


def test_no_job_has_more_subtasks_than_there_may_be() -> None:
    world = accepted(max_live_subtasks=20)
    assert refused(world, update(64)).problems[0].message == (
        "its vertices have 129 subtasks in all, and max_live_subtasks is 20: lower their parallelism"
    )
    world.accept("job-b", graph=GRAPH)
    said = refused(world, update(8))
    assert (said.kind, said.reason) == ("busy", "live jobs have 10 subtasks, and max_live_subtasks is 20; try again")
    assert bodies(world.request(update(4)))[0].type == "RescaleStartedJob"


def test_a_job_that_ends_or_has_ended_is_left_alone() -> None:
    world = settled()
    assert [each.effect.type for each in world.request(update(3))] == ["FindJob"]
    world = accepted()
    world.tell(jobs.JobStatusChanged(job=JOB, status="RUNNING", publishing=True), sender=SHARD)
    said = refused(world, update(3))
    assert (said.kind, said.reason) == ("conflict", f"job {JOB} publishes its sinks: it ends with the parallelism that it has")
    world.tell(jobs.JobStatusChanged(job=JOB, status="FAILING"), sender=SHARD)
    assert refused(world, update(3)).reason == f"job {JOB} is FAILING: it gets no other parallelism any more"
    world = accepted()
    world.request(asks(client.CancelJob))
    said = refused(world, update(3))
    assert (said.kind, said.reason) == ("conflict", f"job {JOB} is CANCELLING: it gets no other parallelism any more")
    world = accepted()
    world.end()
    assert world.request(update(3)) == [], "it is answered when the ending is stored"
    world = accepted()
    world.finish()
    said = refused(world, update(3))
    assert (said.kind, said.reason) == ("conflict", f"job {JOB} has ended already: it is FINISHED")
    assert refused(world, asks(requirements.DescribeRequirements)).kind == "conflict"


def test_a_dispatcher_that_has_lost_its_log_has_it_from_the_job_master_or_reads_it_again() -> None:
    world = accepted()
    acceptance = world.state.live[JOB].acceptance
    told = Rescale(parallelism={"b": 4, "c": 4}, log="l", offset=90)
    started = jobs.JobMasterStarted(job=JOB, status="RUNNING", acceptance="another", rescale=told)
    world.tell(started, sender=SHARD)
    assert world.state.live[JOB].rescaled is None, "of another acceptance"
    world.tell(started.model_copy(update={"acceptance": acceptance}), sender=SHARD)
    assert (world.state.live[JOB].subtasks, world.state.live_subtasks) == (9, 9)
    again = Client(log="l", prev=88, offset=89, request=update(7), decided=True)
    [answer] = bodies(world.tell(again))
    assert (answer.changed, answer.vertices) == ({}, listed(4)), "a later one was decided"
    older = told.model_copy(update={"offset": 3, "parallelism": {"b": 1}})
    world.tell(jobs.JobMasterStarted(job=JOB, status="RUNNING", acceptance=acceptance, rescale=older), sender=SHARD)
    assert world.state.live[JOB].rescaled.parallelism == {"b": 4, "c": 4}
    [sent] = bodies(world.tell(Client(log="l", prev=90, offset=91, request=update(5))))
    assert sent.rescale == Rescale(parallelism={"b": 5, "c": 5}, log="l", offset=91)


def test_a_job_that_has_just_ended_at_its_job_master_is_refused() -> None:
    world = accepted()
    [sent] = bodies(world.request(update(4)))
    late = decided(world, sent, f"job {JOB} has ended already: it is FINISHED")
    assert late == client.RequestRefused(correlation="2", kind="conflict", reason=f"job {JOB} has ended already: it is FINISHED")
    world = accepted()
    [sent] = bodies(world.request(update(4)))
    world.finish()
    assert decided(world, sent).kind == "conflict", "its end is stored before the JobMaster's answer came"


def test_what_the_job_master_refuses_leaves_nothing() -> None:
    world = accepted()
    [sent] = bodies(world.request(update(4)))
    assert described_by(world) == listed(), "it has what it had, until that is decided"
    assert decided(world, sent, "too late").kind == "conflict"
    assert (described_by(world), started(world).rescale, world.state.live_subtasks) == (listed(), None, 5)
    first, second = (bodies(world.request(update(number)))[0] for number in (3, 6))
    assert (decided(world, first).changed, decided(world, second, "too late").kind) == ({"b": 3, "c": 3}, "conflict")
    assert (described_by(world), started(world).rescale, world.state.live_subtasks) == (listed(3), first.rescale, 7)


def test_the_same_numbers_before_the_first_request_is_decided_are_decided_with_it() -> None:
    for reason, kind in ((None, "RequirementsUpdated"), ("too late", "RequestRefused")):
        world = accepted()
        sent = [bodies(world.request(update(4)))[0] for _ in range(2)]
        assert [each.rescale.parallelism for each in sent] == [{"b": 4, "c": 4}] * 2
        answers = [decided(world, each, reason) for each in sent]
        assert [each.type for each in answers] == [kind] * 2
        assert [each.changed for each in answers if isinstance(each, requirements.RequirementsUpdated)] in ([], [{"b": 4, "c": 4}, {}])
    world = accepted()
    one, two = (bodies(world.request(update(4)))[0] for _ in range(2))
    decided(world, one, "too late")
    assert decided(world, two).changed == {"b": 4, "c": 4}, "it is the second that is taken"
    world = accepted()
    for _ in range(2):
        world.request(update(4))
    start, *_ = [each for each in bodies(world.tell(PeerBorn(SHARD, 2), sender=SHARD)) if isinstance(each, jobs.StartJob)]
    assert (start.rescale.parallelism, world.state.live[JOB].undecided, described_by(world)) == ({"b": 4, "c": 4}, {}, listed(4))


def test_a_job_has_a_bound_of_rescales_that_are_not_decided() -> None:
    world = accepted()
    for number in range(UNDECIDED_MOST):
        world.request(update(3 + number % 2))
    said = refused(world, update(7))
    assert (said.kind, said.reason) == ("busy", f"{UNDECIDED_MOST} rescales of job {JOB} wait for {SHARD} already; try again")


def test_a_job_master_that_is_silent_is_named() -> None:
    world = accepted()
    world.request(update(4))
    world.now_ms += FORWARDED_ANSWER_MS
    [answer] = bodies(world.tell(Ticked(), sender=""))
    changed = {"b": 4, "c": 4}
    assert answer == requirements.RequirementsUpdated(correlation="2", job=JOB, changed=changed, vertices=listed(4), silent=SHARD)
    sent, answer = bodies(world.request(update(5)))
    assert (sent.rescale.parallelism, sent.number, answer.silent) == ({"b": 5, "c": 5}, 2, SHARD), "it is sent, and not waited for"
    [answer] = bodies(world.request(update(5)))
    assert (answer.changed, answer.vertices, answer.silent) == ({}, listed(5), SHARD), "it was sent already"
    for number, reason, has in ((1, None, 4), (2, "too late", 4)):
        assert world.tell(jobs.QuestionAnswered(number=number, job=JOB, refused=reason), sender=SHARD) == [], "it was answered"
        assert described_by(world) == listed(has), "what it has decided since it is back"


def test_who_awaits_no_answer_gets_none() -> None:
    world = accepted()
    [sent] = bodies(world.request(update(4).model_copy(update={"reply_to": ""})))
    assert (sent.type, sent.number, world.state.asked) == ("RescaleStartedJob", 1, {})
    assert (world.tell(jobs.QuestionAnswered(number=1, job=JOB), sender=SHARD), described_by(world)) == ([], listed(4))


def test_one_that_came_before_the_job_is_not_for_it() -> None:
    world = accepted()
    early = Client(log="l", prev=-1, offset=0, request=update(3), decided=True)
    assert bodies(world.tell(early))[0].kind == "not_found"


def test_the_archive_has_the_numbers_that_the_job_ran_with_at_last() -> None:
    """What came too late for its JobMaster is no part of that."""
    for ran in ({"b": 4, "c": 4}, {}):
        world = accepted()
        world.request(update(4))
        acceptance = world.state.live[JOB].acceptance
        archive = described(JOB, acceptance, rescaled=ran)
        [do] = world.tell(ended(JOB, acceptance).model_copy(update={"archive": archive}), sender=SHARD)
        assert do.effect.archive.graph["vertices"]["b"]["parallelism"] == ran.get("b", 2)
        assert do.effect.ending.digest == "d"
