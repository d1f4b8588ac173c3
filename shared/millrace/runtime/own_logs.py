"""The logs of this process, by ids: the files that its standard error and output go to. Where those are no files, its last lines in memory.

Nobody asks for a path: an id is looked up in a list that this process makes. What looks like a secret is stars in what is read.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from . import logs

MARGIN_BYTES = 16 << 10
"""So much is read around a piece: a secret that is cut by its edge is known as one, also a long token."""
EARLIER = (".1", ".failed", ".old")
"""Behind the name of a log: that of the process before, of the last one that failed, and what was cut off."""


@dataclass(frozen=True)
class Whole:
    """A log as it is now: `first` is the first byte that is still there, `size` how many were written in all."""

    first: int
    size: int
    modified_ms: int


class Log(Protocol):
    """Both raise OSError for what is not there, or is no file."""

    def whole(self) -> Whole: ...

    def read(self, start: int, end: int) -> bytes:
        """Its bytes from one to another offset; fewer if they are not there."""
        ...


@dataclass(frozen=True)
class FileLog:
    """A file. Who may write in its folder may put a link or a pipe there: neither is followed."""

    path: Path

    def whole(self) -> Whole:
        with self._opened() as file:
            found = os.fstat(file)
            return Whole(0, found.st_size, found.st_mtime_ns // 1_000_000)

    def read(self, start: int, end: int) -> bytes:
        with self._opened() as file:
            return os.pread(file, max(0, end - start), start)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        file = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise OSError(f"{self.path.name} is no file")
            yield file
        finally:
            os.close(file)


@dataclass(frozen=True)
class TailLog:
    """The last lines in memory, as they were at one moment: between two calls lines go, and offsets would be those of others."""

    first: int
    data: bytes
    modified_ms: int

    def whole(self) -> Whole:
        return Whole(self.first, self.first + len(self.data), self.modified_ms)

    def read(self, start: int, end: int) -> bytes:
        return self.data[max(0, start - self.first) : max(0, end - self.first)]


def own_logs() -> dict[str, Log]:
    """Those of this process: `log` and `stdout`, and earlier ones beside the log."""
    found: dict[str, Log] = {}
    log, stdout = _file_behind(2), _file_behind(1)
    if log is None:
        found["log"] = TailLog(*logs.TAIL.kept())
    else:
        found["log"] = FileLog(log)
        earlier = {f"log{suffix}": log.with_name(log.name + suffix) for suffix in EARLIER}
        found |= {name: FileLog(path) for name, path in earlier.items() if path.is_file()}
    if stdout is not None:
        found["stdout"] = FileLog(stdout)
    return found


def _file_behind(descriptor: int) -> Path | None:
    """The file that a descriptor writes to; None: it is none, or was deleted."""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        path = Path(_name_of(descriptor))
        return path if path.is_file() else None
    except (OSError, ValueError):
        return None


def _name_of(descriptor: int) -> str:
    if sys.platform == "darwin":
        import fcntl

        return os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    return os.readlink(f"/proc/self/fd/{descriptor}")


def listed(found: Mapping[str, Log]) -> dict[str, Whole]:
    """How each is now, by id; those that are gone meanwhile are left out."""
    known: dict[str, Whole] = {}
    for name, log in found.items():
        with contextlib.suppress(OSError):
            known[name] = log.whole()
    return known


def piece(log: Log, start: int, length: int) -> tuple[int, bytes, Whole]:
    """(where it begins, its bytes, the log as it is) of at most `length` bytes from `start` on; a negative one counts from the end. Raises
    OSError."""
    whole = log.whole()
    begin = min(max(whole.size + start if start < 0 else start, whole.first), whole.size)
    end = min(begin + length, whole.size)
    before = max(begin - MARGIN_BYTES, whole.first)
    data = logs.starred(log.read(before, end + MARGIN_BYTES))
    return begin, data[begin - before : end - before], whole
