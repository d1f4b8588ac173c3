"""Who submits a job is sent to its page, before its first fact has come."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from services.web.page import routes
from tests.web.page.seed import RUNNING, TASKS, Cluster
from tests.web.page.test_page import NOW, said

JOB = "flight-delays-00000001"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster(NOW)
    stored = cluster.stored
    monkeypatch.setattr(cluster, "stored", lambda key: stored(f"jobs/{RUNNING}"))
    return cluster


def test_a_job_of_which_nothing_is_told_yet_is_waited_for_and_shown_whole(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            cluster.accept(JOB, "flight-delays", NOW, TASKS)

    monkeypatch.setattr("services.web.page.routes.asyncio.sleep", sleep)
    answer = TestClient(cluster.app(), base_url="http://127.0.0.1").get(f"/page/jobs/{JOB}")
    assert (answer.status_code, waited) == (200, [*routes.TOLD_WITHIN_S[:2]])
    assert "flights ×2 source" in said(answer.text), "its graph is known, too"


def test_a_job_that_there_is_not_is_told_so_after_a_while(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "TOLD_WITHIN_S", (0.001, 0.001))
    answer = TestClient(cluster.app(), base_url="http://127.0.0.1").get(f"/page/jobs/{JOB}")
    assert answer.status_code == 404 and f"There is no job {JOB}" in said(answer.text)
