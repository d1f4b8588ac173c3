"""Records that a JobMaster passes over [R26]: the jobs that they were about end, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.core.fold import Fold, Parked
from millrace.core.machine import PassedOver, Publish, Say
from millrace.core.messages import effects, jobs, slots
from millrace.core.messages.records import Elected, Hello, Message
from millrace.core.states import JobStatus
from millrace.core.topics import Topology
from services.dispatcher.core.machine import Dispatcher
from services.job_master.core.machine import JobMaster
from tests.core.of_dispatcher import TOPOLOGY
from tests.core.of_job_master import ONE, RM, SINK, TM, Shard, kinds

HELLO = Message(to="job-master/0", to_life=1, sender="resource-manager", life=1, key=(0, 0), prev=None, body=Hello())


def passed_over(shard: Shard, body: Any, sender: str = TM) -> list[str]:
    return kinds(shard(PassedOver(body, "ZeroDivisionError"), sender))


def deployed() -> Shard:
    shard = Shard()
    shard.start()
    shard.offer("a1")
    shard.told("a1", "RUNNING")
    return shard


@pytest.mark.parametrize("state", ["FINISHED", "FAILED", "CANCELED"])
def test_a_job_ends_when_the_end_of_its_attempt_is_passed_over(state: str) -> None:
    """Its TaskManager says that once, and answers nothing to a cancel of what is over [R26]."""
    shard = deployed()
    said = passed_over(shard, slots.TaskStateChanged(allocation="a1", attempt="j/0-q/0/1.1", state=state))
    assert said == [
        "event AttemptStateChanged FAILED", "task-manager FreeSlots", "resource-manager RequestSlots 0", "dispatcher JobEnded FAILED",
    ]  # fmt: skip
    assert shard.job.cause.message == "a fault of Millrace in handling a TaskStateChanged of this job: ZeroDivisionError"


def test_a_job_ends_when_it_is_passed_over_that_its_slot_or_task_manager_is_gone() -> None:  # [R26]
    for body, sender, last in (
        (slots.FailSlot(allocation="a1", job="j", reason="broken"), TM, []),
        (jobs.TaskManagerLost(task_manager="t1", incarnation=1, reason="silent"), RM, ["forget task-manager/t1 1"]),
    ):
        shard = deployed()
        shard.start(job="k")
        said = passed_over(shard, body, sender)
        assert said[-1 - len(last) :] == ["dispatcher JobEnded FAILED", *last]
        assert shard.state.jobs["k"].status is JobStatus.RUNNING
    assert shard.state.lost == {"t1": 1}


def test_an_attempt_that_lives_is_canceled_when_it_is_passed_over_that_it_runs() -> None:  # [R26]
    shard = Shard()
    shard.start()
    shard.offer("a1")
    said = passed_over(shard, slots.TaskStateChanged(allocation="a1", attempt="j/0-q/0/1.1", state="RUNNING"))
    assert said[0] == "task-manager CancelTasks"
    assert kinds(shard.told("a1", "CANCELED"))[-1] == "dispatcher JobEnded FAILED"
    assert passed_over(shard, slots.TaskStateChanged(allocation="a1", attempt="j/0-q/0/1.1", state="FAILED")) == []


def test_slots_whose_offer_is_passed_over_are_given_back_and_their_job_fails() -> None:
    """Else they would be offered again and again, and end processes each time [R26]."""
    shard = Shard()
    shard.start()
    shard.start(job="k")
    offers = [slots.SlotOffer(slot=n, allocation=f"a{n}", job=job, memory_mb=512) for n, job in enumerate(("j", "x"))]
    said = shard(PassedOver(slots.OfferSlots(offers=offers), "ZeroDivisionError"), TM)
    assert kinds(said) == ["resource-manager RequestSlots 0", "dispatcher JobEnded FAILED", "task-manager FreeSlots"]
    assert said[-1] == Say(TM, slots.FreeSlots(allocations=["a0", "a1"]))
    assert shard.state.jobs["k"].status is JobStatus.RUNNING


def test_a_question_that_is_passed_over_is_answered_and_its_job_goes_on() -> None:  # [R26]
    shard = deployed()
    (answer,) = shard(PassedOver(jobs.DescribeStartedJob(job="j", reply_to="me", correlation="c"), "ZeroDivisionError"))
    assert isinstance(answer, Publish) and (answer.topic, answer.key) == ("client.replies", "me")
    assert (answer.body.kind, answer.body.reason) == ("internal", "a fault of Millrace in handling this request: ZeroDivisionError")
    assert shard.job.status is JobStatus.RUNNING


def test_a_job_whose_published_sink_is_passed_over_ends() -> None:  # [R26]
    shard = Shard()
    shard.start(SINK)
    shard.offer("a1")
    shard.told("a1", "FINISHED", report={"outputs": {}})
    assert passed_over(shard, effects.SinkPublished(job="j", vertex="out"), "") == ["dispatcher JobEnded FAILED"]


def test_a_bad_start_of_a_job_that_has_ended_is_answered_with_its_end() -> None:
    """A Dispatcher that was born anew starts it again, which ends processes again, and would wait for ever [R21][26]."""
    shard = Shard()
    start = jobs.StartJob(job="j", acceptance="acc-j", graph=ONE, accepted_ms=500)
    assert kinds(shard(PassedOver(start, "ZeroDivisionError"))) == ["dispatcher JobEnded FAILED"]
    assert kinds(shard(PassedOver(start, "ZeroDivisionError"))) == ["dispatcher JobEnded FAILED"]


def test_a_bad_start_of_an_id_that_was_accepted_anew_ends_the_new_job_and_forgets_the_old_one() -> None:
    """The Dispatcher came back from an older store: it waits for the end of the new one, and nobody for that of the old [R21][26]."""
    shard = deployed()
    start = jobs.StartJob(job="j", acceptance="another", graph=ONE, accepted_ms=500)
    said = kinds(shard(PassedOver(start, "ZeroDivisionError")))
    assert said == ["task-manager FreeSlots", "resource-manager RequestSlots 0", "dispatcher JobEnded FAILED"]
    assert (shard.job.acceptance, shard.job.graph) == ("another", {})


@pytest.mark.parametrize("acceptance", ["another", None])
def test_a_bad_record_about_another_acceptance_or_an_ended_job_harms_nobody(acceptance: str | None) -> None:  # [R26]
    shard = Shard()
    shard.start()
    job = shard.state.jobs["j"]
    if acceptance is None:
        shard(jobs.CancelStartedJob(job="j"))
        assert job.status is JobStatus.CANCELED
    retired = jobs.JobRetired(job="j", acceptance=acceptance or job.acceptance)
    before = job.status
    assert shard(PassedOver(retired, "ZeroDivisionError")) == []
    assert shard.state.jobs["j"].status is before


def test_a_peer_whose_first_word_is_passed_over_is_declared_to_all_the_same() -> None:  # [R10], [R26]
    """The ResourceManager grants nothing before it has heard the declaration, and a life is born once."""
    core = Fold(JobMaster(0), Topology(shards=1))
    folded = core.blank(1, 0)
    core.fold(folded, 0, 1, Elected(generation=1, epoch=1, build="b", who="w"))
    core.pass_over(folded, 1, 2, HELLO, Parked("KeyError: 'x'"))
    assert [each.type for each in folded.outbox.values() if each.key == "resource-manager"][-1] == "JobMasterDeclared"


def test_a_generation_whose_first_election_is_passed_over_is_born_all_the_same() -> None:  # [R26]
    """It is born once: a Dispatcher would know of no accepted job."""
    core = Fold(Dispatcher(TOPOLOGY), TOPOLOGY)
    folded, silent = core.blank(1, 0), core.blank(1, 0)
    elected = Elected(generation=1, epoch=1, build="b", who="w")
    core.pass_over(folded, 0, 1, elected, Parked("KeyError: 'x'"))
    core.pass_over(silent, 0, 1, elected, Parked(None))
    assert [each.key for each in folded.effects.values()] == ["jobs"] and not silent.effects


def test_a_peer_whose_birth_itself_ends_processes_is_passed_over_in_silence() -> None:
    core = Fold(JobMaster(0), Topology(shards=1))
    folded = core.blank(1, 0)
    core.fold(folded, 0, 1, Elected(generation=1, epoch=1, build="b", who="w"))
    core.pass_over(folded, 1, 2, HELLO, Parked(None))
    assert "JobMasterDeclared" not in [each.type for each in folded.outbox.values()]
