"""Answers that are given again: the same as if they were made, for as long as nothing of them has changed."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from millrace.io.http import server as http_server
from millrace.io.http.server import HttpServer
from services.web import again
from services.web.changes import Changes, Level
from services.web.core.facts import Fact
from services.web.view import View
from tests.web.test_web_streams import app_of, fresh
from tests.web.test_web_tables import Story, accepted, attempt

ID = re.compile(rb"x-request-id: [0-9a-f]{16}", re.IGNORECASE)


class Asker:
    """One connection, on which bytes are sent as they stand."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._rest = b""

    def close(self) -> None:
        self._socket.close()

    def send(self, raw: bytes) -> None:
        self._socket.sendall(raw)

    def read(self) -> tuple[bytes, bytes]:
        """Head and body of the next answer."""
        while b"\r\n\r\n" not in self._rest:
            self._more()
        head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        found = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        length = int(found[1]) if found else 0
        while len(self._rest) < length:
            self._more()
        body, self._rest = self._rest[:length], self._rest[length:]
        return head, body

    def _more(self) -> None:
        data = self._socket.recv(1 << 20)
        assert data, "the server closed the connection"
        self._rest += data

    def ask(self, raw: bytes) -> tuple[bytes, bytes]:
        self.send(raw)
        return self.read()


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: 127.0.0.1", *headers, "", ""]).encode()


class Scene:
    def __init__(self) -> None:
        self.view, self.story = fresh(), Story()
        self.app = app_of(self.view)
        self.answers: again.Answers = self.app.state.answers
        self.given = 0

    def again(self, raw: bytes) -> bytes | None:
        answer = self.answers.again(raw)
        self.given += answer is not None
        return answer

    def tell(self) -> None:
        """What was said since the last time."""
        for fact in self.story.facts[sum(self.view.folded.values()) :]:
            self.view.fold(fact)

    def __enter__(self) -> Scene:
        self._server = HttpServer(self.app, again=self.again)
        self.asker = Asker(self._server.start())
        return self

    def __exit__(self, *_: object) -> None:
        self.asker.close()
        self._server.stop()


@pytest.fixture
def scene() -> Iterator[Scene]:
    with Scene() as made:
        for job in ("a", "b"):
            accepted(made.story, job)
        made.tell()
        yield made


def without_id(answer: tuple[bytes, bytes]) -> tuple[list[bytes], bytes]:
    """The lines of its head in one order, and its body."""
    return sorted(ID.sub(b"x-request-id: one", answer[0]).lower().splitlines()), answer[1]


@pytest.mark.parametrize("path", [
    "/api/v1/jobs/a", "/api/v1/jobs", "/api/v1/jobs?state=CREATED&limit=1", "/api/v1/overview", "/api/v1/slots", "/api/v1/leaders",
    "/api/v1/taskmanagers",
])  # fmt: skip
def test_a_repeat_is_answered_as_the_first_was(scene: Scene, path: str) -> None:
    first = scene.asker.ask(get(path))
    assert scene.given == 0 and first[0].startswith(b"HTTP/1.1 200 OK\r\n")
    second = scene.asker.ask(get(path))
    assert scene.given == 1 and without_id(first) == without_id(second)
    assert ID.search(first[0])[0] != ID.search(second[0])[0]  # type: ignore[index]  # both have one
    tag = re.search(rb"etag: ([^\r]+)", first[0], re.IGNORECASE)[1].decode()  # type: ignore[index]  # it has one
    known = scene.asker.ask(get(path, f"If-None-Match: {tag}"))
    scene.answers._kept.clear()
    made = scene.asker.ask(get(path, f"If-None-Match: {tag}"))
    assert scene.given == 2 and without_id(known) == without_id(made)
    assert known[0].startswith(b"HTTP/1.1 304 Not Modified\r\n") and known[1] == b""


def test_a_change_is_seen_by_the_next_request_and_that_of_another_job_moves_as_of_alone(scene: Scene) -> None:
    raw = get("/api/v1/jobs/a")
    first = json.loads(scene.asker.ask(raw)[1])
    attempt(scene.story, "b", "RUNNING")
    scene.tell()
    second = json.loads(scene.asker.ask(raw)[1])
    assert scene.given == 1 and second["job"] == first["job"]
    assert (first["as_of"]["offsets"]["job.events"], second["as_of"]["offsets"]["job.events"]) == ({"0": 1}, {"0": 2})
    attempt(scene.story, "a", "RUNNING")
    scene.tell()
    for given in (2, 3):
        third = json.loads(scene.asker.ask(raw)[1])
        assert scene.given == given and third["job"]["tasks"][0]["subtasks"][0]["state"] == "RUNNING"


def test_a_tag_is_compared_with_what_there_is_now(scene: Scene) -> None:
    def ask(tag: str = "") -> tuple[bytes, str]:
        head, body = scene.asker.ask(get("/api/v1/jobs/a", *([f"If-None-Match: {tag}"] if tag else [])))
        return head[9:12], re.search(rb"etag: ([^\r]+)", head, re.IGNORECASE)[1].decode()  # type: ignore[index]  # it has one

    status, first = ask()
    attempt(scene.story, "a", "RUNNING")
    scene.tell()
    status, second = ask(first)
    assert (status, scene.given) == (b"200", 1) and second != first
    found = [ask(tag) for tag in (second, f'"x", {second.removeprefix("W/")}', "*", first)]
    assert found == [(b"304", second)] * 3 + [(b"200", second)] and scene.given == 5


def test_a_repeat_says_how_far_it_is_behind(scene: Scene) -> None:
    raw = get("/api/v1/jobs/a")
    found = []
    for behind_s in (0, 0, 6, 7, 7, 0):
        scene.view.behind_s = lambda behind_s=behind_s: behind_s  # type: ignore[misc]  # called without
        found.append(json.loads(scene.asker.ask(raw)[1])["as_of"]["behind_s"])
    assert (found, scene.given) == ([0, 0, 6, 7, 7, 0], 5)
    head = scene.asker.ask(raw)[0]
    tag = re.search(rb"etag: ([^\r]+)", head, re.IGNORECASE)[1].decode()  # type: ignore[index]  # it has one
    assert scene.asker.ask(get("/api/v1/jobs/a", f"If-None-Match: {tag}"))[0].startswith(b"HTTP/1.1 304")
    scene.view.behind_s = lambda: 8
    assert scene.asker.ask(get("/api/v1/jobs/a", f"If-None-Match: {tag}"))[0].startswith(b"HTTP/1.1 200"), "a 304 could not tell"


def test_progress_is_seen_in_its_job_alone(scene: Scene) -> None:
    attempt(scene.story, "a", "RUNNING")
    scene.tell()
    paths = ("/api/v1/jobs/a", "/api/v1/jobs", "/api/v1/overview", "/api/v1/jobs?task_manager=tm")
    number = scene.view.changes.number
    before = {path: scene.asker.ask(get(path))[1] for path in paths}
    told = [{"task": "a", "subtask": 0, "attempt": 1, "progress": {"rows_read": 7}}]
    scene.story.say("AttemptsProgressing", "a", job="a", attempts=told)
    scene.tell()
    assert [scene.view.unchanged(each, number) is None for each in ("a", "b", *Level)] == [True, False, True, False, False]
    after = {path: json.loads(scene.asker.ask(get(path))[1]) for path in paths}
    for path in paths[1:]:
        assert {**after[path], "as_of": None} == {**json.loads(before[path]), "as_of": None}
    assert after[paths[0]]["job"]["tasks"][0]["subtasks"][0]["attempts"][0]["progress"] == {"rows_read": 7}


def test_a_job_that_is_forgotten_is_not_shown_again() -> None:
    view, story = View({}, {}, 1), Story()
    view.load({})
    for job in ("a", "b"):
        accepted(story, job)
        story.say("JobCanceled", job, job=job, archive=None)
    for fact in story.facts[:2]:
        view.fold(fact)
    number = view.changes.number
    as_of = b'{"offsets": {"job.events": {"0": 1}, "cluster.events": {}}, "time_ms": 1700000000001, "behind_s": 0}'
    assert view.unchanged("a", number) == as_of
    for fact in story.facts[2:]:
        view.fold(fact)
    assert view.unchanged("a", number) is None and view.changes.last("a") <= number


def test_tables_that_are_brought_back_answer_anew(scene: Scene) -> None:
    raw = get("/api/v1/jobs/a")
    for _ in range(2):
        scene.asker.ask(raw)
    number = scene.view.changes.number
    assert scene.view.unchanged("a", number) is not None
    scene.view.load({})
    assert scene.view.unchanged("a", number) is None


@pytest.mark.parametrize("raw", [
    get("/api/v1/jobs/none"), get("/api/v1/nothing"), get("/api/v1/jobs", "If-None-Match: *")[:-2] + b"X: " + b"x" * again.REQUEST_MOST
    + b"\r\n\r\n", get("/healthz"), get("/metrics"), get("/api/v1/jobs/a").replace(b"127.0.0.1", b"example.com"),
    get("/jobs/overview"),
], ids=["no job", "no path", "long", "health", "metrics", "other name", "Flink's"])  # fmt: skip
def test_what_is_not_kept(scene: Scene, raw: bytes) -> None:
    for _ in range(2):
        scene.asker.ask(raw)
    assert scene.given == 0


def test_requests_that_come_together_are_all_answered(scene: Scene) -> None:
    one, two = get("/api/v1/jobs/a"), get("/api/v1/jobs/b")
    for _ in range(3):
        scene.asker.send(one + two)
        assert [json.loads(scene.asker.read()[1])["job"]["job"] for _ in range(2)] == ["a", "b"]
    assert scene.given == 0, "two at once are no request that came alone"
    for raw in (one, two) * 2:
        scene.asker.ask(raw)
    scene.asker.send(one[:20])
    scene.asker.send(one[20:])
    assert json.loads(scene.asker.read()[1])["job"]["job"] == "a"


def test_a_connection_that_is_answered_again_is_not_idle(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time-outs of a request that does not come, and of a connection that rests, began before the answer that was given again."""
    monkeypatch.setattr(http_server, "_HEADERS_WITHIN_S", 0.3)
    raw = get("/api/v1/jobs/a")
    scene.asker.ask(raw)
    port = scene.asker._socket.getpeername()[1]
    other = Asker(port)
    for _ in range(8):  # longer than that, all in all
        assert other.ask(raw)[1]
        time.sleep(0.1)
    assert scene.given == 8
    other.close()


def test_what_is_kept_is_bounded(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(again, "ANSWERS_MOST", 3)
    for number in range(5):
        scene.asker.ask(get(f"/api/v1/jobs?limit={number + 1}"))
    assert len(scene.answers._kept) == 3
    monkeypatch.setattr(again, "ANSWERS_BYTES_MOST", 2000)
    scene.asker.ask(get("/api/v1/overview"))
    assert scene.answers._bytes <= 2000 and len(scene.answers._kept) == 1
    monkeypatch.setattr(again, "ANSWER_MOST", 5)
    scene.asker.ask(get("/api/v1/slots"))
    assert len(scene.answers._kept) == 1


# changes


def test_what_changed_at_each_level() -> None:
    changes = Changes(kept=4)
    for subject, level in (("a", Level.LINE), ("b", Level.PROGRESS), ("c", Level.ATTEMPT), ("b", Level.PROGRESS)):
        changes.note(subject, level)
    assert [list(changes.since(0, level) or ()) for level in Level] == [["a", "b", "c"], ["a", "c"], ["a"]]
    assert [changes.last(each) for each in (*Level, "a", "b", "none")] == [4, 3, 1, 1, 4, 0]
    assert [changes.since(3, each) for each in ("b", "a", Level.LINE)] == [("b",), (), ()]
    changes.note("d")
    assert changes.since(0, Level.LINE) is None and list(changes.since(1) or ()) == ["b", "c", "d"]


def test_the_last_change_of_one_that_is_long_ago_is_not_after_what_it_was() -> None:
    changes = Changes(kept=2)
    for subject in ("a", "b", "c"):
        changes.note(subject)
    assert [changes.last(subject) for subject in ("a", "b", "c", "none")] == [1, 2, 3, 1]
    changes.note_all()
    assert {changes.last(subject) for subject in ("a", "b", "c", "none", "")} == {4}
    assert changes.since(3, Level.LINE) is None, "whoever follows all looks at all"


def test_facts_have_their_level() -> None:
    view, story = fresh(), Story()
    seen: list[tuple[str, Level]] = []
    view.changes.wake.append(lambda subject, level: seen.append((subject, level)))
    accepted(story, "j")
    attempt(story, "j", "DEPLOYING")
    attempt(story, "j", "RUNNING")
    told: list[dict[str, Any]] = [{"task": "a", "subtask": 0, "attempt": 1, "progress": {"rows_read": 7}}]
    story.say("AttemptsProgressing", "j", job="j", attempts=told)
    story.say("JobCanceled", "j", job="j", archive=None)
    for fact in story.facts:
        view.fold(fact)
    joined = {"type": "TaskManagerJoined", "task_manager": "tm", "host": "h", "incarnation": 1, "slots": 1, "states": ["FREE"], "at_ms": 1}
    view.fold(Fact("cluster.events", 0, 0, 1, 1, joined))
    levels = [Level.LINE, Level.LINE, Level.ATTEMPT, Level.PROGRESS, Level.LINE]
    assert seen == [*(("j", level) for level in levels), ("", Level.LINE)]
