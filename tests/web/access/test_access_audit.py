"""Who gives a command is written down before it is sent, and what came of it after."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from millrace.client import Millrace, NotFound, OutcomeUnknown, Unavailable
from millrace.client.audit import Audit, _body
from millrace.core.messages.audit import CommandAnswered, CommandRequested
from services.web.access.audit import Recorder
from services.web.app import application
from services.web.commands import Commands
from services.web.page import page
from services.web.processes import Processes
from tests.web.access.logins import access_of, login_of, tokens_of
from tests.web.page.seed import RUNNING, Cluster
from tests.web.page.test_page import NOW
from tests.web.scheduled import Scheduled

GRAPH = {"name": "one", "vertices": {"one": {"sql": "SELECT 1 AS a"}}}


class Written:
    """In place of the topic: what is written to it, in order, among what is sent."""

    def __init__(self, sent: list[Any]) -> None:
        self.sent, self.away = sent, False

    def write(self, body: CommandRequested) -> None:
        if self.away:
            raise Unavailable("Kafka took no record")
        self.sent.append(body)

    def note(self, body: CommandRequested | CommandAnswered, failed: Callable[[str], None]) -> None:
        failed("Kafka took no record") if self.away else self.sent.append(body)


class Scene:
    """A web service whose cluster has an audit."""

    def __init__(self, folder: Path, has_login: bool = True) -> None:
        self.tokens = tokens_of(folder)
        self.cluster = Cluster(NOW, 2)
        self.written = Written(self.cluster.sent)
        self.cluster.audit = lambda: self.written  # type: ignore[attr-defined]  # which the client has
        login = login_of(folder) if has_login else None
        commands = Commands(lambda: self.cluster, recorder=Recorder(must=has_login))  # type: ignore[arg-type,return-value]  # as called
        view, follows = self.cluster.view, self.follows
        screens = page(view, follows, commands, Processes(commands, self.cluster.storage), self.cluster.stored, login=login)
        self.app = application(view, follows, commands, page=screens, login=login, access=access_of(folder))

    @staticmethod
    def follows() -> Any:
        from services.web.follow import Follows

        return Follows("", 0)

    def client(self, role: str = "") -> TestClient:
        headers = {"Authorization": f"Bearer {self.tokens[role]}"} if role else {}
        return TestClient(self.app, base_url="https://127.0.0.1", follow_redirects=False, headers=headers, client=("192.0.2.7", 1))

    def take(self) -> list[Any]:
        taken = list(self.cluster.sent)
        self.cluster.sent.clear()
        return taken


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_command_stands_between_its_two_records(scene: Scene) -> None:
    answer = scene.client("operator").post("/api/v1/jobs?job=j1", json=GRAPH)
    asked, sent, answered = scene.take()
    assert (asked.name, asked.role, asked.how, asked.address, asked.verb, asked.target) == (
        "operator-1", "operator", "token", "192.0.2.7", "submit", "j1",
    )  # fmt: skip
    assert asked.request == answer.headers["x-request-id"]
    assert sent[0] == "submit"
    assert (answered.command, answered.outcome, answered.detail) == (asked.command, "done", "INITIALIZING")


@pytest.mark.parametrize(("method", "path"), [
    ("POST", f"/api/v1/jobs/{RUNNING}/cancel"), ("PATCH", f"/jobs/{RUNNING}"), ("GET", f"/v1/jobs/{RUNNING}/yarn-cancel"),
    ("POST", f"/applications/{RUNNING}/cancel"),
])  # fmt: skip
def test_every_way_to_cancel_is_recorded(scene: Scene, method: str, path: str) -> None:
    assert scene.client("operator").request(method, path).status_code in (200, 202)
    asked, sent, answered = scene.take()
    assert (asked.verb, asked.target, sent, answered.outcome) == ("cancel", RUNNING, ("cancel", RUNNING), "done")


def test_what_is_done_to_a_schedule_has_its_own_name(scene: Scene) -> None:
    its = Scheduled()
    for name in ("set_schedule", "pause_schedule", "remove_schedule", "run_schedule"):
        setattr(scene.cluster, name, getattr(its, name))
    web, at = scene.client("operator"), "/api/v1/schedules/j"
    web.put(f"{at}?cron=0 3 * * *", json=GRAPH)
    web.post(f"{at}/pause")
    web.post(f"{at}/resume")
    web.post(f"{at}/run?job=mine")
    web.delete(at)
    token = web.get("/page/submit").text.split('name="token" value="')[1].split('"')[0]
    for what in ("pause", "resume", "run", "remove"):
        web.post(f"/page/schedules/j/{what}", data={"sure": "yes", "token": token})
    asked = [each for each in scene.take() if isinstance(each, CommandRequested)]
    done = ["set_schedule", "pause_schedule", "resume_schedule", "run_schedule", "remove_schedule"]
    assert [each.verb for each in asked] == [*done, "pause_schedule", "resume_schedule", "run_schedule", "remove_schedule"]
    assert {each.target for each in asked} == {"j"} and len(its.changed) == 9


def test_each_job_of_a_form_has_its_own_record(scene: Scene) -> None:
    web = scene.client("admin")
    token = web.get("/page/submit").text.split('name="token" value="')[1].split('"')[0]
    form = {"job": [RUNNING, "more-1"], "sure": "yes", "token": token}
    web.post("/page/cancel", data=form)
    asked = [each for each in scene.take() if isinstance(each, CommandRequested)]
    assert [each.target for each in asked] == [RUNNING, "more-1"] and len({each.command for each in asked}) == 2
    assert len({each.request for each in asked}) == 1


def test_a_letter_that_is_sent_again_says_by_whose_login(scene: Scene, tmp_path: Path) -> None:
    """It said the user of the web service's process, who is the same whoever asks."""
    web = scene.client("admin")
    assert web.post("/api/v1/deadletters/403/redrive").status_code == 200
    token = web.get("/page/submit").text.split('name="token" value="')[1].split('"')[0]
    web.post("/page/redrive", data={"letter": "403", "sure": "yes", "token": token})
    asked = [each for each in scene.take() if isinstance(each, CommandRequested)]
    assert {each.name for each in asked} == {"admin-1"} and scene.cluster.redriven_by == ["admin-1"] * 2
    (tmp_path / "open").mkdir()
    nobody = Scene(tmp_path / "open", has_login=False)
    assert nobody.client().post("/api/v1/deadletters/403/redrive").status_code == 200
    assert nobody.cluster.redriven_by == ["over HTTP"]


def test_what_is_not_allowed_is_not_a_command(scene: Scene) -> None:
    assert scene.client("viewer").post(f"/api/v1/jobs/{RUNNING}/cancel").status_code == 403
    assert scene.client("operator").post("/api/v1/jobs", json={"name": "w", "vertices": {}}).status_code == 400
    assert scene.take() == []


def test_without_its_record_no_command_is_sent(scene: Scene) -> None:
    scene.written.away = True
    answer = scene.client("operator").post(f"/api/v1/jobs/{RUNNING}/cancel")
    assert (answer.status_code, answer.json()["type"], answer.headers["retry-after"]) == (503, "urn:millrace:not-recorded", "1")
    answer = scene.client("operator").patch(f"/jobs/{RUNNING}")
    assert answer.status_code == 503 and "could not be recorded" in answer.json()["errors"][0]
    assert scene.take() == []


def test_without_a_login_a_command_does_not_wait_for_its_record(tmp_path: Path) -> None:
    scene = Scene(tmp_path, has_login=False)
    assert scene.client().post(f"/api/v1/jobs/{RUNNING}/cancel").status_code == 200
    asked, _, answered = scene.take()
    assert (asked.name, asked.how, answered.outcome) == ("", "none", "done")
    scene.written.away = True
    assert scene.client().post(f"/api/v1/jobs/{RUNNING}/cancel").status_code == 200
    assert scene.take() == [("cancel", RUNNING)]


@pytest.mark.parametrize(("failure", "outcome"), [
    (NotFound("there is no job x\nsecond line"), "refused"), (OutcomeUnknown("no answer", "x"), "unknown"),
    (Unavailable("no answer", "dispatcher"), "refused"), (RuntimeError("a bug"), "unknown"),
    (Unavailable("it was asked and does not answer: it does so when it is back", "resource-manager"), "unknown"),
])  # fmt: skip
def test_what_came_of_it_is_said(scene: Scene, failure: Exception, outcome: str) -> None:
    def fails(job: str) -> str:
        raise failure

    scene.cluster.cancel = fails  # type: ignore[method-assign]  # that is the point
    web = TestClient(scene.app, base_url="https://127.0.0.1", raise_server_exceptions=False)
    web.post("/api/v1/jobs/x/cancel", headers={"Authorization": f"Bearer {scene.tokens['operator']}"})
    asked, answered = scene.take()
    assert (answered.command, answered.outcome) == (asked.command, outcome)
    assert answered.detail and "\n" not in answered.detail


def test_it_stands_for_an_audit() -> None:
    """What the fake has is what the client library has."""
    assert callable(Millrace.audit)
    for name in ("write", "note"):
        real, mine = inspect.signature(getattr(Audit, name)), inspect.signature(getattr(Written, name))
        assert list(real.parameters) == list(mine.parameters)


@pytest.mark.parametrize("value", [
    b"", b"no json", b"[]", b"{}", b'{"type": "Other"}', b'{"type": "CommandRequested"}', b'{"type": ["x"]}', b"[" * 100_000,
    b'{"type": "CommandAnswered", "command": 1, "outcome": "x"}',
])  # fmt: skip
def test_what_strangers_write_is_passed_over(value: bytes) -> None:
    assert _body(value) is None


def test_what_a_later_build_adds_is_borne() -> None:
    raw = b'{"type":"CommandAnswered","version":1,"command":"c","outcome":"done","detail":"","at_ms":1,"further":true}'
    assert _body(raw) == CommandAnswered(command="c", outcome="done", detail="", at_ms=1)
