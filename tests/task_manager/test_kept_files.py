"""What an attempt leaves in its folder is kept with its job, within bounds, and what is not is told."""

from __future__ import annotations

import hashlib
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from millrace.core.messages.attempts import ModuleSpec
from millrace.io.storage.store import Storage, StorageError
from services.task_manager import kept_files
from services.task_manager.kept_files import Keep, keep_files

FOLDER = "ac/t.0.1"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def kept(work: Path, *modules: dict[str, str], keep: Keep = Keep()) -> tuple[Any, dict[str, Any], Storage]:  # noqa: B008
    storage = Storage(str(work.parent / "storage"))
    told = keep_files(str(work), [ModuleSpec(**each) for each in modules], storage, FOLDER, keep)
    return told, json.loads(storage.get(f"results/{FOLDER}/files.json")) if told else {}, storage


def test_files_that_a_script_wrote_by_relative_paths_are_kept_with_the_job(work: Path) -> None:
    (work / "marker.txt").write_text("done")
    (work / "out/etl").mkdir(parents=True)
    (work / "out/etl/part-0.csv").write_text("1\n")
    (work / "out/etl/.part-0.csv.crc").write_text("Hadoop's")
    told, listed, storage = kept(work)
    assert told == {"kept": 2, "bytes": 6, "left_out": 0}
    assert listed["files"] == [{"name": "marker.txt", "bytes": 4}, {"name": "out/etl/part-0.csv", "bytes": 2}]
    assert storage.get(f"results/{FOLDER}/files/out/etl/part-0.csv") == b"1\n"


def test_what_went_with_the_job_is_not_kept_unless_it_was_changed(work: Path) -> None:
    modules = []
    for name, kind in (("etl.py", "file"), ("settings.ini", "file"), ("data.zip", "archive")):
        modules.append({"name": name, "kind": kind, "sha256": hashlib.sha256(b"as it was").hexdigest()})
    (work / "etl.py").write_text("as it was")
    (work / "settings.ini").write_text("changed")
    for folder in ("data.zip", "millrace-modules", "jars", "__pycache__"):
        (work / folder).mkdir()
        (work / folder / "x").write_text("x")
    (work / "millrace-modules-0123456789ab.zip").write_text("x")
    assert kept(work, *modules)[1]["files"] == [{"name": "settings.ini", "bytes": 7}]


def test_only_what_a_slot_made_itself_is_passed_over_by_its_name(work: Path) -> None:
    (work / "jars_report").mkdir()
    for name in ("jars.csv", "jars_report/a.csv", "millrace-modules.md", "millrace-modules-0123456789ab-lib.zip"):
        (work / name).write_text("x")
    assert [each["name"] for each in kept(work)[1]["files"]] == ["jars.csv", "jars_report/a.csv", "millrace-modules.md"]


def test_a_shipped_file_that_was_not_changed_is_nobodys_loss_whatever_its_length(work: Path) -> None:
    (work / "big.bin").write_bytes(b"12345")
    module = {"name": "big.bin", "kind": "file", "sha256": hashlib.sha256(b"12345").hexdigest()}
    assert kept(work, module, keep=Keep(bytes=4))[0] is None


def test_a_file_that_is_cut_while_it_is_copied_is_told_with_what_was_written(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (work / "a").write_bytes(b"12345")
    pieces = kept_files._pieces

    def cut(file: int, size: int) -> Any:
        os.truncate(work / "a", 2)
        return pieces(file, size)

    monkeypatch.setattr(kept_files, "_pieces", cut)
    told, listed, storage = kept(work)
    assert told["bytes"] == 2 and listed["files"] == [{"name": "a", "bytes": 2}]
    assert storage.get(f"results/{FOLDER}/files/a") == b"12"


def test_an_attempt_that_leaves_nothing_or_has_no_folder_is_told_of_nothing(work: Path) -> None:
    assert kept(work)[0] is None
    work.rmdir()
    assert kept(work)[0] is None


def test_links_pipes_sockets_and_sparse_files_are_left_out_and_told(work: Path) -> None:
    secret = work.parent / "secret"
    secret.mkdir()
    (secret / "key").write_text("hush")
    (work / "a-link").symlink_to(secret / "key")
    (work / "b-folder").symlink_to(secret)
    os.mkfifo(work / "c-pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        before = Path.cwd()
        os.chdir(work)  # a socket's name is short
        try:
            listener.bind("d-socket")
        finally:
            os.chdir(before)
    with open(work / "e-sparse", "wb") as sparse:
        sparse.truncate(1 << 40)
    (work / "f").write_text("kept")
    told, listed, storage = kept(work)
    assert listed["files"] == [{"name": "f", "bytes": 4}]
    reasons = {each["name"]: each["why"] for each in listed["left_out"]}
    assert list(reasons) == ["a-link", "b-folder", "c-pipe", "d-socket", "e-sparse"]
    assert reasons["a-link"] == reasons["b-folder"] == "it is a link" and reasons["c-pipe"] == "it is no file"
    assert reasons["e-sparse"] == f"all that is kept of an attempt has at most {64 << 20} bytes, and this {1 << 40}"
    assert (told["kept"], told["left_out"]) == (1, 5)
    assert not any(b"hush" in storage.get(entry.path) for entry in storage.list("results"))


def test_no_more_files_and_bytes_are_kept_than_allowed(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abcd":
        (work / name).write_text("12345")
    told, listed, _ = kept(work, keep=Keep(files=2))
    assert ([each["name"] for each in listed["files"]], told["left_out"]) == (["a", "b"], 2)
    monkeypatch.setattr(kept_files, "SEEN_MOST", 2)
    monkeypatch.setattr(kept_files, "LEFT_OUT_LISTED", 1)
    storage = Storage(str(work.parent / "other"))
    told = keep_files(str(work), [], storage, FOLDER, Keep(bytes=7))
    assert told is not None and (told["kept"], told["bytes"], told["left_out"]) == (1, 5, 2)
    assert len(json.loads(storage.get(f"results/{FOLDER}/files.json"))["left_out"]) == 1


def test_folders_that_are_too_deep_and_names_that_storage_refuses_are_told(work: Path) -> None:
    deep = work.joinpath(*["d"] * (kept_files.DEPTH_MOST + 1))
    deep.mkdir(parents=True)
    (deep / "f").write_text("")
    (work / "new\nline").write_text("")
    os.close(os.open(os.fsencode(work) + b"/\xff", os.O_CREAT | os.O_WRONLY))
    os.symlink("a", os.fsencode(work) + b"/\xfe")  # which is left out before storage is asked
    _, listed, _ = kept(work)
    assert listed["files"] == []
    assert [each["why"].partition(" than")[0] for each in listed["left_out"]] == [
        "it is deeper", "storage takes no such name", "it is a link", "storage takes no such name"
    ]  # fmt: skip
    assert [each["name"] for each in listed["left_out"][1:]] == ["new\nline", "?", "?"], "a page is written in UTF-8"


def test_a_storage_that_fails_costs_the_files_and_says_so(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (work / "a").write_text("1")

    def full(*_: object) -> None:
        raise StorageError("results", "no space is left on the disk", "free some")

    monkeypatch.setattr(kept_files, "_copy", full)
    told, listed, _ = kept(work)
    assert told == {"kept": 0, "bytes": 0, "left_out": 1}
    assert listed["left_out"] == [{"name": "a", "why": "it could not be stored: results: no space is left on the disk; free some"}]
