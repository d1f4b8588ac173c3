"""Which files an exchange folder has: noted beside them once they are written, and compared before they are read.

Without that, rows of a file that somebody deleted would just be missing: Spark reads what is there. The note is a file of lines of one
length, one for each share, so that who reads a share of ten thousand reads one line.

A sink's staged files have a note, too, which says all by its name: who publishes them has listed the folder, and reads nothing more. It has
no bytes: a JobMaster opens storage by other means than Spark, and of encrypted objects they may count other lengths.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from . import frames
from .shared_storage import WRITTEN

NOTE = ".files"  # Spark takes no name that begins so for data
STAGED = ".files-"  # the note of a sink's staged files; their number follows (`job_master/ports.py:NOTE`)
LINE = 32


class Files(NamedTuple):
    """How many there are, and their bytes together."""

    number: int
    size: int


class Folder:
    """An exchange folder. One of this machine is looked at directly: a call into the JVM costs more than that."""

    def __init__(self, session: Any, folder: str) -> None:
        self._path, self._fs = frames.path_and_fs(session, folder)
        self._path_of = session._jvm.org.apache.hadoop.fs.Path
        self._local: str | None = self._path.toUri().getPath() if self._fs.getScheme() == "file" else None

    def exists(self) -> bool:
        return bool(self._fs.exists(self._path))

    def files(self, share: str = "") -> Files:
        """What there is directly in it, or in this folder of a share."""
        if self._local is not None:
            return _local_files(os.path.join(self._local, share))
        path = self._path_of(self._path, share) if share else self._path
        with _absent():
            statuses = [each for each in self._fs.listStatus(path) if each.getPath().getName().startswith(WRITTEN)]
            return Files(len(statuses), sum(each.getLen() for each in statuses))
        return Files(0, 0)

    def note(self, shares: Sequence[str]) -> list[Files]:
        """Notes what is there of each share, and gives it; of an output that is not divided, `shares` is [""]."""
        found = [self.files(share) for share in shares]
        lines = (f"{its.number} {its.size}".ljust(LINE - 1) + "\n" for its in found)
        stream = self._fs.create(self._path_of(self._path, NOTE), True)
        try:
            stream.writeBytes("".join(lines))
        finally:
            stream.close()
        return found

    def note_staged(self) -> Files:
        """As `note`, for a sink."""
        found = self.files()
        self._fs.create(self._path_of(self._path, f"{STAGED}{found.number}"), True).close()
        return found

    def noted(self, number: int) -> Files | None:
        """What was noted of the share with this number; None: there is no note."""
        words = self._line(number).split()
        return Files(int(words[0]), int(words[1])) if len(words) == 2 and all(word.isdecimal() for word in words) else None

    def _line(self, number: int) -> str:
        if self._local is not None:
            try:
                with open(os.path.join(self._local, NOTE), "rb") as file:
                    file.seek(number * LINE)
                    return file.read(LINE).decode("ascii", "replace")
            except FileNotFoundError:
                return ""
        with _absent():
            stream = self._fs.open(self._path_of(self._path, NOTE))
            try:
                stream.seek(number * LINE)
                return stream.readLine() or ""
            finally:
                stream.close()
        return ""


@contextmanager
def _absent() -> Iterator[None]:
    """Passes over that a file or a folder is not there, or not so long."""
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as failure:
        if failure.java_exception.getClass().getSimpleName() not in ("FileNotFoundException", "EOFException"):
            raise


def _local_files(folder: str) -> Files:
    try:
        with os.scandir(folder) as entries:
            sizes = [entry.stat().st_size for entry in entries if entry.name.startswith(WRITTEN)]
    except FileNotFoundError:  # it, or a file of it, meanwhile
        return Files(0, 0)
    return Files(len(sizes), sum(sizes))
