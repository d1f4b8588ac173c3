"""The process of one attempt: its end of the channel to the host, and the two threads that serve it while user code runs.

User code shares this process. It may close every descriptor, and open its own under the same number: hence each use looks whether the
descriptor is still the channel. Nothing that user code starts has it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from .. import wire
from .spark_json import SparkJson
from .spark_spans import SparkSpans
from .spark_status import SparkStatus
from .stack import stack_of

PAUSE_MOST_S = 5.0  # between two looks at Spark
_LAST_S = 2.0  # for the last look at Spark: the JVM may hang
_FRESH_S = 0.5
"""A question waits so long for figures of this moment; older ones must do if the JVM hangs."""


class Channel:
    """JSON lines to and from the host."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._id = _identity(sock.fileno())
        self._received = b""
        self._sending = threading.Lock()
        os.register_at_fork(after_in_child=self._close)

    def _ours(self) -> bool:
        """Whether the descriptor is still the channel."""
        return self._sock.fileno() >= 0 and _identity(self._sock.fileno()) == self._id

    def _close(self) -> None:
        if self._ours():
            self._sock.close()
        else:
            self._sock.detach()

    def send(self, message: wire.Attached | wire.Took | wire.AttemptEvent) -> None:
        """Sends a line; raises OSError if that is not possible."""
        with self._sending:
            if not self._ours():
                raise OSError("the channel is closed")
            self._sock.sendall(wire.line_of(message))

    def line(self) -> Any:
        """The next message, a `wire.Assignment` or after it a `wire.AttemptOrder`; None at the end of the channel. Raises OSError."""
        while b"\n" not in self._received:
            data = self._sock.recv(1 << 20) if self._ours() else b""
            if not data:
                return None
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return json.loads(line)

    def serve(self, spark: SparkJson, work: str, noted: SparkSpans | None = None) -> Callable[[], wire.Progress | None]:
        """Reports progress and takes orders from now on, on threads of its own. `noted`: notes its Spark jobs. What comes back is called
        at the attempt's end, and gives what its Spark has done in all."""
        service = _Service(self, SparkStatus(spark, noted), work)
        for run in (service.take_orders, service.report_progress):
            threading.Thread(target=run, name=f"millrace-{run.__name__}", daemon=True).start()
        return service.look_last


class _Service:
    """What a running attempt does for its host. All of it may fail: then the attempt goes on without."""

    def __init__(self, channel: Channel, spark: SparkStatus, work: str) -> None:
        self._channel = channel
        self._spark = spark
        self._work = work
        self._began_s = time.monotonic()
        self._main = threading.get_ident()
        self._wanted, self._there = threading.Event(), threading.Event()  # figures of this moment
        self._ending, self._over = threading.Event(), threading.Event()  # the last look at Spark
        self._whole: wire.Progress | None = None  # what that has found

    def take_orders(self) -> None:
        """Carries out one order after the other until the channel ends."""
        try:
            order: wire.AttemptOrder | None
            while (order := self._channel.line()) is not None:
                if order["do"] == "report":
                    self._channel.send({"is": "status", "question": order["question"], "status": self._status()})
                elif order["do"] == "interrupt":
                    self._interrupt()
        except OSError:
            pass

    def _interrupt(self) -> None:
        """As at Ctrl+C. What PySpark does then to cancel Spark's jobs fails where the main thread waits for one: so that is done here, and
        spares those that the code begins as it ends."""
        wall_ms = time.time_ns() // 1_000_000
        signal.pthread_kill(self._main, signal.SIGINT)
        with contextlib.suppress(Exception):
            self._spark.cancel(wall_ms)

    def _status(self) -> wire.AttemptStatus:
        stack = stack_of(sys._current_frames().get(self._main), self._work)  # first: what was asked for is this moment
        self._there.clear()
        self._wanted.set()
        self._there.wait(_FRESH_S)
        progress, stages = self._spark.last
        elapsed_ms = int((time.monotonic() - self._began_s) * 1000)
        return {"elapsed_ms": elapsed_ms, "progress": progress, "stages": stages, "stack": stack}

    def look_last(self) -> wire.Progress | None:
        """Has the other thread look at Spark once more, as its last act. It waits no longer than _LAST_S, whatever hangs; None: it did."""
        self._ending.set()
        self._wanted.set()
        self._over.wait(_LAST_S)
        return self._whole

    def report_progress(self) -> None:
        """Looks at Spark about once a second, sooner when asked, and reports what has changed; the first time in any case. Ends with the
        last look, or when it fails."""
        sent: wire.Progress | None = None
        next_s = time.monotonic() + wire.PROGRESS_S
        try:
            while True:
                asked = self._wanted.wait(max(0.0, next_s - time.monotonic()))
                self._wanted.clear()
                if self._ending.is_set():
                    self._spark.look_last()
                    self._whole, _ = self._spark.last
                    return
                began_s = time.monotonic()
                self._spark.look()
                self._there.set()
                if asked:
                    continue
                # About a twentieth of the time goes into looking; one look that took long, on a busy machine, delays little.
                next_s = began_s + min(max(wire.PROGRESS_S, 20 * (time.monotonic() - began_s)), PAUSE_MOST_S)
                progress, _ = self._spark.last
                if progress != sent:
                    self._channel.send({"is": "progress", "progress": progress})
                    sent = progress
        except Exception:
            pass  # the JVM or the channel is gone, or user code has changed what this stands on
        finally:
            self._over.set()


def _identity(fd: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(fd)
    except OSError:
        return None
    return found.st_dev, found.st_ino
