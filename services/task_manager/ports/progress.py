"""What running attempts report of their progress, as facts: one a second of all slots together, and none while nothing changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from millrace.core.messages.base import Body
from millrace.core.messages.progress import AttemptProgress
from millrace.core.messages.slots import SlotProgress, SlotsProgressed

INTERVAL_S = 1.0


class ProgressReports:
    """Collects the last progress of each slot. `later(seconds, do)` runs something after so many seconds."""

    def __init__(self, on_fact: Callable[[Body], None], later: Callable[[float, Callable[[], None]], None]) -> None:
        self._on_fact, self._later = on_fact, later
        self._lock = threading.Lock()
        self._last: dict[int, SlotProgress] = {}
        self._reported_s = float("-inf")
        self._due = False

    def note(self, slot: int, attempt: str, progress: AttemptProgress) -> None:
        """It becomes a fact at once, or with others when the last fact is a second old."""
        with self._lock:
            self._last[slot] = SlotProgress(slot=slot, attempt=attempt, progress=progress)
            if self._due:
                return
            self._due = True
            wait_s = self._reported_s + INTERVAL_S - time.monotonic()
        if wait_s > 0:
            self._later(wait_s, self._report)
        else:
            self._report()

    def drop(self, slot: int) -> None:
        """Its attempt has ended: nothing may be reported of that any more."""
        with self._lock:
            self._last.pop(slot, None)

    def _report(self) -> None:
        with self._lock:
            attempts, self._last = [self._last[slot] for slot in sorted(self._last)], {}
            self._reported_s, self._due = time.monotonic(), False
        if attempts:
            self._on_fact(SlotsProgressed(attempts=attempts))
