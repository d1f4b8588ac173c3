"""Two attempts of a subtask in the table of jobs [R38], and in the page's timeline."""

from __future__ import annotations

from typing import Any

from services.web.page.timeline import timeline
from tests.web.test_web_tables import T0, Story, accepted, attempt, folded


def test_of_two_attempts_the_current_one_is_the_last_and_both_hold_a_slot() -> None:
    """[R38]: the subtask has its state, whatever is told of the other one."""
    story = Story()
    accepted(story, "j")
    attempt(story, "j", "DEPLOYING", task_manager="tm1")
    attempt(story, "j", "RUNNING", task_manager="tm1")

    def told() -> tuple[Any, ...]:
        jobs = folded(story.facts)
        [subtask] = jobs.described("j")["tasks"][0]["subtasks"]
        attempts = [(each["attempt"], each["state"], each.get("beside")) for each in subtask["attempts"]]
        return subtask["attempt"], subtask["state"], attempts, sorted(each["attempt"] for each in jobs.in_slots())

    attempt(story, "j", "DEPLOYING", number=2, task_manager="tm2", beside=1)
    assert told() == (1, "RUNNING", [(2, "DEPLOYING", 1), (1, "RUNNING", None)], [1, 2])
    attempt(story, "j", "RUNNING", number=2, task_manager="tm2", beside=1)
    attempt(story, "j", "FINISHED", number=2, task_manager="tm2", slot=None)
    assert told() == (2, "FINISHED", [(1, "RUNNING", 2), (2, "FINISHED", None)], [1])
    attempt(story, "j", "CANCELED", task_manager="tm1", slot=None, beside=2)
    assert told() == (2, "FINISHED", [(1, "CANCELED", 2), (2, "FINISHED", None)], [])


def test_where_the_current_one_fails_the_other_takes_its_place() -> None:
    story = Story()
    accepted(story, "j")
    attempt(story, "j", "DEPLOYING")
    attempt(story, "j", "DEPLOYING", number=2, beside=1)
    attempt(story, "j", "FAILED", error={"kind": "user", "message": "no"}, beside=2)
    [subtask] = folded(story.facts).described("j")["tasks"][0]["subtasks"]
    assert [(each["attempt"], each["state"], each.get("beside")) for each in subtask["attempts"]] == [
        (1, "FAILED", 2), (2, "DEPLOYING", None),
    ]  # fmt: skip
    assert (subtask["attempt"], subtask["state"]) == (2, "DEPLOYING")


def test_the_timeline_draws_the_other_attempt_below_the_current_one() -> None:
    story = Story()
    accepted(story, "j")
    attempt(story, "j", "DEPLOYING", at_ms=T0)
    attempt(story, "j", "DEPLOYING", number=2, task_manager="tm2", beside=1, at_ms=T0 + 60_000)
    attempt(story, "j", "FINISHED", number=2, at_ms=T0 + 70_000)
    attempt(story, "j", "CANCELED", beside=2, at_ms=T0 + 71_000)
    [lane] = timeline(folded(story.facts).described("j")["tasks"], {}, T0, T0 + 80_000, T0 + 80_000).lanes
    assert [(bar.attempt, bar.state, bar.y, bar.high) for bar in lane.bars] == [(1, "CANCELED", 16, 5), (2, "FINISHED", 3, 11)]
    assert lane.state == "FINISHED" and lane.bars[0].whole.endswith("after acceptance, beside attempt 2")
