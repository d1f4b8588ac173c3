"""The web service's tables: what a repairing job has of another one."""

from __future__ import annotations

from tests.web.test_web_tables import Story, attempt, folded


def test_what_is_kept_of_another_job_is_finished_without_an_attempt() -> None:
    story = Story()
    tasks = [{"task": "a", "vertices": ["a"], "parallelism": 2}]
    story.say("JobAccepted", "j", job="j", name="n", tasks=tasks, origin={"job": "old", "repair": True})
    story.say("SubtasksKept", "j", job="j", task="@plan", subtasks=[0], kept_from="old")
    story.say("SubtasksKept", "j", job="j", task="a", subtasks=[0, 1], kept_from="old")
    described = folded(story.facts).described("j")
    assert described is not None and described["origin"] == {"job": "old", "repair": True} and described["running_ms"] is None
    kept = {"attempt": 0, "state": "FINISHED", "attempts": [], "kept_from": "old"}
    assert described["tasks"] == [
        {"task": "@plan", "subtasks": [{"subtask": 0, **kept}]},
        {"task": "a", "subtasks": [{"subtask": 0, **kept}, {"subtask": 1, **kept}]},
    ]
    attempt(story, "j", "DEPLOYING")
    described = folded(story.facts).described("j")
    assert described is not None
    first, second = described["tasks"][1]["subtasks"]
    assert (first["state"], first["attempt"], "kept_from" in first) == ("DEPLOYING", 1, False), "its rows were gone: it runs after all"
    assert second == {"subtask": 1, **kept}
