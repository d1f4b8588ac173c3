"""Copies strangers' requests from client.commands into the Dispatcher's inbox, while this replica leads [2].

A chain like any other: each record names the offset before it, so that what two leaders copied is folded once. At most
IN_FLIGHT are copied and not yet folded: a flood of submissions cannot delay what the services tell each other.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

import structlog

from millrace.io.hosting import Term
from millrace.io.interfaces import Bus, OffsetGone, Unavailable
from millrace.io.storage import StorageError

from .intake import Intake

TOPIC = "client.commands"
IN_FLIGHT = 256
TOGETHER_MOST = 16  # are checked before any is copied: one request to Kafka takes them all, and what is there alone waits for nothing
OUTBOX_MOST = 50_000  # while Kafka takes nothing of what is said about requests, no more are taken on
POLL_MS = 500
STUCK_S = 5.0

log = structlog.get_logger("client port")


class ClientPort:
    """`lead(term)` starts a thread that ends with the term. `fatal(reason)` ends the process."""

    def __init__(self, bus: Bus, intake: Intake, fatal: Callable[[str], None]) -> None:
        self._bus, self._intake, self._fatal = bus, intake, fatal
        self._turn = threading.Lock()  # the thread of the term before may still be reading

    def lead(self, term: Term) -> None:
        threading.Thread(target=self._run, args=(term,), name="client-port", daemon=True).start()

    def _run(self, term: Term) -> None:
        try:
            with self._turn:
                while not term.ended.is_set():
                    try:
                        self._copy(term)
                    except (Unavailable, OffsetGone, StorageError) as failure:
                        log.warning("requests wait", reason=str(failure))
                        term.ended.wait(0.5)
        except Exception as failure:
            log.exception("the client port ends")
            self._fatal(f"client port: {type(failure).__name__}: {failure}")

    def _copy(self, term: Term) -> None:
        """Copies until the term ends, or the chain must be taken up anew."""
        copier = Copier(self._bus, self._intake, term)
        moved, mark = time.monotonic(), -1
        try:
            while not term.ended.is_set():
                if not copier.copy(POLL_MS):
                    term.ended.wait(0.001)
                if copier.mark != mark or not copier.flying:
                    moved, mark = time.monotonic(), copier.mark
                elif time.monotonic() - moved > STUCK_S:
                    log.warning("copied requests are not folded; the chain is taken up anew", mark=mark)
                    return
        finally:
            copier.close()


class Copier:
    """Copies from behind the folded mark on. Raises Unavailable, OffsetGone, StorageError: make another one then."""

    def __init__(self, bus: Bus, intake: Intake, term: Term) -> None:
        self._intake, self._term = intake, term
        self._log = bus.log_id(TOPIC)
        self._prev = self.mark
        first, _ = bus.offsets(TOPIC, 0)
        if 0 <= self.mark < first - 1:
            log.error("requests were deleted before they were read", first=self.mark + 1, last=first - 1)
        self._reader = bus.reader(TOPIC, 0, max(self.mark + 1, first))
        self.flying: deque[int] = deque()  # offsets copied and not seen folded

    @property
    def mark(self) -> int:
        """The last offset that is folded; -1: none of this log."""
        folded = self._term.folded
        return folded.client_mark if folded.client_log == self._log else -1

    def copy(self, patience_ms: int) -> bool:
        """Copies what is there and fits; waits `patience_ms` for a first one. False: too many are not folded yet."""
        mark = self.mark
        while self.flying and self.flying[0] <= mark:
            self.flying.popleft()
        room = IN_FLIGHT - len(self.flying) if len(self._term.folded.outbox) < OUTBOX_MOST else 0
        records = []
        for received in self._reader.poll(patience_ms, min(room, TOGETHER_MOST)) if room else ():
            records.append(self._intake.record(received, self._log, self._prev))
            self._prev = received.offset
            self.flying.append(received.offset)
        for record in records:
            self._term.append(record)
        return room > 0

    def close(self) -> None:
        self._reader.close()
