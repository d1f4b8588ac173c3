"""Who submits a job is sent to its page, before its first fact has come."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from starlette.testclient import TestClient

from millrace.client import Busy, Job, OutcomeUnknown
from services.web.page import routes
from tests.web.page.seed import FINISHED, RUNNING, TASKS, Cluster
from tests.web.page.test_page import NOW, said, token

JOB = "flight-delays-00000001"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(NOW)


@pytest.fixture
def waited(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the page waits each time; the second time the job's first fact comes meanwhile."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            cluster.accept(JOB, "flight-delays", NOW, TASKS)

    monkeypatch.setattr("services.web.page.routes.asyncio.sleep", sleep)
    return waited


def test_a_job_that_etcd_has_is_waited_for_and_shown_whole(
    cluster: Cluster, waited: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = cluster.stored
    monkeypatch.setattr(cluster, "stored", lambda key: stored(f"jobs/{RUNNING}") if key == f"jobs/{JOB}" else None)
    answer = TestClient(cluster.app(), base_url="http://127.0.0.1").get(f"/page/jobs/{JOB}")
    assert (answer.status_code, waited) == (200, [*routes.LOOK_AGAIN_S[:2]])
    assert "flights ×2 source" in said(answer.text), "its graph is known, too"


def test_a_job_that_was_sent_from_here_is_waited_for(cluster: Cluster, waited: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    submitted: Any = SimpleNamespace()
    monkeypatch.setattr(cluster, "submit", lambda graph, job, *more: Job(submitted, job, "INITIALIZING", [], None))
    web = TestClient(cluster.app(), base_url="http://127.0.0.1")
    graph = {"name": "flight-delays", "vertices": {"flights": {"sql": "SELECT 1 AS a"}}}
    assert web.post(f"/api/v1/jobs?job={JOB}", json=graph).status_code == 201
    assert (web.get(f"/page/jobs/{JOB}").status_code, waited) == (200, [*routes.LOOK_AGAIN_S[:2]])


@pytest.mark.parametrize("refused", [False, True])
def test_a_job_that_nobody_expects_is_not_waited_for(
    cluster: Cluster, waited: list[float], refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    web = TestClient(cluster.app(), base_url="http://127.0.0.1")
    if refused:
        monkeypatch.setattr(cluster, "submit", raising(Busy("500 jobs live")))
        graph = {"name": "flight-delays", "vertices": {"flights": {"sql": "SELECT 1 AS a"}}}
        assert web.post(f"/api/v1/jobs?job={JOB}", json=graph).status_code == 503
    answer = web.get(f"/page/jobs/{JOB}")
    assert answer.status_code == 404 and f"There is no job {JOB}" in said(answer.text)
    assert waited == []


def test_a_job_that_is_run_again_and_perhaps_accepted_is_not_said_to_be_none(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was: above the reason, which said that it is not known."""
    monkeypatch.setattr(cluster, "submit", raising(OutcomeUnknown("it is not known whether it was accepted")))
    web = TestClient(cluster.app(), base_url="http://127.0.0.1")
    given = {"token": token(web)}
    shown = said(web.post(f"/page/jobs/{FINISHED}/again", data=given).text)
    assert re.search("It is not known yet whether it runs [a-z0-9-]+ it is not known whether it was accepted", shown), shown
    assert web.post("/page/submit", data={**given, "graph": "name: a\nvertices: {a: {sql: SELECT 1 AS a}}"}).status_code == 202


def raising(failure: Exception) -> Callable[..., NoReturn]:
    def fail(*given: Any) -> NoReturn:
        raise failure

    return fail


def test_a_job_whose_first_fact_does_not_come_is_told_so_after_a_while(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = cluster.stored
    monkeypatch.setattr(cluster, "stored", lambda key: stored(f"jobs/{RUNNING}"))
    monkeypatch.setattr(routes, "LOOK_AGAIN_S", (0.001, 0.001))
    answer = TestClient(cluster.app(), base_url="http://127.0.0.1").get(f"/page/jobs/{JOB}")
    assert answer.status_code == 404 and f"There is no job {JOB}" in said(answer.text)
