"""Storage is swept by age while this replica leads: what clients uploaded, and what ended jobs left to be looked at.

Nothing here decides anything: files of live jobs lie elsewhere (`blobs/<job>/...`) or are young, for they are being written.
"""

from __future__ import annotations

import threading
import time

import structlog

from millrace.io.hosting import Term
from millrace.io.storage import Storage, StorageError

FIRST_S, EVERY_S = 60.0, 3600.0
FOLDERS = ("blobs/uploads", "logs", "results", "archives")

log = structlog.get_logger("housekeeping")


class Housekeeping:
    """`lead(term)` starts a thread that ends with the term."""

    def __init__(self, storage: Storage, keep_ms: int) -> None:
        self._storage, self._keep_ms = storage, keep_ms

    def lead(self, term: Term) -> None:
        threading.Thread(target=self._run, args=(term,), name="housekeeping", daemon=True).start()

    def _run(self, term: Term) -> None:
        wait_s = FIRST_S
        while not term.ended.wait(wait_s):
            self.sweep(time.time_ns() // 1_000_000)
            wait_s = EVERY_S

    def sweep(self, now_ms: int) -> None:
        """Deletes what was not changed for longer than it is kept."""
        for folder in FOLDERS:
            try:
                swept = self._storage.sweep(folder, self._keep_ms, now_ms)
            except StorageError as failure:
                log.warning("not swept", folder=folder, reason=str(failure))
                continue
            if swept.files:
                log.info("swept", folder=folder, files=swept.files, bytes=swept.bytes)
