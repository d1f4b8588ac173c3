"""When a vertex has ended, under Flink's paths: also where a subtask of it never ran."""

from __future__ import annotations

import pytest

from services.web.flink.jobs import vertex
from services.web.flink.source import Job, Task
from services.web.flink.vertices import aggregate, attempt_of, by_task_manager
from services.web.view import View
from tests.web.test_web_tables import T0, Story, accepted, attempt

SOON, LATER = T0 + 20, T0 + 86_400_000


def task_of(story: Story, wall_ms: int) -> Task:
    view = View({}, {}, 10)
    view.load({})
    for fact in story.facts:
        view.fold(fact)
    row, described = view.jobs.row("j"), view.jobs.described("j")
    assert row is not None and described is not None
    return Job(row, described, wall_ms).tasks[0]


def times(task: Task) -> tuple[int, int, int]:
    found = vertex(task)
    return found["start-time"], found["end-time"], found["duration"]


def by_host(task: Task) -> dict[str, tuple[int, int, int]]:
    found = by_task_manager(task)["taskmanagers"]
    return {each["endpoint"]: (each["start-time"], each["end-time"], each["duration"]) for each in found}


def created(task: Task) -> list[int]:
    """How long each subtask was CREATED."""
    return [attempt_of(each)["status-duration"]["CREATED"] for each in task.current]


def repaired() -> Story:
    story = Story()
    accepted(story, "j", parallelism=2)
    story.say("SubtasksKept", "j", job="j", task="a", subtasks=[0], kept_from="earlier", at_ms=T0 + 1)
    return story


@pytest.mark.parametrize("wall_ms", [SOON, LATER])
def test_a_vertex_has_ended_though_a_subtask_of_it_was_kept(wall_ms: int) -> None:
    """It had no end, and ran longer each time that it was looked at."""
    story = repaired()
    attempt(story, "j", "DEPLOYING", subtask=1, created_ms=T0 + 2, at_ms=T0 + 7)
    assert times(task_of(story, wall_ms)) == (T0 + 7, -1, wall_ms - T0 - 7), "one of them runs"
    attempt(story, "j", "FINISHED", subtask=1, at_ms=T0 + 9)
    done = task_of(story, wall_ms)
    assert (done.state, times(done)) == ("FINISHED", (T0 + 7, T0 + 9, 2))
    assert by_host(done) == {"(unassigned)": (-1, -1, -1), "tm": (T0 + 7, T0 + 9, 2)}, "when the other one ran is not known"
    assert created(done) == [-1, 5]
    story.say("JobFinished", "j", job="j", archive="x", result=None, spent=None, at_ms=T0 + 10)
    done = task_of(story, wall_ms)
    assert times(done) == (T0 + 7, T0 + 9, 2)
    assert by_host(done) == {"(unassigned)": (-1, T0 + 10, -1), "tm": (T0 + 7, T0 + 9, 2)}
    assert created(done) == [-1, 5]


@pytest.mark.parametrize("wall_ms", [SOON, LATER])
def test_a_vertex_has_ended_though_a_subtask_of_it_was_canceled_while_it_waited(wall_ms: int) -> None:
    story = Story()
    accepted(story, "j", parallelism=2)
    attempt(story, "j", "DEPLOYING", at_ms=T0 + 7)
    attempt(story, "j", "CANCELED", at_ms=T0 + 9)
    assert times(task_of(story, wall_ms)) == (T0 + 7, -1, wall_ms - T0 - 7), "the other one waits"
    story.say("JobCanceled", "j", job="j", archive=None, spent=None, at_ms=T0 + 10)
    gone = task_of(story, wall_ms)
    assert (gone.state, times(gone)) == ("CANCELED", (T0 + 7, T0 + 9, 2))
    assert by_host(gone) == {"tm": (T0 + 7, T0 + 9, 2), "(unassigned)": (-1, T0 + 10, -1)}
    assert created(gone) == [-1, 10], "it waited until its job ended"
    assert aggregate(gone.current)["status-duration"]["CREATED"]["max"] == 10


@pytest.mark.parametrize("wall_ms", [SOON, LATER])
def test_a_vertex_that_never_ran_has_the_end_of_its_job(wall_ms: int) -> None:
    story = Story()
    accepted(story, "j", parallelism=2)
    assert times(task_of(story, wall_ms)) == (-1, -1, -1)
    story.say("JobCanceled", "j", job="j", archive=None, spent=None, at_ms=T0 + 10)
    assert times(task_of(story, wall_ms)) == (-1, T0 + 10, -1)


@pytest.mark.parametrize("wall_ms", [SOON, LATER])
def test_nothing_runs_longer_than_its_job(wall_ms: int) -> None:
    """Of an attempt whose end lies too far back, or comes late."""
    story = Story()
    accepted(story, "j")
    attempt(story, "j", "RUNNING", at_ms=T0 + 7)
    story.say("JobCanceled", "j", job="j", archive=None, spent=None, at_ms=T0 + 10)
    lost = task_of(story, wall_ms)
    assert times(lost) == (T0 + 7, -1, 3) and by_host(lost) == {"tm": (T0 + 7, -1, 3)}
    [body] = [attempt_of(each) for each in lost.current]
    assert (body["end-time"], body["duration"], body["status-duration"]["RUNNING"]) == (-1, 3, 3)
