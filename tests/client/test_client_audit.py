"""The audit over real Kafka: what a web service with a login writes, and `millrace audit` lists."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from millrace.cli.app import app, guarded
from millrace.client import Millrace
from services.web.access import tokens
from tests.client.cluster import READY_MOST_S, ControlPlane

GRAPH = {"name": "audited", "vertices": {"a": {"sql": "SELECT 1 AS x"}}}


def audited(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], plane: ControlPlane, *more: str) -> Any:
    monkeypatch.setattr("sys.argv", ["millrace", "audit", *more])
    monkeypatch.setenv("MILLRACE_KAFKA_BOOTSTRAP", plane.kafka.bootstrap)
    capsys.readouterr()
    assert guarded(app) == 0
    return capsys.readouterr().out


@pytest.mark.long
def test_who_did_what_is_listed_also_what_became_unknown(
    plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tokens.json"
    token = tokens.create(file, "ada", "operator", None, time.time_ns() // 1_000_000)
    plane.start("web", access__tokens=file)
    port = json.loads((plane.folder / "web.ready").read_text())["port"]
    mine = {"Authorization": f"Bearer {token}"}
    web = httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=90, trust_env=False, headers=mine)
    deadline = time.monotonic() + READY_MOST_S
    try:
        while web.get("/overview").status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert web.get("/overview", headers={"Authorization": "Bearer x"}).status_code == 401
        assert web.post("/jobs?job=audited-1", json=GRAPH).status_code == 201
        assert web.post("/jobs/audited-1/cancel").status_code == 200
        assert web.post("/jobs/audited-none/cancel").status_code == 404
        plane.stop("dispatcher")
        assert web.post("/jobs?job=audited-2&wait_s=0", json=GRAPH).status_code == 202
        deadline = time.monotonic() + READY_MOST_S
        with Millrace(plane.kafka.bootstrap) as millrace:
            while not [each for each in millrace.audit().read() if each.requested.target == "audited-2"]:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        plane.children["web"].popen.kill()  # before anything could be answered
    finally:
        web.close()
        plane.children["web"].popen.kill()
        plane.children.pop("web").popen.wait(30)
        if "dispatcher" not in plane.children:
            plane.start("dispatcher")
    found = json.loads(audited(monkeypatch, capsys, plane, "--since", "1h", "--name", "ada", "--json"))
    assert [(each["verb"], each["target"], each["outcome"]) for each in found] == [
        ("submit", "audited-1", "done"), ("cancel", "audited-1", "done"), ("cancel", "audited-none", "refused"),
        ("submit", "audited-2", None),
    ]  # fmt: skip
    assert {(each["role"], each["how"], each["address"]) for each in found} == {("operator", "token", "127.0.0.1")}
    shown = audited(monkeypatch, capsys, plane, "--job", "audited-1")
    assert shown.count("audited-1") == 2 and "ada" in shown and "audited-2" not in shown
    assert token not in shown and tokens.sha256_of(token) not in shown
    [newest] = json.loads(audited(monkeypatch, capsys, plane, "-n", "1", "--json"))
    assert newest["target"] == "audited-2"
    log = (plane.folder / "web.log").read_text()
    assert token not in log and tokens.sha256_of(token) not in log
