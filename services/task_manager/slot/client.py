"""The TaskManager: its side of a slot. It starts the host, sends it orders, and reads its events on a thread."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import queue
import re
import select
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

from millrace.edge import spark_conf

from . import wire
from .common import procs
from .common.config import SlotConfig

_HOST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "host", "main.py")
_STOP_S = 3.0
_LINE_BYTES_MAX = 24 << 20  # the longest that a host of ours sends: rows of 5 MiB, of which each byte may take several as JSON in JSON
_LOG_TAIL_BYTES = 4096
_NOTE = "host.marker"

log = logging.getLogger("millrace.slot")


_OWN = re.compile(r"MILLRACE_.*|OTEL_EXPORTER_.*_HEADERS|TRACEPARENT|TRACESTATE")


def end_left_over(slots: Path) -> None:
    """Kills all that an earlier process has left of the slots below this folder. A host ends with its TaskManager, but not while it is
    stopped: then what it had started went on."""
    for note in slots.glob(f"*/{_NOTE}"):
        with contextlib.suppress(OSError, ValueError):
            marker = uuid.UUID(note.read_text()).hex
            if left := procs.kill_marked(marker):
                log.error("%s: processes of an earlier TaskManager cannot be ended: %s", note.parent, left)
            note.unlink()


def _environment(marker: str) -> dict[str, str]:
    """The host's environment, which user code can read: without the TaskManager's own settings, for some are secrets, and without the
    trace in which somebody started it."""
    env = {name: value for name, value in os.environ.items() if not _OWN.fullmatch(name)}
    if sys.platform == "darwin":  # its own libraries end a fork of a process that has used them, unless this says that it is meant
        env["OBJC_DISABLE_INITIALIZE_FORK_SAFETY"] = "YES"
    return {**env, procs.MARKER: marker}


def _pipe_for_beats() -> tuple[io.FileIO, io.FileIO]:
    """(where beats are written, where they are read). A host that hangs must not stop the writer: what does not fit is dropped."""
    read_end, beats = os.pipe()
    os.set_blocking(beats, False)
    return io.FileIO(beats, "wb"), io.FileIO(read_end, "rb")


def parse_event(line: bytes) -> wire.Event:
    """The event in a line of the host; raises ValueError for one that is not the host's. Half of a surrogate pair becomes a question mark:
    the text of a user's error may hold one, and no record of the TaskManager could be written with it."""
    event: wire.Event = json.loads(line)
    if not isinstance(event, dict):
        raise ValueError("no message is anything but an object")
    if b"\\ud" in line:
        event = json.loads(json.dumps(event, ensure_ascii=False).encode(errors="replace"))
    return event


class SlotProcess:
    """One slot: its host process and a thread that reads what the host sends.

    ``on_event`` is called on that thread with each `wire.Event`, and once, last, with ``gone``: then nothing of the slot lives any more.
    The methods may be called from any thread; after the host ended they do nothing.
    """

    def __init__(self, config: SlotConfig, on_event: Callable[[wire.Event], None]) -> None:
        self._config = config
        self._on_event = on_event
        self._marker = uuid.uuid4().hex
        # What the host's pipe does not take at once is written by a thread: one that hangs must not hold up who orders.
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._waiting = 0  # orders that are in there, or not yet written whole
        self._ordering = threading.Lock()
        self._beats, self._beats_read = _pipe_for_beats()
        self._started = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._error: OSError | None = None
        # The host's parent-death signal is bound to the thread that starts it: hence one that lives as long as it.
        self._thread = threading.Thread(target=self._live, name=f"slot-{config.slot}", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            raise self._error

    @property
    def pid(self) -> int:
        """The host's process id."""
        assert self._process is not None
        return self._process.pid

    def order(self, order: wire.Order) -> None:
        """Sends an order to the host. Any answer is an event."""
        data = wire.line_of(order)
        with self._ordering:
            # On the caller's own thread where that takes no time: another one would get its turn when the caller waits for something.
            if not self._waiting:
                data = self._left_of(data)
            if data:
                self._waiting += 1
                self._outgoing.put(data)

    def beat(self, patience_ms: int) -> None:
        """Shows that the TaskManager is at work: an attempt ends when its host has received none for so long. Takes no time."""
        try:
            self._beats.write(b"%d\n" % patience_ms)
        except BrokenPipeError:
            pass

    def close(self) -> None:
        """Ends the slot and waits until nothing of it lives; a host that does not end by itself is killed."""
        assert self._process is not None
        self.order({"do": "stop"})
        self._thread.join(_STOP_S)
        if self._thread.is_alive():
            self._process.kill()
            if threading.current_thread() is not self._thread:
                self._thread.join()

    def _live(self) -> None:  # [R30]
        try:
            os.makedirs(self._config.folder, exist_ok=True)
            if os.path.exists(self._log_path):
                os.replace(self._log_path, self._log_path + ".1")
            with contextlib.suppress(OSError), open(self._note_path, "w") as note:  # on a full disk a slot starts all the same
                note.write(self._marker)
            with open(self._log_path, "ab") as printed:
                self._process = subprocess.Popen(
                    [self._config.python, _HOST, str(os.getpid()), str(self._beats_read.fileno()), spark_conf.__file__],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=printed,
                    cwd=self._config.folder,
                    env=_environment(self._marker),
                    start_new_session=True,
                    pass_fds=(self._beats_read.fileno(),),
                )
            os.set_blocking(self._stdin, False)
            self.order({"do": "start", "config": self._config.to_json()})
            threading.Thread(target=self._write, name=f"slot-{self._config.slot}-orders", daemon=True).start()
        except OSError as error:
            self._error = error
            return
        finally:
            self._beats_read.close()
            self._started.set()
        assert self._process.stdout is not None
        while line := self._process.stdout.readline(_LINE_BYTES_MAX + 1):
            if len(line) > _LINE_BYTES_MAX:  # parsing takes the interpreter from all who run in this process
                log.error("%s: its host sent a line of more than %d bytes, and is ended", self._config.slot, _LINE_BYTES_MAX)
                self._process.kill()
                break
            if line.endswith(b"\n"):  # else it was killed while it wrote
                self._on_line(line)
        self._process.stdout.close()
        code = self._process.wait()
        self._outgoing.put(None)
        if left := procs.kill_marked(self._marker):
            log.error("%s: its host has ended, and what it started cannot be killed: %s", self._config.slot, left)
        with contextlib.suppress(OSError):
            os.unlink(self._note_path)
        self._on_event({"is": "gone", "code": code, "log_tail": self._log_tail()})

    @property
    def _log_path(self) -> str:
        return os.path.join(self._config.folder, "host.log")

    @property
    def _note_path(self) -> str:
        return os.path.join(self._config.folder, _NOTE)

    def _log_tail(self) -> str:
        """The end of what the host printed, an exception's last line perhaps."""
        try:
            with open(self._log_path, "rb") as printed:
                printed.seek(max(0, os.fstat(printed.fileno()).st_size - _LOG_TAIL_BYTES))
                return printed.read(_LOG_TAIL_BYTES).decode(errors="replace").strip()
        except OSError:
            return ""

    def _on_line(self, line: bytes) -> None:
        try:
            event = parse_event(line)
        except ValueError:  # before the host has its output to itself, a script that wraps the Python may print there
            log.warning("%s: its Python printed: %s", self._config.slot, line[:200].decode(errors="replace").rstrip())
            return
        self._on_event(event)

    @property
    def _stdin(self) -> int:
        assert self._process is not None and self._process.stdin is not None
        return self._process.stdin.fileno()

    def _left_of(self, data: bytes) -> bytes:
        """Writes what the pipe takes now; returns the rest. A host that has ended takes all: `gone` follows."""
        try:
            return data[os.write(self._stdin, data) :]
        except BlockingIOError:
            return data
        except BrokenPipeError:
            return b""

    def _write(self) -> None:
        """Writes the orders that wait, in order, until the host has ended."""
        pipe = select.poll()
        pipe.register(self._stdin, select.POLLOUT)
        while (data := self._outgoing.get()) is not None:
            while data:
                pipe.poll()
                data = self._left_of(data)
            with self._ordering:
                self._waiting -= 1
