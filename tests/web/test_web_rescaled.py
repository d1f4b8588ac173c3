"""The web service and a job that gets another parallelism: its tables, and its commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from services.web.app import application
from services.web.commands import Commands
from services.web.core.facts import Row
from services.web.flink.jobs import vertex
from services.web.flink.vertices import _attempt, attempt_of
from services.web.follow import Follows
from services.web.view import View
from tests.web.flink.scene import job_of
from tests.web.rescaled import WHY, Rescaling
from tests.web.test_web_tables import T0, Story, accepted, attempt, folded

ROUTE = "/api/v1/jobs/j/requirements"


def states(story: Story) -> list[Any]:
    described = folded(story.facts).described("j")
    assert described is not None
    return [
        [each["task"], *((subtask["attempt"], subtask["state"], len(subtask["attempts"])) for subtask in each["subtasks"])]
        for each in described["tasks"]
    ]


def rescaled(a: int, **more: Any) -> Row:
    return {"parallelism": {"a": a}, "tasks": [{"task": "a", "vertices": ["a"], "parallelism": a, **more}]}


def begun() -> Story:
    story = Story()
    story.say("JobAccepted", "j", job="j", name="n", tasks=[{"task": "a", "vertices": ["a"], "parallelism": 2}])
    attempt(story, "j", "DEPLOYING")
    attempt(story, "j", "FINISHED", slot=None)
    attempt(story, "j", "DEPLOYING", subtask=1)
    return story


def test_a_rescaled_job_has_other_tasks_and_none_of_their_subtasks_counts_until_that_is_told() -> None:
    story = begun()
    assert states(story) == [["a", (1, "FINISHED", 1), (1, "DEPLOYING", 1)]]
    attempt(story, "j", "CANCELED", subtask=1, slot=None)
    story.say("JobRescaled", "j", job="j", **rescaled(3))
    assert states(story) == [["a", (1, "CREATED", 1), (1, "CREATED", 1), (0, "CREATED", 0)]]
    story.say("SubtasksKept", "j", job="j", task="a", subtasks=[0], kept_from="j")
    attempt(story, "j", "DEPLOYING", number=2, subtask=1)
    assert states(story) == [["a", (1, "FINISHED", 1), (2, "DEPLOYING", 2), (0, "CREATED", 0)]]
    described = folded(story.facts).described("j")
    assert described is not None and "kept_from" not in described["tasks"][0]["subtasks"][0], "it has an attempt of its own"


def test_subtasks_that_there_are_no_more_go_and_what_is_told_twice_changes_nothing() -> None:
    story = begun()
    told = story.say("JobRescaled", "j", job="j", **rescaled(1))
    attempt(story, "j", "DEPLOYING", number=2)
    story.facts.append(told)
    assert states(story) == [["a", (2, "DEPLOYING", 2)]]
    jobs = folded(story.facts)
    assert next(iter(jobs.in_slots()))["attempt"] == 2
    story.say("JobFinished", "j", job="j", archive="x", result=None, spent=None)
    jobs = folded(story.facts)
    jobs.forget("j")
    assert jobs.described("j") is None and not jobs._rows, "nothing of it is left over"


@pytest.fixture
def client() -> Rescaling:
    return Rescaling()


@pytest.fixture
def web(client: Rescaling) -> Iterator[TestClient]:
    view = View({}, {}, 10)
    view.load({})
    commands = Commands(lambda: client)  # type: ignore[arg-type,return-value]  # it has what is called
    with TestClient(application(view, lambda: Follows("", 0), commands), base_url="http://127.0.0.1") as web:
        yield web


def test_what_a_job_has_is_told_and_changed(web: TestClient, client: Rescaling) -> None:
    found = web.get(ROUTE).json()
    assert found["job"] == "j" and found["vertices"][0] == {"vertex": "a", "parallelism": 2, "most": 128, "group": "a", "why": None}
    answer = web.put(ROUTE, json={"parallelism": 4, "vertices": {"b": 2}})
    assert (answer.status_code, answer.json()["changed"]) == (200, {"a": 4})
    assert client.rescaled == [("j", 4, {"b": 2})]
    assert web.put(ROUTE, json={"vertices": {"a": 2}}).json()["changed"] == {}


@pytest.mark.parametrize(("job", "body", "status"), [
    ("unknown", {"parallelism": 2}, 404),
    ("done", {"parallelism": 2}, 409),
    ("j", {"vertices": {"app": 2}}, 400),
    ("j", {"parallelism": 0}, 400),
    ("j", {"parallelism": "2"}, 400),
    ("j", {"parallelism": True}, 400),
    ("j", {"paralelism": 2}, 400),
    ("j", [], 400),
])  # fmt: skip
def test_what_cannot_be_is_refused(web: TestClient, client: Rescaling, job: str, body: Any, status: int) -> None:
    answer = web.put(f"/api/v1/jobs/{job}/requirements", json=body)
    assert answer.status_code == status, answer.text
    assert client.rescaled == []
    if body == {"vertices": {"app": 2}}:
        assert answer.json()["errors"][0]["message"] == f"stays at 1, not 2: {WHY}"


def test_a_vertex_of_a_rescaled_job_has_the_times_of_its_new_attempts_alone() -> None:
    jobs = Story()
    accepted(jobs, "j")
    attempt(jobs, "j", "DEPLOYING", at_ms=T0 + 7)
    attempt(jobs, "j", "CANCELED", at_ms=T0 + 9)
    jobs.say("JobRescaled", "j", job="j", parallelism={"a": 2}, tasks=[{"task": "a", "vertices": ["a"], "parallelism": 2}], at_ms=T0 + 10)
    view = View({}, {}, 10)
    view.load({})
    for fact in jobs.facts:
        view.fold(fact)
    waits = job_of(view).tasks[0]
    assert (waits.state, vertex(waits)["start-time"], vertex(waits)["end-time"], vertex(waits)["duration"]) == ("CREATED", -1, -1, -1)
    bodies = [attempt_of(each) for each in waits.current]
    assert [(each["attempt"], each["status"], each["start-time"], each["duration"]) for each in bodies] == [
        (1, "CREATED", -1, -1), (0, "CREATED", -1, -1)
    ]  # fmt: skip
    assert [each["status-duration"]["CREATED"] for each in bodies] == [10, 10]
    for number, status in ((0, "CANCELED"), (1, "CREATED")):
        assert attempt_of(_attempt(waits, 0, number))["status"] == status
    attempt(jobs, "j", "DEPLOYING", number=2, at_ms=T0 + 15)
    view.fold(jobs.facts[-1])
    assert vertex(job_of(view).tasks[0])["start-time"] == T0 + 15
    jobs.say("JobCanceled", "j", job="j", archive=None, spent=None, at_ms=T0 + 18)
    view.fold(jobs.facts[-1])
    assert [(each.state, each.start_ms) for each in job_of(view).tasks[0].current] == [("DEPLOYING", T0 + 15), ("CANCELED", -1)]


def test_a_vertex_that_was_started_again_has_the_time_of_its_current_attempt() -> None:
    jobs = Story()
    accepted(jobs, "j")
    attempt(jobs, "j", "DEPLOYING", at_ms=T0 + 1)
    attempt(jobs, "j", "FAILED", at_ms=T0 + 2)
    attempt(jobs, "j", "DEPLOYING", number=2, at_ms=T0 + 5)
    attempt(jobs, "j", "FINISHED", number=2, at_ms=T0 + 8)
    view = View({}, {}, 10)
    view.load({})
    for fact in jobs.facts:
        view.fold(fact)
    done = vertex(job_of(view).tasks[0])
    assert (done["start-time"], done["end-time"], done["duration"]) == (T0 + 5, T0 + 8, 3)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_of_another_type_is_said_to_be_one(web: TestClient, kind: str) -> None:
    """It was said to be no object, and the same text was one."""
    headers = {"Content-Type": kind} if kind else {}
    for path in (ROUTE, "/api/v1/blocklist/a"):
        answer = web.put(path, content="{}", headers=headers)
        assert (answer.status_code, answer.json()["type"]) == (415, "urn:millrace:unsupported-media-type"), answer.text
