"""The Dispatcher's port that lists ended jobs, against etcd in memory."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from millrace.core.messages import client, effects
from millrace.io import interfaces
from millrace.io.interfaces import Put, Txn
from services.dispatcher import listed as listed_
from services.dispatcher.listed import StoredListing
from tests.core.of_dispatcher import stored
from tests.core.of_dispatcher_ports import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "storage")


def listed(world: World, **fields: object) -> effects.StoredJobsListed:
    [outcome] = world.ports.ports()[effects.ListStoredJobs](
        [effects.ListStoredJobs(number=7, asked=client.ListJobDetails(**fields))], world.fence
    )
    assert outcome.number == 7
    return outcome


def test_ended_jobs_are_listed_from_etcd_newest_first(world: World) -> None:
    states = ("clean", "dirty", "accepted")
    for number in range(9):
        job = f"job-{number}"
        world.set(stored(job, states[number % 3], accepted_ms=100 - number // 2, name=f"name {number}"), job)
    world.store.txn(Txn([], [Put("jobs/torn", b"{torn")]))
    first = listed(world, limit=3)
    assert [(each.accepted_ms, each.job) for each in first.jobs] == [(100, "job-1"), (100, "job-0"), (99, "job-3")] and first.more
    assert first.jobs[0] == client.JobDetails(
        job="job-1", name="name 1", status="FINISHED", accepted_ms=100, ended_ms=7, archive="archives/job-1/0.9/0.11.json"
    )
    second = listed(world, limit=3, cursor="99.job-3")
    assert [each.job for each in second.jobs] == ["job-4", "job-7", "job-6"] and not second.more
    assert [each.job for each in listed(world, name="e 4").jobs] == ["job-4"]
    assert listed(world, states=["FAILED"]).jobs == [] and [each.job for each in listed(world, since_ms=100).jobs] == ["job-1", "job-0"]


def test_what_was_read_just_now_is_the_answer_whatever_the_clock_says(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time was looked at twice: a listing failed and was tried again, with an error in the log."""
    world.set(stored("job", "clean"), "job")
    times = itertools.count(0, listed_.AHEAD_MS)
    monkeypatch.setattr(world.ports, "_listing", StoredListing(world.store, lambda: next(times)))
    assert [[each.job for each in listed(world).jobs] for _ in range(2)] == [["job"], ["job"]]


def test_pages_that_follow_soon_are_read_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(10):
        world.set(stored(f"job-{number}", "clean", accepted_ms=number), f"job-{number}")
    monkeypatch.setattr(world.ports, "_listing", StoredListing(world.store, world.clock.now_ms, ahead=6))
    reads = []
    monkeypatch.setattr(listed_, "pages", lambda *args: reads.append(args) or interfaces.pages(*args))
    found, cursor, more = [], "", True
    while more:
        page = listed(world, limit=2, cursor=cursor)
        found += [each.job for each in page.jobs]
        cursor, more = f"{page.jobs[-1].accepted_ms}.{page.jobs[-1].job}", page.more
    assert found == [f"job-{number}" for number in reversed(range(10))]
    assert len(reads) == 2, "six jobs, and four"
    listed(world, limit=2, cursor="3.job-3")
    assert len(reads) == 2
    listed(world, limit=2, cursor="3.job-3", name="one")
    listed(world, limit=2)
    assert len(reads) == 4, "another list, and jobs before those"
    world.clock.advance(11_000)
    listed(world, limit=2)
    assert len(reads) == 5


def test_a_list_of_long_names_is_cut_where_a_record_ends(world: World) -> None:
    for number in range(400):
        world.set(stored(f"job-{number:03}", "clean", accepted_ms=1, name="\x01" * 255), f"job-{number:03}")
    page = listed(world, limit=1_000)
    assert 100 < len(page.jobs) < 400 and page.more
    rest = listed(world, limit=1_000, cursor=f"1.{page.jobs[-1].job}")
    assert len(page.jobs) + len(rest.jobs) == 400 and not rest.more


def test_a_recovery_tells_how_new_the_jobs_are_that_it_leaves_out(world: World) -> None:
    for number in range(4):
        world.set(stored(f"job-{number}", "clean", ended_ms=number, accepted_ms=10 + number), f"job-{number}")
    page = world.recover(effects.RecoverJobs(retained=2), world.fence)
    assert (list(page.jobs), page.left_out_ms) == (["job-2", "job-3"], 11)
