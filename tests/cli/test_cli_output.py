"""What a job writes, as `submit --wait` shows it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millrace.cli import output as shown
from millrace.cli import submit as submitting
from millrace.cli.exits import Exit
from millrace.client import LogPiece, NotFinished, Unavailable
from millrace.client.logs import LogReader
from millrace.core.messages.execution import JobDetail
from tests.cli.details import detail, task
from tests.cli.test_cli_submit import Client, Followed, run

RUNNING = {"type": "AttemptStateChanged", "task": "main", "subtask": 0, "attempt": 1, "state": "RUNNING"}
FINISHED = {"type": "JobFinished", "result": {"columns": ["a"], "types": ["int"], "rows": [[7]], "truncated": False}}
FAILED = {"type": "JobFailed", "cause": {"message": "SystemExit: 3"}}


class Reader:
    """A LogReader that gives these pieces, one a look; `taken` is set when the first has been read."""

    def __init__(self, *pieces: Any) -> None:
        self.pieces, self.taken = list(pieces), threading.Event()

    def look(self) -> bool:
        return False

    def read(self) -> Iterator[LogPiece]:
        while self.pieces:
            piece = self.pieces.pop(0)
            if isinstance(piece, BaseException):
                raise piece
            yield piece
            self.taken.set()


class Writes(Followed):
    """A job that has written something while it runs."""

    def __init__(self, reader: Reader, *events: dict[str, Any]) -> None:
        super().__init__(*events)
        self.reader = reader

    def events(self) -> Iterator[dict[str, Any]]:
        *before, last = self._events
        yield from before
        assert self.reader.taken.wait(30), "what it wrote was not shown before its end"
        self._events = (last,)
        yield from super().events()


def piece(data: bytes, stream: str = "stdout", task: str = "main", subtask: int = 0, attempt: int = 1) -> LogPiece:
    return LogPiece(task, subtask, attempt, stream, data)


def has_none(job: str) -> Any:
    raise NotFinished(f"job {job} has no rows to show", "FINISHED")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "etl.py"
    path.write_text("print('hello')\n")
    return path


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Any:
    made: Any = Client()
    monkeypatch.setattr(submitting, "connected", lambda stack: made)
    return made


def follow(client: Any, reader: Reader, *events: dict[str, Any]) -> None:
    client.answer, client.log_reader = Writes(reader, *events), lambda job: reader


def test_a_scripts_output_is_shown_as_it_comes_and_then_where_it_is_kept(
    client: Any, script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    follow(client, Reader(piece(b"rows 5\n"), piece(b"a warning\n", "stderr"), piece(b"no end")), RUNNING, {"type": "JobFinished"})
    client.result = has_none
    assert run("submit", "--wait", script) == 0
    said = capsys.readouterr()
    assert said.out == "rows 5\nno end", "stdout is what the script wrote to it, and nothing else"
    lines = [line.split("job-1  ")[-1] for line in said.err.splitlines()]
    assert lines == ["main[0] RUNNING", "a warning", "FINISHED", "what it wrote: millrace logs job-1"]


@pytest.mark.parametrize(("stored", "code", "said"), [
    ({"main": {"spark_app": {"script": "etl.py"}}}, 3, ["exit code 3 is the script's own"]),
    ({"main": {"spark_app": {"script": "etl.py"}}, "more": {"sql": "SELECT 1"}}, Exit.FAILED, []), (None, Exit.FAILED, []),
])  # fmt: skip
def test_a_schedules_run_that_is_waited_for_is_followed_as_a_submission(
    stored: Any, code: int, said: list[str], client: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its graph is the cluster's, which tells it when the job has ended."""
    monkeypatch.setattr("millrace.cli.schedules.connected", lambda stack: client)
    failed = {"type": "JobFailed", "cause": {"message": "SystemExit: 3", "exit_code": 3}, "archive": "archives/j"}
    follow(client, Reader(piece(b"rows 5\n")), RUNNING, failed)

    def archive(path: str) -> Any:
        if stored is None:
            raise Unavailable("the blob server does not answer")
        return SimpleNamespace(graph={"vertices": stored}, detail=None)

    client.run_schedule, client.archive = lambda name, job, watch: client.answer, archive
    assert run("schedule", "run", "nightly", "--wait") == code
    out = capsys.readouterr()
    assert out.out == "rows 5\n"
    ends = ["failed: SystemExit: 3", "what it wrote: millrace logs job-1", *said]
    assert out.err.splitlines()[-len(ends):] == ends


def test_of_a_schedules_queries_alone_it_is_not_said_where_their_output_is(
    client: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("millrace.cli.schedules.connected", lambda stack: client)
    client.answer, client.log_reader = Followed({**FINISHED, "archive": "archives/j"}), lambda job: Reader(Unavailable("no token"))
    client.run_schedule = lambda name, job, watch: client.answer
    client.archive = lambda path: SimpleNamespace(graph={"vertices": {"one": {"sql": "SELECT 7 AS a"}}}, detail=None)
    assert run("schedule", "run", "nightly", "--wait") == 0
    out = capsys.readouterr()
    assert [line.rstrip() for line in out.out.splitlines()] == ["a", "7"]
    assert [line.split("job-1  ")[-1] for line in out.err.splitlines()] == ["FINISHED"]


def test_of_several_attempts_it_is_told_whose_output_it_is(client: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "steps.py").write_text("def f(one):\n    return one\n")
    graph = tmp_path / "graph.yaml"
    graph.write_text("name: g\nvertices:\n  one: {sql: SELECT 1 AS a}\n  two: {python: 'steps:f', inputs: {one: forward}}\n")
    pieces = [piece(b"x", task="two"), piece(b"y\n", task="two", subtask=1), piece(b"z\n", "stderr", "two", 1, 2)]
    follow(client, Reader(*pieces), RUNNING, FINISHED)
    assert run("submit", "--wait", graph) == 0
    said = capsys.readouterr()
    assert [line.rstrip() for line in said.out.splitlines()] == ["x", "y", "a", "7"], "one that did not end its line is told from the next"
    assert [line for line in said.err.splitlines() if line.startswith(("---", "z"))] == [
        "--- two[0] attempt 1", "--- two[1] attempt 1", "--- two[1] attempt 2", "z",
    ]  # fmt: skip


def test_a_failed_script_shows_what_it_wrote_before_its_cause(client: Any, script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    follow(client, Reader(piece(b"Traceback\n", "stderr")), RUNNING, FAILED)
    assert run("submit", "--wait", script) == Exit.FAILED
    said = capsys.readouterr().err.splitlines()
    assert said[-4] == "Traceback" and said[-2:] == ["failed: SystemExit: 3", "what it wrote: millrace logs job-1"]


def test_of_a_java_trace_the_frames_are_left_to_the_logs(client: Any, script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A failed Python function is logged by Spark with a hundred of them."""
    said = (
        b"26/01/31 12:00:00 ERROR Executor: Exception in task 0.0 in stage 0.0 (TID 0)\n"
        b"org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        b'  File "/home/me/etl.py", line 3, in f\n    at = 1 / 0\nZeroDivisionError: division by zero\n\n'
        b"\tat org.apache.spark.sql.Dataset.$anonfun$collect$1(Dataset.scala:12)\n\tat java.base/java.lang.Thread.run(Thread.java:840)\n"
        b"\tat org.apache.spark.Codegen.<init>(Unknown Source)\nCaused by: java.io.EOFException: gone\n\t... 12 more\n"
    )
    begun, rest = said[:500], said[500:]
    follow(client, Reader(piece(begun, "stderr"), piece(rest, "stderr"), piece(b"\tat a.b(c)\n")), RUNNING, FAILED)
    assert run("submit", "--wait", script) == Exit.FAILED
    shown = capsys.readouterr()
    kept = [line for line in said.decode().splitlines() if not line.startswith("\t")]
    assert [line for line in shown.err.splitlines() if line in said.decode().splitlines()] == kept
    assert "\tat" not in shown.err and "... 12 more" not in shown.err
    assert shown.out.startswith("\tat a.b(c)\n"), "what a script prints is its own"


def test_quiet_prints_the_result_alone(client: Any, script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    client.answer = Followed(RUNNING, FINISHED)
    assert run("submit", "--wait", "--quiet", script) == 0
    said = capsys.readouterr()
    assert ([line.rstrip() for line in said.out.splitlines()], said.err) == (["a", "7"], "")


def test_a_job_whose_output_cannot_be_had_is_followed_all_the_same(
    client: Any, script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = Reader(Unavailable("the blob server's token is not known"))
    reader.taken.set()
    follow(client, reader, RUNNING, FINISHED)
    assert run("submit", "--wait", script) == 0
    assert "not all that it wrote is shown: the blob server's token is not known\n" in capsys.readouterr().err


def test_ctrl_c_while_output_comes_leaves_the_job(client: Any, script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    follow(client, Reader(piece(b"so far\n")), RUNNING, {"type": "Ctrl-C"})
    assert run("submit", "--wait", script) == Exit.INTERRUPTED
    said = capsys.readouterr()
    assert said.out == "so far\n"
    assert said.err.splitlines()[-1].startswith("job job-1 goes on. Follow it: ")


def test_output_without_end_is_bounded(
    client: Any, script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shown, "SHOWN_BYTES", 1 << 20)
    follow(client, Reader(*[piece(b"x" * (1 << 18))] * 9), RUNNING, FINISHED)
    assert run("submit", "--wait", script) == 0
    said = capsys.readouterr()
    assert len(said.out) < 3 << 19
    assert "not all that it wrote is shown: the first 1 MiB are shown\nwhat it wrote: millrace logs job-1\n" in said.err


def test_an_attempt_that_is_over_is_read_once_more_and_then_left_alone() -> None:
    files = {"logs/a/stdout": b"one", "logs/b/stdout": b""}
    asked: list[str] = []

    class Blobs:
        def get_range(self, path: str, start: int, length: int) -> Any:
            asked.append(path)
            from millrace.client.blobs import Piece

            return Piece(files.get(path, b"")[start : start + length], 0)

    def of_attempt(number: int) -> JobDetail:
        logs = [{"attempt": 1, "path": "a"}, {"attempt": 2, "path": "b"}][:number]
        return detail(task("t", {"attempt": number, "logs": logs}))

    now = [("RUNNING", of_attempt(1))]
    reader = LogReader(lambda: now[0], lambda call: call(Blobs()), every_attempt=True)
    assert not reader.look()
    assert [each.data for each in reader.read()] == [b"one"]
    files["logs/a/stdout"] += b"two"
    now[0] = ("RUNNING", of_attempt(2))
    assert not reader.look()
    assert [(each.attempt, each.data) for each in reader.read()] == [(1, b"two")]
    asked.clear()
    files["logs/b/stdout"] = b"three"
    assert [(each.attempt, each.data) for each in reader.read()] == [(2, b"three")]
    assert not [path for path in asked if path.startswith("logs/a/")]


def test_of_a_stack_that_ends_with_the_job_no_command_is_named(client: Any, capsys: pytest.CaptureFixture[str]) -> None:
    rows = {"columns": ["a"], "types": ["int"], "rows": [[n] for n in range(30)], "truncated": False}
    client.answer = Followed(RUNNING, {"type": "JobFinished", "result": rows})
    client.log_reader = lambda job: Reader()
    graph = {"vertices": {"one": {"python": "steps:f"}}}
    assert submitting.follow(client, client.answer, "demo-1", lives_on=False, graph=graph) == 0
    said = capsys.readouterr().err
    assert "the first 20 of 30 rows\n" in said and "millrace" not in said
