"""What commands print: progress, tables, results, logs, where the cluster is."""

from __future__ import annotations

import contextlib
import io
import json
import signal
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from deploy.cli.app import app, guarded
from millrace import __version__
from millrace.cli import app as program
from millrace.cli.connection import NoConnection, find
from millrace.cli.jobs import _LogPrinter
from millrace.cli.progress import End, View, show_progress
from millrace.cli.schema import schema
from millrace.cli.tables import cause_lines, print_head, print_job, print_result, table, unique
from millrace.cli.words import label, printable, took
from millrace.client import Ending, LogPiece, NotFinished, Result
from millrace.core.messages.attempts import Fault
from millrace.core.messages.client import JobDetails, JobSummary
from millrace.core.messages.execution import SkewedEdge, TimeSpent
from millrace.core.messages.progress import AttemptProgress
from services.task_manager.slot.attempt.result import _keys
from tests.cli.details import detail, task

ACCEPTED = {"type": "JobAccepted", "tasks": [{"task": "a", "parallelism": 2}, {"task": "b", "parallelism": 1}]}


def attempt(task: str, subtask: int, state: str, number: int = 1, **more: object) -> dict:
    return {"type": "AttemptStateChanged", "task": task, "subtask": subtask, "attempt": number, "state": state, **more}


def test_lines_of_a_job(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millrace.cli.progress.time", SimpleNamespace(monotonic=lambda: 0.0))
    events = [
        ACCEPTED,
        {"type": "JobWaiting", "reason": "all slots are taken", "position": 2},
        {"type": "JobStateChanged", "status": "RUNNING", "cause": None},
        attempt("a", 0, "RUNNING", task_manager="tm-1"),
        attempt("a", 0, "FAILED", error={"message": "it broke\nat once"}),
        attempt("a", 0, "FINISHED", 2),
        {"type": "SomethingNew"},
        {"type": "JobFinished", "result": None},
    ]
    assert show_progress("j", iter(events), check=lambda: None) == End("FINISHED")
    assert capsys.readouterr().err.splitlines() == [
        "   0.00 s  j  accepted, 2 tasks",
        "   0.00 s  j  waits: all slots are taken (number 2 in the queue)",
        "   0.00 s  j  RUNNING",
        "   0.00 s  j  a[0] RUNNING on tm-1",
        "   0.00 s  j  a[0] FAILED: it broke",
        "   0.00 s  j  a[0] attempt 2 FINISHED",
        "   0.00 s  j  FINISHED",
    ]


def test_a_job_is_cancelling_whatever_its_job_master_sends_after_that() -> None:
    view = View("j")
    assert view.add({"type": "JobCancelling"}) == "cancel accepted"
    assert view.add({"type": "JobStateChanged", "status": "RUNNING", "cause": None}) == "RUNNING"
    assert view.status == "CANCELLING"
    view.add({"type": "JobCanceled"})
    assert view.status == "CANCELED"


def test_events_that_are_cut_off_are_completed_by_asking(capsys: pytest.CaptureFixture[str]) -> None:
    ending = Ending("j", "FAILED", 1, "a", Fault(message="m"))
    found = show_progress("j", iter([ACCEPTED]), check=lambda: ending)
    assert found == End("FAILED", Fault(message="m"), "a")


def test_an_end_whose_cause_is_none_is_an_end_without_cause() -> None:
    failed = {"type": "JobFailed", "cause": {"message": 3}, "archive": "a", "result": [1]}
    assert show_progress("j", iter([failed]), check=lambda: None, quiet=True) == End("FAILED", archive="a")


def test_a_view_counts_subtasks_in_any_order_of_events() -> None:
    from rich.console import Console

    view = View("j")
    view.add(attempt("b", 0, "SCHEDULED"))
    view.add(ACCEPTED)
    view.add(attempt("a", 1, "RUNNING"))
    assert (view.counts("a"), view.counts("b")) == ({"CREATED": 1, "RUNNING": 1}, {"SCHEDULED": 1})
    out = io.StringIO()
    Console(width=60, file=out).print(view.render(1.25))
    shown = [line.rstrip() for line in out.getvalue().splitlines()]
    assert shown == ["job j  ACCEPTED  1.2 s", "  a  1 CREATED  1 RUNNING", "  b  1 SCHEDULED"]


def test_long_tasks_have_short_labels() -> None:
    assert (label("a+b"), label("a+b+c+d+e")) == ("a+b", "a+...+e (5 vertices)")


ROWS = Result(["n", "a", "a"], ["int", "string", "array<int>"], [[1, None, [1, 2]], [2, "x,y", None]], truncated=False)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("csv", 'n,a,a\n1,,"[1, 2]"\n2,"x,y",\n'),
        ("table", "n  a     a     \n1  NULL  [1, 2]\n2  x,y   NULL  \n"),
    ],
)
def test_rows_as_text(form: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_result(ROWS, form)
    assert capsys.readouterr().out == expected


def test_rows_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(ROWS, "json")
    assert json.loads(capsys.readouterr().out) == [
        {"n": 1, "a": None, "a_2": [1, 2]},
        {"n": 2, "a": "x,y", "a_2": None},
    ]
    assert unique(["a", "a", "b", "a"]) == ["a", "a_2", "b", "a_3"]
    assert unique(["a", "a", "a_2"]) == ["a", "a_3", "a_2"], "no value is lost"


@pytest.mark.parametrize("names", [[], ["a"], ["a", "a", "b", "a"], ["a", "a", "a_2"], ["a_2", "a", "a", "a_2"], ["", ""]])
def test_a_slot_names_the_fields_of_a_struct_by_the_same_rule(names: list[str]) -> None:
    assert _keys(names) == unique(names) and len({*unique(names)}) == len(names)


def test_more_rows_than_are_shown_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(Result(["n"], ["int"], [[1]], truncated=True), "csv")
    assert capsys.readouterr().err == "these are the first 1 rows; all of them are where a sink writes them\n"


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_list_that_is_cut_says_so_also_to_a_program(form: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    details = JobDetails(job="j", name="n", status="RUNNING", accepted_ms=1_000)
    listed = SimpleNamespace(jobs=[details], total=7, next="1000.j")
    cluster = SimpleNamespace(list_details=lambda limit, cursor: listed)
    monkeypatch.setattr("millrace.cli.jobs.connected", lambda stack: contextlib.nullcontext(cluster))
    shown = CliRunner().invoke(app, ["list", "-n", "1", *form])
    assert shown.exit_code == 0 and shown.stderr == "1 of 7; all with --all, the next with --cursor 1000.j\n"
    assert not form or [each["job"] for each in json.loads(shown.stdout)] == ["j"]


def test_a_job_with_its_subtasks_and_cause(capsys: pytest.CaptureFixture[str]) -> None:
    summary = JobSummary(job="j", name="n", status="FAILED", accepted_ms=1_000, running_ms=1_500, ended_ms=3_500)
    subtask = {
        "subtask": 0, "state": "FAILED", "attempt": 2, "task_manager": "tm-1", "deployed_ms": 1_000, "running_ms": 2_000,
        "ended_ms": 3_000, "outputs": {"v": {"rows": 5}},
    }  # fmt: skip
    cause = Fault(kind="analysis", condition="UNRESOLVED_COLUMN", message="no x", vertex="v", line=2, column=7)
    print_job(summary, detail(task("v", subtask, omitted=3)), cause)
    said = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert said[2] == "status    FAILED"
    assert said[4:7] == ["waited    0.5 s", "ran       2.0 s", "failed (vertex v, line 2, column 7) [UNRESOLVED_COLUMN]: no x"]
    assert said[-2:] == ["v     0           FAILED  2        tm-1         1.0 s  v 5", "v     and 3 more"]
    spent = {"queue_ms": 500, "start_ms": 1_250, "plan_ms": 40, "compute_ms": 125_000, "exchange_ms": 0, "publish_ms": 210}
    print_job(summary, detail(task("v", subtask)).model_copy(update={"spent": TimeSpent.model_validate(spent)}), None)
    said = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert said[6] == "time      queue 0.5 s, start 1.2 s, plan 0.0 s, compute 2 m 5 s, exchange 0.0 s, publish 0.2 s"
    print_job(summary, detail(task("v", {**subtask, "state": "SCHEDULED", "outputs": {}}, omitted=3)), None)
    said = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert said[-2] == "v     0           SCHEDULED", "the attempt that failed is not the one that waits"


def test_a_second_attempt_is_told_beside_the_current_one(capsys: pytest.CaptureFixture[str]) -> None:
    second = {"attempt": 2, "state": "CANCELING", "task_manager": "tm-2", "deployed_ms": 1_000}
    subtask = {"subtask": 0, "state": "FINISHED", "attempt": 1, "task_manager": "tm-1", "running_ms": 1_000, "ended_ms": 3_000}
    summary = JobSummary(job="j", name="n", status="RUNNING", accepted_ms=1_000)
    print_job(summary, detail(task("v", {**subtask, "concurrent_attempts": [second]})), None)
    first, other = (line.split() for line in capsys.readouterr().out.splitlines()[-2:])
    assert first[:5] == ["v", "0", "FINISHED", "1", "tm-1"]
    assert (other[:5], other[-3:]) == (["v", "0", "CANCELING", "2", "tm-2"], ["beside", "attempt", "1"])
    view = View("j")
    lines = [view.add(attempt("a", 0, state, number, **more)) for state, number, more in (
        ("RUNNING", 1, {}), ("DEPLOYING", 2, {"beside": 1}), ("FINISHED", 2, {}), ("CANCELED", 1, {"beside": 2}),
    )]  # fmt: skip
    assert lines[1::2] == ["a[0] attempt 2 DEPLOYING, beside attempt 1", "a[0] CANCELED, beside attempt 2"]
    assert view.states == {("a", 0): (2, "FINISHED")}


def test_a_subtask_that_took_far_longer_than_the_others_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    def ended(*took_ms: int, **more: object) -> list[str]:
        subtasks = [
            {"subtask": number, "state": "FINISHED", "attempt": 1, "running_ms": 1_000, "ended_ms": 1_000 + length, **more}
            for number, length in enumerate(took_ms)
        ]
        print_job(JobSummary(job="j", name="n", status="RUNNING", accepted_ms=1_000), detail(task("v", *subtasks)), None)
        return [line for line in capsys.readouterr().out.splitlines() if "the others" in line]

    no_progress = {name: 0 for name, field in AttemptProgress.model_fields.items() if field.is_required()}

    def read(*rows: int) -> list[str]:
        subtasks = [
            {"subtask": number, "state": "FINISHED", "attempt": 1, "running_ms": 1_000, "ended_ms": (4_000, 13_000, 5_000)[number],
             "progress": {**no_progress, "rows_read": each}}
            for number, each in enumerate(rows)
        ]  # fmt: skip
        print_job(JobSummary(job="j", name="n", status="RUNNING", accepted_ms=1_000), detail(task("v", *subtasks)), None)
        return [line for line in capsys.readouterr().out.splitlines() if "the others" in line]

    keys = "where rows come by hash, few keys may have most of them; more columns spread them"
    slot = "what a slot runs first takes longer, and so does what shares its machine with other work"
    assert ended(4_000, 12_000, 2_000) == [f"v[1] took 12.0 s, the others 3.0 s: {keys}; and {slot}"]
    assert read(1_000, 3_000, 2_000) == [f"v[1] took 12.0 s for 3,000 rows, the others 3.5 s for 1,500 rows: {keys}"]
    assert read(1_000, 2_999, 2_000) == [f"v[1] took 12.0 s for 2,999 rows, the others 3.5 s for 1,500 rows: {slot}"]
    assert ended(4_000, 11_999, 4_000) == [], "not three times as long"
    assert ended(100, 2_099) == [], "not two seconds longer"
    assert ended(100, 2_100) != []
    assert ended(12_000) == [] and ended(100, 9_000, state="RUNNING") == []


def test_an_edge_whose_rows_are_uneven_is_told_with_what_helps(capsys: pytest.CaptureFixture[str]) -> None:
    edge = {
        "task": "a", "vertex": "a", "keys": ["k"], "readers": ["v"], "subtask": 1, "shares": 2, "rows": 9_000_000,
        "rows_in_all": 10_000_000, "bytes": 90, "bytes_in_all": 100, "heaviest": [{"key": ["new\nline"], "rows": 8_100_000}],
    }  # fmt: skip
    line = "a -> v by k: subtask 1 of 2 gets 90 % of the rows (9,000,000 of 10,000,000); k = new\\nline has about 90 % of them"
    times = {"state": "FINISHED", "attempt": 1, "running_ms": 1_000}
    subtasks = [{**times, "subtask": n, "ended_ms": ended_ms} for n, ended_ms in enumerate((2_000, 90_000))]
    known = detail(task("v", *subtasks)).model_copy(update={"skewed": [SkewedEdge.model_validate(edge)]})
    print_job(JobSummary(job="j", name="n", status="RUNNING", accepted_ms=1_000), known, None)
    shown = capsys.readouterr().out.splitlines()
    assert shown[-2] == f"uneven: {line}"
    assert shown[-1].startswith("  what helps: aggregate before this edge, add a column to its keys")
    view = View("j")
    assert view.add({"type": "EdgeSkewed", "edge": edge}) == view.uneven == f"uneven: {line}"


def test_causes() -> None:
    assert cause_lines(None) == []
    assert cause_lines(Fault(kind="killed")) == ["failed: killed"]
    assert cause_lines(Fault(message="m", task="a+b", file="x.py", line=3)) == ["failed (task a+b, x.py, line 3): m"]


@pytest.mark.parametrize(("ms", "said"), [(400, "0.4 s"), (125_000, "2 m 5 s"), (11_520_000, "3 h 12 m"), (-1, "")])
def test_lengths_of_time(ms: int, said: str) -> None:
    assert took(1_000, 1_000 + ms) == said


def test_logs_say_whose_they_are_when_that_changes(capfd: pytest.CaptureFixture[str]) -> None:
    printer = _LogPrinter()
    for piece in (
        LogPiece("a", 0, 1, "stdout", b"one\ntw"),
        LogPiece("a", 0, 1, "stdout", b"o"),
        LogPiece("a", 0, 1, "stderr", b"oh\n"),
    ):
        printer.print(piece)
    printer.end()
    out, err = capfd.readouterr()
    assert out == "one\ntwo\noh\n"
    assert err == "--- a[0] attempt 1 stdout\n--- a[0] attempt 1 stderr\n"


def test_where_the_cluster_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MILLRACE_KAFKA_BOOTSTRAP", "MILLRACE_TOKEN", "MILLRACE_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    with pytest.raises(NoConnection, match="there is no stack 'default': start one with millrace up, or"):
        find("default")
    folder = tmp_path / "stacks/default"
    folder.mkdir(parents=True)
    (tmp_path / "token").write_text("secret\n")
    facts = {"kafka_bootstrap": "127.0.0.1:7", "token_file": str(tmp_path / "token")}
    (folder / "stack.json").write_text(json.dumps(facts))
    assert find("default") == ("127.0.0.1:7", "secret")
    (folder / "stack.json").write_text("{")
    with pytest.raises(NoConnection, match=r"stack.json cannot be read"):
        find("default")
    with pytest.raises(NoConnection, match="there is no stack"):
        find("../stacks/default")
    monkeypatch.setenv("MILLRACE_KAFKA_BOOTSTRAP", "kafka:9092")
    assert find("default") == ("kafka:9092", "")
    monkeypatch.setenv("MILLRACE_TOKEN_FILE", str(tmp_path / "token"))
    assert find("default") == ("kafka:9092", "secret")
    monkeypatch.setenv("MILLRACE_TOKEN", "other\r\n")
    assert find("default") == ("kafka:9092", "other")
    monkeypatch.delenv("MILLRACE_TOKEN")
    monkeypatch.setenv("MILLRACE_TOKEN_FILE", str(tmp_path / "none"))
    with pytest.raises(NoConnection, match=r"none cannot be read: No such file or directory"):
        find("default")


def test_the_schema_is_that_of_what_is_submitted(capsys: pytest.CaptureFixture[str]) -> None:
    schema("SubmitJob")
    found = json.loads(capsys.readouterr().out)
    assert found["properties"]["graph"] == {"$ref": "#/$defs/JobGraph"}
    text = json.dumps(found)
    wanted = {part.split('"')[0] for part in text.split('"#/$defs/')[1:]}
    assert wanted <= set(found["$defs"])
    schema("JobGraph")
    assert "vertices" in json.loads(capsys.readouterr().out)["properties"]


def test_a_long_result_shows_its_head_and_how_to_see_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [[number] for number in range(1000)]
    print_head(Result(columns=["n"], types=["int"], rows=rows[:20], truncated=False), "millrace result j")
    out, err = capsys.readouterr()
    assert (len(out.splitlines()), err) == (21, "")
    print_head(Result(columns=["n"], types=["int"], rows=rows, truncated=True), "millrace result j")
    out, err = capsys.readouterr()
    assert (len(out.splitlines()), err) == (21, "the first 20 of 1000 rows and more: millrace result j\n")
    print_head(Result(columns=["n"], types=["int"], rows=rows, truncated=True), None)
    out, err = capsys.readouterr()
    assert (len(out.splitlines()), err) == (21, "the first 20 of 1000 rows and more\n"), "the stack that could be asked has gone"


def test_what_strangers_wrote_does_not_speak_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert printable("a\x1b[2J\x07\n\tb\x9bé\ud800") == "a\\x1b[2J\\x07\n\tb\\x9bé\\ud800"
    table(("job",), [("\x1b]0;gone\x07",)])
    assert "\x1b" not in (shown := capsys.readouterr().out) and "\\x1b]0;gone\\x07" in shown
    assert cause_lines(Fault(message="\x1b[31mred")) == ["failed: \\x1b[31mred"]
    view = View("j")
    assert view.add(attempt("a", 0, "FAILED", error={"message": "\x1b[2J"})) == "a[0] FAILED: \\x1b[2J"
    assert view.add({"type": "JobWaiting", "reason": "\x1b[2J"}) == "waits: \\x1b[2J"

    def fails() -> None:
        raise NotFinished("job j is FAILED and has no result: \x1b[2J", "FAILED")

    assert guarded(fails) == 1
    assert capsys.readouterr().err == "millrace: job j is FAILED and has no result: \\x1b[2J\n"


def test_a_column_may_be_called_as_markup_is_and_a_job_of_two_lines_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    print_head(Result(["m[key]", "[/x]", "[red]c\x1b"], ["int"] * 3, [[1, 2, 3]], truncated=False), "millrace result j")
    assert capsys.readouterr().out.split() == ["m[key]", "[/x]", "[red]c\\x1b", "1", "2", "3"]
    print_job(JobSummary(job="j", name="a\x1b\nstatus    FINISHED", status="FAILED", accepted_ms=1_000), None, None)
    assert capsys.readouterr().out.splitlines()[1:3] == ["name      a\\x1b status FINISHED", "status    FAILED"]


def test_paragraphs_of_help_flow() -> None:
    shown = CliRunner().invoke(app, ["dlq", "redrive", "--help"], env={"COLUMNS": "300"}).stdout
    assert "or the upload that was missing is there. The ids in them stay what they were, so a job" in shown
    assert "millrace-bundle-TIME.tar.gz" in CliRunner().invoke(app, ["bundle", "--help"], env={"COLUMNS": "300"}).stdout


def test_a_wide_result_is_shown_with_all_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"column{number}" for number in range(300)]
    print_result(Result(names, ["string"] * 300, [["x" * 50, *range(299)]], truncated=False), "table")
    out, err = capsys.readouterr()
    heads, row = (line.split() for line in out.splitlines())
    assert (heads, row, err) == (names, ["x" * 50, *map(str, range(299))], "")


def test_cells_that_are_cut_are_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    long = Result(["n"], ["string"], [["x" * 20_000]], truncated=False)
    print_result(long, "table")
    assert capsys.readouterr().err == "cells are cut: --format json and --format csv show them whole\n"
    print_head(long, "millrace result j")
    assert capsys.readouterr().err == "cells are cut: millrace result j --format json shows them whole\n"


def test_the_version_is_told_without_a_command() -> None:
    shown = CliRunner().invoke(app, ["--version"])
    assert (shown.exit_code, shown.stdout, shown.stderr) == (0, f"millrace {__version__}\n", "")


def test_a_ctrl_c_that_a_library_makes_another_error_of_is_one_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def builds_a_model() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ValueError("SchemaError: KeyboardInterrupt") from None

    monkeypatch.setattr(program, "_interrupted", threading.Event())
    before = signal.signal(signal.SIGINT, program._interrupt)
    try:
        assert guarded(builds_a_model) == 130
    finally:
        signal.signal(signal.SIGINT, before)
