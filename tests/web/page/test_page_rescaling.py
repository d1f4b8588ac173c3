"""A job gets another parallelism from its page."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from millrace.client import Unavailable
from millrace.core.jobgraph.compile import compile_graph
from millrace.core.jobgraph.model import JobGraph
from millrace.core.jobgraph.rescale import with_parallelism
from services.web.page.job import _box
from services.web.page.timeline import timeline
from services.web.page.words import length
from tests.web.rescaled import WHY

from .seed import FINISHED, GRAPH, RUNNING, Cluster
from .test_page import NOW, said, token

ROUTE = f"/page/jobs/{RUNNING}/rescale"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr("services.web.page.shell.Shell.wall_ms", lambda self: NOW)
    return Cluster(NOW, 120)


@pytest.fixture
def web(cluster: Cluster) -> TestClient:
    return TestClient(cluster.app(), base_url="http://127.0.0.1", follow_redirects=False)


def test_the_numbers_are_asked_for_and_go_as_anyones_do(web: TestClient, cluster: Cluster) -> None:
    assert ROUTE in web.get(f"/page/jobs/{RUNNING}").text and "/rescale" not in web.get(f"/page/jobs/{FINISHED}").text
    html = web.get(ROUTE).text
    asked = said(html)
    assert f"Rescale {RUNNING}?" in asked and f"1 {WHY}" in asked and f"millrace rescale {RUNNING} --parallelism N" in asked
    assert '<span class="word">--parallelism</span>' in html, "no line ends between the dashes and the name"
    assert 'name="vertex:a" min="1" max="128" value="2"' in html and "b, c" in asked and 'name="vertex:app"' not in html
    answer = web.post(ROUTE, data={"token": token(web), "vertex:a": "3", "vertex:b": "1"})
    assert (answer.status_code, answer.headers["location"]) == (303, f"/page/jobs/{RUNNING}")
    assert cluster.rescaled == [(RUNNING, None, {"a": 3, "b": 1})]


def test_what_is_no_number_of_subtasks_is_asked_for_again_and_a_refusal_is_told(web: TestClient, cluster: Cluster) -> None:
    for wrong in ("0", "", "x", "-1", "1e3", "9999999"):
        answer = web.post(ROUTE, data={"token": token(web), "vertex:a": wrong})
        assert (answer.status_code, answer.headers["location"]) == (303, ROUTE)
    assert web.post(ROUTE, data={"vertex:a": "3"}).status_code == 403, "without the page's token"
    assert cluster.rescaled == []
    assert "It was not rescaled" in said(web.post(ROUTE, data={"token": token(web), "vertex:app": "2"}).text)
    assert "It cannot be rescaled unknown there is no job unknown" in said(web.get("/page/jobs/unknown/rescale").text)


def test_a_rescale_that_a_silent_job_master_does_later_is_not_said_to_be_none(
    web: TestClient, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object) -> None:
        raise Unavailable("it is noted", "job-master/0")

    monkeypatch.setattr(cluster, "rescale", silent)
    answer = said(web.post(ROUTE, data={"token": token(web), "vertex:a": "3"}).text)
    assert f"It is not known yet whether it is rescaled {RUNNING} it is noted" in answer


def test_a_running_job_of_another_parallelism_has_its_plan_with_kinds(web: TestClient, cluster: Cluster) -> None:
    now: dict[str, int] = {}
    for parallelism, chain in (
        ({"joined": 1}, "weather source airlines source joined sql delays sql ranked python report sink"),
        ({"flights": 3}, "weather source airlines source joined sql delays sql ranked python report sink"),
        ({"joined": 3}, "delays sql ranked python report sink"),
    ):
        now |= parallelism
        tasks = compile_graph(JobGraph.model_validate(with_parallelism(GRAPH, now))).tasks
        told = [{"task": name, "vertices": list(each.vertices), "parallelism": each.parallelism} for name, each in tasks.items()]
        cluster.job("JobRescaled", RUNNING, NOW, parallelism=parallelism, tasks=told)
        assert chain in said(web.get(f"/page/jobs/{RUNNING}").text), "etcd has the graph with which other vertices are one task"
    assert '"parallelism": 3' in web.get(f"/page/jobs/{RUNNING}?tab=configuration").text.replace("&#34;", '"')


def test_a_task_that_waits_since_its_job_was_rescaled_shows_no_time_of_what_was_canceled(web: TestClient, cluster: Cluster) -> None:
    cluster.accept("short", "short", NOW - 90_000, [("stock", 2)])
    cluster.attempt("short", "stock", 0, ("task-manager-1", 0), NOW - 80_000, NOW - 39_000, "CANCELED")
    cluster.attempt("short", "stock", 1, ("task-manager-1", 1), NOW - 80_000, NOW - 38_000, "CANCELED")
    described = cluster.view.jobs.described("short")
    assert described is not None
    seen = [_box(task, {}, None, {}, NOW) for task in described["tasks"]]
    assert (seen[0].took, seen[0].spread) == (length(42_000), f"longest [1] {length(42_000)}, median {length(41_000)}")
    tasks = [{"task": "stock", "vertices": ["stock"], "parallelism": 2}]
    cluster.job("JobRescaled", "short", NOW - 30_000, parallelism={"stock": 2}, tasks=tasks)
    described = cluster.view.jobs.described("short")
    assert described is not None
    [box] = [_box(task, {}, None, {}, NOW) for task in described["tasks"]]
    assert (box.state, box.took, box.spread, len(box.attempts)) == ("CREATED", "", "", 2), "its attempts are listed"
    shown = timeline(described["tasks"], {"stock": [("@plan", "forward")]}, NOW - 90_000, None, NOW)
    assert (len(shown.lanes), shown.critical) == (2, ())
