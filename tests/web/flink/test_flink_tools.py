"""Flink's own command line, Java client and dashboard, unchanged, against the web service over a cluster of five jobs."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.io.http.server import HttpServer
from services.web.flink.ids import job_id
from tests.web.access.logins import access_of, login_of, tokens_of
from tests.web.flink.scene import ENDED, FAILED, JOBS, RUNS, VERTEX, WAITS, Commands, made
from tests.web.flink.tools import dashboard, flink, java_client
from tests.web.page.pictures import LIMIT_MS
from tests.web.page.seed import RUNNING, Cluster

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
NO_SAVEPOINTS = "is not a streaming job: it has no savepoints and no checkpoints"


@pytest.fixture(scope="module")
def commands() -> Commands:
    return Commands()


@pytest.fixture(scope="module")
def port(commands: Commands, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    server = HttpServer(made(commands, dashboard(tmp_path_factory.mktemp("dashboard"))).app)
    yield server.start()
    server.stop()


def listed(text: str) -> dict[str, list[str]]:
    """Heading -> `NAME (STATE)` of the jobs below it."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if heading := re.fullmatch(r"-+ ([A-Z][a-zA-Z/ ]+) -+", line):
            jobs = found.setdefault(heading[1], [])
        elif job := re.fullmatch(r"[\d. :]+ : [0-9a-f]{32} : (.+)", line):
            jobs.append(job[1])
    return found


def test_the_command_line_lists_jobs(port: int) -> None:
    live = {"Running/Restarting Jobs": ["name of runs (RUNNING)", "name of waits (RUNNING)"]}
    ended = ["name of ended (FINISHED)", "name of failed (FAILED)", "name of canceled (CANCELED)"]
    for options, expected in (((), live), (("-a",), {**live, "Terminated Jobs": ended})):
        told = flink(port, "list", *options)
        assert told.returncode == 0, told.stderr
        assert {heading: set(jobs) for heading, jobs in listed(told.stdout).items()} == {
            heading: set(jobs) for heading, jobs in expected.items()
        }


def test_the_command_line_cancels_a_job_once_and_says_why_not(port: int, commands: Commands) -> None:
    commands.canceled.clear()
    told = flink(port, "cancel", job_id(RUNS))
    assert (told.returncode, commands.canceled) == (0, [RUNS]) and f"Cancelled job {job_id(RUNS)}." in told.stdout
    for job, reason in ((job_id(ENDED), "already reached another terminal state"), ("f" * 32, "Job could not be found")):
        told = flink(port, "cancel", job)
        assert told.returncode == 1 and reason in told.stderr and "Cancelled" not in told.stdout
    assert commands.canceled == [RUNS]


@pytest.mark.parametrize("words", [
    ("stop", job_id(WAITS)), ("savepoint", job_id(WAITS)), ("checkpoint", job_id(WAITS)), ("cancel", "-s", "file:/s", job_id(WAITS)),
], ids=" ".join)  # fmt: skip
def test_the_command_line_says_that_a_job_has_no_savepoints(port: int, commands: Commands, words: tuple[str, ...]) -> None:
    commands.canceled.clear()
    told = flink(port, *words)
    assert told.returncode == 1 and NO_SAVEPOINTS in told.stderr and commands.canceled == []


def test_the_command_line_disposes_of_no_savepoint_and_knows_no_other_job(port: int) -> None:
    told = flink(port, "savepoint", "-d", "file:/s")
    assert told.returncode == 1 and "Cannot find checkpoint or savepoint file/directory 'file:/s'" in told.stderr
    told = flink(port, "savepoint", "f" * 32)
    assert told.returncode == 1 and f"Could not find Flink job ({'f' * 32})" in told.stderr


def test_the_java_client_reads_and_changes_every_job(port: int) -> None:
    told = java_client(port, *(job_id(job) for job in JOBS))
    assert told.returncode == 0, told.stderr
    calls = [line.partition(" -> ") for line in told.stdout.splitlines()]
    assert {name: answer for name, _, answer in calls[:3]} == {
        "listJobs": "5", "getClusterOverview": "1", "listCompletedClusterDatasetIds": "[]",
    }  # fmt: skip
    said: dict[str, list[str]] = {}
    for name, _, answer in calls[3:]:
        said.setdefault(name, []).append(answer)
    assert said.pop("getJobStatus") == ["RUNNING", "RUNNING", "FINISHED", "FAILED", "CANCELED"]
    assert said.pop("getJobDetails") == ["2", "1", "1", "1", "1"]
    assert said.pop("getAccumulators") == ["{}"] * 5
    for name in ("triggerSavepoint", "stopWithSavepoint", "triggerCheckpoint"):
        assert all(NO_SAVEPOINTS in answer for answer in said.pop(name))
    canceled = said.pop("cancel")
    assert [answer == "Acknowledge" for answer in canceled] == [True, True, False, False, True]
    finished, failed, ended = said.pop("requestJobResult")
    assert finished == "true" and "ZeroDivisionError: division by zero" in failed and "Job was cancelled" in ended
    (disposed,) = said.pop("disposeSavepoint")
    assert "Cannot find checkpoint or savepoint" in disposed and said == {}


PAGES = [
    "overview", "job/running", "job/completed", "application/running", "application/completed", "application/running/J/overview",
    "job/running/J/overview", *(f"job/running/J/overview/V/{tab}" for tab in (
        "detail", "subtasks", "taskmanagers", "watermarks", "accumulators", "backpressure", "metrics", "flamegraph",
    )), "job/running/J/exceptions", "job/running/J/timeline", "job/running/J/configuration", "job/running/J/dataskew",
    "job/completed/F/overview", "job/completed/F/exceptions", "task-manager", "task-manager/tm/metrics", "task-manager/tm/log-list",
    "task-manager/tm/logs", "task-manager/tm/stdout",
    "task-manager/tm/thread-dump", "job-manager/metrics", "job-manager/config", "job-manager/log", "job-manager/thread-dump",
]  # fmt: skip
SHOWN = {
    "job/running": "name of runs", "job/completed": "name of failed", "job/running/J/overview": "HASH",
    "job/running/J/overview/V/subtasks": "tm", "job/completed/F/exceptions": "etl.py", "overview": "Available Task Slots",
}  # fmt: skip
"""Page -> what must be seen on it."""


def test_the_dashboard_shows_every_page_without_an_error(port: int) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright: it leads Chromium")
    program = shutil.which("chromium") or pytest.skip("there is no Chromium: apt install chromium")
    with playwright.sync_playwright() as starter:
        browser = starter.chromium.launch(executable_path=program, args=["--no-sandbox"], timeout=LIMIT_MS)
        page, wrong = browser.new_page(), []
        page.set_default_timeout(LIMIT_MS)
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("response", lambda answer: wrong.append(f"{answer.status} {answer.url}") if answer.status >= 400 else None)
        for place in PAGES:
            where = place.replace("J", job_id(RUNS)).replace("F", job_id(FAILED)).replace("V", VERTEX)
            page.goto("about:blank")  # the address behind # alone loads nothing anew
            page.goto(f"http://127.0.0.1:{port}/flink/#/{where}")
            page.wait_for_load_state("networkidle")
            if place in SHOWN:
                page.get_by_text(SHOWN[place]).first.wait_for(state="attached")
            assert wrong == [], place
        browser.close()


def test_the_dashboard_cancels_a_job(port: int, commands: Commands) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright: it leads Chromium")
    program = shutil.which("chromium") or pytest.skip("there is no Chromium: apt install chromium")
    commands.canceled.clear()
    with playwright.sync_playwright() as starter:
        browser = starter.chromium.launch(executable_path=program, args=["--no-sandbox"], timeout=LIMIT_MS)
        page = browser.new_page()
        page.set_default_timeout(LIMIT_MS)
        page.goto(f"http://127.0.0.1:{port}/flink/#/job/running/{job_id(WAITS)}/overview")
        page.get_by_text("Cancel Job").click()
        with page.expect_response("**/yarn-cancel") as answer:
            page.get_by_role("button", name="Yes").click()
        assert (answer.value.status, commands.canceled) == (202, [WAITS])
        browser.close()


def test_the_command_line_has_a_token_and_may_what_its_role_may(tmp_path: Path) -> None:
    tokens, cluster = tokens_of(tmp_path), Cluster(time.time_ns() // 1_000_000, 1)
    server = HttpServer(cluster.app(login=login_of(tmp_path), access=access_of(tmp_path)))
    port, job = server.start(), job_id(RUNNING)
    try:
        told = flink(port, "list", token=tokens["viewer"])
        assert told.returncode == 0 and listed(told.stdout), told.stderr
        for token, why in (("", "wants to know who you are"), (tokens["viewer"], "viewer-1 is viewer here, and this needs operator")):
            told = flink(port, "cancel", job, token=token)
            assert told.returncode == 1 and why in told.stderr, told.stderr
        assert cluster.sent == []
        assert flink(port, "cancel", job, token=tokens["operator"]).returncode == 0
        assert cluster.sent == [("cancel", RUNNING)]
    finally:
        server.stop()
