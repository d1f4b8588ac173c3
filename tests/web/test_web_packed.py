"""Rows that are packed once they have ended: they answer as they did, in less memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from services.web.core.facts import Rows
from services.web.core.jobs import Jobs
from services.web.packed import Packed
from tests.web.test_web_tables import Story, accepted, attempt, folded, whole_job


def ended(subtasks: int) -> Story:
    story = Story()
    accepted(story, "j", parallelism=subtasks)
    for number in range(subtasks):
        for state in ("DEPLOYING", "RUNNING", "FINISHED"):
            attempt(story, "j", state, subtask=number)
    story.say("JobFinished", "j", job="j", archive="archives/j", result=None, spent=None)
    return story


@pytest.mark.parametrize("cut", range(10))
def test_rows_that_are_packed_answer_as_others_at_each_moment(cut: int) -> None:
    facts = whole_job().facts
    plain, packed = folded(facts[:cut]), folded(facts[:cut], Packed())
    for name in ("j", "k"):
        assert packed.described(name) == plain.described(name)
    assert list(packed.in_slots()) == list(plain.in_slots())
    assert [packed.on(name) for name in ("tm", "tm-2")] == [plain.on(name) for name in ("tm", "tm-2")]
    assert packed.is_newer("j", {0: 5}, whole=True) == plain.is_newer("j", {0: 5}, whole=True)


def test_a_failed_subtask_that_runs_again_is_unpacked_and_packed_again() -> None:
    rows = Packed()
    story = whole_job()
    jobs = folded(story.facts, rows)
    assert jobs.described("j") == folded(story.facts).described("j")
    again = Jobs(rows, 10)
    again.load()
    assert again.described("j") == jobs.described("j")
    again.forget("j")
    assert not rows and list(rows) == []


def test_a_task_manager_whose_name_is_not_ascii_is_found_in_packed_rows() -> None:
    story = Story()
    accepted(story, "j")
    attempt(story, "j", "FINISHED", task_manager="größe")
    jobs = folded(story.facts, Packed())
    assert jobs.on("größe") == {"j"} and jobs.on("grö") == set()


def test_subtasks_that_have_ended_take_less_than_half_of_the_memory() -> None:
    def taken(make: Callable[[], Rows]) -> int:
        story = ended(300)
        tracemalloc.start()
        try:
            jobs = folded(story.facts, make())
            assert jobs.row("j") is not None
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    assert taken(Packed) < taken(dict) / 2
