"""The web service between a real client and a real control plane: commands over HTTP, streams, and its death in between."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import httpx
import pytest

from tests.client.cluster import READY_MOST_S, ControlPlane

YAML = b"""name: over http
vertices:
  one:
    python: mine:one
"""
MODULE = b"def one():\n    return None\n"
LIMIT_S = 150.0


class Web:
    """The web service of the plane."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self.start()

    def start(self) -> None:
        self._plane.start("web", blob_token=self._plane.token)
        port = json.loads((self._plane.folder / "web.ready").read_text())["port"]
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=90, trust_env=False)
        deadline = time.monotonic() + READY_MOST_S
        while self.http.get("/overview").status_code != 200:
            assert time.monotonic() < deadline, self.http.get("/overview").text
            time.sleep(0.05)

    def kill(self) -> None:
        self.http.close()
        self._plane.children["web"].popen.kill()
        self._plane.children.pop("web").popen.wait(60)

    def events(self, path: str, last_id: str | None = None) -> Iterator[tuple[str, Any, str]]:
        """(event, data, the id so far) as they come."""
        headers = {"Last-Event-ID": last_id} if last_id is not None else {}
        event = id = ""
        with self.http.stream("GET", f"/streams/{path}", headers=headers, timeout=LIMIT_S) as answer:
            assert answer.status_code == 200, answer.read()
            for line in answer.iter_lines():
                name, _, value = line.partition(": ")
                if name == "event":
                    event = value
                elif name == "id":
                    id = value
                elif name == "data":
                    yield event, json.loads(value), id


@pytest.fixture(scope="module")
def web(plane: ControlPlane) -> Iterator[Web]:
    web = Web(plane)
    yield web
    web.kill()


def submit(web: Web, key: str, module: bytes = MODULE) -> httpx.Response:
    files = [("graph", ("daily.yaml", YAML)), ("modules", ("mine.py", module))]
    return web.http.post("/jobs", files=files, headers={"Idempotency-Key": key})


def statuses(events: Iterator[tuple[str, Any, str]], job: str) -> Iterator[tuple[str, str]]:
    """(status of the job, id of the last synced event) at each synced event."""
    status = ""
    for event, data, id in events:
        if event == "jobs":
            status = next((each["status"] for each in data["jobs"] if each["job"] == job), status)
        elif event == "synced" and status:
            yield status, id


@pytest.mark.long
def test_a_job_by_http_alone_though_the_web_service_is_killed_in_between(plane: ControlPlane, web: Web) -> None:
    accepted = submit(web, "of this test")
    assert accepted.status_code == 201, accepted.text
    job, where = accepted.json()["job"], accepted.headers["location"].removeprefix("/api/v1")
    assert web.http.get(where).json()["job"]["job"] == job, "what was answered is not contradicted by what is read next"
    with closing(web.events("jobs")) as events:
        status, id = next(each for each in statuses(events, job) if each[0] == "RUNNING")
    while (before := web.http.get(where).json())["job"]["waiting"] is None:
        time.sleep(0.02)  # no TaskManager is there: that it waits is known soon, and nothing changes from then on
    web.kill()
    web.start()
    after = web.http.get(where)
    assert after.json()["job"] == before["job"]
    again = submit(web, "of this test")
    assert (again.status_code, again.json()["job"]) == (201, job), "the same key is the same job, for another process too"
    other = submit(web, "of this test", MODULE + b"\n")
    assert (other.status_code, other.json()["type"]) == (409, "urn:millrace:other-graph")
    seen: list[str] = []

    def follow() -> None:
        for status, _ in statuses(web.events("jobs", id), job):
            seen.append(status)
            if status == "CANCELED":
                return

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    canceled = web.http.post(f"{where}/cancel")
    assert (canceled.status_code, canceled.json()["status"]) in ((200, "CANCELLING"), (200, "CANCELED"))
    follower.join(LIMIT_S)
    assert seen[-1] == "CANCELED"
    ended = list(web.events(f"jobs/{job}"))
    assert [event for event, _, _ in ended] == ["job", "synced"] and ended[0][1]["job"]["status"] == "CANCELED"
    tag = web.http.get(where).headers["etag"]
    assert web.http.get(where, headers={"If-None-Match": tag}).status_code == 304
    types = [event["type"] for event in web.http.get(f"{where}/events").json()["events"]]
    assert types[0] == "JobAccepted" and types[-1] == "JobCanceled"
    assert web.http.get(f"{where}/logs").json() == {"logs": []}
    assert web.http.get(f"{where}/result").status_code == 409
    [listed] = web.http.get("/jobs", params={"state": "CANCELED", "name": "over http"}).json()["jobs"]
    assert listed["job"] == job
    assert (plane.storage / "uploads").exists(), "its module went by the blob server"


def test_what_the_cluster_refuses_and_what_it_cannot_answer(plane: ControlPlane, web: Web) -> None:
    for method, path in (("GET", "/jobs/none"), ("POST", "/jobs/none/cancel"), ("GET", "/jobs/none/report")):
        answer = web.http.request(method, path)
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json"), answer.text
    wrong = web.http.post("/jobs", json={"name": "w", "vertices": {"a": {"sql": "SELEC 1"}}})
    assert (wrong.status_code, wrong.json()["errors"][0]["place"]) == (400, ["vertices", "a", "sql"])
    assert wrong.json()["errors"][0]["line"] == 1
    plane.stop("dispatcher")
    try:
        late = web.http.post("/jobs?job=late&wait_s=0", json={"name": "w", "vertices": {"a": {"sql": "SELECT 1"}}})
        assert (late.status_code, late.headers["location"]) == (202, "/api/v1/jobs/late")
        unanswered = ("POST", "GET"), ("/jobs/none/cancel", "/jobs/none/report")
        with ThreadPoolExecutor(2) as pool:  # each waits for as long as the Dispatcher has
            for answer in pool.map(web.http.request, *unanswered):
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "1"), answer.text
        assert web.http.get("/jobs").status_code == 200, "reads go on"
    finally:
        plane.start("dispatcher")
