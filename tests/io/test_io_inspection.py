"""What a process answers that is asked about itself, and the questions that it reads."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millrace.core.messages.processes import (
    Answer,
    Ask,
    AskProcess,
    DescribeAsk,
    Description,
    LogFiles,
    LogsAsk,
    NoAnswer,
    SettingsAsk,
    SettingsFound,
    ThreadDump,
    ThreadDumps,
    ThreadsAsk,
    UploadAsk,
    UploadedPiece,
)
from millrace.core.messages.records import encode
from millrace.core.topics import PROCESS_QUESTIONS, TOPICS, Topology
from millrace.io.storage.store import Storage, StorageError
from millrace.runtime.asked import Questions
from millrace.runtime.inspection import AT_ONCE, KEPT_S, PIECE_LEAST, Answers, Inspector, fitted
from millrace.runtime.own_logs import FileLog
from services.job_master.settings import JobMasterSettings
from tests.simulation import Clock
from tests.simulation.bus import MemoryBroker, MemoryBus

TOPOLOGY = Topology()


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path / "storage"))


@pytest.fixture
def inspector(tmp_path: Path, storage: Storage) -> Inspector:
    (tmp_path / "d.log").write_bytes(b"one\ntwo\n")
    return Inspector("dispatcher", storage, list, lambda: {"log": FileLog(tmp_path / "d.log")}, lambda: {"dispatcher": "leader"})


def test_a_description_is_of_this_process(inspector: Inspector) -> None:
    found = inspector.answer(DescribeAsk())
    assert isinstance(found, Description) and found.scopes == {"dispatcher": "leader"}
    status = found.status
    assert (status.service, status.pid) == ("dispatcher", os.getpid())
    assert status.resident > 1 << 20 and status.threads >= 1 and status.memory >= status.memory_free > 0


def test_settings_are_those_that_the_process_runs_with(storage: Storage) -> None:
    settings = JobMasterSettings.load(["--cluster", "east", "--instance", "d"])
    found = Inspector("dispatcher", storage, settings.effective).answer(SettingsAsk())
    assert isinstance(found, SettingsFound)
    by_name = {each.name: (each.value, each.origin) for each in found.settings}
    assert by_name["cluster"] == ("east", "from a flag") and by_name["health_host"] == ("127.0.0.1", "by default")


def test_a_thread_is_shown_by_its_name_and_where_it_is_without_values(inspector: Inspector) -> None:
    stopped, there = threading.Event(), threading.Event()

    def wait_for_the_end(token: str = "s3cr3t") -> None:
        there.set()
        stopped.wait()

    thread = threading.Thread(target=wait_for_the_end, name="the-waiting-one")
    thread.start()
    there.wait()
    try:
        found = inspector.answer(ThreadsAsk())
    finally:
        stopped.set()
        thread.join()
    assert isinstance(found, ThreadDumps)
    [dump] = found.dumps
    assert dump.of == "the process" and dump.text is not None and "s3cr3t" not in dump.text
    [paragraph] = [each for each in dump.text.split("\n\n") if each.startswith('"the-waiting-one" id=')]
    frames = paragraph.splitlines()[1:]
    assert any("test_io_inspection.py:" in frame and frame.endswith("wait_for_the_end") for frame in frames)
    assert frames[-1].endswith("_bootstrap"), "the innermost first"
    assert inspector.answer(ThreadsAsk(slot=0)) == NoAnswer(kind="not_found", reason="a dispatcher has no slots")


def test_a_log_is_listed_and_uploaded_by_its_id_alone(inspector: Inspector, storage: Storage) -> None:
    listed = inspector.answer(LogsAsk())
    assert isinstance(listed, LogFiles) and [(each.log, each.bytes) for each in listed.logs] == [("log", 8)]
    found = inspector.answer(UploadAsk(log="log", start=-4, length=3))
    assert isinstance(found, UploadedPiece)
    piece = found.piece
    assert (piece.log, piece.start, piece.bytes, piece.size) == ("log", 4, 3, 8)
    assert piece.path.startswith("logs/asked/") and storage.get(piece.path) == b"two"
    assert inspector.answer(UploadAsk(log="log", start=4, length=3)) == found, "the same piece again is the same file"
    empty = inspector.answer(UploadAsk(log="log", start=8))
    assert isinstance(empty, UploadedPiece) and (empty.piece.path, empty.piece.bytes, empty.piece.start) == ("", 0, 8)


@pytest.mark.parametrize("log", ["none", "../d.log", "/etc/passwd", "log/../log", "d.log", "log\0"])
def test_what_is_no_id_is_no_path(inspector: Inspector, log: str) -> None:
    found = inspector.answer(UploadAsk(log=log))
    assert isinstance(found, NoAnswer) and found.kind == "not_found"


def test_what_is_stored_for_who_asks_is_bounded_and_room_comes_back(
    tmp_path: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millrace.runtime.inspection.STORED_MOST", 3 * PIECE_LEAST)
    (tmp_path / "d.log").write_bytes(bytes(range(65, 90)))
    now = [0.0]
    inspector = Inspector("dispatcher", storage, list, lambda: {"log": FileLog(tmp_path / "d.log")}, clock=lambda: now[0])

    def asked(start: int) -> str:
        answer = inspector.answer(UploadAsk(log="log", start=start, length=1))
        return answer.kind if isinstance(answer, NoAnswer) else "stored"

    assert [asked(start) for start in (0, 1, 2, 3)] == ["stored", "stored", "stored", "busy"]
    assert asked(1) == "stored", "it is there already"
    now[0] = KEPT_S + 1
    assert asked(3) == "stored"


def test_dumps_share_what_an_answer_may_have() -> None:
    small = ThreadDump(of="a", text="line\n" * 10)
    large = [ThreadDump(of=name, text='"\u00e4" line\n' * 10_000) for name in "bc"]
    silent = ThreadDump(of="d", no_answer="it hangs")
    found = fitted([large[0], small, silent, large[1]], 20_000)
    assert [each.of for each in found] == ["b", "a", "d", "c"] and found[1:3] == [small, silent]
    assert [each.truncated for each in found] == [True, False, False, True]
    sizes = [len(json.dumps(each.text, ensure_ascii=False).encode()) for each in (found[0], found[3])]
    assert 19_000 < sum(sizes) <= 20_000 and all(each.text.endswith("line") for each in (found[0], found[3]))
    assert fitted([small, silent], 20_000) == [small, silent]


# ---- several questions at once


def answered(give: Callable[[Callable[[Answer], None]], None]) -> Answer:
    found: list[Answer] = []
    there = threading.Event()

    def take(answer: Answer) -> None:
        found.append(answer)
        there.set()

    give(take)
    assert there.wait(30)
    return found[0]


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (OSError(2, "No such file"), "it cannot be read or stored: No such file"),
        (StorageError("s3://key:secret@x/y", "permission denied", "do"), "it cannot be read or stored: permission denied"),
        (KeyError("s3cr3t"), "a fault of Millrace: KeyError"),
    ],
)
def test_whatever_fails_is_an_answer(failure: Exception, reason: str) -> None:
    def fails(ask: Ask) -> Answer:
        raise failure

    answers = Answers(fails)
    assert answered(lambda take: answers.give(LogsAsk(), take)) == NoAnswer(kind="internal", reason=reason)


def test_who_asks_too_much_at_once_is_refused_and_room_comes_back() -> None:
    go_on, found = threading.Event(), []
    nothing = NoAnswer(kind="internal", reason="nothing")

    def slow(ask: Ask) -> Answer:
        go_on.wait(30)
        return nothing

    answers = Answers(slow)
    under_way = [threading.Event() for _ in range(AT_ONCE)]
    for each in under_way:
        answers.give(LogsAsk(), lambda answer, each=each: each.set())
    answers.give(LogsAsk(), found.append)
    assert [each.kind for each in found] == ["busy"]
    go_on.set()
    assert all(each.wait(30) for each in under_way)
    assert answered(lambda take: answers.give(LogsAsk(), take)) == nothing


def test_a_process_that_is_short_of_threads_refuses_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing, found = NoAnswer(kind="internal", reason="nothing"), []
    answers = Answers(lambda ask: nothing)
    with monkeypatch.context() as short:
        short.setattr(threading.Thread, "start", _no_thread)
        for _ in range(AT_ONCE + 1):
            answers.give(LogsAsk(), found.append)
    assert found == [NoAnswer(kind="busy", reason="no thread can be started; try again")] * (AT_ONCE + 1)
    assert answered(lambda take: answers.give(LogsAsk(), take)) == nothing


def _no_thread(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


# ---- questions by Kafka


class WaitingBus(MemoryBus):
    """Its readers wait a moment for what comes, as real ones do."""

    def reader(self, topic: str, partition: int, offset: int) -> Any:
        made = super().reader(topic, partition, offset)
        polled = made.poll

        def poll(timeout_ms: int, most: int = 500) -> list[Any]:
            found = polled(0, most)
            if not found:
                threading.Event().wait(0.01)
            return found or polled(0, most)

        made.poll = poll
        return made


class Asked:
    """A process that reads questions, and who asks it."""

    def __init__(self, inspector: Inspector) -> None:
        self.broker = MemoryBroker(Clock())
        self.broker.ensure_topics([(topic.name, topic.count(TOPOLOGY), topic.config()) for topic in TOPICS])
        self.bus = WaitingBus(self.broker, client_id="d", on_fatal=lambda reason: None)
        self.stranger = MemoryBus(self.broker, client_id="s", on_fatal=lambda reason: None, stranger=True)
        self.questions = Questions(self.bus, TOPOLOGY, "dispatcher-2", inspector)

    def send(self, value: bytes) -> None:
        self.stranger.append(PROCESS_QUESTIONS, 0, value)

    def ask(self, process: str, ask: Ask, correlation: str = "1", reply_to: str = "me") -> None:
        self.send(encode(AskProcess(process=process, reply_to=reply_to, correlation=correlation, ask=ask)))

    def replies(self) -> list[Any]:
        partition = TOPOLOGY.partition("client.replies", "me")
        return [json.loads(each.value) for each in self.broker.log("client.replies", partition).records if each.key == b"me"]


@pytest.fixture
def asked(inspector: Inspector) -> Iterator[Asked]:
    made = Asked(inspector)
    made.ask("dispatcher-2", LogsAsk(), "before it was there")
    made.questions.start()
    yield made
    made.questions.stop()


def until(holds: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(3_000):
        if holds():
            return
        waiting.wait(0.01)
    raise AssertionError("it does not come")


def test_a_process_answers_what_it_is_asked_and_what_all_are_asked(asked: Asked) -> None:
    def comes(correlation: str) -> Any:
        until(lambda: any(each["correlation"] == correlation for each in asked.replies()))
        return next(each for each in asked.replies() if each["correlation"] == correlation)

    until(lambda: (asked.ask("", DescribeAsk(), "all") or bool(asked.replies())))  # it reads from when it has begun to
    described = comes("all")
    assert (described["type"], described["process"], described["scopes"]) == ("ProcessDescribed", "dispatcher-2", {"dispatcher": "leader"})
    for value in (b"", b"no question", b'{"type":"AskProcess"}', b"x" * 100_000):
        asked.send(value)
    asked.ask("dispatcher-1", LogsAsk(), "another's")
    asked.ask("dispatcher-2", LogsAsk(), "nobody's", reply_to="")
    asked.ask("dispatcher-2", UploadAsk(log="none"), "unknown")
    asked.ask("dispatcher-2", LogsAsk(), "own")
    assert [each["log"] for each in comes("own")["logs"]] == ["log"]
    assert comes("unknown")["kind"] == "not_found"
    correlations = {each["correlation"] for each in asked.replies()}
    assert correlations == {"all", "own", "unknown"}, "and what was asked before it began is old"
