"""Pages of the jobs: filters, order, and cursors while jobs come."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.web.core.jobs import Jobs
from services.web.listing import BadCursor, Listing
from tests.web.test_web_tables import T0, Story, accepted, attempt


def some() -> tuple[Jobs, Story]:
    """j0 is canceled, j1 runs on tm1, j2 waits for its first slot, the others are accepted."""
    story = Story()
    for n in range(7):
        accepted(story, f"j{n}")
    story.say("JobCanceled", "j0", job="j0", archive=None)
    for job in ("j1", "j2"):
        story.say("JobStateChanged", job, job=job, status="RUNNING", cause=None)
    story.say("JobWaiting", "j2", job="j2", reason="no slot is free", position=1)
    attempt(story, "j1", "RUNNING", task_manager="tm1")
    jobs = Jobs({}, 100)
    fold(jobs, story)
    return jobs, story


def fold(jobs: Jobs, story: Story) -> None:
    for fact in story.facts:
        jobs.fold(fact)


def names(jobs: Jobs, **asked: object) -> list[str]:
    return [row["job"] for row in Listing(**asked).page(jobs)[0]]  # type: ignore[arg-type]  # as they are given


def test_filters() -> None:
    jobs, _ = some()
    assert names(jobs) == ["j6", "j5", "j4", "j3", "j2", "j1", "j0"]
    assert names(jobs, states=["QUEUED"]) == ["j2"]
    assert names(jobs, states=["CANCELED", "QUEUED"]) == ["j2", "j0"]
    assert names(jobs, states=["RUNNING"]) == ["j1"]
    assert names(jobs, name="OF J3") == ["j3"]
    assert names(jobs, task_manager="tm1") == ["j1"] and names(jobs, task_manager="tm2") == []
    assert names(jobs, since_ms=T0 + 2, until_ms=T0 + 4) == ["j3", "j2"]


@pytest.mark.parametrize("sort", ["accepted_ms", "-accepted_ms", "name", "-name", "ended_ms", "-running_ms", "status", "-job"])
def test_pages_have_all_jobs_once_though_others_come_and_go_meanwhile(sort: str) -> None:
    jobs, story = some()
    whole = names(jobs, sort=sort)
    listing, found = Listing(sort=sort, limit=2), []
    for n in range(20):
        page, total, cursor = listing.page(jobs)
        assert total == 7 + min(n, 4)
        found += [row["job"] for row in page]
        if n < 4:
            accepted(story, f"k{n}")
            fold(jobs, story)
        if cursor is None:
            break
        listing = replace(listing, cursor=cursor)
    assert [job for job in found if job.startswith("j")] == whole
    assert len(found) == len(set(found))


def test_the_last_page_says_so() -> None:
    jobs, _ = some()
    assert Listing(limit=7).page(jobs)[2] is None and Listing(limit=6).page(jobs)[2] is not None


@pytest.mark.parametrize("cursor", ["x", "e30", "W10", "WyJuYW1lIiwxLDJd", "\u00e9", "=", "W" * 900])
def test_a_cursor_that_is_none(cursor: str) -> None:
    with pytest.raises(BadCursor):
        Listing(cursor=cursor).page(some()[0])


def test_a_cursor_of_another_order_is_refused() -> None:
    jobs, _ = some()
    cursor = Listing(limit=1).page(jobs)[2]
    assert cursor is not None
    with pytest.raises(BadCursor, match="sorted by name"):
        Listing(sort="name", cursor=cursor).page(jobs)
