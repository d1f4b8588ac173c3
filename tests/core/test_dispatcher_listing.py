"""ListJobDetails: pages of all jobs, those that only etcd has among them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from millrace.core.jobgraph.model import DEFAULT_LIMITS
from millrace.core.jobgraph.parse import Refused
from millrace.core.machine import Born, Configured, Do, Output, Ticked
from millrace.core.messages import client, effects, jobs
from millrace.core.timing import FORWARDED_ANSWER_MS
from millrace.edge import requests as intake
from services.dispatcher.core import listing
from services.dispatcher.core.state import Recovery
from tests.core.of_dispatcher import JOB, SHARD, World, asks, bodies, settled, stored


def ask(world: World, **fields: Any) -> list[Output]:
    return world.request(client.ListJobDetails(reply_to="c", correlation="2", **fields))


def page(world: World, **fields: Any) -> client.JobDetailsListed:
    """An answer that needs nothing of etcd."""
    [listed] = bodies(ask(world, **fields))
    assert isinstance(listed, client.JobDetailsListed)
    return listed


def names(listed: client.JobDetailsListed) -> list[str]:
    return [each.job for each in listed.jobs]


def old(job: str, accepted_ms: int, status: str = "FINISHED") -> client.JobDetails:
    """A job as etcd has it."""
    times = {"accepted_ms": accepted_ms, "ended_ms": accepted_ms + 1}
    return client.JobDetails(job=job, name="one", status=status, archive=f"archives/{job}", **times)


def with_jobs(count: int = 5, **settings: Any) -> World:
    """job-0 to job-4, accepted a millisecond after each other; job-3 has FINISHED."""
    world = settled(**settings)
    for number in range(count):
        world.now_ms += 1
        world.accept(f"job-{number}")
    world.finish("job-3")
    return world


def test_pages_are_newest_first_and_jobs_that_come_move_none() -> None:
    world = with_jobs()
    first = page(world, limit=2)
    assert (names(first), first.total, first.next) == (["job-4", "job-3"], 5, "1000004.job-3")
    world.now_ms += 1
    world.accept("late")
    second = page(world, limit=2, cursor=first.next)
    assert (names(second), second.total, second.next) == (["job-2", "job-1"], 6, "1000002.job-1")
    world.finish("job-0", "FAILED")
    third = page(world, limit=2, cursor=second.next)
    assert (names(third), third.next, third.jobs[0].status) == (["job-0"], None, "FAILED")
    assert names(page(world, limit=2, cursor="1.a")) == []


def test_a_job_is_listed_with_its_archive_and_with_a_job_master_that_is_silent() -> None:
    world = with_jobs(4)
    world.request(asks(client.DescribeJob, "job-0"))
    world.now_ms += FORWARDED_ANSWER_MS
    world.tell(Ticked())
    shard = next(iter(world.state.silent))
    ended, *live = page(world).jobs
    assert (ended.status, ended.silent) == ("FINISHED", None) and ended.archive == world.state.ended["job-3"].archive
    assert {each.job: each.silent for each in live} == {
        job: shard if f"job-master/{world.state.live[job].shard}" == shard else None for job in ("job-0", "job-1", "job-2")
    }


def test_pages_have_what_is_asked_for() -> None:
    world = with_jobs()
    world.state.live["job-1"].name = "nightly"
    waits = jobs.JobStatusChanged(job="job-1", status="RUNNING", waiting="all 2 slots are busy", position=1)
    world.tell(waits, sender=SHARD)
    assert names(page(world, name="ghtl")) == names(page(world, states=["QUEUED"])) == ["job-1"]
    assert names(page(world, since_ms=1_000_002, until_ms=1_000_004)) == ["job-2", "job-1"]
    assert names(page(world, states=["FINISHED"])) == ["job-3"] and page(world, states=["FAILED"]).total == 0


@pytest.mark.parametrize("field", [
    {"limit": 0}, {"limit": 1_001}, {"cursor": 1}, {"cursor": "1" * 201}, {"states": ["NONE"]}, {"name": "n" * 256}, {"page": 1},
])  # fmt: skip
def test_what_is_malformed_is_a_dead_letter(field: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        intake.decode(json.dumps({"type": "ListJobDetails", "version": 1, **field}).encode(), DEFAULT_LIMITS)


@pytest.mark.parametrize("cursor", ["x", "1.", "1.../x", "1." + "j" * 101, "1.j\n"])
def test_what_is_no_cursor_is_refused(cursor: str) -> None:
    [refused] = bodies(ask(with_jobs(), cursor=cursor))
    assert (refused.kind, refused.reason) == ("invalid", "the cursor is none of a list of jobs: give `next` of the page before")


# what only etcd has


def test_a_page_that_may_have_forgotten_jobs_is_merged_with_what_etcd_has() -> None:
    world = with_jobs(retained_jobs=1)
    world.finish("job-1")
    assert (world.state.unlisted_ms, list(world.state.ended)) == (1_000_004, ["job-1"]), "job-3 is forgotten"
    assert names(page(world, limit=1)) == ["job-4"], "it is newer"
    request = client.ListJobDetails(reply_to="c", correlation="2", limit=3)
    assert world.request(request) == [Do("listing", effects.ListStoredJobs(number=1, asked=request))]
    world.finish("job-2", "CANCELED")
    etcd = [old("job-3", 1_000_004), old("job-1", 1_000_002), old("older", 7)]
    [listed] = bodies(world.tell(effects.StoredJobsListed(number=1, jobs=etcd, more=False)))
    assert [(each.job, each.status) for each in listed.jobs] == [("job-4", "INITIALIZING"), ("job-3", "FINISHED"), ("job-2", "CANCELED")]
    assert (listed.next, listed.total) == ("1000003.job-2", None)
    assert world.state.listings == {} and world.tell(effects.StoredJobsListed(number=1, jobs=etcd, more=False)) == []


def test_what_the_state_has_counts_more_than_what_etcd_had() -> None:
    """Live over ended, and no job twice."""
    world = with_jobs()
    world.state.unlisted_ms = 1_000_009
    ask(world)
    etcd = [old("job-4", 1_000_005, "FAILED"), old("job-3", 1_000_004, "FAILED"), old("a", 3)]
    [listed] = bodies(world.tell(effects.StoredJobsListed(number=1, jobs=etcd, more=False)))
    assert [(each.job, each.status) for each in listed.jobs] == [
        ("job-4", "INITIALIZING"), ("job-3", "FINISHED"), ("job-2", "INITIALIZING"), ("job-1", "INITIALIZING"), ("job-0", "INITIALIZING"),
        ("a", "FINISHED"),
    ]  # fmt: skip
    assert listed.next is None


def test_nothing_below_the_last_job_that_etcd_told_is_on_the_page() -> None:
    """Etcd has more, which would not fit into its answer: a job of the state that is older stands behind those."""
    world = with_jobs()
    world.state.unlisted_ms = 1_000_009
    ask(world)
    told = effects.StoredJobsListed(number=1, jobs=[old("b", 1_000_006), old("a", 1_000_003)], more=True)
    [listed] = bodies(world.tell(told))
    assert (names(listed), listed.next) == (["b", "job-4", "job-3", "job-2", "a"], "1000003.a")


@pytest.mark.parametrize("only", [{"states": ["RUNNING", "QUEUED"]}, {"since_ms": 10}])
def test_etcd_is_not_read_for_what_it_cannot_have(only: dict[str, Any]) -> None:
    world = with_jobs()
    world.state.unlisted_ms = 9
    assert page(world, **only).total is not None
    assert isinstance(ask(world, states=["RUNNING", "FAILED"])[0], Do) and isinstance(ask(world, since_ms=9)[0], Do)


def test_a_state_of_a_build_that_noted_nothing_asks_etcd() -> None:
    world = with_jobs()
    world.state.unlisted_ms = None
    assert isinstance(ask(world, limit=1)[0], Do)
    world.finish("job-0")
    assert world.state.unlisted_ms is None


def test_what_a_recovery_leaves_out_and_what_is_looked_up_is_in_etcd_alone() -> None:
    world = World()
    world.tell(Configured({}))
    world.tell(Born())
    assert world.state.unlisted_ms == 0
    [refused] = bodies(ask(world))
    assert (refused.kind, refused.reason) == ("busy", "the jobs of an earlier life are still being read from etcd; try again")
    world.tell(effects.JobsRecovered(jobs={"a": stored("a", "clean", accepted_ms=50)}, through="a", left_out_ms=30))
    world.tell(effects.JobsRecovered(jobs={}, left_out_ms=20))
    assert world.state.unlisted_ms == 30 and names(page(world, limit=1)) == ["a"]
    world.request(asks(client.GetJobStatus))
    world.tell(effects.JobFound(job=JOB, stands=stored(state="clean", accepted_ms=40)))
    assert world.state.unlisted_ms == 40


def test_an_etcd_that_is_silent_is_named_and_is_not_asked_by_ever_more() -> None:
    world = with_jobs()
    world.state.unlisted_ms = 1_000_009
    for _ in range(listing.MOST):
        assert isinstance(ask(world)[0], Do)
    [refused] = bodies(ask(world))
    assert (refused.kind, refused.reason) == ("busy", f"{listing.MOST} lists of jobs wait for etcd already; try again")
    assert not world.machine.is_idle(world.state)
    world.now_ms += FORWARDED_ANSWER_MS
    told = bodies(world.tell(Ticked()))
    assert len(told) == listing.MOST and {(each.kind, each.silent) for each in told} == {("busy", "etcd")}
    assert told[0].reason == "etcd has not answered within 3 s, and it alone has these jobs; try again"
    assert world.state.listings == {} and world.tell(effects.StoredJobsListed(number=1, jobs=[], more=False)) == []


def test_who_wants_no_answer_has_nothing_read() -> None:
    world = with_jobs()
    world.state.unlisted_ms = 1_000_009
    assert world.request(client.ListJobDetails()) == [] and world.state.recovery is Recovery.DONE
