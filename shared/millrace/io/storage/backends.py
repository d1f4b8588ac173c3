"""Where storage's files lie: a folder of this machine, or whatever fsspec opens. See `store.py` for what they
promise.

A folder has a way of its own for two reasons. Only there can a file appear whole, and only if its name is free (link). And an
attempt, which runs a user's code, can put links and pipes into it, which a reader must not follow.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

CHUNK = 1 << 18
TEMPORARY = ".tmp-"


@dataclass(frozen=True)
class Entry:
    """One file: its path below the storage's root, bytes, time of the last change (milliseconds since 1970)."""

    path: str
    size: int
    modified_ms: int


class Backend(Protocol):
    """Paths are relative and checked. Errors are those of the system, or of the file system's library."""

    def temporary(self, path: str) -> Path:
        """A new empty file of this machine, to be filled and then given to `commit`, or unlinked."""
        ...

    def commit(self, temporary: Path, path: str) -> bool:
        """Makes the file appear under `path`, whole; False: something stands there."""
        ...

    def stat(self, path: str) -> Entry: ...

    def chunks(self, path: str, start: int, end: int) -> Iterator[bytes]: ...

    def walk(self, prefix: str) -> Iterator[Entry]:
        """All files below a folder, temporary ones too, in no order. Files may be deleted meanwhile."""
        ...

    def find(self, prefix: str) -> Iterator[Entry]:
        """The same with as few questions as can be; the answers may be held."""
        ...

    def folders(self, prefix: str) -> Iterator[str]:
        """Names of the folders directly in a folder, in no order; none if it is not there."""
        ...

    def prune(self, prefix: str, before_ms: int) -> None:
        """Deletes the folders below a folder, and itself, that are empty and were not changed since."""
        ...

    def copy(self, source: str, path: str) -> None:
        """The copy's last change is now, whenever that of `source` was."""
        ...

    def touch(self, path: str) -> None: ...

    def delete(self, path: str) -> None:
        """Deletes a file, if it is there, and the folders that it leaves empty."""
        ...

    def delete_tree(self, path: str) -> None: ...

    def free(self) -> int | None: ...


class Folder:
    """A folder of this machine (or one that is mounted)."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def temporary(self, path: str) -> Path:
        return _new_file((self.root / path).parent)

    def commit(self, temporary: Path, path: str) -> bool:
        final = self.root / path
        try:
            os.link(temporary, final)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV):
                raise
            # No hard links here: the best that is left lets two writers of one name race.
            if final.exists():
                return False
            temporary.replace(final)
            return True
        temporary.unlink()
        return True

    def stat(self, path: str) -> Entry:
        found = os.lstat(self.root / path) if "/" not in path else None  # of the mark, before each write: no link leads it out
        if found is None or not stat.S_ISREG(found.st_mode):
            found = os.stat(self._inside(path))
        if not stat.S_ISREG(found.st_mode):
            raise FileNotFoundError(errno.ENOENT, "not a file", path)
        return Entry(path, found.st_size, found.st_mtime_ns // 1_000_000)

    def chunks(self, path: str, start: int, end: int) -> Iterator[bytes]:
        # Not blocking, for the name may be a pipe; then checked, for it may have become one since.
        descriptor = os.open(self._inside(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise FileNotFoundError(errno.ENOENT, "not a file", path)
            while start < end and (chunk := os.pread(descriptor, min(CHUNK, end - start), start)):
                start += len(chunk)
                yield chunk
        finally:
            os.close(descriptor)

    def walk(self, prefix: str) -> Iterator[Entry]:
        """A folder at a time below `prefix` itself, whose names are not held: one for each job may lie there."""
        for each in self._scan(prefix):
            if not each.is_dir(follow_symlinks=False):
                yield from self._file(each.path)
                continue
            for folder, _, names in os.walk(each.path):
                for name in names:
                    yield from self._file(f"{folder}/{name}")

    def find(self, prefix: str) -> Iterator[Entry]:
        return self.walk(prefix)

    def folders(self, prefix: str) -> Iterator[str]:
        return (each.name for each in self._scan(prefix) if each.is_dir(follow_symlinks=False))

    def prune(self, prefix: str, before_ms: int) -> None:
        for folder, _, _ in os.walk(self.root / prefix, topdown=False):
            with contextlib.suppress(OSError):  # not empty, or gone
                if os.lstat(folder).st_mtime_ns // 1_000_000 < before_ms:
                    os.rmdir(folder)

    def _scan(self, folder: str) -> Iterator[os.DirEntry[str]]:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.root / folder) as found:
            yield from found

    def _file(self, full: str) -> Iterator[Entry]:
        with contextlib.suppress(FileNotFoundError):
            found = os.lstat(full)
            if stat.S_ISREG(found.st_mode):
                yield Entry(full.removeprefix(os.path.join(self.root, "")), found.st_size, found.st_mtime_ns // 1_000_000)

    def copy(self, source: str, path: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(self._inside(source), self.root / path)
            self.touch(path)  # a link has the age of what it leads to
        except FileExistsError:
            return
        except OSError as error:
            if error.errno == errno.ENOENT:
                raise
            temporary = self.temporary(path)
            shutil.copyfile(self._inside(source), temporary)
            temporary.replace(self.root / path)

    def touch(self, path: str) -> None:
        os.utime(self.root / path)

    def delete(self, path: str) -> None:
        try:
            (self.root / path).unlink()
        except FileNotFoundError:
            return  # nor are the folders above it ours to delete: somebody may be making something there
        with contextlib.suppress(OSError):  # not empty
            for folder in list(Path(path).parents)[:-1]:
                (self.root / folder).rmdir()

    def delete_tree(self, path: str) -> None:
        full = self.root / path
        if full.is_dir() and not full.is_symlink():
            shutil.rmtree(full, onerror=_unless_gone)
        else:
            self.delete(path)

    def free(self) -> int | None:
        return shutil.disk_usage(next(folder for folder in (self.root, *self.root.parents) if folder.exists())).free

    def _inside(self, path: str) -> str:
        """The real path, unless a link leads out of the root."""
        root, real = os.path.realpath(self.root), os.path.realpath(self.root / path)
        if os.path.commonpath((root, real)) != root:
            raise FileNotFoundError(errno.ENOENT, "leads out of the storage", path)
        return real


class Remote:
    """Anything that fsspec opens: an object store, a file system of another machine, memory."""

    def __init__(self, fs: Any, root: str) -> None:
        self._fs, self._root = fs, root.rstrip("/")

    def temporary(self, path: str) -> Path:
        return _new_file(Path(tempfile.gettempdir()))

    def commit(self, temporary: Path, path: str) -> bool:
        full = self._full(path)
        if self._fs.exists(full):
            return False
        try:
            self._fs.makedirs(self._fs._parent(full), exist_ok=True)
            # "create" lets the store itself refuse a name that was taken meanwhile, where it can.
            self._fs.put_file(str(temporary), full, mode="create")
        except FileExistsError:
            return False
        temporary.unlink()
        return True

    def stat(self, path: str) -> Entry:
        return self._entry(self._fs.info(self._full(path)))

    def chunks(self, path: str, start: int, end: int) -> Iterator[bytes]:
        while start < end:
            most = min(CHUNK, end - start)
            try:
                chunk = self._fs.cat_file(self._full(path), start=start, end=start + most)
            except FileNotFoundError:
                raise
            except Exception:  # S3 has no bytes behind the end of a file, and refuses to answer with none
                if start < self.stat(path).size:
                    raise
                return
            yield chunk
            start += len(chunk)
            if len(chunk) < most:
                return

    def walk(self, prefix: str) -> Iterator[Entry]:
        for _, _, files in self._fs.walk(self._full(prefix), detail=True):
            for info in files.values():
                yield self._entry(info)

    def find(self, prefix: str) -> Iterator[Entry]:
        for info in self._fs.find(self._full(prefix), detail=True).values():  # nothing there: none; without the bucket it fails
            yield self._entry(info)

    def folders(self, prefix: str) -> Iterator[str]:
        full = self._full(prefix)
        for info in self._fs.ls(full, detail=True) if self._fs.exists(full) else ():
            if info["type"] == "directory":
                yield str(info["name"]).rstrip("/").rpartition("/")[2]

    def prune(self, prefix: str, before_ms: int) -> None:
        """A folder of an object store is its files."""

    def copy(self, source: str, path: str) -> None:
        self._fs.makedirs(self._fs._parent(self._full(path)), exist_ok=True)
        self._fs.cp_file(self._full(source), self._full(path))

    def touch(self, path: str) -> None:
        full = self._full(path)
        self._fs.pipe_file(full, self._fs.cat_file(full))  # no store can touch, all can write

    def delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(self._full(path))

    def delete_tree(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm(self._full(path), recursive=True)

    def free(self) -> int | None:
        return None

    def _full(self, path: str) -> str:
        return f"{self._root}/{path}".rstrip("/")

    def _entry(self, info: dict[str, Any]) -> Entry:
        if info["type"] != "file":
            raise FileNotFoundError(errno.ENOENT, "not a file", info["name"])
        names = ("mtime", "LastModified", "last_modified", "updated", "created")
        changed = next((info[name] for name in names if info.get(name) is not None), 0)
        if isinstance(changed, str):
            changed = datetime.fromisoformat(changed.replace("Z", "+00:00"))
        seconds = changed.timestamp() if isinstance(changed, datetime) else float(changed)
        path = str(self._fs._strip_protocol(info["name"])).removeprefix(self._root).lstrip("/")
        return Entry(path, int(info["size"] or 0), int(seconds * 1000))


def _new_file(folder: Path) -> Path:
    path = folder / f"{TEMPORARY}{secrets.token_hex(8)}"
    for last in (False, False, True):  # a sweep may take the empty folder away again
        folder.mkdir(parents=True, exist_ok=True)
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
            break
        except FileNotFoundError:
            if last:
                raise
    return path


def _unless_gone(_: Any, __: str, error: tuple[type[BaseException], BaseException, Any]) -> None:
    if not isinstance(error[1], FileNotFoundError):
        raise error[1]
