"""`--env`, `--env-file`, and `millrace files`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from millrace.cli import app as program
from millrace.cli import files as listing
from millrace.cli.environment import variables
from millrace.cli.tables import files_lines
from millrace.client.files import Files, folders, listed
from tests.cli.details import detail, task


def test_variables_from_flags_files_and_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETL_ENV", "prod")
    file = tmp_path / "job.env"
    file.write_text("# of the job\n\nA=1\nB=x=y\nETL_ENV\nC=\n")
    assert variables(["A=2", "D=a b"], [file]) == {"A": "2", "B": "x=y", "ETL_ENV": "prod", "C": "", "D": "a b"}


@pytest.mark.parametrize(
    ("flags", "text", "said"),
    [
        (["NOT_SET_HERE"], "", "NOT_SET_HERE is not set here; give NOT_SET_HERE=VALUE, or set it"),
        (["=hush"], "", "it has no name before an ="),
        (["hush hush"], "", "it has no name before an ="),
        ([], "A=1\n=hush\n", "job.env:2 has no name before an ="),
        ([], "KEY=-----BEGIN KEY-----\nMIIhush+/ab\n", "job.env:2 has no name before an ="),
        ([], "KEY=-----BEGIN KEY-----\nMIIhushab\n", "job.env:2 has no =, and is no variable that is set here"),
        ([], "A=1\r\nPW: hush=x\r\n", "job.env:2 has no name before an ="),
    ],
)
def test_a_variable_that_is_none_is_told_without_its_value(tmp_path: Path, flags: list[str], text: str, said: str) -> None:
    file = tmp_path / "job.env"
    file.write_text(text)
    with pytest.raises(typer.BadParameter) as refused:
        variables(flags, [file])
    assert said in str(refused.value) and "hush" not in str(refused.value)


def test_a_line_of_a_file_ends_where_its_editor_shows_it(tmp_path: Path) -> None:
    """Python's own lines end at U+0085, U+2028 and others as well: what followed one in a value was printed as a name."""
    file = tmp_path / "job.env"
    values = {"A": "x\x85y", "B": "x\u2028y", "C": "x\x0cy\x85", "D": "x\ry"}
    file.write_bytes("".join(f"{name}={value}\r\n" for name, value in values.items()).encode())
    assert variables([], [file]) == values


MANIFEST = {
    "files": [{"name": "out/a.csv", "bytes": 2}, {"name": "../../etc/passwd", "bytes": 1}, {"name": "/b", "bytes": 1}],
    "left_out": [{"name": "big\x1b", "why": "too large"}],
    "left_out_in_all": 3,
}
WHERE = ("main", 0, 1, "ac/main.0.1")
FAILURE = {"attempt": 1, "at_ms": 1, "task_manager": "tm", "error": {"files_kept": 2, "files_left_out": 0}}
DETAIL = detail(
    task("main", {
        "attempt": 1, "logs": [{"attempt": 1, "path": "ac/main.0.1"}], "failures": [],
        "files": {"kept": 1, "bytes": 2, "left_out": 3},
    }),
    task("other", {
        "attempt": 2, "logs": [{"attempt": n, "path": f"ac/other.0.{n}"} for n in (1, 2)], "failures": [FAILURE],
    }),
)  # fmt: skip


def test_names_that_lead_out_of_a_folder_are_no_files() -> None:
    found = listed(WHERE, json.dumps(MANIFEST).encode())
    assert [(file.name, file.path) for file in found.kept] == [("out/a.csv", "results/ac/main.0.1/files/out/a.csv")]


def test_files_are_those_of_the_last_attempt_that_left_any() -> None:
    assert list(folders(DETAIL)) == [WHERE, ("other", 0, 1, "ac/other.0.1")]


def test_the_end_of_a_job_says_what_is_kept_and_loudly_what_is_not() -> None:
    assert files_lines(DETAIL, "j") == [
        "files     3 (2 bytes), left by relative paths: millrace files j",
        "NOT kept  3 files more, gone with the attempt; which and why: millrace files j",
    ]
    assert files_lines(detail(), "j") == files_lines(None, "j") == []


class Client:
    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None: ...

    def files(self, job: str) -> Files:
        return listed(WHERE, json.dumps(MANIFEST).encode())

    def file(self, path: str) -> bytes:
        return path.encode()


def test_files_are_listed_and_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(listing, "connected", lambda stack: Client())

    def run(*args: str) -> int:
        return program.guarded(lambda: program.app(["files", "j", *args], prog_name="millrace"))

    assert run() == 0
    out, err = capfd.readouterr()
    assert "out/a.csv" in out and err == "NOT kept: big\\x1b: too large\nNOT kept: 2 more\n"
    assert run("--to", str(tmp_path / "new")) == 0
    assert (tmp_path / "new/out/a.csv").read_bytes() == b"results/ac/main.0.1/files/out/a.csv"
    assert run("--to", str(tmp_path / "new")) == 2, "nothing is overwritten"
    capfd.readouterr()
    assert run("--get", "out/a.csv") == 0
    assert capfd.readouterr().out == "results/ac/main.0.1/files/out/a.csv"
    assert run("--get", "nope\x9b31m") == 2
    assert "\x9b" not in capfd.readouterr().err
    assert run("--json") == 0 and json.loads(capfd.readouterr().out)[0]["name"] == "out/a.csv"


def test_a_name_speaks_to_no_terminal_and_begins_no_line(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    name = "c1\x9b31m\u202egnp\nNOT kept: all"
    manifest = {"files": [{"name": name, "bytes": 1}], "left_out": [{"name": name, "why": "x"}], "left_out_in_all": 1}
    monkeypatch.setattr(Client, "files", lambda self, job: listed(WHERE, json.dumps(manifest).encode()))
    monkeypatch.setattr(listing, "connected", lambda stack: Client())
    for args in ([], ["--json"], ["--get", "nope"]):
        program.guarded(lambda args=args: program.app(["files", "j", *args], prog_name="millrace"))
        out, err = capfd.readouterr()
        assert not {"\x9b", "\u202e"} & set(out + err)
        assert sum(line.startswith("NOT kept") for line in err.splitlines()) <= 1
        assert args != ["--json"] or json.loads(out)[0]["name"] == name


@pytest.mark.parametrize("to", ["file/x", "/proc/nope/x", "x" * 300, "dangling"])
def test_a_folder_that_cannot_be_made_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], to: str
) -> None:
    monkeypatch.setattr(listing, "connected", lambda stack: Client())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "dangling").symlink_to("nowhere")
    assert program.guarded(lambda: program.app(["files", "j", "--to", to], prog_name="millrace")) == 2
    err = capfd.readouterr().err
    assert "Traceback" not in err and "--to" in err
