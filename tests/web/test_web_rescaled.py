"""The web service and a job that gets another parallelism: its tables, and its commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from services.web.app import application
from services.web.commands import Commands
from services.web.core.facts import Row
from services.web.follow import Follows
from services.web.view import View
from tests.web.rescaled import WHY, Rescaling
from tests.web.test_web_tables import Story, attempt, folded

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
