"""Flink's resource requirements: what a job's vertices are to have, asked and changed as its dashboard does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from services.web.flink.ids import vertex_id
from tests.web.flink import scene
from tests.web.rescaled import Rescaling

ROUTE = "/jobs/J/resource-requirements"


class Both(scene.Commands, Rescaling):
    def __init__(self) -> None:
        scene.Commands.__init__(self)
        Rescaling.__init__(self)

    async def rescale(self, job: str, parallelism: int | None, vertices: Any) -> Any:
        return Rescaling.rescale(self, job, parallelism, vertices)


@pytest.fixture(scope="module")
def commands() -> Both:
    return Both()


@pytest.fixture(scope="module")
def web(commands: Both) -> TestClient:
    return scene.made(commands)


def bounds(lower: int, upper: int, vertex: str = scene.VERTEX) -> dict[str, Any]:
    """The other vertex has one subtask."""
    its = {vertex: {"parallelism": {"lowerBound": lower, "upperBound": upper}}}
    return {**its, vertex_id("b+c"): {"parallelism": {"lowerBound": 1, "upperBound": 1}}}


def test_each_vertex_is_told_with_its_bounds_and_gets_the_upper_one(web: TestClient, commands: Both) -> None:
    commands.rescaled.clear()
    for prefix in ("", "/v1"):
        answer = web.get(prefix + scene.path(ROUTE))
        assert (answer.status_code, answer.json()) == (200, bounds(1, 2))
    answer = web.put(scene.path(ROUTE), json=bounds(1, 5))
    assert (answer.status_code, answer.json()) == (200, {})
    assert web.put(scene.path(ROUTE), json=bounds(-1, -1)).json() == {}, "unset: as high as can be"
    assert web.put(scene.path(ROUTE), json=bounds(2, 2)).json() == {}, "it has it already"
    assert commands.rescaled == [(scene.RUNS, None, {"a": 5}), (scene.RUNS, None, {"a": 128})]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_the_body_counts_and_not_what_it_is_called(web: TestClient, commands: Both, kind: str) -> None:
    """Flink goes by the content, and curl calls it a form."""
    commands.rescaled.clear()
    headers = {"Content-Type": kind} if kind else {}
    answer = web.put(scene.path(ROUTE), content=json.dumps(bounds(1, 5)), headers=headers)
    assert (answer.status_code, commands.rescaled) == (200, [(scene.RUNS, None, {"a": 5})]), answer.text


@pytest.mark.parametrize(("body", "told"), [
    ({}, "The request is incomplete, it lacks the job vertex"),
    ({**bounds(1, 2), vertex_id("other"): {"parallelism": {}}}, "Newly requested job vertex"),
    (bounds(3, 2), "the bounds 3 and 2 are no range"),
    (bounds(0, 2), "the bounds 0 and 2 are no range"),
    (bounds(1, 129), "the upper bound 129 is higher than 128"),
    ({"no-id": {"parallelism": {}}}, ""),
    ({scene.VERTEX: {"parallelism": {"upper": 2}}}, ""),
    ([], ""),
])  # fmt: skip
def test_what_cannot_be_is_400_and_changes_nothing(web: TestClient, commands: Both, body: Any, told: str) -> None:
    commands.rescaled.clear()
    answer = web.put(scene.path(ROUTE), json=body)
    assert answer.status_code == 400 and told in answer.json()["errors"][0], answer.text
    assert commands.rescaled == []


def test_an_ended_job_and_an_unknown_one_are_404(web: TestClient) -> None:
    for path in (scene.path(ROUTE, scene.ENDED), scene.path(ROUTE, "none")):
        assert web.get(path).status_code == 404
        assert web.put(path, json=bounds(1, 2)).status_code == 404
