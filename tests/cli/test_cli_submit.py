"""`millrace submit` before anything is sent: flags, files, problems, exit codes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millrace.cli import app as program
from millrace.cli import submit as submitting
from millrace.cli.connection import ANSWER_S
from millrace.cli.exits import Exit
from millrace.client import Busy, Conflict, Invalid, Millrace, OutcomeUnknown, Result, TooLate, Unavailable
from millrace.client.api import LIVES_S
from millrace.client.events import fault_in
from millrace.core.messages.attempts import Fault, ResultRows

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Client:
    """Catches what `submit` would send; `answer` is what comes back."""

    def __init__(self) -> None:
        self.given: list[Any] = []
        self.answer: Any = SimpleNamespace(id="job-1", warnings=[])

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None: ...

    def submit(self, *given: Any) -> Any:
        self.given.append(given)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    def rows(self, found: ResultRows) -> Result:
        return Millrace.rows(self, found)  # few rows are at hand: nothing is fetched


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Client:
    client = Client()
    monkeypatch.setattr(submitting, "connected", lambda stack: client)
    return client


def run(*args: str | Path) -> int:
    return program.guarded(lambda: program.app([str(arg) for arg in args], prog_name="millrace"))


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "graph.yaml"
    path.write_text("name: one\nparameters: {n: 1, m: 2}\nvertices:\n  one: {sql: 'SELECT ${n} AS a'}\n")
    return path


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "etl.py"
    path.write_text("print('hello')\n")
    return path


def test_a_graph_with_options_after_it(
    sent: Client, graph: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TRACEPARENT", "TRACESTATE"):
        monkeypatch.delenv(name, raising=False)
    assert run("submit", graph, "-p", "n=7", "--job", "mine", "-p", "m=a=b") == 0
    raw, job, parameters, uploads, watch, _, *trace = sent.given[0]
    assert trace == [None, None]
    assert (job, parameters, uploads, watch) == ("mine", {"n": "7", "m": "a=b"}, {}, False)
    assert raw["vertices"] == {"one": {"sql": "SELECT ${n} AS a"}}
    assert capsys.readouterr().out == "job-1\n"


def test_a_script_with_the_flags_of_spark_submit(
    sent: Client, script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEPARENT", TRACE)
    monkeypatch.setenv("TRACESTATE", "a=1")
    for name in ("a.py", "b.zip", "c.txt", "d.jar", "e.tgz"):
        (tmp_path / name).write_text(name)
    flags = ["--name", "nightly", "--conf", "spark.sql.shuffle.partitions=4", "-c", "spark.x=y=z"]
    flags += ["--py-files", f"{tmp_path}/a.py,{tmp_path}/b.zip", "--files", f"{tmp_path}/c.txt"]
    flags += ["--jars", f"{tmp_path}/d.jar", "--archives", f"{tmp_path}/e.tgz", "--packages", "g:a:1,g:b:2"]
    flags += ["--master", "spark://host:7077"]
    assert run("submit", *flags, script, "--day", "2013-01-01", "--wait", "-p", "x=1") == 0
    raw, _, parameters, uploads, watch, _, *trace = sent.given[0]
    assert trace == [TRACE, "a=1"]
    assert raw["name"] == "nightly"
    assert raw["conf"] == {"spark.sql.shuffle.partitions": "4", "spark.x": "y=z", "spark.jars.packages": "g:a:1,g:b:2"}
    assert raw["master"] == "spark://host:7077"
    app = raw["vertices"]["main"]["spark_app"]
    assert app == {"script": "etl.py", "args": ["--day", "2013-01-01", "--wait", "-p", "x=1"]}
    kinds = {module["name"]: module["kind"] for module in raw["modules"]}
    assert kinds == {"etl.py": "file", "c.txt": "file", "a.py": "py", "b.zip": "py", "d.jar": "jar", "e.tgz": "archive"}
    assert sorted(path.name for path in uploads.values()) == sorted(kinds)
    assert (parameters, watch) == ({}, False)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--queue", "nightly", "SCRIPT"], "--queue is not taken: give priority in the graph's file"),
        (["--executor-memory", "2g", "SCRIPT"], "those of a --master are set by --conf spark.executor..."),
        (["--driver-memory=2g", "SCRIPT"], "a slot's memory is fixed when its TaskManager starts"),
        (["--py-files", "helper.py", "--deploy-mode", "cluster", "SCRIPT"], "--deploy-mode is not taken: the driver always runs in a slot"),
        (["GRAPH", "--num-executors", "2"], "--num-executors is not taken: the cluster's slots decide that"),
        (["GRAPH", "extra"], "arguments are for scripts"),
        (["GRAPH", "--py-files", "a.py"], "--py-files is for scripts"),
        (["-p", "a=b", "SCRIPT"], "-p is for graphs"),
        (["GRAPH", "-p", "nothing"], "-p takes NAME=VALUE, not 'nothing'"),
        (["--parallelism", "main=2", "SCRIPT"], "--parallelism is for graphs: a script is one vertex"),
        (["GRAPH", "--parallelism", "2"], "--parallelism takes NAME=VALUE, not '2'"),
        (["GRAPH", "--wat"], "No such option: --wat"),
        ([], "Missing argument"),
    ],
)
def test_a_wrong_command_line_is_refused(
    sent: Client, graph: Path, script: Path, args: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"GRAPH": str(graph), "SCRIPT": str(script)}
    assert run("submit", *(places.get(arg, arg) for arg in args)) == Exit.INVALID
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert sent.given == []


def test_a_vertex_is_given_another_parallelism(sent: Client, graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph.write_text("name: one\nvertices:\n  first: {sql: SELECT 1 AS a}\n  last: {sql: SELECT a FROM first, inputs: {first: hash(a)}}\n")
    assert run("submit", graph, "--parallelism", "last=3") == 0
    assert {name: vertex.get("parallelism") for name, vertex in sent.given[0][0]["vertices"].items()} == {"first": None, "last": 3}
    for given, says in (
        ("lst=3", "vertices: 'lst' is given a parallelism and is no vertex (did you mean last?)"),
        ("last=0", "vertices.last.parallelism: "),
        ("last=many", "vertices.last.parallelism: "),
    ):
        assert run("submit", graph, "--parallelism", given) == Exit.INVALID
        assert says in capsys.readouterr().err
    assert len(sent.given) == 1


def test_a_graph_is_given_a_master_and_its_executors_their_sizes(sent: Client, graph: Path) -> None:
    graph.write_text(graph.read_text() + "conf: {spark.executor.memory: 2g}\n")
    assert run("submit", graph) == Exit.INVALID, "no executors"
    assert run("submit", "--master", "yarn", graph) == 0
    assert (sent.given[0][0]["master"], sent.given[0][0]["conf"]) == ("yarn", {"spark.executor.memory": "2g"})


def test_sql_is_checked_by_the_cluster_and_its_warnings_are_told_with_their_lines(
    sent: Client, graph: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph.write_text("name: one\nparameters: {n: 1}\nvertices:\n  one: {sql: 'SHOW TABLES'}\n")
    warning = SimpleNamespace(place=["vertices", "one", "sql"], message="it is not checked", hint=None)
    sent.answer.warnings = [warning]
    assert run("submit", graph) == 0
    said = capsys.readouterr().err.splitlines()
    assert f"{graph}:4:9: warning: vertices.one.sql: it is not checked" in said
    sent.answer = Invalid("SQL", [SimpleNamespace(place=["vertices", "one", "sql"], message="does not parse", hint=None)])
    assert run("submit", graph) == Exit.INVALID
    assert f"{graph}:4:9: vertices.one.sql: does not parse" in capsys.readouterr().err.splitlines()


def test_what_a_script_takes_is_not_looked_at(sent: Client, script: Path) -> None:
    assert run("submit", script, "--master", "mine", "--help") == 0
    assert sent.given[0][0]["vertices"]["main"]["spark_app"]["args"] == ["--master", "mine", "--help"]


def test_all_mistakes_of_a_file_are_told_with_their_lines(
    sent: Client, graph: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph.write_text("name: one\nvertices:\n  one: {sql: 'SELECT 1 AS', parallelism: 0}\n  two: {sql: 'SELEC 1'}\n")
    assert run("submit", graph) == Exit.INVALID
    said = capsys.readouterr().err.splitlines()
    assert said[0] == f"{graph}:3:29: vertices.one.parallelism: must be at least 1, not 0"
    assert said[-1].startswith("not submitted: ")
    assert sent.given == []


def test_the_files_of_a_cluster_elsewhere_are_not_looked_for_here(
    sent: Client, graph: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.write_text("name: one\nvertices: {one: {source: {format: csv, path: /its/own/data.csv}}}\n")
    assert run("submit", graph) == Exit.INVALID
    monkeypatch.setenv("MILLRACE_KAFKA_BOOTSTRAP", "kafka:9092")
    assert run("submit", graph) == 0


def test_a_file_that_is_not_there(sent: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("submit", tmp_path / "none.yaml") == Exit.INVALID
    assert "none.yaml cannot be read: No such file or directory" in capsys.readouterr().err
    assert run("submit", tmp_path / "none.py") == Exit.INVALID
    assert "none.py: No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Conflict("another graph"), Exit.INVALID),
        (Busy("no room"), Exit.UNAVAILABLE),
        (TooLate("too late"), Exit.UNAVAILABLE),
        (Unavailable("no Kafka"), Exit.UNAVAILABLE),
        (OutcomeUnknown("who knows", "j"), Exit.UNKNOWN),
    ],
)
def test_exit_codes_of_refusals(
    sent: Client, graph: Path, error: Exception, code: Exit, capsys: pytest.CaptureFixture[str]
) -> None:
    sent.answer = error
    assert run("submit", graph) == code
    assert capsys.readouterr().err == f"millrace: {error}\n"


class Followed:
    """An accepted job whose events are these."""

    id = "job-1"
    warnings: Sequence[Any] = ()

    def __init__(self, *events: dict[str, Any]) -> None:
        self._events = events

    def events(self) -> Iterator[dict[str, Any]]:
        for event in self._events:
            if event["type"] == "Ctrl-C":
                raise KeyboardInterrupt
            if event["type"] == "away":
                raise Unavailable("Kafka does not answer")
            yield event


FAILED = {"type": "JobFailed", "cause": {"kind": "user", "message": "ZeroDivisionError: division by zero", "vertex": "one"}}
FINISHED = {"type": "JobFinished", "result": {"columns": ["a"], "types": ["int"], "rows": [[7]], "truncated": False}}


@pytest.mark.parametrize(
    ("event", "code", "out", "told"),
    [
        (FINISHED, 0, "a\n7\n", "FINISHED"),
        (FAILED, 1, "", "failed (vertex one): ZeroDivisionError: division by zero\nwhat it wrote: millrace logs job-1\n"),
        ({"type": "JobCanceled"}, 5, "", "CANCELED"),
        ({"type": "away"}, 4, "", "and it is not known how it goes on (Kafka does not answer); ask: millrace show job-1\n"),
        ({"type": "Ctrl-C"}, 130, "", "job job-1 goes on. Follow it: millrace events job-1 -f    cancel it: millrace cancel job-1\n"),
    ],
)
def test_exit_codes_of_ends(
    sent: Client, graph: Path, event: dict[str, Any], code: int, out: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sent.answer = Followed(event)
    assert run("submit", "--wait", graph) == code
    said = capsys.readouterr()
    assert [line.rstrip() for line in said.out.splitlines()] == out.splitlines()
    assert said.err.rstrip().endswith(told.rstrip())


@pytest.mark.parametrize("code", [3, 137])
def test_the_exit_code_of_a_script_is_kept_as_spark_submit_keeps_it(code: int, capsys: pytest.CaptureFixture[str]) -> None:
    script, query = {"spark_app": {"script": "etl.py"}}, {"sql": "SELECT 1"}
    cause = Fault(kind="exit", message="The user's code called sys.exit", exit_code=code)
    assert submitting._script_exit(cause, {"vertices": {"main": script}}) == code
    assert capsys.readouterr().err == f"exit code {code} is the script's own\n"
    for vertices in ({"main": query}, {"main": script, "other": query}):
        assert submitting._script_exit(cause, {"vertices": vertices}) is None, "more than a script"
    for told in (None, Fault(), Fault(exit_code=0), Fault(exit_code=256)):
        assert submitting._script_exit(told, {"vertices": {"main": script}}) is None
    assert fault_in({"cause": {"exit_code": "3"}}) is None
    assert not capsys.readouterr().err


def test_ctrl_c_before_the_answer_names_the_job(sent: Client, graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sent.answer = KeyboardInterrupt()
    assert run("submit", "--wait", graph) == Exit.INTERRUPTED
    job = sent.given[0][1]
    assert capsys.readouterr().err == f"\nit is not known whether job {job} was accepted; ask: millrace show {job}\n"


@pytest.mark.parametrize("words", [
    ("run-again", "old"), ("repair", "old"), ("schedule", "run", "old"), ("run-again", "old", "--job", "mine"),
])  # fmt: skip
def test_ctrl_c_before_the_answer_names_the_job_of_every_submission(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[str] = []

    def send(of: Any, job: str | None, *_: Any, **__: Any) -> Any:
        given.append(str(job))
        raise KeyboardInterrupt

    client = SimpleNamespace(graph_of=lambda job, repair=False: {"name": "nightly"}, submit=send, repair=send, run_schedule=send)
    for module in ("again", "repair", "schedules"):
        monkeypatch.setattr(sys.modules[f"millrace.cli.{module}"], "connected", lambda stack: nullcontext(client))
    assert run(*words) == Exit.INTERRUPTED
    [job] = given
    assert job == "mine" if "mine" in words else job.startswith("old-" if words[0] == "schedule" else "nightly-")
    assert capsys.readouterr().err == f"\nit is not known whether job {job} was accepted; ask: millrace show {job}\n"


def test_a_bug_is_not_hidden(sent: Client, graph: Path) -> None:
    sent.answer = KeyError("x")
    with pytest.raises(KeyError):
        run("submit", graph)


def test_no_stack_is_one_sentence(tmp_path: Path, graph: Path) -> None:
    env = {"MILLRACE_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", "from deploy.cli import main; main()", "submit", str(graph), "--stack", "none"]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=150)
    assert (ended.returncode, ended.stdout) == (Exit.UNAVAILABLE, "")
    assert ended.stderr == (
        "millrace: there is no stack 'none': start one with millrace up --stack none, or name a cluster's Kafka in "
        "MILLRACE_KAFKA_BOOTSTRAP\n"
    )


def test_who_is_not_answered_hears_of_it_within_ten_seconds() -> None:
    assert ANSWER_S + LIVES_S <= 8, "two are left for Python's start and for connecting"


def test_no_kafka_is_one_sentence_within_ten_seconds(tmp_path: Path, graph: Path) -> None:
    env = {"MILLRACE_KAFKA_BOOTSTRAP": "127.0.0.1:1", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", "from deploy.cli import main; main()", "submit", str(graph)]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=150)
    assert ended.returncode == Exit.UNAVAILABLE
    assert ended.stderr.startswith("millrace: Kafka at 127.0.0.1:1 does not answer within 5 s")
    assert ended.stderr.count("\n") == 1
