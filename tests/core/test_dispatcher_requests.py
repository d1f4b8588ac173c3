"""The Dispatcher's machine: questions and cancellations."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.core.machine import Do, PeerBorn, Publish, Say
from millrace.core.messages import base, blocklist, client, effects, events, jobs
from millrace.core.messages.records import Client
from millrace.core.topics import shard_scope
from millrace.core.trace_context import of_facts
from services.dispatcher.core import waiting
from services.dispatcher.core.answers import newest
from services.dispatcher.core.state import Recovery, State
from services.dispatcher.core.submission import UNDONE
from tests.core.of_dispatcher import EXCERPT, GRAPH, JOB, OTHER, SHARD, World, asks, bodies, settled, stored


def reply(body: base.Reply) -> list[Publish]:
    return [Publish("client.replies", "c", body)]


def summary(world: World, status: str = "INITIALIZING", **more: object) -> client.JobSummary:
    return client.JobSummary(job=JOB, name="one", status=status, accepted_ms=world.now_ms, **more)


def test_status_of_a_live_job_with_why_it_waits() -> None:
    world = settled()
    world.accept()
    world.tell(jobs.JobStatusChanged(job=JOB, status="CREATED", waiting="no slot is free", position=3), sender=SHARD)
    expected = summary(world, "CREATED", waiting="no slot is free", position=3)
    assert world.request(asks(client.GetJobStatus)) == reply(
        client.JobStatusAnswered(correlation="2", summary=expected)
    )
    world.tell(jobs.JobMasterStarted(job=JOB, status="RUNNING"), sender=SHARD)
    assert world.state.live[JOB].status == "RUNNING"


def test_a_job_that_a_new_life_of_its_shard_has_started_waits_only_if_that_one_says_so() -> None:
    """The ResourceManager gives it a slot at once: then nobody says that it does not wait."""
    world = settled()
    world.accept()
    world.tell(jobs.JobStatusChanged(job=JOB, status="RUNNING", waiting="no slot is free", position=3), sender=SHARD)
    world.tell(jobs.JobMasterStarted(job=JOB, status="RUNNING"), sender=SHARD)
    assert (world.state.live[JOB].waiting, world.state.live[JOB].position) == (None, None)


def test_an_ended_job_is_answered_from_what_is_remembered() -> None:
    world = settled()
    world.accept()
    stands = world.finish()
    known = summary(world, "FINISHED", ended_ms=2_000)
    assert world.request(asks(client.GetJobStatus)) == reply(client.JobStatusAnswered(correlation="2", summary=known))
    described = client.JobDescribed(correlation="2", summary=known, archive=stands.archive)
    assert world.request(asks(client.DescribeJob)) == reply(described)
    result = client.JobResult(correlation="2", job=JOB, status="FINISHED", ended_ms=2_000, archive=stands.archive)
    assert world.request(asks(client.AwaitJobResult)) == reply(result)


def test_a_live_job_is_described_by_its_job_master() -> None:
    world = settled()
    world.accept()
    ask = jobs.DescribeStartedJob(job=JOB, reply_to="c", correlation="2", number=1)
    assert world.request(asks(client.DescribeJob)) == [Say(SHARD, ask)]


def test_a_job_of_a_silent_job_master_is_shown_all_the_same() -> None:
    world = settled()
    world.accept()
    del world.state.received_from[SHARD]
    assert world.request(asks(client.DescribeJob)) == reply(
        client.JobDescribed(correlation="2", summary=summary(world), silent=SHARD)
    )


def test_a_job_that_is_not_remembered_is_looked_for_in_etcd() -> None:
    world = settled()
    assert world.request(asks(client.GetJobStatus)) == [Do(f"jobs/{JOB}", effects.FindJob(job=JOB))]
    assert world.request(asks(client.AwaitJobResult, correlation="3")) == []
    first, second = bodies(world.tell(effects.JobFound(job=JOB, stands=stored(state="clean"))))
    assert (first.summary.status, first.summary.ended_ms) == ("FINISHED", 7)
    assert second == client.JobResult(
        correlation="3", job=JOB, status="FINISHED", ended_ms=7, archive=f"archives/{JOB}/0.9/0.11.json"
    )
    assert world.state.ended == {}


@pytest.mark.parametrize("kind", [client.GetJobStatus, client.DescribeJob, client.AwaitJobResult, client.CancelJob])
def test_an_unknown_job_is_not_found(kind: type[base.Request]) -> None:
    world = settled()
    world.request(asks(kind))
    refused = client.RequestRefused(correlation="2", kind="not_found", reason=f"there is no job {JOB}")
    assert world.tell(effects.JobFound(job=JOB, stands=None)) == reply(refused)
    assert world.state.lookups == {}


def test_a_found_job_that_is_accepted_is_started_and_answered() -> None:
    world = settled()
    world.request(asks(client.CancelJob))
    outputs = world.tell(effects.JobFound(job=JOB, stands=stored()))
    _, start, cancel, told, answer = bodies(outputs)
    assert isinstance(start, jobs.StartJob)
    assert (cancel, told) == (jobs.CancelStartedJob(job=JOB), events.JobCancelling(job=JOB, at_ms=1_000_000))
    assert answer == client.CancelAccepted(correlation="2", job=JOB, status="CANCELLING")


def test_a_submission_behind_a_search_that_finds_nothing_is_put() -> None:
    world = settled()
    world.request(asks(client.GetJobStatus))
    assert world.submit() == []
    refused, put = bodies(world.tell(effects.JobFound(job=JOB, stands=None)))
    assert refused.kind == "not_found"
    assert isinstance(put, effects.PutJobGraph)


def test_cancel_of_a_live_job_goes_to_its_shard_once() -> None:
    world = settled()
    world.accept()
    accepted = client.CancelAccepted(correlation="2", job=JOB, status="CANCELLING")
    cancelling, trace = events.JobCancelling(job=JOB, at_ms=world.now_ms), of_facts({}, world.state.live[JOB].acceptance)
    told = Publish("job.events", JOB, cancelling, trace, "JobAccepted")
    assert world.request(asks(client.CancelJob)) == [Say(SHARD, jobs.CancelStartedJob(job=JOB)), told, *reply(accepted)]
    assert world.request(asks(client.CancelJob)) == reply(accepted)


def test_cancel_of_a_job_that_is_being_stored_follows_its_start() -> None:
    world = settled()
    [put] = world.submit()
    assert world.request(asks(client.CancelJob)) == []
    outputs = world.tell(effects.JobGraphStored(job=JOB, stands=put.effect.stored))
    kinds = [type(body) for body in bodies(outputs)]
    assert kinds.index(jobs.StartJob) < kinds.index(jobs.CancelStartedJob)
    assert bodies(outputs)[-1] == client.CancelAccepted(correlation="2", job=JOB, status="CANCELLING")


@pytest.mark.parametrize(("status", "refused"), [("FINISHED", True), ("FAILED", True), ("CANCELED", False)])
def test_cancel_of_an_ended_job(status: str, refused: bool) -> None:
    world = settled()
    world.accept()
    stands = world.end(JOB, status).ending
    assert world.request(asks(client.CancelJob, correlation="early")) == [], "answered when the ending stands"
    early = bodies(world.tell(effects.JobResultStored(job=JOB, stands=stands)))[-1]
    [late] = bodies(world.request(asks(client.CancelJob, correlation="late")))
    for answer in (early, late):
        if refused:
            assert (answer.kind, answer.reason) == ("conflict", f"job {JOB} has ended already: it is {status}")
        else:
            assert (answer.job, answer.status) == (JOB, "CANCELED")


def test_waiting_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    world = settled()
    monkeypatch.setattr(waiting, "WAITING_A_JOB", 2)
    world.accept()
    await_as = [asks(client.AwaitJobResult).model_copy(update={"reply_to": name}) for name in ("a", "b", "c")]
    assert world.request(await_as[0]) == []
    assert world.request(await_as[1]) == []
    [refused] = bodies(world.request(await_as[2]))
    assert refused.kind == "busy"
    assert world.request(await_as[0]) == []  # who asks again waits once
    assert world.state.waiting == 2
    monkeypatch.setattr(waiting, "WAITING_MOST", 2)
    [refused] = bodies(world.request(asks(client.AwaitJobResult, job=OTHER)))
    assert refused.kind == "busy"
    world.finish()
    assert world.state.waiting == 0


def test_list_is_newest_first() -> None:
    world = settled()
    for number in range(5):
        world.now_ms += 1
        world.accept(f"job-{number}")
    world.finish("job-3")
    [listed] = bodies(world.request(client.ListJobs(reply_to="c", correlation="2", most=3)))
    assert [(each.job, each.status) for each in listed.jobs] == [
        ("job-4", "INITIALIZING"),
        ("job-3", "FINISHED"),
        ("job-2", "INITIALIZING"),
    ]
    assert listed.total == 5


def names(world: World, **asked: object) -> list[str]:
    [listed] = bodies(world.request(client.ListJobs(reply_to="c", correlation="2", **asked)))
    assert listed.total == len(listed.jobs)
    return [each.job for each in listed.jobs]


def test_list_gives_what_is_asked_for_by_name_state_and_time() -> None:
    world = settled()
    accepted_ms = []
    for number in range(4):
        world.now_ms += 1
        accepted_ms.append(world.now_ms)
        world.accept(f"job-{number}")
        world.state.live[f"job-{number}"].name = f"nightly {number}"
    world.finish("job-3")
    waits = jobs.JobStatusChanged(job="job-1", status="RUNNING", waiting="all 2 slots are busy", position=1)
    world.tell(waits, sender=shard_scope(world.state.live["job-1"].shard))
    assert names(world, name="tly 1") == ["job-1"]
    assert names(world, name="daily") == []
    assert names(world, states=["QUEUED"]) == ["job-1"]
    assert names(world, states=["FINISHED", "QUEUED"]) == ["job-3", "job-1"]
    assert names(world, states=["RUNNING"]) == [], "it waits for its first slot"
    assert names(world, since_ms=accepted_ms[1], until_ms=accepted_ms[3]) == ["job-2", "job-1"]
    assert names(world, since_ms=accepted_ms[1], states=["INITIALIZING"]) == ["job-2"]


def test_the_queue_is_listed_in_its_order_with_what_is_expected() -> None:
    world = settled()
    places: dict[str, tuple[str | None, int | None, int | None]] = {
        "job-0": ("all are busy", 2, 9_000), "job-1": (None, None, None), "job-2": ("too small", None, None),
        "job-3": ("all are busy", 1, 7_000), "job-4": ("too small", None, None),
    }  # fmt: skip
    for job, (why, position, expected_ms) in places.items():
        world.now_ms += 1
        world.accept(job)
        told = jobs.JobStatusChanged(job=job, status="RUNNING", waiting=why, position=position, expected_ms=expected_ms)
        world.tell(told, sender=shard_scope(world.state.live[job].shard))
    [listed] = bodies(world.request(client.ListJobs(reply_to="c", in_queue=True, most=3)))
    told = [(each.job, each.position, each.expected_ms) for each in listed.jobs]
    assert (told, listed.total) == ([("job-3", 1, 7_000), ("job-0", 2, 9_000), ("job-2", None, None)], 4)


def test_the_time_in_the_queue_is_told_apart_from_the_time_of_running() -> None:
    world = settled()
    world.accept()

    def shown() -> client.JobSummary:
        [answered] = bodies(world.request(asks(client.GetJobStatus)))
        return answered.summary

    world.tell(jobs.JobStatusChanged(job=JOB, status="RUNNING", waiting="all 2 slots are busy", position=1), sender=SHARD)
    assert (shown().status, shown().state, shown().running_ms) == ("RUNNING", "QUEUED", None)
    world.tell(jobs.JobStatusChanged(job=JOB, status="RUNNING", running_ms=1_700), sender=SHARD)
    assert (shown().state, shown().running_ms) == ("RUNNING", 1_700)
    world.tell(jobs.JobStatusChanged(job=JOB, status="RUNNING", waiting="all 2 slots are busy", running_ms=1_700), sender=SHARD)
    assert shown().state == "RUNNING", "a part of it has run, and waits for a further slot"
    world.finish(running_ms=1_700)
    assert (shown().state, shown().running_ms) == ("FINISHED", 1_700)


def test_a_list_fits_into_one_reply() -> None:
    world = settled()
    world.accept()
    wide = world.state.live.pop(JOB)
    wide.name = "\x01" * 255  # six bytes each in JSON
    live = {f"job-{number}": wide for number in range(1_000)}
    listed, total = newest(State(live=live), client.ListJobs(most=1_000))
    assert 300 < len(listed) < 1_000
    assert len(client.JobsListed(correlation="", jobs=listed, total=total).model_dump_json()) < 900_000
    assert total == 1_000


def test_where_blobs_are_put() -> None:
    world = settled(blob_url="http://127.0.0.1:8100", blob_max_bytes=7)
    described = client.BlobServerDescribed(correlation="2", url="http://127.0.0.1:8100", max_bytes=7)
    assert world.request(client.DescribeBlobServer(reply_to="c", correlation="2")) == reply(described)


def test_questions_about_the_cluster_go_to_the_resource_manager() -> None:
    world = settled()
    world.accept()
    world.accept(OTHER)
    world.finish(OTHER, "FAILED")
    query = jobs.Query(what="overview", reply_to="c", correlation="2", jobs={"FAILED": 1, "INITIALIZING": 1}, number=1)
    assert world.request(client.GetClusterOverview(reply_to="c", correlation="2")) == [Say("resource-manager", query)]
    [said] = world.request(client.ListTaskManagers(reply_to="c", correlation="2"))
    assert said.body.what == "task_managers"


def test_a_cluster_is_deregistered_once_however_often_the_request_is_read() -> None:
    world = settled()
    request = client.DeregisterCluster(reply_to="c", correlation="2")
    assert [each.body.what for each in world.request(request)] == ["deregister"]
    assert [each.body.what for each in world.request(request.model_copy(update={"undo": True}))] == ["register"]
    reason = "it was asked for before the Dispatcher lost its log; ask again"
    assert world.tell(again(request, 7)) == reply(client.RequestRefused(correlation="2", kind="conflict", reason=reason))


def test_the_blocklist_is_the_resource_managers_and_is_changed_once_however_often_a_request_is_read() -> None:
    world = settled()
    block = blocklist.BlockHost(host="a", for_ms=60_000, reason="disk", by="ada", evacuate=True, reply_to="c", correlation="2")
    told = blocklist.AskBlocklist(
        what="block", host="a", for_ms=60_000, reason="disk", by="ada", evacuate=True, reply_to="c", correlation="2", number=1
    )  # fmt: skip
    assert world.request(block) == [Say("resource-manager", told)]
    unblock = blocklist.UnblockHost(host="a", reply_to="c", correlation="3")
    told = blocklist.AskBlocklist(what="unblock", host="a", reply_to="c", correlation="3", number=2)
    assert world.request(unblock) == [Say("resource-manager", told)]
    for number, request in enumerate((block, unblock), 7):
        assert [each.kind for each in bodies(world.tell(again(request, number)))] == ["conflict"]
    [said] = world.tell(again(blocklist.ListBlockedHosts(reply_to="c", correlation="4"), 9))
    assert said.body == blocklist.AskBlocklist(what="list", reply_to="c", correlation="4", number=3)
    assert world.request(blocklist.ListBlockedHosts()) == []
    told = blocklist.AskBlocklist(what="unblock", host="a", reply_to="", correlation="")
    assert world.request(blocklist.UnblockHost(host="a")) == [Say("resource-manager", told)], "who wants no answer is obeyed, too"


def test_while_no_resource_manager_is_heard_the_client_is_told() -> None:
    world = World()
    [refused] = bodies(world.request(client.GetClusterOverview(reply_to="c", correlation="2")))
    assert refused.kind == "busy"
    world.tell(PeerBorn("resource-manager", 1), sender="resource-manager")
    assert isinstance(world.request(client.GetClusterOverview(reply_to="c", correlation="2"))[0], Say)


def test_blank_is_blank() -> None:
    assert World().machine.blank() == State()


# requests that are read again, for the Dispatcher's log is lost


def again(request: base.Request, offset: int, decided: bool = True, log: str = "l", **found: Any) -> Client:
    return Client(log=log, prev=offset - 1, offset=offset, request=request, decided=decided, **found)


def test_a_cancel_that_stands_before_the_submission_of_its_job_is_refused_again() -> None:
    """It was refused, for there was no such job; a Dispatcher that was born anew canceled the job that came later."""
    world = settled()
    world.accept()
    submitted = world.state.live[JOB].offset
    not_found = client.RequestRefused(correlation="2", kind="not_found", reason=f"there is no job {JOB}")
    assert world.tell(again(asks(client.CancelJob), submitted - 1)) == reply(not_found)
    assert not world.state.live[JOB].cancel
    world.tell(again(asks(client.CancelJob), 0, log="another"))
    assert world.state.live[JOB].cancel, "of another log the offsets tell nothing"


def test_a_recovered_job_knows_where_its_submission_stands() -> None:
    world = settled()
    world.state.recovery = Recovery.RUNNING
    world.tell(effects.JobsRecovered(jobs={JOB: stored(asked_log="l", asked=7)}, through=None))
    world.tell(again(asks(client.CancelJob), 6))
    assert not world.state.live[JOB].cancel
    world.tell(again(asks(client.CancelJob), 8))
    assert world.state.live[JOB].cancel


@pytest.mark.parametrize("heard", [True, False])
def test_a_submission_that_was_refused_before_is_looked_for_and_not_accepted(heard: bool) -> None:
    world = settled()
    request = client.SubmitJob(job=JOB, graph={}, reply_to="c" if heard else "", correlation="1")
    excerpt = None if heard else EXCERPT
    [find] = bodies(world.tell(again(request, 3, graph=GRAPH, digest="d", excerpt=excerpt, lack="a disk is nearly full")))
    assert find == effects.FindJob(job=JOB)
    [told] = bodies(world.tell(effects.JobFound(job=JOB, stands=None)))
    assert (told.type, told.reason.removeprefix(f"late: SubmitJob of job {JOB}: ")) == ("JobRejected" if heard else "DeadLetter", UNDONE)
    assert world.state.live == {} and world.state.lookups == {}


def test_a_submission_that_was_accepted_before_is_answered_with_what_stands() -> None:
    world = settled()
    request = client.SubmitJob(job=JOB, graph={}, reply_to="c", correlation="1")
    world.tell(again(request, 3, graph=GRAPH, digest="d"))
    world.tell(again(request, 4, decided=False, graph=GRAPH, digest="d"))
    said = bodies(world.tell(effects.JobFound(job=JOB, stands=stored(asked_log="l", asked=3))))
    assert [each.type for each in said].count("JobAcceptedReply") == 2


def test_behind_a_submission_that_was_refused_before_a_new_one_is_put() -> None:
    world = settled()
    request = client.SubmitJob(job=JOB, graph={}, reply_to="c", correlation="1")
    world.tell(again(request, 3, graph=GRAPH, digest="d"))
    world.tell(again(request, 4, decided=False, graph=GRAPH, digest="d"))
    said = bodies(world.tell(effects.JobFound(job=JOB, stands=None)))
    assert [each.type for each in said] == ["JobRejected", "PutJobGraph"]
