"""Questions that others answer: what is known is told in bounded time, and which part is silent [R31]."""

from __future__ import annotations

import pytest

from millrace.core.machine import PeerBorn, Publish, Say, Ticked
from millrace.core.messages import base, blocklist, client, effects, events, jobs, processes, requirements
from millrace.core.messages.blocklist import UNANSWERED_MOST
from millrace.core.timing import FORWARDED_ANSWER_MS
from services.dispatcher.core import forwarding
from services.dispatcher.core.forwarding import AGAIN_MS
from services.dispatcher.core.waiting import SUBMISSION_ANSWER_MS
from tests.core.of_dispatcher import JOB, OTHER, SHARD, World, asks, bodies, settled, stored

RM = "resource-manager"


def later(world: World, ms: int = FORWARDED_ANSWER_MS) -> list:
    world.now_ms += ms
    return bodies(world.tell(Ticked()))


def test_a_job_of_a_dead_job_master_is_shown_with_who_is_silent() -> None:
    """It was heard once, so the question went to it, and nobody ever answered."""
    world = settled()
    world.accept()
    [asked] = bodies(world.request(asks(client.DescribeJob)))
    assert isinstance(asked, jobs.DescribeStartedJob) and later(world, FORWARDED_ANSWER_MS - 1) == []
    [told] = later(world, 1)
    assert told == client.JobDescribed(correlation="2", summary=world.state.live[JOB].summary(JOB), silent=SHARD)
    assert later(world) == [] and world.state.asked == {}


def test_what_attempts_are_doing_is_asked_of_the_job_master_and_answered_without_it_if_it_is_dead() -> None:
    world = settled()
    asked = client.ReportNow(job=JOB, task="a", subtask=3, reply_to="c", correlation="2")
    world.accept()
    [forwarded] = bodies(world.request(asked))
    assert forwarded == jobs.ReportStartedJob(job=JOB, task="a", subtask=3, reply_to="c", correlation="2", number=1)
    assert later(world) == [client.JobReported(correlation="2", job=JOB, silent=SHARD)]
    world.finish()
    [told] = bodies(world.request(asked))
    assert (told.attempts, told.reason) == ([], "the job has ended: it is FINISHED")


ABOUT = {"task_manager": "a", "reply_to": "c", "correlation": "2"}


@pytest.mark.parametrize(
    ("request_", "ask"),
    [
        (processes.DescribeTaskManager(**ABOUT), processes.DescribeAsk()),
        (processes.DumpThreads(slot=1, **ABOUT), processes.ThreadsAsk(slot=1)),
        (processes.ListLogs(**ABOUT), processes.LogsAsk()),
        (processes.ListSettings(**ABOUT), processes.SettingsAsk()),
        (processes.UploadLog(log="log", start=-5, length=7, **ABOUT), processes.UploadAsk(log="log", start=-5, length=7)),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_question_about_a_task_manager_goes_by_the_resource_manager(request_: base.Request, ask: processes.Ask) -> None:
    world = settled()
    [asked] = bodies(world.request(request_))
    assert asked == jobs.AskTaskManager(task_manager="a", ask=ask, reply_to="c", correlation="2", number=1)
    world.tell(jobs.QuestionAnswered(number=1), sender=RM)
    assert later(world) == later(world) == [] and world.state.asked == {}
    assert world.request(request_.model_copy(update={"reply_to": ""})) == [], "who wants no answer asks nobody"


def test_a_question_about_a_task_manager_is_answered_without_the_resource_manager_later_than_that_would_answer() -> None:
    """The ResourceManager waits for a silent TaskManager nearly as long, and machine time may stand at a tick two seconds ago."""
    world = settled()
    world.request(processes.ListLogs(**ABOUT))
    overview = client.GetClusterOverview(reply_to="c", correlation="3")
    world.request(overview)
    assert [type(each) for each in later(world)] == [client.ClusterOverview], "and others do not wait for it"
    assert later(world, 1_999) == []
    [told] = later(world, 1)
    assert (told.correlation, told.kind, told.silent) == ("2", "busy", RM) and "TaskManager a" in told.reason
    assert [type(each) for each in bodies(world.request(processes.ListLogs(**ABOUT)))] == [client.RequestRefused], "it is silent"


def test_while_the_resource_manager_was_never_heard_no_task_manager_is_asked() -> None:
    world = World()
    [told] = bodies(world.request(processes.ListLogs(**ABOUT)))
    assert (told.kind, told.reason) == ("busy", "the ResourceManager has not been heard yet; try again")


@pytest.mark.parametrize("kind", [client.GetClusterOverview, client.ListTaskManagers])
def test_questions_about_the_cluster_are_answered_while_the_resource_manager_is_dead(kind: type[base.Request]) -> None:
    world = settled()
    world.accept()
    world.request(kind(reply_to="c", correlation="2"))
    [told] = later(world)
    assert (told.correlation, told.silent) == ("2", RM)
    assert getattr(told, "jobs", {"INITIALIZING": 1}) == {"INITIALIZING": 1}


def test_who_deregisters_the_cluster_is_told_that_the_resource_manager_is_silent() -> None:
    world = settled()
    world.request(client.DeregisterCluster(reply_to="c", correlation="2"))
    assert later(world) == [client.ClusterDeregistered(correlation="2", workers=0, silent=RM)]


def test_who_blocks_a_host_is_told_that_the_resource_manager_is_silent() -> None:
    world = settled()
    world.request(blocklist.BlockHost(host="a", reply_to="c", correlation="2"))
    reason = f"{RM} does not answer: look later what it has done (`millrace blocked`)"
    assert later(world) == [], "it waits for etcd itself, nearly as long"
    assert later(world) == [client.RequestRefused(correlation="2", kind="busy", reason=reason, silent=RM)]


@pytest.mark.parametrize(
    ("change", "sent"),
    [
        (client.DeregisterCluster(), {"what": "deregister"}),
        (client.DeregisterCluster(undo=True), {"what": "register"}),
        (blocklist.BlockHost(host="a"), {"what": "block", "host": "a"}),
        (blocklist.UnblockHost(host="a"), {"what": "unblock", "host": "a"}),
    ],
    ids=["deregister", "register", "block", "unblock"],
)
def test_a_change_is_sent_also_where_nobody_wants_an_answer_or_the_resource_manager_is_silent(
    change: base.Request, sent: dict[str, str]
) -> None:
    def parts(body: object) -> dict[str, str]:
        return {name: getattr(body, name) for name in sent}

    world = settled()
    [said] = world.request(change)
    assert isinstance(said, Say) and said.to == RM and parts(said.body) == sent
    assert said.body.number == 0, "with a number and nobody who wants an answer it would be the Dispatcher's own"
    world.request(client.GetClusterOverview(reply_to="c", correlation="3"))
    later(world)
    said, told = world.request(change.model_copy(update={"reply_to": "c", "correlation": "4"}))
    assert isinstance(said, Say) and said.to == RM and parts(said.body) == sent
    assert (said.body.reply_to, told.body.correlation, told.body.silent) == ("c", "4", RM), "it is sent, and not waited for"
    world.tell(jobs.QuestionAnswered(number=said.body.number), sender=RM)
    assert world.state.asked == world.state.silent == {}


def test_who_is_known_to_be_silent_is_not_asked_again_and_again() -> None:
    """Else it would answer all that was asked for days, when it is back."""
    world = settled()
    overview = client.GetClusterOverview(reply_to="c", correlation="3")
    world.request(overview)
    later(world)
    [told] = bodies(world.request(overview))
    assert told.silent == RM
    asked = 0
    for _ in range(100):
        later(world, AGAIN_MS)
        said = world.request(overview)
        asked += isinstance(said[0], Say)
    assert 3 < asked < 9, "the longer it is silent, the less often"


def test_an_answer_shows_that_a_silent_part_is_back() -> None:
    world = settled()
    world.request(client.GetClusterOverview(reply_to="c", correlation="3"))
    later(world)
    assert world.tell(jobs.QuestionAnswered(number=1), sender=RM) == []
    assert isinstance(world.request(client.GetClusterOverview(reply_to="c", correlation="4"))[0], Say)
    world.tell(jobs.QuestionAnswered(number=2), sender=RM)
    assert later(world) == [] and not world.machine.is_idle(world.state) or world.state.asked == {}


def test_what_a_life_before_was_asked_is_answered_when_the_next_is_heard() -> None:
    world = settled()
    world.accept()
    world.request(asks(client.DescribeJob))
    told = [each for each in bodies(world.tell(PeerBorn(SHARD, 2), sender=SHARD)) if isinstance(each, client.JobDescribed)]
    assert [each.silent for each in told] == [SHARD] and world.state.asked == {}


def test_a_job_that_has_ended_meanwhile_is_shown_as_ended() -> None:
    world = settled()
    world.accept()
    world.request(asks(client.DescribeJob))
    stands = world.finish()
    [told] = later(world)
    assert (told.archive, told.silent, told.summary.status) == (stands.archive, None, "FINISHED")


def test_questions_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "FORWARDED_MOST", 2)
    world = settled()
    overview = client.GetClusterOverview(reply_to="c", correlation="3")
    kinds = [type(bodies(world.request(overview))[0]) for _ in range(3)]
    assert kinds == [jobs.Query, jobs.Query, client.RequestRefused]


def test_a_flood_of_questions_about_a_dead_part_leaves_room_for_those_about_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """They shared one bound: whoever asked about a living part was told that it is busy."""
    monkeypatch.setattr(forwarding, "FORWARDED_MOST", 5)
    world = settled()
    world.accept()
    told = [bodies(world.request(asks(client.DescribeJob)))[0] for _ in range(9)]
    assert [type(each) for each in told] == [jobs.DescribeStartedJob] * 5 + [client.RequestRefused] * 4
    assert SHARD in told[-1].reason
    assert isinstance(bodies(world.request(client.GetClusterOverview(reply_to="c", correlation="3")))[0], jobs.Query)


@pytest.mark.parametrize("kind", [client.GetJobStatus, client.DescribeJob, client.CancelJob, client.AwaitJobResult])
def test_while_etcd_is_silent_who_asks_of_an_unknown_job_is_told_so(kind: type[base.Request]) -> None:
    world = settled()
    world.request(asks(kind))
    [told] = later(world)
    assert (told.kind, told.silent) == ("busy", "etcd") and "etcd has not answered within 3 s" in told.reason
    assert later(world) == []
    outputs = world.tell(effects.JobFound(job=JOB, stands=stored()))
    assert not [each for each in outputs if isinstance(each, Publish) and each.topic == "client.replies"], "once"
    assert not world.state.live[JOB].cancel, "what was said to have failed is not done after all"


def test_while_etcd_is_silent_who_submits_is_answered_when_its_time_is_up_and_may_be_accepted_yet() -> None:
    """Nothing was: whoever has no time-out waited for ever. Before its time is up an etcd that is back takes it."""
    world = settled()
    [put] = world.submit(accept_before_ms=world.now_ms + 5_000)
    world.submit(accept_before_ms=world.now_ms + 7_000)
    world.submit()
    assert later(world) == []
    world.submit(OTHER, accept_before_ms=world.now_ms)
    assert later(world, 100) == [], "that it came late is for etcd to say"
    world.tell(effects.JobGraphStored(job=OTHER, stands=None))
    told = [*later(world, 1_900), *later(world, 2_000)]
    assert [(each.type, each.kind, each.silent) for each in told] == [("RequestRefused", "busy", "etcd")] * 2
    assert all(f"it is not known whether job {JOB} is accepted: submit it again, with the same id" in each.reason for each in told)
    assert later(world) == []
    outputs = world.tell(effects.JobGraphStored(job=JOB, stands=put.effect.stored))
    assert [type(each) for each in bodies(outputs)] == [events.JobAccepted, jobs.StartJob, client.JobAcceptedReply], "who has no time-out"
    [known] = bodies(world.submit(accept_before_ms=world.now_ms + 5_000))
    assert isinstance(known, client.JobAcceptedReply)


def test_while_etcd_is_silent_who_submits_without_a_time_is_answered_after_a_minute_and_may_be_accepted_yet() -> None:
    """It waited for as long as etcd was away."""
    world = settled()
    [put] = world.submit()
    world.fire()
    world.submit()
    assert later(world, SUBMISSION_ANSWER_MS - 1) == []
    told = later(world, 1)
    assert [(each.type, each.kind, each.silent) for each in told] == [("RequestRefused", "busy", "etcd")] * 2
    assert all("it was not stored within 60 s" in each.reason and "submit it again, with the same id" in each.reason for each in told)
    assert later(world, SUBMISSION_ANSWER_MS) == [], "once"
    outputs = world.tell(effects.JobGraphStored(job=JOB, stands=put.effect.stored))
    assert [type(each) for each in bodies(outputs)] == [events.JobAccepted, jobs.StartJob]
    assert world.state.waiting == 0


@pytest.mark.parametrize("request_", [
    asks(client.CancelJob), requirements.UpdateRequirements(job=JOB, parallelism=2, reply_to="c", correlation="2"),
], ids=lambda each: each.type)  # fmt: skip
def test_what_the_end_of_a_job_decides_is_answered_though_that_is_not_stored(request_: base.Request) -> None:
    """It waited for as long as etcd or storage was away."""
    world = settled()
    world.accept()
    stands = world.end().ending
    world.request(asks(client.AwaitJobResult).model_copy(update={"reply_to": "waits"}))
    assert bodies(world.request(request_)) == [] == later(world, FORWARDED_ANSWER_MS - 1)
    [told] = later(world, 1)
    assert (told.kind, told.silent) == ("busy", "etcd") and f"job {JOB} has ended, and that was not stored within 3 s" in told.reason
    assert later(world) == [] and world.state.waiting == 2
    outputs = world.tell(effects.JobResultStored(job=JOB, stands=stands))
    assert [each.key for each in outputs if isinstance(each, Publish) and each.topic == "client.replies"] == ["waits"]
    assert world.state.late == {}


def test_a_failed_job_that_is_not_remembered_says_why() -> None:
    """It had no cause: that of a job that is too old for the state stands in its tombstone."""
    cause = {"kind": "user", "message": "no such column"}
    world = settled()
    world.request(asks(client.AwaitJobResult))
    [told] = bodies(world.tell(effects.JobFound(job=JOB, stands=stored(state="clean", status="FAILED", cause=cause))))
    assert told.cause.json_value() == cause


def test_a_job_is_cancelling_as_soon_as_its_cancel_is_accepted() -> None:
    """Whether its JobMaster lives or not; what that one said before it heard of it changes nothing."""
    world = settled()
    world.accept()
    world.accept(OTHER)
    world.request(asks(client.CancelJob))
    world.tell(jobs.JobStatusChanged(job=JOB, status="RUNNING"), sender=SHARD)
    [told] = bodies(world.request(asks(client.GetJobStatus)))
    assert told.summary.status == "CANCELLING" and world.state.live[JOB].state == "CANCELLING"
    for request in (client.ListJobs(reply_to="c"), client.ListJobDetails(reply_to="c")):
        [listed] = bodies(world.request(request))
        assert {each.job: each.status for each in listed.jobs} == {JOB: "CANCELLING", OTHER: "INITIALIZING"}


def test_a_job_that_waits_or_whose_job_master_is_silent_is_cancelling_at_once() -> None:
    """Nothing of its JobMaster is waited for, and job.events has it, which is what pages and the HTTP API go by."""
    world = settled()
    world.accept()
    world.tell(jobs.JobStatusChanged(job=JOB, status="RUNNING", waiting="no slot is free", position=1), sender=SHARD)
    world.state.received_from.pop(SHARD)
    assert world.state.live[JOB].state == "QUEUED"
    cancel, told, accepted = bodies(world.request(asks(client.CancelJob)))
    assert (cancel, told) == (jobs.CancelStartedJob(job=JOB), events.JobCancelling(job=JOB, at_ms=world.now_ms))
    assert accepted.status == "CANCELLING"
    [shown] = bodies(world.request(asks(client.DescribeJob)))
    assert (shown.summary.status, shown.summary.state, shown.silent) == ("CANCELLING", "CANCELLING", SHARD)
    [listed] = bodies(world.request(client.ListJobDetails(reply_to="c", states=["CANCELLING"])))
    assert [(each.job, each.state, each.silent) for each in listed.jobs] == [(JOB, "CANCELLING", SHARD)]


CHANGES = {
    "block": blocklist.BlockHost(host="a"),
    "unblock": blocklist.UnblockHost(host="a"),
    "deregister": client.DeregisterCluster(),
    "register": client.DeregisterCluster(undo=True),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_that_wants_no_answer_is_sent_when_the_resource_manager_is_first_heard(what: str) -> None:
    """It was dropped, and nobody was told. Who wants an answer is told at once, and nothing is changed later."""
    world = World()
    assert world.request(CHANGES[what]) == []
    [told] = bodies(world.request(CHANGES[what].model_copy(update={"reply_to": "c", "correlation": "2"})))
    assert (told.kind, told.reason) == ("busy", "the ResourceManager has not been heard yet; try again")
    [said] = world.tell(PeerBorn(RM, 1), sender=RM)
    assert isinstance(said, Say) and (said.to, said.body.what, said.body.number) == (RM, what, 0)
    assert world.tell(PeerBorn(RM, 2), sender=RM) == [], "once: what it has done by then is in its log, or in etcd"


def test_of_changes_that_wait_for_the_resource_manager_the_newest_about_each_thing_is_kept() -> None:
    world = World()
    for change in CHANGES.values():
        world.request(change)
    world.request(blocklist.BlockHost(host="b"))
    world.tell(PeerBorn(SHARD, 1), sender=SHARD)
    said = bodies(world.tell(PeerBorn(RM, 1), sender=RM))
    assert [(each.what, getattr(each, "host", None)) for each in said] == [("unblock", "a"), ("register", None), ("block", "b")]


def test_changes_that_wait_for_the_resource_manager_are_bounded() -> None:
    world = World()
    for number in range(UNANSWERED_MOST + 1):
        world.request(blocklist.BlockHost(host=f"host-{number}"))
    world.request(blocklist.UnblockHost(host="host-7"))
    said = bodies(world.tell(PeerBorn(RM, 1), sender=RM))
    assert (len(said), said[-1].host, said[-1].what) == (UNANSWERED_MOST, "host-7", "unblock")
