"""A process's own logs: found by ids, read by pieces, without secrets, and nothing else of the machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from millrace.runtime import logs, own_logs
from millrace.runtime.logs import Redaction, Tail
from millrace.runtime.own_logs import FileLog, TailLog, Whole, piece

LISTED = (
    "import json, sys; from millrace.runtime import own_logs;"
    "found = own_logs.listed(own_logs.own_logs());"
    "json.dump({name: each.size for name, each in found.items()}, open(sys.argv[1], 'w'))"
)


def listed(tmp_path: Path, **streams: Any) -> dict[str, int]:
    """The logs that a process finds whose output goes there."""
    out = tmp_path / "found.json"
    subprocess.run([sys.executable, "-c", LISTED, str(out)], check=True, timeout=60, stdin=subprocess.DEVNULL, **streams)
    return json.loads(out.read_text())


def test_a_log_is_the_file_that_errors_go_to_with_those_before_it(tmp_path: Path) -> None:
    for name, text in (("d.log", "12345"), ("d.log.1", "123"), ("d.log.failed", "12"), ("d.log.other", "1"), ("d.out", "1234")):
        (tmp_path / name).write_text(text)
    with open(tmp_path / "d.log", "ab") as log, open(tmp_path / "d.out", "ab") as out:
        assert listed(tmp_path, stderr=log, stdout=out) == {"log": 5, "log.1": 3, "log.failed": 2, "stdout": 4}
        assert listed(tmp_path, stderr=log, stdout=log) == {"log": 5, "log.1": 3, "log.failed": 2, "stdout": 5}


@pytest.mark.parametrize("stream", [subprocess.PIPE, subprocess.DEVNULL])
def test_where_errors_go_to_no_file_the_log_is_in_memory(tmp_path: Path, stream: int) -> None:
    assert listed(tmp_path, stderr=stream, stdout=stream) == {"log": 0}


def test_a_log_that_was_deleted_is_no_file(tmp_path: Path) -> None:
    with open(tmp_path / "d.log", "ab") as log:
        (tmp_path / "d.log").unlink()
        assert listed(tmp_path, stderr=log, stdout=subprocess.DEVNULL) == {"log": 0}


@pytest.mark.parametrize(
    ("start", "length", "begins", "data"),
    [(0, 4, 0, b"0123"), (3, 100, 3, b"3456789"), (-3, 100, 7, b"789"), (-100, 2, 0, b"01"), (10, 5, 10, b""), (99, 5, 10, b"")],
)
def test_a_piece_begins_where_it_is_asked_for(tmp_path: Path, start: int, length: int, begins: int, data: bytes) -> None:
    (tmp_path / "log").write_bytes(b"0123456789")
    found = piece(FileLog(tmp_path / "log"), start, length)
    assert found[:2] == (begins, data) and found[2].size == 10


@pytest.mark.parametrize("what", ["a link", "a pipe", "a folder", "nothing"])
def test_who_puts_something_else_there_is_not_followed(tmp_path: Path, what: str) -> None:
    """User code runs as the user to whom a slot's folder belongs."""
    place = tmp_path / "jvm.log"
    (tmp_path / "secrets").write_text("token")
    if what == "a link":
        place.symlink_to(tmp_path / "secrets")
    elif what == "a pipe":
        os.mkfifo(place)
    elif what == "a folder":
        place.mkdir()
    with pytest.raises(OSError):
        piece(FileLog(place), 0, 10)
    assert own_logs.listed({"jvm.log": FileLog(place)}) == {}


def test_a_tail_keeps_the_last_lines_and_where_they_stood() -> None:
    tail = Tail(most=20)
    for number in range(10):
        tail.add(f"line {number}")
    log = TailLog(*tail.kept())
    whole = log.whole()
    assert (whole.first, whole.size) == (56, 70) and whole.modified_ms > 0
    assert piece(log, 0, 7)[:2] == (56, b"line 8\n"), "what is before is gone"
    assert piece(log, -7, 100)[:2] == (63, b"line 9\n")
    tail.add("x" * 100)
    later = TailLog(*tail.kept()).whole()
    assert later == Whole(70, 171, later.modified_ms), "one line is kept, however long"
    assert piece(log, 56, 7)[1] == b"line 8\n", "what is being read stays where it was"


def test_half_a_character_costs_no_line() -> None:
    tail = Tail()
    tail.add("half \ud800")
    assert tail.kept()[1] == b"half \\ud800\n"


SECRETS = {
    "a value that is known": (b"key is s3cr3t-value here", b"s3cr3t-value"),
    "an option of a JVM": (b"java -Dfs.s3a.secret.key=abc/def -jar", b"abc/def"),
    "a password in a URL": (b"at https://me:pass@host/", b"me:pass"),
    "a header": (b"Authorization: Bearer abcdefgh12345", b"abcdefgh12345"),
    "letters that take two bytes": ("p\u00e4ssw\u00f6rt!".encode(), "p\u00e4ssw\u00f6rt!".encode()),
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_stars_and_nothing_moves(name: str) -> None:
    line, secret = SECRETS[name]
    found = Redaction(["s3cr3t-value", "p\u00e4ssw\u00f6rt!"]).starred(line)
    assert found == line.replace(secret, b"*" * len(secret))


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_secret_on_the_edge_of_a_piece_is_stars(tmp_path: Path, cut: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_redaction", Redaction(["s3cr3t-value"]))
    (tmp_path / "log").write_bytes(b"before s3cr3t-value behind")
    log = FileLog(tmp_path / "log")
    first, second = piece(log, 0, 7 + cut)[1], piece(log, 7 + cut, 100)[1]
    assert first + second == b"before ************ behind"


def test_what_is_left_of_a_long_token_is_stars(tmp_path: Path) -> None:
    token = b"a1.B-" * 800
    (tmp_path / "log").write_bytes(b"Authorization: Bearer " + token + b" is refused")
    assert piece(FileLog(tmp_path / "log"), -20, 100)[1] == b"*" * 9 + b" is refused"


def test_bytes_that_are_no_text_stay(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(bytes(range(256)))
    assert piece(FileLog(tmp_path / "log"), 0, 256)[1] == bytes(range(256))
