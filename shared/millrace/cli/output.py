"""What a job writes, while `submit --wait` follows it: its stdout on stdout, its stderr on stderr, as it comes."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

from millrace.core.states import ENDED_BY

from .words import printable

if TYPE_CHECKING:
    from rich.console import Console

    from millrace.client.logs import LogPiece, LogReader

TURN_S = 0.25  # between two looks at what an attempt that runs has written
REST_S = 0.2  # from a look to the next, however much happens
FINISH_S = 10.0  # for what is left when the job has ended
SHOWN_BYTES = 32 << 20  # in all; what is kept of each attempt is less
LINE_BYTES = 64 << 10  # a longer line is shown in parts
JAVA_FRAME = re.compile(rb"^[ \t]+(?:at [\w$.<>/@-]+\(.*\)|\.\.\. \d+ more)\r?\n", re.MULTILINE)
"""A line of a Java stack trace. A failed Python function brings a hundred of them, in which its own error would not be seen."""
Source = tuple[str, int, int]


class LiveOutput:
    """Reads and prints on a thread of its own, until the job's end is heard of. A job whose logs cannot be had is followed all the same."""

    def __init__(self, reader: LogReader, alone: bool) -> None:
        """`alone`: the job is one script, so it need not be told whose output it is."""
        self._reader, self._alone = reader, alone
        self._news, self._end, self._left = threading.Event(), threading.Event(), threading.Event()
        self.trouble = ""
        """Why it was not shown to the end."""

    def during(self, events: Iterator[dict[str, Any]], console: Console) -> Generator[dict[str, Any], None, None]:
        """The events. Output that belongs before the job's end is printed before that is given."""
        writer = Writer(console, self._alone)
        thread = threading.Thread(target=self._run, args=(writer,), name="millrace-output", daemon=True)
        thread.start()
        try:
            for event in events:
                if event["type"] == "AttemptStateChanged":
                    self._news.set()
                if event["type"] in ENDED_BY:
                    self._finish()
                    thread.join(FINISH_S)
                    if thread.is_alive():
                        self.trouble = f"the rest did not come within {FINISH_S:.0f} s"
                yield event
        finally:
            self._left.set()  # by Ctrl-C, or because the events ended otherwise
            self._finish()
            thread.join(1)

    def _finish(self) -> None:
        self._end.set()
        self._news.set()

    def _run(self, writer: Writer) -> None:
        from millrace.client import MillraceError

        try:
            self._follow(writer)
        except MillraceError as failure:
            self.trouble = str(failure)
        except Exception as failure:
            if not self._left.is_set():  # else the client was closed meanwhile
                self.trouble = repr(failure)
        finally:
            writer.end()

    def _follow(self, writer: Writer) -> None:
        known = False
        while not self._left.is_set():
            ending = self._end.is_set()
            if self._news.is_set() or ending:
                self._news.clear()
                self._reader.look()
                known = True
            for piece in self._reader.read() if known else ():
                if self._left.is_set():
                    return
                writer.write(piece)
                if writer.bytes > SHOWN_BYTES:
                    self.trouble = f"the first {SHOWN_BYTES >> 20} MiB are shown"
                    return
            if ending:
                return
            self._end.wait(REST_S)
            self._news.wait(TURN_S)


class Writer:
    """Puts pieces where they belong; a line on stderr says whose they are, whenever that changes.

    stdout gets the very bytes, unless it is the terminal that shows progress. That one, and stderr, get whole lines, for progress is
    written there, too. On stderr Java's stack frames are left out; `millrace logs` has them.
    """

    def __init__(self, console: Console, alone: bool = False) -> None:
        self._console, self._alone = console, alone
        self._source: Source | None = None
        self._held: dict[str, bytes] = {}  # stream -> a line that has begun
        self._open = False  # stdout's last line has not ended
        self.bytes = 0

    def write(self, piece: LogPiece) -> None:
        source = (piece.task, piece.subtask, piece.attempt)
        if source != self._source:
            self.end()
            if not (self._alone and piece.attempt == 1):
                self._lines("stderr", f"--- {piece.task}[{piece.subtask}] attempt {piece.attempt}\n".encode())
            self._source = source
        self.bytes += len(piece.data)
        if piece.stream == "stdout" and not self._is_shared("stdout"):
            _raw("stdout", piece.data)
            self._open = not piece.data.endswith(b"\n")
            return
        lines, newline, begun = (self._held.pop(piece.stream, b"") + piece.data).rpartition(b"\n")
        if len(begun) > LINE_BYTES:
            lines, newline, begun = lines + newline + begun, b"\n", b""
        if begun:
            self._held[piece.stream] = begun
        self._lines(piece.stream, lines + newline)

    def end(self) -> None:
        """Ends the lines that have begun; what one script alone wrote to stdout stays what it is."""
        for stream, begun in self._held.items():
            self._lines(stream, begun + b"\n")
        self._held.clear()
        if self._open and not self._alone:
            _raw("stdout", b"\n")
        self._open = False

    def _lines(self, stream: str, lines: bytes) -> None:
        if stream == "stderr":
            lines = JAVA_FRAME.sub(b"", lines)
        if lines and self._is_shared(stream):
            from rich.text import Text

            text = lines.decode(errors="replace").removesuffix("\n")
            self._console.print(Text(printable(text)), soft_wrap=True)  # above the progress
        elif lines:
            _raw(stream, lines)

    def _is_shared(self, stream: str) -> bool:
        return self._console.is_terminal and bool(getattr(sys, stream).isatty())


def _raw(stream: str, data: bytes) -> None:
    file = getattr(sys, stream)
    file.flush()
    file.buffer.write(data)
    file.buffer.flush()
