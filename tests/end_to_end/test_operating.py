"""The web service, doctor and bundle on a real stack."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from typer.testing import CliRunner

from deploy.cli.app import app
from deploy.local.downloads import CHECKOUT
from services.web.flink.ids import job_id
from tests.end_to_end.running import LIMIT_S, Held, RunningStack, processes_of, until
from tests.web.flink.tools import flink


class Web:
    """A web process beside the shared stack."""

    def __init__(self, running: RunningStack) -> None:
        self._running, self._ready = running, running.stack.folder / "run" / "web-of-test.json"
        self.start()

    def start(self) -> None:
        self._ready.unlink(missing_ok=True)
        folder = self._running.stack.folder
        command = [sys.executable, "-m", "services.web", "--config", str(self._running.stack.settings_file)]
        command += ["--ready-file", str(self._ready), "--instance", "web"]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "shared")])}
        with open(folder / "logs" / "web-of-test.log", "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=env)
        until("the web service", lambda: self._ready.exists() or self.process.poll() is not None)
        assert self.process.poll() is None, (folder / "logs" / "web-of-test.log").read_text()[-3000:]
        self.port = json.loads(self._ready.read_text())["port"]
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=LIMIT_S, trust_env=False)
        until("its tables", lambda: self._http.get("/healthz").status_code == 200)

    def get(self, path: str) -> dict[str, Any]:
        answer = self._http.get(f"/api/v1/{path}")
        answer.raise_for_status()
        shown: dict[str, Any] = answer.json()
        return shown

    def rows(self) -> dict[str, Any]:
        """All that it shows, without as of when."""
        jobs = self.get("jobs")["jobs"]
        parts = {path: self.get(path)[path.replace("taskmanagers", "task_managers")] for path in ("taskmanagers", "slots", "leaders")}
        return {"jobs": [self.get(f"jobs/{each['job']}")["job"] for each in jobs], **parts}


@pytest.fixture(scope="module")
def web_process(shared_stack: RunningStack) -> Iterator[Web]:
    """One for the tests of a file."""
    web = Web(shared_stack)
    yield web
    web.process.kill()
    web.process.wait()


@pytest.fixture
def web(web_process: Web, running: RunningStack) -> Web:
    if web_process.process.poll() is not None:  # a test before failed
        web_process.start()
    return web_process


@pytest.mark.long
def test_a_job_is_seen_in_the_json_and_so_it_is_after_a_kill(running: RunningStack, web: Web, tmp_path: Path) -> None:
    held = Held(running, tmp_path / "held")
    held.started()
    job = held.watched.id
    active = until(f"{job} in a slot", lambda: [s for s in web.get("slots")["slots"] if s["job"] == job])
    event = held.watched.running()
    assert [(s["task_manager"], s["slot"], s["state"]) for s in active] == [(event["task_manager"], event["slot"], "ACTIVE")]
    assert {m["task_manager"] for m in web.get("taskmanagers")["task_managers"]} == {"task-manager-1", "task-manager-2"}
    for leader in web.get("leaders")["leaders"]:
        entry = running.leader_key(leader["scope"])
        assert entry is not None and (entry.value.decode(), entry.mod_revision) == (leader["leader"], leader["epoch"])
    assert held.let_go().end["type"] == "JobFinished"
    until(f"the end of {job}", lambda: web.get(f"jobs/{job}")["job"]["status"] == "FINISHED")
    running.quiesce()
    before = web.rows()
    web.process.kill()
    web.process.wait()
    web.start()
    assert web.rows() == before


@pytest.mark.long
def test_it_ends_when_asked_and_what_happens_meanwhile_is_seen_after(running: RunningStack, web: Web) -> None:
    web.process.terminate()
    assert web.process.wait(LIMIT_S) == 0
    job = running.sql("SELECT 1 AS a")
    assert job.end["type"] == "JobFinished"
    web.start()
    until("the job", lambda: {each["job"]: each["status"] for each in web.get("jobs")["jobs"]}.get(job.id) == "FINISHED")


@pytest.mark.long
def test_flinks_command_line_lists_and_cancels_a_job_that_runs(running: RunningStack, web: Web, tmp_path: Path) -> None:
    held = Held(running, tmp_path / "held")
    held.started()
    job = held.watched.id
    until(f"{job} in a slot", lambda: [slot for slot in web.get("slots")["slots"] if slot["job"] == job])
    listed = flink(web.port, "list")
    assert listed.returncode == 0 and re.search(rf"{job_id(job)} : .* \(RUNNING\)", listed.stdout), listed.stdout
    stopped = flink(web.port, "stop", job_id(job))
    assert stopped.returncode == 1 and "is not a streaming job" in stopped.stderr
    canceled = flink(web.port, "cancel", job_id(job))
    assert canceled.returncode == 0, canceled.stderr
    assert held.watched.end["type"] == "JobCanceled"
    until("its end", lambda: web.get(f"jobs/{job}")["job"]["status"] == "CANCELED")
    assert f"{job_id(job)} : " in flink(web.port, "list", "-a").stdout.partition("Terminated Jobs")[2]


def test_doctor_finds_a_stack_well_but_for_what_is_not(running: RunningStack) -> None:
    given = ["--stack", running.stack.name, "--json"]
    seen: list[dict[str, Any]] = []

    def well() -> bool:
        """But for its disk, and its own etcd, which may be an old one. A process of a busy machine may answer later than doctor waits."""
        shown = CliRunner().invoke(app, ["doctor", *given])
        seen[:] = [json.loads(shown.stdout)]
        problems = {finding["check"] for finding in seen[0]["findings"] if finding["level"] == "problem"}
        assert shown.exit_code == (3 if seen[0]["unreachable"] else 1 if problems else 0)
        return not seen[0]["unreachable"] and problems <= {"etcd", "disk"}

    until("a stack that is well", well, shown=lambda: seen)
    [report] = seen
    checks = {finding["check"] for finding in report["findings"]}
    wanted = {"java", "disk", "processes", "topics", "clocks", "lag", "dispatcher", "resource-manager", "job-master/0", "TaskManagers"}
    assert wanted <= checks
    assert [each["what"] for each in report["findings"] if each["check"] == "kafka version"] == ["4.3"]
    from millrace.io.kafka.admin import KafkaAdmin

    KafkaAdmin(running.facts["kafka_bootstrap"]).ensure_topics([("client.replies", 4, {"retention.ms": "1000"})])
    addresses = ["--kafka", running.facts["kafka_bootstrap"], "--etcd", running.facts["etcd_endpoint"], "--json"]
    try:
        wrong = "client.replies has retention.ms=1000 and not 86400000"
        until("what was changed", lambda: wrong in [
            finding["what"] for finding in json.loads(CliRunner().invoke(app, ["doctor", *addresses]).stdout)["findings"]
        ])  # fmt: skip
    finally:
        KafkaAdmin(running.facts["kafka_bootstrap"]).ensure_topics([("client.replies", 4, {"retention.ms": "86400000"})])


def test_a_bundle_holds_what_helps_and_no_secret(running: RunningStack, tmp_path: Path) -> None:
    running.sql("SELECT 1 AS a").job.wait()
    secrets = {running.token}
    for process in processes_of(running.stack.folder):
        try:
            secrets |= {value for name, value in process.environ().items() if name.endswith("SECRET")}
        except psutil.Error:
            continue
    assert len(secrets) > 1, "the gateways' secrets"
    with open(running.stack.folder / "logs" / "leaky.log", "w") as log:  # a library that says too much
        print(*secrets, file=log)
    target = tmp_path / "help.tar.gz"
    shown = CliRunner().invoke(app, ["bundle", "--stack", running.stack.name, "--out", str(target)])
    assert shown.exit_code == 0, shown.stderr
    with tarfile.open(target) as archive:
        texts = {name: archive.extractfile(name).read().decode() for name in archive.getnames()}
    assert [(name, secret) for name, text in texts.items() for secret in secrets if secret in text] == []
    assert texts["help/logs/leaky.log"].split() == ["***"] * len(secrets)
    wanted = {"versions", "machine", "doctor", "status", "settings", "etcd-keys", "dead-letters", "kafka-etcd-scopes"}
    assert {f"help/{name}.json" for name in wanted} | {"help/logs/dispatcher.log"} <= set(texts)
    assert all(json.loads(text) for name, text in texts.items() if name.endswith(".json"))
    again = CliRunner().invoke(app, ["bundle", "--stack", running.stack.name, "--out", str(target)])
    assert again.exit_code == 2 and "name another file with --out" in again.stderr
