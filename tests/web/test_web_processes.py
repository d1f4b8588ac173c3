"""TaskManagers and services over HTTP: each is asked itself, its logs are read by id and by ranges, and who is silent is said to be."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from millrace.core.messages.processes import LOG_PIECE_MOST
from millrace.io.storage.store import Storage
from millrace.runtime import own_logs
from services.web.app import application
from services.web.commands import Commands
from services.web.follow import Follows
from services.web.processes import Of, Processes
from tests.client.asked import Asked, Held
from tests.web.test_web_streams import fresh

TM = "/api/v1/taskmanagers/tm"


class Scene:
    """The application over what answers, and its clock."""

    def __init__(self, folder: Path, logs: dict[str, dict[str, Held]] | None = None, own: str = "") -> None:
        storage = Storage(str(folder))
        self.asked, self.now_s = Asked(storage, logs), 100.0
        commands = Commands(lambda: self.asked)  # type: ignore[arg-type,return-value]  # it has what is called
        self.processes = Processes(commands, storage, own, lambda: self.now_s)
        app = application(fresh(), lambda: Follows("", 0), commands, storage=storage, processes=self.processes)
        self.web = TestClient(app, base_url="http://127.0.0.1")

    def get(self, path: str, part: str = "") -> Any:
        return self.web.get(path, headers={"Range": f"bytes={part}"} if part else {})


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_task_manager_tells_of_its_process_and_its_slots(scene: Scene) -> None:
    found = scene.get(TM).json()
    assert (found["task_manager"], found["incarnation"], found["total"]) == ("tm", 7, 2)
    assert (found["status"]["cores"], found["status"]["pid"]) == (4, 7)
    busy, free = found["slots"]
    assert (busy["job"], busy["attempt_state"], busy["jvm"]["heap"]["used"]) == ("runs", "RUNNING", 30_000_000)
    assert [each["name"] for each in busy["jvm"]["collectors"]] == ["PS-MarkSweep", "PS-Scavenge"]
    assert (free["jvm"], free["no_answer"]) == (None, "its JVM hangs")


def test_many_who_look_at_once_ask_once(scene: Scene) -> None:
    for _ in range(3):
        assert scene.get(TM).status_code == scene.get("/api/v1/services").status_code == 200
    assert scene.asked.asked == [("tm", "describe")]
    scene.now_s += 3.5
    scene.get(TM)
    assert scene.asked.asked == [("tm", "describe")] * 2


def test_services_are_listed_and_each_is_asked(scene: Scene) -> None:
    (found,) = scene.get("/api/v1/services").json()["services"]
    assert (found["process"], found["status"]["service"], found["scopes"]) == ("dispatcher-0", "dispatcher", {"dispatcher": "leader"})
    assert [each["url"] for each in scene.get("/api/v1/services/dispatcher-0/logs").json()["logs"]] == [
        "/api/v1/services/dispatcher-0/logs/log", "/api/v1/services/dispatcher-0/logs/stdout",
    ]  # fmt: skip
    assert scene.get("/api/v1/services/dispatcher-0/logs/log").text == "a Dispatcher\n"
    assert scene.get("/api/v1/services/dispatcher-0/logs/stdout").text == ""


def test_threads_of_a_task_manager_and_of_its_slots(scene: Scene) -> None:
    own, busy, hung = scene.get(f"{TM}/thread-dump").json()["dumps"]
    assert own["text"].startswith('"main" id=1\n') and busy["truncated"] and (hung["text"], hung["no_answer"]) == (None, "it hangs")
    assert scene.get(f"{TM}/thread-dump?slot=-1").status_code == 400


def test_settings_with_where_each_is_from(scene: Scene) -> None:
    for of in (TM, "/api/v1/services/dispatcher-0"):
        assert scene.get(f"{of}/settings").json()["settings"][1] == {
            "name": "conf", "value": {"spark.sql.ansi.enabled": "false"}, "origin": "in /etc/millrace.yaml",
        }  # fmt: skip


@pytest.mark.parametrize(("path", "status", "kind"), [
    ("/taskmanagers/other", 404, "not-found"),
    ("/taskmanagers/other/logs", 404, "not-found"),
    ("/taskmanagers/mute", 503, "unavailable"),
    ("/taskmanagers/mute/thread-dump", 503, "unavailable"),
    ("/taskmanagers/mute/settings", 503, "unavailable"),
    ("/services/dispatcher-1/logs", 503, "unavailable"),
    ("/taskmanagers/tm/logs/none", 404, "not-found"),
    ("/taskmanagers/tm/logs/..%2Flog", 404, "not-found"),
    ("/taskmanagers/tm/logs/%2Fetc%2Fpasswd", 404, "not-found"),
    (f"/taskmanagers/{'t' * 201}", 400, "invalid-parameter"),
])  # fmt: skip
def test_what_is_not_there_and_who_is_silent(scene: Scene, path: str, status: int, kind: str) -> None:
    answer = scene.get(f"/api/v1{path}")
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    assert answer.json()["type"] == f"urn:millrace:{kind}"


def test_a_log_is_read_in_parts(scene: Scene) -> None:
    whole = scene.get(f"{TM}/logs/log")
    assert (whole.status_code, whole.text, whole.headers["content-length"]) == (200, "a TaskManager\n", "14")
    assert whole.headers["content-type"] == "text/plain; charset=utf-8"
    parts = [("2-", "TaskManager\n", "2-13/14"), ("-3", "er\n", "11-13/14"), ("0-0", "a", "0-0/14"), ("-99", whole.text, "0-13/14")]
    for part, text, said in parts:
        answer = scene.get(f"{TM}/logs/log", part)
        assert (answer.status_code, answer.text, answer.headers["content-range"]) == (206, text, f"bytes {said}")
    beyond = scene.get(f"{TM}/logs/log", "14-")
    assert (beyond.status_code, beyond.headers["content-range"]) == (416, "bytes */14")
    assert scene.web.head(f"{TM}/logs/log").headers["content-length"] == "14"


def test_the_end_of_a_log_without_lines_is_empty(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"tm": {"log": Held(b"")}})
    for part, status in (("-1000", 200), ("0-", 200), ("5-", 416)):
        answer = scene.get(f"{TM}/logs/log", part)
        assert answer.status_code == status and (status == 416 or answer.content == b"")


def test_a_large_log_comes_in_pieces(tmp_path: Path) -> None:
    data = os.urandom(2 * LOG_PIECE_MOST + 5)
    scene = Scene(tmp_path, {"tm": {"log": Held(data)}})
    assert scene.get(f"{TM}/logs/log").content == data
    assert [what for _, what in scene.asked.asked] == ["logs", "upload", "upload", "upload"]
    assert scene.get(f"{TM}/logs/log", f"7-{LOG_PIECE_MOST + 9}").content == data[7 : LOG_PIECE_MOST + 10]


def test_of_a_log_in_memory_the_first_lines_are_gone(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"tm": {"log": Held(b"last lines\n", first=1_000)}})
    whole = scene.get(f"{TM}/logs/log")
    assert (whole.text, whole.headers["content-length"]) == ("last lines\n", "11")
    part = scene.get(f"{TM}/logs/log", "900-1004")
    assert (part.text, part.headers["content-range"]) == ("last ", "bytes 1000-1004/1011")


def test_a_log_that_was_cut_meanwhile_ends_early(tmp_path: Path) -> None:
    """As many bytes as were announced do not come: who reads sees that."""
    scene = Scene(tmp_path, {"tm": {"log": Held(os.urandom(LOG_PIECE_MOST + 5))}})

    async def read() -> tuple[int, int]:
        answer: Any = await scene.processes.answer(Of("tm", False), "log", "")
        scene.asked.held["tm"]["log"] = Held(b"anew")
        return int(answer.headers["content-length"]), sum([len(each) async for each in answer.body_iterator])

    assert asyncio.run(read()) == (LOG_PIECE_MOST + 5, LOG_PIECE_MOST)


def test_the_web_service_reads_its_own_log_without_the_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its storage may be one that it only reads."""
    (tmp_path / "web.log").write_text("kept in s3://me:hunter2@host\n")
    monkeypatch.setattr(own_logs, "own_logs", lambda: {"log": own_logs.FileLog(tmp_path / "web.log")})
    scene = Scene(tmp_path / "storage", {"dispatcher-0": {"log": Held(b"x" * 29)}}, own="dispatcher-0")
    found = scene.get("/api/v1/services/dispatcher-0/logs/log").text
    assert found == "kept in s3://**********@host\n"
    assert ("dispatcher-0", "upload") not in scene.asked.asked


def test_the_end_of_a_log(scene: Scene) -> None:
    assert asyncio.run(scene.processes.end(Of("tm", False), "log", 5)) == (9, b"ager\n", 14)
