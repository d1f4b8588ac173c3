"""Logs from storage: ranges, following, and after the TaskManager is gone; and jobs that the tables do not have."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from millrace.client import NotFound, Shown, Unavailable
from millrace.core.messages.attempts import Fault, ResultRows
from millrace.core.messages.client import JobSummary
from millrace.core.messages.execution import Archive, FailureDetail, JobDetail, LogPlace, SubtaskDetail, TaskDetail
from millrace.io.storage.store import Storage, StorageError
from services.web.app import application
from services.web.commands import Commands
from services.web.flink.ids import job_id, vertex_id
from services.web.follow import Follows
from tests.web.test_web_streams import Follower, fresh, tell
from tests.web.test_web_tables import T0, Story, accepted, attempt


def detail(state: str = "RUNNING", attempts: int = 1, ended_ms: int | None = None) -> JobDetail:
    failed = Fault(kind="user", retryable=True, message="no")
    subtask = SubtaskDetail(
        subtask=0, state=state, attempt=attempts, task_manager="tm", deployed_ms=T0, running_ms=T0 + 1, ended_ms=ended_ms,
        logs=[LogPlace(attempt=n, path=f"c.1.2/0-a.0.1.{n}") for n in range(1, attempts + 1)],
        failures=[FailureDetail(attempt=n, at_ms=T0 + n, task_manager="tm", error=failed) for n in range(1, attempts)],
    )  # fmt: skip
    task = TaskDetail(task="a", parallelism=1, states={state: 1}, subtasks=[subtask])
    return JobDetail(
        job="j", name="n", acceptance="c.1.2", status=state, accepted_ms=T0, since_ms=T0, ended_ms=ended_ms, tasks=[task]
    )


class Asked:
    """In place of a client: what it answers about the job."""

    def __init__(self) -> None:
        self.detail: JobDetail | None = detail()
        self.fails: Exception | None = None
        self.ended_ms: int | None = None
        self.asked = 0

    def show(self, job: str) -> Shown:
        self.asked += 1
        if self.fails is not None:
            raise self.fails
        status = self.detail.status if self.detail is not None else "RUNNING"
        return Shown(JobSummary(job=job, name="n", status=status, accepted_ms=T0, ended_ms=self.ended_ms), self.detail, None)

    def close(self) -> None: ...


class Scene:
    """A job that runs, a storage, and the application over both."""

    def __init__(self, folder: Path, most: int = 64) -> None:
        self.view, self.story, self.asked, self.storage = fresh(), Story(), Asked(), Storage(str(folder))
        accepted(self.story, "j")
        attempt(self.story, "j", "RUNNING")
        tell(self.view, self.story)
        self.commands = Commands(lambda: self.asked, most=most)  # type: ignore[arg-type,return-value]  # it has what is called
        self.app = application(self.view, lambda: Follows("", 0), self.commands, storage=self.storage)
        self.web = TestClient(self.app, base_url="http://127.0.0.1")
        self.folder = folder

    def write(self, text: bytes, attempt: int = 1, stream: str = "stdout") -> None:
        path = self.folder / f"logs/c.1.2/0-a.0.1.{attempt}/{stream}"
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab") as file:
            file.write(text)

    def end(self, of: JobDetail | None = None) -> None:
        of = of or detail("FINISHED", 1, T0 + 9)
        archive = Archive(job="j", name="n", status="FINISHED", accepted_ms=T0, ended_ms=T0 + 9, detail=of)
        self.storage.put_new("archives/j", archive.model_dump_json().encode())
        tell(self.view, self.story, lambda: attempt(self.story, "j", "FINISHED"))
        tell(self.view, self.story, lambda: self.story.say("JobFinished", "j", job="j", archive="archives/j", result=None, spent=None))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


URL = "/api/v1/jobs/j/logs/a/0/1/stdout"


@pytest.mark.parametrize(("asked", "status", "body", "place"), [
    ("", 200, b"0123456789", None), ("bytes=0-", 206, b"0123456789", "bytes 0-9/10"), ("bytes=4-", 206, b"456789", "bytes 4-9/10"),
    ("bytes=4-5", 206, b"45", "bytes 4-5/10"), ("bytes=-3", 206, b"789", "bytes 7-9/10"), ("bytes=-30", 206, b"0123456789", "bytes 0-9/10"),
    ("bytes=9-99", 206, b"9", "bytes 9-9/10"), ("bytes=5-4", 200, b"0123456789", None), ("bytes=1-2,4-5", 200, b"0123456789", None),
    ("lines=1-2", 200, b"0123456789", None), ("bytes=10-", 416, None, "bytes */10"), ("bytes=-0", 416, None, "bytes */10"),
])  # fmt: skip
def test_ranges(scene: Scene, asked: str, status: int, body: bytes | None, place: str | None) -> None:
    scene.write(b"0123456789")
    answer = scene.web.get(URL, headers={"Range": asked})
    assert (answer.status_code, answer.headers.get("content-range")) == (status, place)
    assert body is None or answer.content == body


@pytest.mark.parametrize(("asked", "status"), [("bytes=-1000", 200), ("bytes=0-", 200), ("bytes=0-9", 200), ("bytes=5-", 416)])
def test_the_end_of_an_empty_log_is_empty(scene: Scene, asked: str, status: int) -> None:
    scene.write(b"")
    answer = scene.web.get(URL, headers={"Range": asked})
    assert answer.status_code == status and "content-range" not in answer.headers or answer.headers["content-range"] == "bytes */0"
    assert status == 416 or (answer.content, answer.headers["content-length"]) == (b"", "0")


def test_the_logs_of_a_job_that_ended_are_read_without_its_task_manager_and_without_kafka(scene: Scene) -> None:
    scene.write(b"all of it\n")
    scene.end()
    scene.asked.fails = Unavailable("Kafka is away")
    [log, _] = scene.web.get("/api/v1/jobs/j/logs").json()["logs"]
    assert (log["url"], log["bytes"], log["over"]) == (URL, 10, True)
    assert scene.web.get(URL).text == "all of it\n"
    assert scene.asked.asked == 0


@pytest.mark.parametrize("path", [
    "/api/v1/jobs/j/logs/a/0/2/stdout", "/api/v1/jobs/j/logs/b/0/1/stdout", "/api/v1/jobs/j/logs/../0/1/stdout",
    "/api/v1/jobs/j/logs/%2e%2e%2f%2e%2e/0/1/stdout", "/api/v1/jobs/j/logs/a/0/1/..%2f..%2farchives", "/api/v1/jobs/j/logs/a/0/1/stdin",
])  # fmt: skip
def test_no_path_reaches_a_file_that_is_no_log_of_the_job(scene: Scene, path: str) -> None:
    scene.write(b"x")
    assert scene.web.get(path).status_code in (400, 404)


def test_result_and_files_of_a_job_that_ended_are_read_from_storage_while_kafka_is_away(scene: Scene) -> None:
    def away() -> None:
        raise Unavailable("Kafka does not answer")

    scene.commands = Commands(away)  # type: ignore[arg-type]  # it makes none
    scene.app = application(scene.view, lambda: Follows("", 0), scene.commands, storage=scene.storage)
    web = TestClient(scene.app, base_url="http://127.0.0.1")
    paths = ("result", "files", "spark-logs")
    assert [web.get(f"/api/v1/jobs/j/{path}").status_code for path in paths] == [503, 503, 503], "it runs: nobody else knows"
    ended = detail("FINISHED", 1, T0 + 9).model_copy(update={"result": ResultRows(columns=["a"], types=["bigint"], rows=[[7]])})
    scene.end(ended)
    answer = web.get("/api/v1/jobs/j/result")
    assert (answer.status_code, answer.json()["rows"]) == (200, [[7]])
    assert [web.get(f"/api/v1/jobs/j/{path}").status_code for path in paths] == [200, 200, 200]


def test_a_log_that_is_not_there_yet(scene: Scene) -> None:
    assert scene.web.get(URL).status_code == 404
    assert [log["bytes"] for log in scene.web.get("/api/v1/jobs/j/logs").json()["logs"]] == [0, 0]


def test_a_storage_that_hangs_is_said_and_takes_no_thread_from_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.web.kept.READING_MOST", 2)
    monkeypatch.setattr("services.web.kept.READ_S", 0.01)
    scene, go_on = Scene(tmp_path, most=2), threading.Event()
    scene.end()
    size = scene.storage.size

    def hangs(path: str) -> int:
        go_on.wait(60)
        return size(path)

    monkeypatch.setattr(scene.storage, "size", hangs)
    with scene.web as web:  # all requests on one loop
        try:
            for _ in range(2):
                answer = web.get("/api/v1/jobs/j/logs")
                assert (answer.status_code, answer.json()["type"], answer.headers["retry-after"]) == (503, "urn:millrace:storage-away", "1")
            assert web.get("/api/v1/jobs/j/logs").status_code == 429
            assert asyncio.run(scene.commands.call(lambda client: client.show("j"), 30)).detail is not None
        finally:
            go_on.set()
        monkeypatch.setattr("services.web.kept.READ_S", 60)
        while (answer := web.get("/api/v1/jobs/j/logs")).status_code == 429:  # until what hung has gone on
            time.sleep(0.01)
        assert answer.status_code == 200


def test_where_nobody_knows_the_logs_it_says_so(scene: Scene) -> None:
    scene.asked.detail = None
    assert scene.web.get("/api/v1/jobs/j/logs").status_code == 503
    scene.asked.fails = Unavailable("away", "dispatcher")
    assert scene.web.get(URL).json()["type"] == "urn:millrace:no-leader"


def test_a_log_is_followed_to_the_end_of_its_job(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.web.api.logs.LOOK_S", 0.001)
    path = "/api/v1/streams/jobs/j/logs"

    async def run() -> None:
        scene.write("a\u00e9".encode()[:-1])  # half of a character
        async with Follower(scene.app, path) as follower:
            events = follower.events()
            assert (await anext(events))[1]["text"] == "a"
            before = follower.id
            scene.write("\u00e9b".encode()[1:])
            assert (await anext(events))[1]["text"] == "\u00e9b"
            scene.asked.detail = detail("RUNNING", 2)
            scene.write(b"again", attempt=2)
            tell(scene.view, scene.story, lambda: attempt(scene.story, "j", "RUNNING", number=2))
            assert (await anext(events))[1] == {
                "task": "a", "subtask": 0, "attempt": 2, "stream": "stdout", "offset": 0, "text": "again",
            }  # fmt: skip
        scene.write(b"!")
        scene.end()
        async with Follower(scene.app, path, before) as follower:
            assert [(name, data.get("text")) async for name, data in follower.events()] == [("log", "\u00e9b!"), ("end", None)]

    asyncio.run(run())


def test_a_log_is_followed_though_the_cluster_does_not_answer_meanwhile(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.web.api.logs.LOOK_S", 0.001)

    async def run() -> None:
        scene.write(b"a")
        async with Follower(scene.app, "/api/v1/streams/jobs/j/logs") as follower:
            parts = follower.parts()
            assert '"text": "a"' in await anext(parts)
            scene.asked.fails = Unavailable("no answer", "dispatcher")
            tell(scene.view, scene.story, lambda: attempt(scene.story, "j", "RUNNING", number=2))
            assert await anext(parts) == ": the cluster does not answer"
            scene.write(b"b")
            scene.asked.fails = None
            while '"text": "b"' not in await anext(parts):
                pass

    asyncio.run(run())


def test_where_storage_cannot_be_read_the_stream_ends_with_the_reason(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> bytes:
        raise StorageError("ftp://u:s3cr3t@host/logs/x", "it hangs", "ask its operator")

    monkeypatch.setattr(scene.storage, "get_range", broken)

    async def run() -> None:
        async with Follower(scene.app, "/api/v1/streams/jobs/j/logs") as follower:
            found = [(name, data) async for name, data in follower.events()]
            assert [name for name, _ in found] == ["trouble"]
            assert found[0][1] == {"detail": "logs/c.1.2/0-a.0.1.1/stdout: it hangs"}, "an address may have a password"

    asyncio.run(run())
    monkeypatch.setattr(scene.storage, "stat", broken)
    answer = scene.web.get("/api/v1/jobs/j/logs")
    assert (answer.status_code, answer.json()["type"], answer.headers["retry-after"]) == (503, "urn:millrace:storage-away", "1")
    assert "it hangs" in answer.text and "s3cr3t" not in answer.text


@pytest.mark.parametrize("id", ["x", "[]", '{"a": -1}', '{"a": true}', '{"a": 1.5}', json.dumps({str(n): 1 for n in range(65)})])
def test_an_id_that_is_none(scene: Scene, id: str) -> None:
    answer = scene.web.get("/api/v1/streams/jobs/j/logs", headers={"Last-Event-ID": id})
    assert (answer.status_code, answer.json()["errors"][0]["place"]) == (400, ["Last-Event-ID"])


def short(key: str) -> str:
    """As an id has it."""
    return hashlib.sha256(key.encode()).hexdigest()[:12]


def test_an_id_names_no_logs_of_attempts_that_are_not_followed_any_more(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """After many restarts who connected again was refused: the id of its last event named more logs than a stream has."""
    monkeypatch.setattr("services.web.api.logs.LOOK_S", 0.001)
    path = "/api/v1/streams/jobs/j/logs"

    async def run() -> None:
        scene.write(b"a")
        gone = json.dumps({short(f"a/0/{number}/stdout"): 1 for number in range(100, 163)})
        async with Follower(scene.app, path, gone) as follower:
            events = follower.events()
            assert (await anext(events))[1]["text"] == "a"
            assert json.loads(follower.id or "") == {short("a/0/1/stdout"): 1}
            of = detail("RUNNING", 2)
            [task] = of.tasks
            [subtask] = task.subtasks
            last = subtask.model_copy(update={"logs": subtask.logs[-1:]})
            scene.asked.detail = of.model_copy(update={"tasks": [task.model_copy(update={"subtasks": [last]})]})
            scene.write(b"again", attempt=2)
            tell(scene.view, scene.story, lambda: attempt(scene.story, "j", "RUNNING", number=2))
            assert (await anext(events))[1]["text"] == "again"
            assert json.loads(follower.id or "") == {short("a/0/2/stdout"): 5}

    asyncio.run(run())


def test_a_stream_of_many_logs_of_tasks_with_long_names_goes_on(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ids were longer than what is taken back."""
    monkeypatch.setattr("services.web.api.logs.LOOK_S", 0.001)
    path, name = "/api/v1/streams/jobs/j/logs", "n" * 1000
    of = detail("RUNNING")
    [task] = of.tasks
    [subtask] = task.subtasks
    subtasks = [
        subtask.model_copy(update={"subtask": number, "logs": [LogPlace(attempt=1, path=f"c.1.2/{number}")]}) for number in range(32)
    ]
    scene.asked.detail = of.model_copy(update={"tasks": [task.model_copy(update={"task": name, "subtasks": subtasks})]})
    for number in range(32):
        for stream in ("stdout", "stderr"):
            scene.storage.put_new(f"logs/c.1.2/{number}/{stream}", b"a")

    async def run() -> None:
        async with Follower(scene.app, path) as follower:
            events = follower.events()
            for _ in range(64):
                assert (await anext(events))[1]["text"] == "a"
        assert len(json.loads(follower.id or "")) == 64 and len(follower.id or "") < 3000
        with open(scene.folder / "logs/c.1.2/7/stdout", "ab") as file:
            file.write(b"b")
        async with Follower(scene.app, path, follower.id) as again:
            assert again.status == 200
            found = (await anext(again.events()))[1]
            assert (found["subtask"], found["offset"], found["text"]) == (7, 1, "b"), "and not what was sent before"

    asyncio.run(run())


def test_an_id_of_an_earlier_version_begins_anew(scene: Scene) -> None:
    """Such ids had the names of tasks, and were as long as those."""

    async def run() -> None:
        scene.write(b"ab")
        earlier = json.dumps({"a/0/1/stdout": 1, **{f"{'n' * 120}/{number}/1/stdout": 1 for number in range(63)}})
        assert len(earlier) > 8000
        async with Follower(scene.app, "/api/v1/streams/jobs/j/logs", earlier) as follower:
            assert follower.status == 200
            assert (await anext(follower.events()))[1]["text"] == "ab"

    asyncio.run(run())


def test_more_logs_than_one_stream_has_are_to_be_chosen_from(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.web.api.logs.FOLLOWED_MOST", 3)
    scene.asked.detail = detail("RUNNING", 2)
    assert scene.web.get("/api/v1/streams/jobs/j/logs").status_code == 400


def test_a_job_that_the_tables_do_not_have_is_asked_for(scene: Scene) -> None:
    scene.asked.detail = detail("FAILED", 2, T0 + 9)
    found: Any = scene.web.get("/api/v1/jobs/older").json()["job"]
    assert (found["job"], found["status"], found["state"]) == ("older", "FAILED", "FAILED")
    [subtask] = found["tasks"][0]["subtasks"]
    assert [(each["attempt"], each["state"]) for each in subtask["attempts"]] == [(1, "FAILED"), (2, "FAILED")]
    assert subtask["attempts"][0]["error"]["message"] == "no"
    scene.asked.fails = NotFound("there is no job 'none'")
    assert scene.web.get("/api/v1/jobs/none").status_code == 404
    scene.asked.fails = Unavailable("no answer", "dispatcher")
    assert scene.web.get("/api/v1/jobs/none").status_code == 503, "that it is not there cannot be known"


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_a_job_that_the_tables_do_not_have_is_asked_for_under_flinks_paths(scene: Scene, prefix: str) -> None:
    """It was unknown there, though it had been accepted a moment ago."""
    scene.asked.detail = detail().model_copy(update={"entered": {"CREATED": T0 + 1, "RUNNING": T0 + 2}})
    found: Any = scene.web.get(f"{prefix}/jobs/new").json()
    assert (found["jid"], found["name"], found["state"]) == (job_id("new"), "n", "RUNNING")
    assert (found["timestamps"]["CREATED"], found["timestamps"]["RUNNING"]) == (T0 + 1, T0 + 2)
    assert [(each["name"], each["status"]) for each in found["vertices"]] == [("a", "RUNNING")]
    for path in ("status", "plan", "config", "exceptions", "execution-result", f"vertices/{vertex_id('a')}/subtasks/0"):
        answer = scene.web.get(f"{prefix}/jobs/new/{path}")
        assert answer.status_code == 200, (path, answer.text)
    scene.asked.detail = None
    assert scene.web.get(f"{prefix}/jobs/new").json()["vertices"] == [], "its JobMaster does not answer"
    scene.asked.fails = NotFound("there is no job 'none'")
    answer = scene.web.get(f"{prefix}/jobs/none")
    assert (answer.status_code, answer.json()) == (404, {"errors": ["Job none not found"]})
    scene.asked.fails = Unavailable("no answer", "dispatcher")
    answer = scene.web.get(f"{prefix}/jobs/none")
    assert (answer.status_code, list(answer.json())) == (503, ["errors"]), "that it is not there cannot be known"


def test_flinks_client_asks_again_where_the_cluster_is_silent(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does so for a 503 alone."""
    monkeypatch.setattr("services.web.asked.WAIT_S", 0.01)
    answered = threading.Event()
    monkeypatch.setattr(scene.asked, "show", lambda job: answered.wait(60))
    answer = scene.web.get("/jobs/new")
    answered.set()
    assert (answer.status_code, list(answer.json()), answer.headers["retry-after"]) == (503, ["errors"], "1")


def test_a_job_that_comes_into_the_tables_meanwhile_is_answered_from_them(scene: Scene) -> None:
    def comes(job: str) -> Shown:
        tell(scene.view, scene.story, lambda: accepted(scene.story, job))
        return Shown(JobSummary(job=job, name="n", status="INITIALIZING", accepted_ms=T0), None, None)

    scene.asked.show = comes  # type: ignore[method-assign]  # as if its facts came while the cluster answers
    assert [each["name"] for each in scene.web.get("/jobs/late").json()["vertices"]] == ["a"]


def test_a_job_that_was_accepted_just_now_is_followed(scene: Scene) -> None:
    """It was said that there is none."""

    async def run() -> None:
        async with Follower(scene.app, "/api/v1/streams/jobs/new") as follower:
            assert follower.status == 200 and await follower.synced() == []
            tell(scene.view, scene.story, lambda: accepted(scene.story, "new"))
            assert [data["job"]["status"] for _, data in await follower.synced()] == ["INITIALIZING"]
            tell(scene.view, scene.story, lambda: scene.story.say("JobCanceled", "new", job="new", archive=None))
            assert [data["job"]["status"] async for name, data in follower.events() if name == "job"] == ["CANCELED"]

    asyncio.run(run())
    for fails, status in ((NotFound("there is no job 'none'"), 404), (Unavailable("no answer", "dispatcher"), 503)):
        scene.asked.fails = fails
        assert scene.web.get("/api/v1/streams/jobs/none").status_code == status
    scene.asked.fails, scene.asked.ended_ms = None, T0 + 9
    answer = scene.web.get("/api/v1/streams/jobs/older")
    assert answer.status_code == 404 and "among those that are shown" in answer.json()["detail"]


def test_the_logs_of_a_job_that_was_accepted_just_now_are_followed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were said to be all, for their job was taken for one that has ended."""
    monkeypatch.setattr("services.web.api.logs.LOOK_S", 0.001)
    monkeypatch.setattr("services.web.api.logs.HEARTBEATS", 1)
    scene.asked.detail = detail("SCHEDULED", 0)

    async def run() -> None:
        async with Follower(scene.app, "/api/v1/streams/jobs/new/logs") as follower:
            assert await anext(follower.parts()) == ": nothing new"
            scene.asked.detail = detail("RUNNING", 1)
            scene.write(b"a")
            tell(scene.view, scene.story, lambda: accepted(scene.story, "new"))
            assert (await anext(follower.events()))[1]["text"] == "a"
            scene.asked.detail = detail("FINISHED", 1, T0 + 9)
            tell(scene.view, scene.story, lambda: scene.story.say("JobFinished", "new", job="new", archive=None, result=None, spent=None))
            assert [name async for name, _ in follower.events()] == ["end"]

    asyncio.run(run())


def test_a_read_does_not_wait_long_for_a_cluster_that_is_silent(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waited as long as a command does, for a job that was in the tables a moment later."""
    monkeypatch.setattr("services.web.asked.WAIT_S", 0.01)
    answered = threading.Event()
    monkeypatch.setattr(scene.asked, "show", lambda job: answered.wait(60))
    answer = scene.web.get("/api/v1/jobs/older")
    answered.set()
    assert (answer.status_code, answer.json()["type"]) == (504, "urn:millrace:not-answered")


def test_an_earlier_answer_is_not_contradicted_after_a_restart() -> None:
    """What an earlier process has shown is in the topics: until that is read again, nothing is answered."""
    view, story = fresh(), Story()
    view.to_reach = None
    web = TestClient(application(view, lambda: Follows("", 0), Commands(lambda: pytest.fail("none"))), base_url="http://127.0.0.1")
    assert web.get("/api/v1/jobs").status_code == 503
    view.to_reach = {("job.events", 0): 2}
    accepted(story, "a")
    accepted(story, "b")
    for fact, status in zip(story.facts, (503, 200), strict=True):
        view.fold(fact)
        assert web.get("/api/v1/jobs").status_code == status


def test_what_is_over_and_read_is_not_asked_for_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle stream asked the storage for each of its files, twice a second."""
    monkeypatch.setattr("services.web.api.logs.LOOK_S", 0.001)
    monkeypatch.setattr("services.web.api.logs.HEARTBEATS", 100)
    scene.asked.detail = detail("RUNNING", 2)
    asked, read = [], scene.storage.get_range

    def counted(path: str, start: int, most: int) -> bytes:
        asked.append(path)
        return read(path, start, most)

    monkeypatch.setattr(scene.storage, "get_range", counted)

    async def run() -> None:
        scene.write(b"a")
        scene.write(b"b", attempt=2)
        async with Follower(scene.app, "/api/v1/streams/jobs/j/logs") as follower:
            parts = follower.parts()
            while await anext(parts) != ": nothing new":
                pass
            first, second = (sum(f".{n}/stdout" in path for path in asked) for n in (1, 2))
            assert first == 2, "its text, and that there is no more"
            assert 2 < second < 60, "the longer nothing comes, the less often it is asked for"
            scene.write(b"late")
            scene.end()
            rest = [part async for part in parts]
            assert '"text": "late"' in rest[0] and "event: end" in rest[-1], "at the end all are looked at once more"

    asyncio.run(run())
