"""What an attempt prints, kept within a bound.

10 GB of output must neither fill the disk nor block the one who prints: the first bytes and the last bytes are kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable

_CHUNK = 1 << 20


class CappedLog:
    """A file that holds the first ``head`` and the last ``tail`` bytes written to it.

    Until ``head`` is full the file only grows, so that it can be followed. Then a ring beside it, ``<path>.tail``, takes
    the rest; ``close`` puts one line on what was left out and the ring's bytes behind the head. A disk that is full costs
    output, not the attempt. The file is made by the first write, or at the end: an attempt does not wait for it to begin.
    """

    def __init__(self, path: str, head: int, tail: int) -> None:
        self._path = path
        self._head_left = head
        self._tail_size = tail
        self._ring: int | None = None
        self._ring_written = 0
        self.failed: OSError | None = None
        self._fd: int | None = None
        self._closed = False

    def write(self, data: bytes) -> None:
        """Takes ``data``; never raises for the disk's sake (``failed`` holds the first such error). After ``close`` it is lost."""
        if self._closed:
            return
        try:
            if self._head_left:
                head, data = data[: self._head_left], data[self._head_left :]
                self._head_left -= len(head)
                _write_all(self._file(), head)
            if data and self._tail_size:
                self._write_ring(data)
            elif data:
                self._ring_written += len(data)
        except OSError as error:
            self.failed = self.failed or error

    def _file(self) -> int:
        if self._fd is None:
            # Not blocking, for who prints can have put a pipe there.
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC, 0o640)
        return self._fd

    def _write_ring(self, data: bytes) -> None:
        if self._ring is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            self._ring = os.open(self._path + ".tail", flags, 0o640)
        skipped = max(0, len(data) - self._tail_size)
        self._ring_written += skipped
        data = data[skipped:]
        at = self._ring_written % self._tail_size
        first = self._tail_size - at
        os.pwrite(self._ring, data[:first], at)
        if data[first:]:
            os.pwrite(self._ring, data[first:], 0)
        self._ring_written += len(data)

    def close(self) -> None:
        """Completes the file; later calls do nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            file = self._file()
            left_out = self._ring_written - (self._tail_size if self._ring is not None else 0)
            if left_out > 0:
                _write_all(file, f"\n[... {left_out} bytes left out ...]\n".encode())
            if self._ring is not None:
                at = self._ring_written % self._tail_size if left_out > 0 else 0
                kept = min(self._ring_written, self._tail_size)
                _write_all(file, os.pread(self._ring, kept - at, at) + os.pread(self._ring, at, 0))
                os.unlink(self._path + ".tail")
        except OSError as error:
            self.failed = self.failed or error
        finally:
            for fd in (self._ring, self._fd):
                if fd is not None:
                    os.close(fd)
            self._ring = self._fd = None


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


class Pipe:
    """The reading end of a pipe that a child prints to; ``fd_in`` is the child's end.

    Everything read goes to ``sink``, which may be changed at any time.
    """

    def __init__(self, sink: Callable[[bytes], None]) -> None:
        self.sink = sink
        self.fd, self.fd_in = os.pipe()
        os.set_blocking(self.fd, False)

    def pump(self, limit: int = _CHUNK) -> bool:
        """Passes on up to ``limit`` bytes that are there; False once all writers have closed."""
        while limit > 0:
            try:
                data = os.read(self.fd, min(_CHUNK, limit))
            except BlockingIOError:
                return True
            if not data:
                return False
            self.sink(data)
            limit -= len(data)
        return True

    def drain(self) -> None:
        """Passes on all that was printed before this call (bounded: what a pipe can hold)."""
        self.pump(2 * _CHUNK)

    def close_in(self) -> None:
        """Closes the child's end here, after the fork."""
        if self.fd_in >= 0:
            os.close(self.fd_in)
            self.fd_in = -1

    def close(self) -> None:
        """Closes both ends."""
        self.close_in()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
