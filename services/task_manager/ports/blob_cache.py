"""A TaskManager's cache of the files of jobs, by their hash: fetched once, and kept while attempts use them, and for some time after.

An attempt gets a verified copy of its own, in a folder of its own, and no path to the cache. Whatever it does with its files, the next
attempt gets the bytes that the hash says. A hard link would do no such thing, for all its names write into one file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import structlog

from millrace.io.storage.store import BadName, Damaged, NotFound, Storage, StorageError, blob_path
from millrace.runtime import metrics

PIECE = 1 << 18
RETRY_S = 0.5
LOOK_MOST_S = 3600.0  # between two looks for what nobody uses

log = structlog.get_logger("slots")


@dataclass(frozen=True)
class CacheLimits:
    """`keep_s`: a file goes so long after its last use. Above `bytes` or `files` those go first that were not used for longest. `retries`:
    of one fetch."""

    keep_s: float = 7 * 24 * 3600.0
    bytes: int = 2 << 30
    files: int = 1_000
    retries: int = 5


class Held(NamedTuple):
    """What the cache has: how many files, bytes, and files that an attempt uses."""

    files: int
    bytes: int
    used: int


class BlobCache:  # [R32]
    """Callable from any thread, and for one file from several at once."""

    def __init__(
        self,
        folder: Path,
        storage: Storage,
        limits: CacheLimits,
        later: Callable[[float, Callable[[], None]], None],
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        """`later` runs something after so many seconds."""
        self.folder, self._storage, self._limits, self._later, self._wait = folder, storage, limits, later, wait
        self._lock = threading.Lock()
        self._users: dict[str, set[str]] = {}  # hash -> attempts, from their launch to their end
        self._fetching: dict[str, tuple[threading.Lock, int]] = {}  # hash -> lock, how many wait for it or have it
        self._looks = False  # a look is to come

    def start(self) -> None:
        """What an earlier process has kept is used again; what it was fetching when it ended goes."""
        self._make()
        for half in self.folder.glob(".*"):
            _remove(half)
        self.trim()

    def hold(self, attempt: str, hashes: Collection[str]) -> None:
        """The attempt uses these until it is released."""
        with self._lock:
            for sha256 in hashes:
                self._users.setdefault(sha256, set()).add(attempt)

    def release(self, attempt: str) -> None:
        """The attempt has ended. From now on the files that only it used count as unused."""
        with self._lock:
            unused = [sha256 for sha256, users in self._users.items() if users == {attempt}]
            for users in self._users.values():
                users.discard(attempt)
            for sha256 in unused:
                del self._users[sha256]
        for sha256 in unused:
            with contextlib.suppress(OSError):
                os.utime(self.folder / sha256, follow_symlinks=False)

    def give(self, job: str, acceptance: str, sha256: str, target: Path) -> None:  # [R30]
        """Writes a copy of a job's file to `target`, whole and verified, or nothing. Raises OSError, StorageError."""
        path, own = blob_path(job, acceptance, sha256), self.folder / sha256  # a hash is all that is taken for a name
        try:
            if not self._copied(own, sha256, target):
                with self._alone(sha256):
                    self._give_alone(path, own, sha256, target)
                    return
        except (OSError, StorageError):
            metrics.BLOB_REQUESTS.add(metrics.FAILED)
            raise
        self._hit(own)

    def _give_alone(self, path: str, own: Path, sha256: str, target: Path) -> None:
        """Nobody else fetches this file now; somebody may have just done so."""
        if self._copied(own, sha256, target):
            self._hit(own)
            return
        if os.path.lexists(own):
            log.warning("a file of the cache is damaged, and is fetched again", sha256=sha256)
            metrics.BLOBS_DAMAGED.add()
            _remove(own)
        self._fetch(path, own, sha256, target)
        metrics.BLOB_REQUESTS.add(metrics.FETCHED)
        self.trim()

    def trim(self) -> None:
        """Deletes the files that nobody uses and that are old, or too many, and looks again later."""
        with self._lock:
            used = set(self._users)
        now, size, left = time.time(), 0, False
        for number, (used_s, size_bytes, file) in enumerate(sorted(self._files(), reverse=True)):
            size += size_bytes
            over = size > self._limits.bytes or number >= self._limits.files
            if (over or used_s < now - self._limits.keep_s) and file.name not in used:
                left |= not _removed(file)
            else:
                left = True
        with self._lock:
            if self._looks or not left:
                return
            self._looks = True
        self._later(min(self._limits.keep_s, LOOK_MOST_S), self._look)

    def held(self) -> Held:
        files = self._files()
        with self._lock:
            used = sum(file.name in self._users for _, _, file in files)
        return Held(len(files), sum(size for _, size, _ in files), used)

    def _look(self) -> None:
        with self._lock:
            self._looks = False
        try:
            self.trim()
        except OSError as failure:
            log.warning("unused files of jobs are not deleted", reason=str(failure))

    def _files(self) -> list[tuple[float, int, Path]]:
        """(last use, bytes, file), without what is being fetched."""
        found: list[tuple[float, int, Path]] = []
        with contextlib.suppress(FileNotFoundError):
            for file in self.folder.iterdir():
                with contextlib.suppress(FileNotFoundError):
                    if not file.name.startswith("."):
                        found.append(((seen := file.lstat()).st_mtime, seen.st_size, file))
        return found

    def _make(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self.folder.chmod(0o700)  # of an earlier release it is open to all who read
        except PermissionError:
            log.warning("the cache of jobs' files belongs to another user, who may read and change it", folder=str(self.folder))

    @contextlib.contextmanager
    def _alone(self, sha256: str) -> Iterator[None]:
        """One thread at a time fetches a file: the attempts of a job are launched together, and all need the same."""
        with self._lock:
            lock, waiting = self._fetching.get(sha256, (threading.Lock(), 0))
            self._fetching[sha256] = lock, waiting + 1
        try:
            with lock:
                yield
        finally:
            with self._lock:
                waiting = self._fetching[sha256][1] - 1
                self._fetching[sha256] = lock, waiting
                if not waiting:
                    del self._fetching[sha256]

    def _hit(self, own: Path) -> None:
        metrics.BLOB_REQUESTS.add(metrics.HIT)
        with contextlib.suppress(OSError):  # it was trimmed meanwhile: the copy stands
            os.utime(own, follow_symlinks=False)

    def _copied(self, own: Path, sha256: str, target: Path) -> bool:
        """Whether the cache had the file as its name says. What is no file there, such as a pipe or a link, is damage."""
        try:
            source = os.open(own, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return stat.S_ISREG(os.fstat(source).st_mode) and _written(iter(lambda: os.read(source, PIECE), b""), sha256, [target])
        finally:
            os.close(source)

    def _fetch(self, path: str, own: Path, sha256: str, target: Path) -> None:
        """From storage into the cache, and to the target in one go. Tried again where it may help: nothing was left by the try before."""
        half = self.folder / f".{sha256}"
        for tries_left in range(self._limits.retries, -1, -1):
            try:
                self._make()
                size = self._storage.size(path)
                if _written(self._storage.chunks(path, 0, size), sha256, [half, target]):
                    half.chmod(0o400)
                    half.replace(own)
                    metrics.BLOB_BYTES.more(size)
                    return
                metrics.BLOBS_DAMAGED.add()
                failure: StorageError = Damaged(path, "holds other bytes than its name says", "submit the job again")
            except (NotFound, BadName):
                raise
            except StorageError as away:
                failure = away
            if not tries_left:
                raise failure
            log.warning("a file of a job is fetched again", reason=str(failure))
            self._wait(RETRY_S)


def _written(pieces: Iterable[bytes], sha256: str, targets: list[Path]) -> bool:
    """Writes the pieces to new files that their user alone can read. False, or an error: no file is left."""
    digest, whole = hashlib.sha256(), False
    try:
        with contextlib.ExitStack() as opened:
            files = []
            for target in targets:
                target.unlink(missing_ok=True)
                descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                files.append(opened.enter_context(open(descriptor, "wb")))
            for piece in pieces:
                digest.update(piece)
                for file in files:
                    file.write(piece)
            for file in files:
                file.flush()
        whole = digest.hexdigest() == sha256
    except OSError as error:
        raise OSError(error.errno, error.strerror, error.filename or str(targets[-1])) from error  # a full disk says no name
    finally:
        if not whole:
            for target in targets:
                target.unlink(missing_ok=True)
    return whole


def _remove(path: Path) -> None:
    """Whatever it is."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _removed(path: Path) -> bool:
    """Whoever may write there may have put a folder there, or a file that is not ours: what fetches a file does not fail by that."""
    try:
        _remove(path)
    except OSError as failure:
        log.warning("what nobody uses of the cache is not deleted", path=str(path), reason=str(failure))
        return False
    return True
