"""`--env`, `--env-file`, and `millrace files`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from millrace.cli import app as program
from millrace.cli import files as listing
from millrace.cli.environment import variables
from millrace.cli.files import files_lines
from millrace.client.files import Files, folders, listed


def test_variables_from_flags_files_and_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETL_ENV", "prod")
    file = tmp_path / "job.env"
    file.write_text("# of the job\n\nA=1\nB=x=y\nETL_ENV\nC=\n")
    assert variables(["A=2", "D=a b"], [file]) == {"A": "2", "B": "x=y", "ETL_ENV": "prod", "C": "", "D": "a b"}


@pytest.mark.parametrize(
    ("flags", "text", "said"),
    [
        (["NOT_SET_HERE"], "", "NOT_SET_HERE is not set here; give NOT_SET_HERE=VALUE, or set it"),
        (["=hush"], "", "it has no name before its ="),
        ([], "A=1\n=hush\n", "job.env:2 has no name before its ="),
    ],
)
def test_a_variable_that_is_none_is_told_without_its_value(tmp_path: Path, flags: list[str], text: str, said: str) -> None:
    file = tmp_path / "job.env"
    file.write_text(text)
    with pytest.raises(typer.BadParameter) as refused:
        variables(flags, [file])
    assert said in str(refused.value) and "hush" not in str(refused.value)


MANIFEST = {
    "files": [{"name": "out/a.csv", "bytes": 2}, {"name": "../../etc/passwd", "bytes": 1}, {"name": "/b", "bytes": 1}],
    "left_out": [{"name": "big\x1b", "why": "too large"}],
    "left_out_in_all": 3,
}
WHERE = ("main", 0, 1, "ac/main.0.1")
DETAIL: dict[str, Any] = {
    "tasks": [
        {"task": "main", "subtasks": [
            {"subtask": 0, "attempt": 1, "logs": [{"attempt": 1, "path": "ac/main.0.1"}], "failures": [],
             "files": {"kept": 1, "bytes": 2, "left_out": 3}}
        ]},
        {"task": "other", "subtasks": [
            {"subtask": 0, "attempt": 2, "logs": [{"attempt": n, "path": f"ac/other.0.{n}"} for n in (1, 2)],
             "failures": [{"attempt": 1, "error": {"files_kept": 2, "files_left_out": 0}}]}
        ]},
    ]
}  # fmt: skip


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
    assert files_lines({"tasks": []}, "j") == files_lines(None, "j") == []


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
    assert run("--get", "nope") == 2
