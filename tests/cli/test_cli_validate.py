"""`millrace validate`: graphs and records without a cluster."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from millrace.cli.app import app, guarded
from millrace.core.jobgraph.model import DEFAULT_LIMITS

ROOT = Path(__file__).parents[2]
GRAPH = {"name": "x", "vertices": {"a": {"sql": "SELECT 1"}}}
SUBMIT = {"type": "SubmitJob", "version": 1, "job": "x-1", "graph": GRAPH}


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, list[str], list[str]]:
    """(exit code, lines of stdout, lines of stderr)"""
    code = guarded(lambda: app(["validate", *args]))
    said = capsys.readouterr()
    return code, said.out.splitlines(), said.err.splitlines()


def test_what_is_right_is_told_as_what_it_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    hello, record = ROOT / "examples" / "hello.yaml", tmp_path / "record.json"
    record.write_text(json.dumps(SUBMIT))
    assert run(capsys, str(hello), str(record)) == (
        0, [f"{hello}: a job graph: valid", f"{record}: SubmitJob of job x-1: valid"], [],
    )  # fmt: skip


def test_every_mistake_of_a_submission_is_told_at_once_with_its_place(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "r.json"
    file.write_text("""{"type": "SubmitJob", "version": 1,
 "job": "../x",
 "reply-to": "me",
 "accept_before_ms": 3,
 "graph": {"name": "x", "vertices": {
   "a": {"sql": "SELEC 1"},
   "b": {"sql": "SELECT * FROM q", "parallelism": 0}},
  "conf": {"spark.master": "mesos"}}}
""")
    code, out, err = run(capsys, str(file))
    assert (code, out) == (2, [])
    assert err == [
        f"{file}:2:2: job: no id of a job: it begins with a letter or digit, and at most 99 letters, digits, _, . or - follow; "
        "not the text '../x'",
        f"{file}:3:2: reply-to: unknown field reply-to (did you mean reply_to?)",
        f"{file}:4:2: warning: accept_before_ms: has passed: it would be rejected as late",
        f"{file}:6:10: graph.vertices.a.sql: does not parse: unexpected 1 at line 1, column 7",
        f"{file}:7:10: graph.vertices.b.sql: reads q, which is no input (it has no inputs)",
        f"{file}:7:36: graph.vertices.b.parallelism: must be at least 1, not 0",
        f"{file}:8:12: graph.conf.spark.master: 'mesos' is no master: a master is local[N], spark://HOST:PORT (several by commas), "
        "yarn or k8s://https://HOST:PORT; without one, the job runs in its slot's own Spark",
        "6 problems",
    ]


def test_records_one_a_line_of_any_topic(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    tick = {"record": "Tick", "epoch": 1, "n": 1, "published_through": 0, "digest": ""}
    lines = [
        {"type": "CancelJob", "version": 1, "job": "x"},
        {"type": "JobCanceled", "version": 1, "job": "x", "at_ms": 1, "count": 1, "archive": None},
        {"type": "JobRetired", "version": 1, "job": "x", "acceptance": "1.7"},
        tick,
        {**tick, "n": "1"},
        {"type": "CancelJop", "version": 1},
        {"type": "CancelJob", "version": 2},
        {"type": "CancelJob", "job": "x"},
        [1],
    ]
    file.write_text("\n".join([*map(json.dumps, lines), '{"type": ', ""]))
    code, out, err = run(capsys, str(file))
    assert code == 2
    assert out == [
        f"{file}: line 1: CancelJob of job x: valid",
        f"{file}: line 2: JobCanceled of job x: valid",
        f"{file}: line 3: JobRetired of job x: valid",
        f"{file}: line 4: a record of an inbox, Tick: valid",
    ]
    assert err == [
        f"{file}:5:32: n: Input should be a valid integer, not the text '1'",
        f"{file}:6:2: type: there is no message 'CancelJop' (did you mean CancelJob?)",
        f"{file}:7:23: version: is 2; CancelJob has 1",
        f"{file}:8:1: version: is missing; CancelJob has 1",
        f'{file}:9:1: is no message: a message is an object with "type" and "version"',
        f"{file}: not JSON: Expecting value at line 10, column 10",
        "6 problems",
    ]


def test_a_line_far_below_is_checked_by_its_own_size_and_place(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """It was checked with a line end for each line above: slower and slower, and too large for a record at last."""
    file, above = tmp_path / "records.jsonl", DEFAULT_LIMITS.input_bytes
    right, wrong = {"type": "CancelJob", "version": 1, "job": "x"}, {"type": "CancelJob", "version": 1, "job": 7}
    file.write_text("\n" * above + "\n".join([json.dumps(right), json.dumps(wrong), '{"type": ']))
    assert run(capsys, str(file)) == (2, [f"{file}: line {above + 1}: CancelJob of job x: valid"], [
        f"{file}:{above + 2}:37: job: Input should be a valid string, not 7",
        f"{file}: not JSON: Expecting value at line {above + 3}, column 10", "2 problems",
    ])  # fmt: skip


def test_a_graph_is_checked_as_the_dispatcher_checks_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "g.json"
    file.write_text(json.dumps({**GRAPH, "conf": {"spark.submit.deployMode": "cluster"}}, indent=1))
    code, _, err = run(capsys, str(file))
    assert code == 2
    assert err[0].startswith(
        f"{file}:9:3: conf.spark.submit.deployMode: cannot be set by a job: the driver always runs in"
    )


@pytest.mark.parametrize(("line", "said"), [
    ('name: "\\ud800"', "1:1: a text holds half of a surrogate pair, which is no Unicode"),
    ("name: a\nsince: 2013-01-01", "2:1: since: unknown field since"),
    ("name: a\nshare: .nan", "2:1: share: unknown field share"),
])  # fmt: skip
def test_what_only_yaml_can_say_is_a_mistake_like_others(
    line: str, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "g.yaml"
    file.write_text(f"{line}\nvertices: {{a: {{sql: select 1}}}}\n")
    code, _, err = run(capsys, str(file))
    assert code == 2
    assert err[0].startswith(f"{file}:{said}")


def test_from_stdin_and_as_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b'{"type": "CancelJob", "version": 1, "job": 7}'))
    )
    code, out, _ = run(capsys, "-", "--json")
    assert code == 2
    assert json.loads("\n".join(out)) == [
        {
            "file": "-", "what": "CancelJob", "valid": False, "line": 1, "column": 37, "place": ["job"],
            "message": "Input should be a valid string, not 7", "hint": None,
        }
    ]  # fmt: skip


def test_a_file_without_a_record_is_not_valid(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    file.write_text("\n \n")
    assert run(capsys, str(file)) == (2, [], [f"{file} holds no record", "1 problem"])


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "nothing.json") == (
        2,
        [],
        ["nothing.json cannot be read: No such file or directory", "1 problem"],
    )


def test_what_the_terminals_encoding_cannot_show_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "año.json"
    file.write_text(json.dumps(GRAPH))
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-c", "from deploy.cli import main; main()", "validate", str(file)]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=150, check=False)
    assert (ended.returncode, ended.stdout) == (0, f"{tmp_path}/a?o.json: a job graph: valid\n"), ended.stderr


@pytest.mark.parametrize(
    "to, code, said",
    [
        (">&-", 0, ""),
        (">&- 2>&-", 0, ""),
        (">/dev/full", 1, "millrace: [Errno 28] No space left on device\n"),
    ],
)
def test_output_that_is_closed_or_full_is_no_fault_of_the_program(to: str, code: int, said: str) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "shared")])}
    command = f"exec {sys.executable} -c 'from deploy.cli import main; main()' schema JobGraph {to}"
    ended = subprocess.run(["sh", "-c", command], cwd=ROOT, env=env, capture_output=True, text=True, timeout=150)
    assert (ended.returncode, ended.stderr) == (code, said)
