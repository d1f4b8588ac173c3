"""Schedules over HTTP: what the client library is given, and what is answered."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from services.web.app import application
from services.web.commands import Commands
from services.web.follow import Follows
from tests.web.scheduled import Scheduled, summary
from tests.web.test_web_commands import GRAPH
from tests.web.test_web_streams import fresh

J = "/api/v1/schedules/j"


@pytest.fixture
def cluster() -> Scheduled:
    return Scheduled()


@pytest.fixture
def web(cluster: Scheduled) -> Iterator[TestClient]:
    commands = Commands(lambda: cluster)  # type: ignore[arg-type,return-value]  # nothing else of a client is called
    with TestClient(application(fresh(), lambda: Follows("", 0), commands), base_url="http://127.0.0.1") as web:
        yield web
    commands.close()


def test_schedules_are_listed_and_shown(web: TestClient) -> None:
    assert web.get("/api/v1/schedules").json() == {"schedules": [summary("j").model_dump()], "total": 1}
    shown = web.get(J).json()
    assert shown["schedule"]["next"] == ["2026-01-31T03:00:00+00:00"]
    assert [(each["job"], each["left_out"], each["times"]) for each in shown["runs"]] == [("by-hand", None, 1), (None, "it was missed", 3)]
    gone = web.get("/api/v1/schedules/x")
    assert (gone.status_code, gone.json()["detail"]) == (404, "there is no schedule x")


def test_a_schedule_is_set_with_its_graph(web: TestClient, cluster: Scheduled) -> None:
    query = {"cron": "0 3 * * *", "time_zone": "Europe/Berlin", "missed": "all", "overlap": "wait", "paused": "true", "parameter": "a=2"}
    made = web.put(J, params=query, json={**GRAPH, "parameters": {"a": 1}})
    assert made.status_code == 200, made.text
    assert made.json() == {"schedule": summary("j").model_dump(), "runs": []}
    policy = {"missed": "all", "overlap": "wait", "paused": True}
    assert cluster.changed == [("set", "j", "0 3 * * *", "Europe/Berlin", {"a": "2"}, policy)]


@pytest.mark.parametrize(
    ("query", "place"),
    [({"cron": "daily"}, "cron"), ({}, "cron"), ({"cron": "0 3 * * *", "missed": "some"}, "missed"), ({"cron": "x" * 201}, "cron")],
)
def test_what_is_wrong_is_said_with_its_place(web: TestClient, query: dict[str, str], place: str) -> None:
    refused = web.put(J, params=query, json=GRAPH)
    assert refused.status_code == 400 and refused.json()["errors"][0]["place"][-1] == place, refused.text


def test_a_schedule_is_paused_resumed_run_and_removed(web: TestClient, cluster: Scheduled) -> None:
    assert web.post(f"{J}/pause").json()["schedule"]["paused"] is True
    assert web.post(f"{J}/resume").json()["schedule"]["paused"] is False
    ran = web.post(f"{J}/run?job=mine")
    assert (ran.status_code, ran.json()["job"], ran.headers["location"]) == (201, "mine", "/api/v1/jobs/mine")
    assert web.post(f"{J}/run").json()["job"].startswith("j-")
    first, repeat = (web.post(f"{J}/run", headers={"Idempotency-Key": "k"}).json()["job"] for _ in range(2))
    assert first == repeat and first.startswith("key-")
    assert (web.delete(J).status_code, web.delete(J).content) == (204, b"")
    assert [each[0] for each in cluster.changed] == ["pause", "resume", *["run"] * 4, "remove", "remove"]
    for answer in (web.delete("/api/v1/schedules/x"), web.post("/api/v1/schedules/x/pause"), web.post("/api/v1/schedules/x/run")):
        assert answer.status_code == 404
