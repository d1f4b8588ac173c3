"""Storage: what it promises, held against a folder and against a file system of fsspec."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from millrace.io.storage import backends as storage_backends
from millrace.io.storage.store import (
    BadName,
    Entry,
    NameTaken,
    NotFound,
    Storage,
    StorageError,
    Swept,
    blob_path,
    is_sha256,
    upload_path,
)

DAY_MS = 24 * 3600 * 1000


@pytest.fixture(params=["folder", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    """The one in memory is no kinder than S3, which refuses a range that begins at the end of an object or behind it."""
    cat = MemoryFileSystem.cat_file

    def cat_file(self: MemoryFileSystem, path: str, start: int | None = None, end: int | None = None) -> bytes:
        if start is not None and start >= self.size(path):
            raise OSError(errno.EINVAL, "The requested range is not satisfiable")
        return bytes(cat(self, path, start, end))

    made = Storage(str(tmp_path / "root") if request.param == "folder" else f"memory://{uuid.uuid4().hex}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryFileSystem, "cat_file", cat_file)
        yield made
    made.delete_tree("blobs")


@pytest.fixture
def folder(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path / "root"))


def temporaries(storage: Storage) -> list[Path]:
    return list(storage.local().rglob(".tmp-*"))


def test_what_was_put_is_got(storage: Storage) -> None:
    assert storage.put_new("blobs/a", b"abcdef") is True
    assert storage.get("blobs/a") == b"abcdef"
    assert storage.size("blobs/a") == 6 and storage.exists("blobs/a")
    assert storage.get_range("blobs/a", 2, 3) == b"cde"
    assert storage.get_range("blobs/a", 4, 100) == b"ef"
    assert storage.get_range("blobs/a", 6, 5) == b"" and storage.get_range("blobs/a", 9, 5) == b""


def test_empty_and_large_content(storage: Storage) -> None:
    large = bytes(range(256)) * 9000
    storage.put_new("blobs/empty", b"")
    storage.put_new("blobs/large", large)
    assert storage.get("blobs/empty") == b"" and storage.get("blobs/large") == large
    pieces = list(storage.chunks("blobs/large", 7, len(large)))
    assert b"".join(pieces) == large[7:] and max(len(piece) for piece in pieces) == storage_backends.CHUNK


def test_put_new_never_overwrites(storage: Storage) -> None:
    storage.put_new("blobs/a", b"one")
    assert storage.put_new("blobs/a", b"one") is False
    for other in (b"two", b"longer"):
        with pytest.raises(NameTaken) as caught:
            storage.put_new("blobs/a", other)
    place = f"{storage.url}/blobs/a"
    assert str(caught.value) == f"{place}: other content stands under this name; names are never used twice"
    assert storage.get("blobs/a") == b"one"


def test_put_if_absent_leaves_what_stands_there(storage: Storage) -> None:
    assert storage.put_if_absent("blobs/a", b"one") is True
    assert storage.put_if_absent("blobs/a", b"two") is False
    assert storage.get("blobs/a") == b"one"


def test_a_writer_that_does_not_commit_leaves_nothing(storage: Storage) -> None:
    with pytest.raises(ZeroDivisionError), storage.writer("blobs/a") as writer:
        writer.write(b"half")
        raise ZeroDivisionError
    with storage.writer("blobs/b") as writer:
        writer.write(b"x")
    assert storage.list() == [] and not storage.exists("blobs/a")


def test_nothing_is_seen_before_the_commit(storage: Storage) -> None:
    with storage.writer("blobs/a") as writer:
        writer.write(b"abc")
        assert not storage.exists("blobs/a") and storage.list("blobs") == []
        assert writer.commit() is True
        assert storage.get("blobs/a") == b"abc"


def test_of_many_writers_of_one_name_one_wins(folder: Storage) -> None:
    won: list[int] = []
    ready = threading.Barrier(8)

    def write(n: int) -> None:
        with folder.writer("blobs/a") as writer:
            writer.write(bytes([n]) * 1000)
            ready.wait()
            if writer.commit():
                won.append(n)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1 and folder.get("blobs/a") == bytes(won) * 1000
    assert temporaries(folder) == []


def test_a_disk_without_hard_links_stores_all_the_same(folder: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert folder.put_new("blobs/a", b"one") is True and folder.put_new("blobs/a", b"one") is False
    folder.copy_new("blobs/a", "blobs/b")
    assert folder.get("blobs/b") == b"one" and temporaries(folder) == []


def test_an_object_store_is_asked_once_for_all_below_a_folder(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [f"archives/j{n}/c.1.{n}/1.0.json" for n in range(3)]
    for path in paths:
        storage.put_new(path, b"{}")
    assert sorted(storage.find("archives"), key=lambda each: each.path) == storage.list("archives")
    assert [*storage.find("nothing")] == []
    if isinstance(storage._backend, storage_backends.Remote):
        monkeypatch.setattr(storage._backend._fs, "walk", None)
        monkeypatch.setattr(storage._backend._fs, "find", lambda path, detail: {path: {"name": path, "type": "file", "size": 1}})
        assert [each.path for each in storage.find("archives")] == ["archives"]


def test_s3_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def opened(url: str, **options: Any) -> tuple[Any, str]:
        asked.append(options)
        return made, url.partition("://")[2]

    made = SimpleNamespace(retries=5)
    monkeypatch.setattr("fsspec.url_to_fs", opened)
    Storage("memory://x")
    assert (asked.pop().get("config_kwargs"), made.retries) == (None, 5)
    for url in ("s3://bucket/x", "s3a://bucket/x"):
        Storage(url)
        bounds = asked.pop()["config_kwargs"]
        whole_s = (bounds["connect_timeout"] + bounds["read_timeout"]) * bounds["retries"]["total_max_attempts"] * made.retries
        assert 20 <= whole_s <= 120


def test_a_bucket_that_is_not_there_is_no_empty_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(path: str, detail: bool) -> dict[str, Any]:
        raise FileNotFoundError("The specified bucket does not exist")

    storage = Storage(f"memory://{uuid.uuid4().hex}")
    assert isinstance(storage._backend, storage_backends.Remote)
    monkeypatch.setattr(storage._backend._fs, "find", find)
    with pytest.raises(NotFound):
        list(storage.find("archives"))


def test_list_is_deep_sorted_and_of_one_folder(storage: Storage) -> None:
    for path in ("blobs/b/2", "blobs/b/1", "blobs/a", "blobs/b-not/x"):
        storage.put_new(path, path.encode())
    assert [(each.path, each.size) for each in storage.list("blobs/b")] == [("blobs/b/1", 9), ("blobs/b/2", 9)]
    assert [each.path for each in storage.list()] == ["blobs/a", "blobs/b-not/x", "blobs/b/1", "blobs/b/2"]
    assert storage.list("blobs/none") == []


def test_delete_tree(storage: Storage) -> None:
    for path in ("blobs/x/1", "blobs/x/y/2", "blobs/z"):
        storage.put_new(path, b"x")
    storage.delete_tree("blobs/x")
    storage.delete_tree("blobs/x")
    assert [each.path for each in storage.list()] == ["blobs/z"]
    storage.delete_tree("blobs/z")
    assert storage.list() == []


def test_copy_new(storage: Storage) -> None:
    sha256 = hashlib.sha256(b"content").hexdigest()
    storage.put_new(upload_path(sha256), b"content")
    target = blob_path("j-1", "a-1", sha256)
    assert target == f"blobs/j-1/a-1/{sha256}"
    storage.copy_new(upload_path(sha256), target)
    storage.copy_new(upload_path(sha256), target)
    storage.delete_tree("uploads")
    assert storage.get(target) == b"content"
    storage.put_new("blobs/other", b"x")
    with pytest.raises(NameTaken):
        storage.copy_new("blobs/other", target)
    with pytest.raises(NotFound):
        storage.copy_new("blobs/none", "blobs/new")


def test_deleting_what_is_not_there_leaves_the_folder_above_it(tmp_path: Path) -> None:
    """Whoever is just making something in it would fail."""
    local = storage_backends.Folder(tmp_path / "kept")
    (tmp_path / "kept" / "exchange").mkdir(parents=True)
    local.delete_tree("exchange/1.7")
    local.delete("exchange/1.8")
    assert (tmp_path / "kept" / "exchange").is_dir()


def test_sweep_deletes_by_age_with_the_folders_left_empty(folder: Storage) -> None:
    ages = {"logs/j/1/stdout": 10, "logs/j/1/stderr": 5, "logs/j/2/stdout": 11, "logs/.tmp-left": 2, "logs/.tmp-new": 0}
    now_ms = 1_800_000_000_000
    for path, age in ages.items():
        full = folder.local() / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_bytes(b"12345")
        os.utime(full, ns=(0, (now_ms - age * DAY_MS - 1) * 1_000_000))
    assert folder.sweep("logs", 10 * DAY_MS, now_ms) == Swept(3, 15)
    assert [each.path for each in folder.list("logs")] == ["logs/j/1/stderr"]
    assert [path.name for path in temporaries(folder)] == [".tmp-new"]
    assert sorted(path.name for path in (folder.local() / "logs/j").iterdir()) == ["1"]
    assert folder.sweep("logs", 10 * DAY_MS, now_ms) == Swept(0, 0)
    assert folder.sweep("nothing", 0, now_ms) == Swept(0, 0)


def test_touch_makes_young_again(storage: Storage) -> None:
    storage.put_new("blobs/a", b"x")
    before = storage.stat("blobs/a")
    if not storage.url.startswith("memory"):
        os.utime(storage.local("blobs/a"), (0, 0))
        assert storage.stat("blobs/a") == Entry("blobs/a", 1, 0)
    storage.touch("blobs/a")
    assert storage.stat("blobs/a").modified_ms >= before.modified_ms > 1_600_000_000_000
    assert storage.sweep("blobs", 1000, before.modified_ms + 3_600_000) == Swept(1, 1)
    assert storage.list() == []


def test_free_room(storage: Storage) -> None:
    assert (storage.free() is None) == storage.url.startswith("memory")


def test_missing_files_are_not_found(storage: Storage) -> None:
    storage.put_new("blobs/a", b"x")
    for path in ("blobs/none", "none", "blobs", "blobs/a/below"):
        assert storage.exists(path) is False
        for read in (storage.get, storage.size, storage.stat):
            with pytest.raises(NotFound) as caught:
                read(path)
        place = f"{storage.url}/{path}"
        assert str(caught.value) == f"{place}: is not there; it was never written, or was cleaned up by age"


def test_a_file_is_known_to_be_gone_only_where_the_mark_of_the_storage_is_there(storage: Storage) -> None:
    storage.put_new("owner", b"a cluster")
    storage.put_new("exchange/a", b"rows")
    storage.mark = "owner"
    storage.check_there()
    with pytest.raises(NotFound):
        storage.get("exchange/b")
    storage.delete_tree("owner")
    storage.delete_tree("exchange")
    for asked in (lambda: storage.get("exchange/a"), lambda: storage.exists("exchange/a"), lambda: storage.copy_new("exchange/a", "b")):
        with pytest.raises(StorageError, match="is not there: it has no owner, which its cluster wrote; mount it, or restore it") as away:
            asked()
        assert not isinstance(away.value, NotFound)


def test_nothing_is_written_below_the_place_of_a_missing_mount(folder: Storage) -> None:
    folder.put_new("owner", b"a cluster")
    folder.mark = "owner"
    root = folder.local()
    root.rename(root.parent / "elsewhere")
    with pytest.raises(StorageError, match="is not there: it has no owner"):
        folder.put_new("archives/j", b"ended")
    assert not root.exists()
    (root.parent / "elsewhere").rename(root)
    assert folder.put_new("archives/j", b"ended")


@pytest.mark.parametrize(
    "path",
    ["", "/etc/passwd", "..", "a/../b", "./a", "a//b", "a/", "a\\b", "a\0b", "a\nb", ".tmp-x", "\udc80", "x" * 256],
)
def test_paths_that_are_none(folder: Storage, path: str) -> None:
    for use in (folder.get, folder.delete_tree, folder.exists, lambda path: folder.put_new(path, b"")):
        with pytest.raises(BadName):
            use(path)


def test_readers_follow_no_link_out_of_the_root_and_open_no_pipe(folder: Storage, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    folder.put_new("logs/inside", b"inside")
    logs = folder.local("logs")
    (logs / "file").symlink_to(tmp_path / "outside" / "secret")
    (logs / "dir").symlink_to(tmp_path / "outside")
    (logs / "loop").symlink_to(logs / "loop")
    (logs / "good").symlink_to(logs / "inside")
    os.mkfifo(logs / "pipe")
    assert folder.get("logs/good") == b"inside"
    for path in ("logs/file", "logs/dir/secret", "logs/loop", "logs/pipe"):
        with pytest.raises(NotFound):
            folder.get(path)
        with pytest.raises(NotFound):
            folder.get_range(path, 0, 10)
    assert [each.path for each in folder.list()] == ["logs/inside"]
    folder.delete_tree("logs/dir")
    assert (tmp_path / "outside" / "secret").read_text() == "secret"


@pytest.mark.parametrize(
    ("number", "what", "do"),
    [
        (errno.ENOSPC, "no space is left on the disk", "free some, or move storage_url to another disk"),
        (errno.EACCES, "permission denied", "give the user who runs Millrace the right to read and write there"),
        (errno.EROFS, "the disk is read-only", "mount it writable, or move storage_url to another disk"),
        (errno.EBUSY, "Device or resource busy", "check storage_url"),
    ],
)
def test_errors_of_the_disk_are_one_sentence(
    folder: Storage, number: int, what: str, do: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", fail)
    with pytest.raises(StorageError) as caught:
        folder.put_new("blobs/a", b"x")
    assert str(caught.value) == f"{folder.url}/blobs/a: {what}; {do}"
    assert (caught.value.path, caught.value.what, caught.value.do) == (f"{folder.url}/blobs/a", what, do)
    assert temporaries(folder) == [] and not folder.exists("blobs/a")


def test_a_full_disk_while_writing_leaves_nothing(folder: Storage) -> None:
    with pytest.raises(StorageError) as caught, folder.writer("blobs/a") as writer:
        writer._file.close()
        writer._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115
        writer.write(b"x")
    assert caught.value.what == "no space is left on the disk"
    assert temporaries(folder) == []


def test_a_file_where_a_folder_is_needed(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "blobs").write_text("")
    for root in (tmp_path / "root", tmp_path / "other"):
        with pytest.raises(StorageError) as caught:
            Storage(str(root)).put_new("blobs/a", b"")
        what = "a file stands where a folder is needed; move the file away, or change storage_url"
        assert str(caught.value) == f"{root}/blobs/a: {what}"


def test_urls(tmp_path: Path) -> None:
    Storage(f"file://{tmp_path}/x").put_new("a", b"1")
    assert Storage(str(tmp_path / "x")).get("a") == b"1"
    assert Storage(str(tmp_path / "x")).local("a") == tmp_path / "x" / "a"
    with pytest.raises(StorageError) as caught:
        Storage("nosuch://x")
    assert caught.value.path == "nosuch://x" and "use a folder" in caught.value.do
    with pytest.raises(StorageError):
        Storage("memory://x").local()


def test_an_empty_storage_has_nothing_and_makes_no_folder(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "root"))
    assert storage.list() == [] and storage.free() and not storage.exists("a")
    assert not (tmp_path / "root").exists()


def test_hashes() -> None:
    assert is_sha256("0a" * 32)
    assert not any(is_sha256(text) for text in ("0A" * 32, "0a" * 31, "0g" * 32, "0a" * 32 + "\n", ""))
    with pytest.raises(BadName):
        upload_path("../x")
