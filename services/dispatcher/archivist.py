"""Copies of archives in a place of their own, for those who keep them longer than storage does, or read those of several clusters there.

Nobody waits for it. A job's end is stored and announced without, and a place that hangs holds up its own thread alone.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

import structlog

from millrace.io.storage.store import Storage, StorageError

WAITING_MOST = 10_000
RETRY_S, TRIES = 5.0, 5
RECENT_MS = 3 * 3_600_000  # the sweep comes each hour: what a killed process, or a place that was away, has left out

log = structlog.get_logger("archivist")


class Archivist:  # [R32]
    """Callable from any thread."""

    def __init__(self, storage: Storage, place: Storage, keep_ms: int, wait: Callable[[float], object] = time.sleep) -> None:
        """From `storage` to `place`, under the same names. `keep_ms`: so long a copy stays."""
        self._storage, self._place, self._keep_ms, self._wait = storage, place, keep_ms, wait
        self._waiting: queue.Queue[str | int] = queue.Queue(WAITING_MOST)

    def start(self) -> None:
        threading.Thread(target=self._run, name="archivist", daemon=True).start()

    def take(self, path: str) -> None:
        """Copies an archive, soon."""
        self._put(path)

    def sweep(self, wall_ms: int) -> None:
        """Copies what is missing of those that ended lately, and deletes copies that are old, soon."""
        self._put(wall_ms)

    def work(self) -> None:
        """Does what waits now."""
        while not self._waiting.empty():
            self._do(self._waiting.get())

    def _put(self, order: str | int) -> None:
        try:
            self._waiting.put_nowait(order)
        except queue.Full:  # the next sweep finds them
            log.warning("archives are not copied now: too many wait", place=self._place.url, waiting=WAITING_MOST)

    def _run(self) -> None:
        while True:
            order = self._waiting.get()
            try:
                self._do(order)
            except Exception:  # else no archive would be copied any more, and nobody would know
                log.exception("an archive is not copied", place=self._place.url, order=order)

    def _do(self, order: str | int) -> None:
        if isinstance(order, str):
            self._copy(order)
            return
        try:
            recent = [each.path for each in self._storage.walk("archives") if each.modified_ms > order - RECENT_MS]
            for path in recent:
                self._copy(path)
            self._place.sweep("archives", self._keep_ms, order)
        except StorageError as failure:
            log.warning("copies of archives are not swept", reason=str(failure))

    def _copy(self, path: str) -> None:
        for tries_left in reversed(range(TRIES)):
            try:
                if not self._place.exists(path):
                    self._place.put_if_absent(path, self._storage.get(path))
                return
            except StorageError as failure:
                log.warning("an archive is not copied", path=path, place=self._place.url, reason=str(failure), tries_left=tries_left)
            if tries_left:
                self._wait(RETRY_S)
