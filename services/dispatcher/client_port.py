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

from millrace.io.interfaces import Bus, OffsetGone, Reader, Unavailable
from millrace.io.loop import Term
from millrace.io.storage import StorageError

from .intake import Intake

TOPIC = "client.commands"
IN_FLIGHT = 256
POLL_MS = 100
STUCK_S = 5.0

log = structlog.get_logger("client port")


class ClientPort:
    """`lead(term)` starts a thread that ends with the term. `fatal(reason)` ends the process."""

    def __init__(self, bus: Bus, intake: Intake, fatal: Callable[[str], None]) -> None:
        self._bus, self._intake, self._fatal = bus, intake, fatal
        self._turn = threading.Lock()  # of a term's thread: the one before it may still be reading

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
        """Copies from behind the folded mark on, until the term ends or the chain must be taken up anew."""
        identity = self._bus.log_id(TOPIC)
        folded = term.folded
        mark = folded.client_mark if folded.client_log == identity else -1
        first, _ = self._bus.offsets(TOPIC, 0)
        if first > mark + 1 and mark >= 0:
            log.error("requests were deleted before they were read", first=mark + 1, last=first - 1)
        reader = self._bus.reader(TOPIC, 0, max(mark + 1, first))
        try:
            self._follow(term, reader, identity, mark)
        finally:
            reader.close()

    def _follow(self, term: Term, reader: Reader, identity: str, mark: int) -> None:
        prev = mark
        flying: deque[int] = deque()  # offsets copied and not seen folded
        moved = time.monotonic()
        while not term.ended.is_set():
            done = term.folded.client_mark if term.folded.client_log == identity else -1
            if not flying or flying[0] <= done:
                moved = time.monotonic()
            while flying and flying[0] <= done:
                flying.popleft()
            if time.monotonic() - moved > STUCK_S:
                log.warning(
                    "copied requests are not folded; the chain is taken up anew", waiting=len(flying), mark=done
                )
                return
            if len(flying) >= IN_FLIGHT:
                term.ended.wait(0.001)
                continue
            for received in reader.poll(POLL_MS, IN_FLIGHT - len(flying)):
                term.append(self._intake.record(received, identity, prev))
                prev = received.offset
                flying.append(prev)
