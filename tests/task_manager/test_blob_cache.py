"""The cache of the files of jobs on a TaskManager: one fetch, a verified copy for each attempt, and what nobody uses goes."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millrace.core.faults import INFRASTRUCTURE, STORAGE, class_of, infrastructure
from millrace.io.storage.store import NotFound, Storage, StorageError, blob_path
from millrace.runtime import metrics
from services.task_manager.ports import blob_cache
from services.task_manager.ports.blob_cache import RETRY_S, BlobCache, CacheLimits, Held
from services.task_manager.slot.attempt.modules import linked
from tests.task_manager.of_ports import READY, World, ended

DATA = b"print('hello')"
SHA = hashlib.sha256(DATA).hexdigest()
WEEK_S = CacheLimits.keep_s


class Files:
    """A cache over a storage that counts what is read of it; `later` and `waited`: what it asked for."""

    def __init__(self, folder: Path, limits: CacheLimits | None = None) -> None:
        self.reads: list[str] = []
        self.later: list[tuple[float, Any]] = []
        self.waited: list[float] = []
        self.folder, self.targets = folder / "tm" / "blobs", folder / "targets"
        self.targets.mkdir(exist_ok=True)
        self.storage = _Counting(str(folder / "storage"), self.reads)
        self.cache = self.begin(limits or CacheLimits())

    def begin(self, limits: CacheLimits) -> BlobCache:
        made = BlobCache(self.folder, self.storage, limits, lambda s, do: self.later.append((s, do)), self.waited.append)
        made.start()
        return made

    def put(self, data: bytes = DATA, job: str = "j") -> str:
        sha256 = hashlib.sha256(data).hexdigest()
        self.storage.put_new(blob_path(job, "ac", sha256), data)
        return sha256

    def give(self, sha256: str = SHA, name: str = "copy", job: str = "j") -> bytes:
        self.cache.give(job, "ac", sha256, self.targets / name)
        return (self.targets / name).read_bytes()

    def left(self) -> list[str]:
        return sorted(str(each.relative_to(self.folder.parent.parent)) for each in self.folder.parent.parent.rglob("*")
                      if each.is_file() and "storage" not in each.parts)  # fmt: skip


class _Counting(Storage):
    def __init__(self, url: str, reads: list[str]) -> None:
        super().__init__(url)
        self.reads = reads
        self.breaks: list[BaseException | int] = []  # what the next reads end with; a number: they are cut there

    def chunks(self, path: str, start: int, length: int) -> Iterator[bytes]:
        self.reads.append(path)
        trouble = self.breaks.pop(0) if self.breaks else length
        yield from super().chunks(path, start, trouble if isinstance(trouble, int) else 3)
        if isinstance(trouble, BaseException):
            raise trouble


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def counted() -> dict[str, float]:
    found = {sample.labels["outcome"]: sample.value for each in metrics.BLOB_REQUESTS.families() for sample in each.samples}
    for name, metric in (("bytes", metrics.BLOB_BYTES), ("damaged", metrics.BLOBS_DAMAGED)):
        found[name] = next(sample.value for each in metric.families() for sample in each.samples)
    return found


def grown(before: dict[str, float]) -> dict[str, float]:
    return {name: value - before[name] for name, value in counted().items() if value != before[name]}


def test_a_file_is_fetched_once_and_each_attempt_has_a_copy_of_its_own(files: Files) -> None:
    files.put()
    before = counted()
    assert files.give(name="1") == files.give(name="2") == DATA
    assert len(files.reads) == 1
    assert grown(before) == {"fetched": 1, "hit": 1, "bytes": len(DATA)}
    own, copies = files.folder / SHA, [files.targets / name for name in "12"]
    assert len({each.stat().st_ino for each in (own, *copies)}) == 3, "a hard link of the cache would be writable"
    assert [each.stat().st_mode & 0o777 for each in (own, *copies)] == [0o400, 0o600, 0o600]
    assert files.folder.stat().st_mode & 0o777 == 0o700


def test_what_an_attempt_does_to_its_copy_reaches_no_other_one(files: Files) -> None:
    files.put()
    files.give(name="1")
    (files.targets / "1").write_bytes(b"other")
    assert files.give(name="2") == DATA and (files.folder / SHA).read_bytes() == DATA


def test_attempts_that_begin_together_fetch_a_file_once(files: Files) -> None:
    """Each slot had fetched it for itself: fifty attempts of a job took its archive from storage thirty-two times."""
    files.put(data := os.urandom(1 << 20))
    sha256, got = hashlib.sha256(data).hexdigest(), []
    begin = threading.Barrier(20)

    def attempt(name: str) -> None:
        begin.wait()
        got.append(files.give(sha256, name) == data)

    threads = [threading.Thread(target=attempt, args=(str(n),)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [True] * 20 and len(files.reads) == 1


@pytest.mark.parametrize("how", ["other bytes", "cut", "a pipe", "a folder", "a link"])
def test_a_damaged_file_of_the_cache_is_fetched_again(files: Files, how: str) -> None:
    """Attempts run as the user that it belongs to: the next one would have run what an earlier one wrote there."""
    files.put()
    files.give(name="1")
    own = files.folder / SHA
    own.chmod(0o600)
    own.unlink()
    if how == "a pipe":
        os.mkfifo(own)
    elif how == "a folder":
        (own / "in").mkdir(parents=True)
    elif how == "a link":
        (files.targets / "as it was").write_bytes(DATA)
        own.symlink_to(files.targets / "as it was")
    else:
        own.write_bytes(b"print('other')" if how == "other bytes" else DATA[:-1])
    before = counted()
    assert files.give(name="2") == own.read_bytes() == DATA and not own.is_symlink()
    assert grown(before) == {"fetched": 1, "damaged": 1, "bytes": len(DATA)}
    assert len(files.reads) == 2


def test_a_fetch_that_is_cut_leaves_nothing_and_is_tried_again(files: Files) -> None:
    files.put()
    files.storage.breaks = [5, StorageError("s3://b/x", "does not answer", "check storage_url")]
    assert files.give() == DATA
    assert files.waited == [RETRY_S, RETRY_S] and files.left() == ["targets/copy", f"tm/blobs/{SHA}"]


@pytest.mark.parametrize("trouble", [5, StorageError("s3://b/x", "does not answer", "check storage_url"), KeyboardInterrupt()])
def test_a_fetch_that_does_not_come_to_its_end_leaves_nothing(tmp_path: Path, trouble: Any) -> None:
    files = Files(tmp_path, CacheLimits(retries=2))
    files.put()
    files.storage.breaks = [trouble] * 3
    with pytest.raises((StorageError, KeyboardInterrupt)) as failure:
        files.give()
    assert files.left() == []
    assert len(files.waited) == (0 if isinstance(trouble, KeyboardInterrupt) else 2)
    if trouble == 5:
        assert "holds other bytes than its name says" in str(failure.value)


def test_a_file_that_is_gone_from_storage_is_not_waited_for(files: Files) -> None:
    before = counted()
    with pytest.raises(NotFound):
        files.give()
    assert files.waited == [] and grown(before) == {"failed": 1}


def test_a_full_disk_is_told_with_the_place(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    files.put()

    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(blob_cache.hashlib, "sha256", lambda: type("Full", (), {"update": full})())
    with pytest.raises(OSError, match="No space left on device") as failure:
        files.give()
    assert failure.value.filename == str(files.targets / "copy") and files.left() == []


def test_the_half_of_a_process_that_was_killed_goes_and_the_rest_is_used_again(files: Files) -> None:
    files.put()
    files.give(name="1")
    (files.folder / f".{SHA}").write_bytes(DATA[:3])
    files.cache = files.begin(CacheLimits())
    assert [each.name for each in files.folder.iterdir()] == [SHA]
    assert files.give(name="2") == DATA and len(files.reads) == 1


def test_a_folder_of_another_user_is_used_with_a_warning(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """A volume that was made by another container: to end the TaskManager for it would help nobody, for each use is verified."""

    def refused(self: Path, mode: int) -> None:
        if self == files.folder:
            raise PermissionError(1, "Operation not permitted", str(self))

    files.put()
    monkeypatch.setattr(Path, "chmod", refused)
    files.cache = files.begin(CacheLimits())
    assert files.give() == DATA


def test_a_file_goes_a_time_after_its_last_use(files: Files) -> None:
    files.put()
    files.cache.hold("a", [SHA])
    files.cache.hold("b", [SHA])
    files.give()
    (asked_s, look) = files.later.pop()
    assert asked_s == blob_cache.LOOK_MOST_S and not files.later, "one look at a time is asked for"
    age(files.folder / SHA)
    look()
    files.cache.release("a")
    age(files.folder / SHA)
    files.later.pop()[1]()
    assert files.cache.held() == Held(1, len(DATA), 1), "an attempt uses it"
    files.cache.release("b")
    files.later.pop()[1]()
    assert files.cache.held() == Held(1, len(DATA), 0), "its time begins when the last one has ended"
    age(files.folder / SHA)
    files.later.pop()[1]()
    assert files.cache.held() == Held(0, 0, 0) and files.later == [], "nothing is left to look for"


def age(file: Path) -> None:
    before = file.stat().st_mtime - WEEK_S - 1
    os.utime(file, (before, before))


@pytest.mark.parametrize("limits", [CacheLimits(bytes=250), CacheLimits(files=2)])
def test_above_its_bound_those_go_that_were_not_used_for_longest_and_nobody_uses(tmp_path: Path, limits: CacheLimits) -> None:
    """A TaskManager that runs for months would fill the disk with every content that a module ever had."""
    files = Files(tmp_path, limits)
    shas = [files.put(bytes([n]) * 100) for n in range(4)]
    files.cache.hold("a", [shas[0]])
    for n, sha256 in enumerate(shas):
        files.give(sha256, str(n))
        stamp = int(time.time()) - 1000 + n
        os.utime(files.folder / sha256, (stamp, stamp))
    files.cache.trim()
    left = sorted(files.folder.iterdir(), key=lambda each: each.stat().st_mtime)
    assert [each.name for each in left] == [shas[0], *shas[2:]], "the first is used, and counts as well"


def test_a_cache_of_nothing_still_gives_files(tmp_path: Path) -> None:
    files = Files(tmp_path, CacheLimits(bytes=0))
    files.put()
    assert files.give() == DATA and files.left() == ["targets/copy"]


def test_what_is_no_file_there_or_cannot_be_deleted_fails_no_attempt(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """User code has the rights of the TaskManager: it may leave anything in the cache."""
    (files.folder / "nest" / "egg").mkdir(parents=True)
    foreign = files.folder / "foreign"
    foreign.touch()
    for each in (foreign, files.folder / "nest"):
        os.utime(each, (1, 1))
    unlink = Path.unlink

    def refused(self: Path, missing_ok: bool = False) -> None:
        if self == foreign:
            raise PermissionError(1, "Operation not permitted", str(self))
        unlink(self, missing_ok)

    monkeypatch.setattr(Path, "unlink", refused)
    files.begin(CacheLimits())
    files.put()
    assert files.give() == DATA and not (files.folder / "nest").exists() and foreign.exists()


# as attempts see it


def launch(world: World, attempt: str, *modules: tuple[str, str], slot: int = 0) -> None:
    world.launch(attempt, modules=[{"name": name, "sha256": SHA, "kind": kind} for name, kind in modules])
    world.go()


def test_an_attempt_has_its_files_and_no_path_to_the_cache(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.storage.put_new(blob_path("j", "ac", SHA), DATA)
    launch(world, "j/0-t/0/1", ("a.py", "py"))
    blobs = Path(world.slot.dirs[2])
    assert (blobs / SHA).read_bytes() == DATA and blobs.stat().st_mode & 0o777 == 0o700
    assert blobs.parent.parent.name == "attempts" and world.slots.blobs.held().used == 1
    world.slot.killed()
    world.go()
    assert not blobs.exists() and world.slots.blobs.held() == Held(1, len(DATA), 0)
    world.storage.delete_tree(blob_path("j", "ac", SHA))
    launch(world, "j/0-t/0/2", ("a.py", "py"))
    assert world.slot.attempt == "j/0-t/0/2" and Path(world.slot.dirs[2]) != blobs


def test_a_file_with_other_bytes_is_refused(tmp_path: Path) -> None:
    world, path = World(tmp_path), blob_path("j", "ac", SHA)
    world.storage.put_new(path, b"other")
    launch(world, "j/0-t/0/1", ("a.py", "py"))
    message = f"{path}: holds other bytes than its name says; submit the job again"
    assert world.told() == [ended("failed", error=infrastructure(message)), READY]
    world.go()
    assert world.slots.blobs.held() == Held(0, 0, 0)


def test_while_storage_is_away_an_attempt_fails_by_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So its job waits: another TaskManager would be given no more."""
    world = World(tmp_path)

    def away(self: Storage, path: str) -> Any:
        raise StorageError("s3://bucket", "cannot be reached", "check storage_url and its credentials")

    monkeypatch.setattr(Storage, "stat", away)
    launch(world, "j/0-t/0/1", ("a.py", "py"))
    fault, ready = world.told()
    assert ready == READY
    assert class_of(fault.error) is STORAGE and fault.error.condition == "NOT_READABLE"
    assert fault.error.message == "s3://bucket: cannot be reached; check storage_url and its credentials"


def test_one_file_that_stays_unreadable_is_waited_for_with_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Storage gives its mark: so this file is what is the matter, and its job waited for it without end."""
    world, stat = World(tmp_path), Storage.stat

    def damaged(self: Storage, path: str) -> Any:
        if path.startswith("blobs/"):
            raise StorageError("/s/blobs/a", "the disk reports an error", "check the disk")
        return stat(self, path)

    monkeypatch.setattr(Storage, "stat", damaged)
    world.storage.put_new("owner.json", b"a cluster")
    world.storage.mark = "owner.json"
    launch(world, "j/0-t/0/1", ("a.py", "py"))
    fault, _ = world.told()
    assert class_of(fault.error) is INFRASTRUCTURE
    assert fault.error.message == "/s/blobs/a: the disk reports an error; check the disk; the rest of the storage can be read"


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, STORAGE), (errno.EROFS, STORAGE), (errno.ENOTDIR, INFRASTRUCTURE)])
def test_a_disk_that_takes_no_files_of_a_job_is_as_one_that_takes_no_folders(
    number: int, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(number, os.strerror(number), "/w/files")

    world = World(tmp_path)
    monkeypatch.setattr(world.slots.blobs, "give", full)
    launch(world, "j/0-t/0/1", ("a.py", "py"))
    fault, _ = world.told()
    assert class_of(fault.error) is kind and fault.error.message == f"/w/files: {os.strerror(number)}"


def test_variables_that_are_not_what_their_name_says_are_not_waited_for(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.storage.put_new(blob_path("j", "ac", SHA), b"{}")
    launch(world, "j/0-t/0/1", (".env", "env"))
    fault, _ = world.told()
    assert class_of(fault.error) is INFRASTRUCTURE and "holds no environment variables" in fault.error.message


def test_one_content_under_two_names_is_two_files(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.storage.put_new(blob_path("j", "ac", SHA), DATA)
    launch(world, "j/0-t/0/1", ("a.py", "py"), ("b.txt", "file"))
    folder = tmp_path / "modules"
    folder.mkdir()
    dirs: Any = type("Dirs", (), {"blobs": world.slot.dirs[2]})
    first, second = (linked({"name": name, "sha256": SHA, "kind": "py"}, dirs, folder) for name in ("a.py", "b.txt"))
    first.write_bytes(b"changed")
    assert second.read_bytes() == DATA
