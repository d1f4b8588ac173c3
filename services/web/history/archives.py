"""Keeps the view as the archives in storage are: looks through their names again and again, and reads those that are new."""

from __future__ import annotations

import heapq
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import structlog

from millrace.core.messages.base import JOB_ID_PATTERN
from millrace.core.messages.execution import Archive
from millrace.io.storage.store import Entry, NotFound, Storage, StorageError

from ..core.archived import ARCHIVE_MOST, Damaged, facts_of, facts_of_damaged, parsed
from ..follow import Follows
from ..view import View
from .spark_events import SparkEvents

FOLDER = "archives"
READERS = 8
BATCH_BYTES, BATCH_MOST = 64 << 20, 64
"""Of archives that are read at once: they are held until they are in the tables."""
LOOK_S = 10.0
REST = 5
"""After a look it waits at least for so many times as long as that took: a storage of a million names is not listed all the time."""

log = structlog.get_logger("history")


class Archives:
    """The newest archives, by the time of their file, one for each job. `look` blocks; the rest is for any thread."""

    def __init__(
        self, view: View, storage: Storage, most: int, events: SparkEvents | None = None, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """`events`: is given each job that is shown."""
        self._view, self._storage, self._most, self._events, self._now_s = view, storage, most, events, now_s
        self._known: dict[str, Entry] = {}
        self._trouble = ""
        self._unread = False
        self._seen_s = self._whole_s = now_s()
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="archives")
        view.behind_s = self.behind_s

    def close(self) -> None:
        """Ends its threads. Nothing is looked at any more."""
        self._readers.shutdown(wait=False, cancel_futures=True)

    def look(self, stopping: Callable[[], bool] = lambda: False) -> float:
        """Looks once; for how long to wait before the next time."""
        began_s, self._unread = self._now_s(), False
        try:
            self._look(stopping)
        except StorageError as failure:
            self._note("the storage cannot be read", failure)
        else:
            self._seen_s = self._now_s()
        if not self._unread:
            self._trouble, self._whole_s = "", self._now_s()
        return max(LOOK_S, REST * (self._now_s() - began_s))

    def _note(self, what: str, failure: StorageError) -> None:
        """The first of a look is shown, at once and until a look has none. The next look tries again."""
        if not self._unread:
            if not self._trouble:
                log.warning(what, reason=str(failure))
            self._unread, self._trouble = True, f"{what}: {failure.what}"

    def state(self) -> Follows:
        """As the web service has it of its topics."""
        return Follows(self._trouble, self._now_s() - self._seen_s)

    def behind_s(self) -> int:
        """For so many seconds archives may be missing; 0: all that the last look found are shown."""
        return max(1, round(self._now_s() - self._whole_s)) if self._trouble else 0

    def _look(self, stopping: Callable[[], bool]) -> None:
        archives = (entry for entry in self._storage.find(FOLDER) if job_of(entry.path))
        found: dict[str, Entry] = {}
        for entry in heapq.nlargest(self._most, archives, key=lambda entry: (entry.modified_ms, entry.path)):
            found.setdefault(job_of(entry.path), entry)  # of an id that was used again, or an end reported twice, the newest
        for job in [job for job in self._known if job not in found]:
            del self._known[job]
            self._view.replace(job, lambda first: ())
        new = [(job, entry) for job, entry in found.items() if self._known.get(job) != entry]
        for batch in _batches(new):
            if stopping():
                return
            for (job, entry), read in zip(batch, self._readers.map(self._read, [entry for _, entry in batch]), strict=True):
                self._take(job, entry, read)
        self._view.to_reach, self._view.ready = {}, True

    def _read(self, entry: Entry) -> bytes | StorageError:
        if entry.size > ARCHIVE_MOST:
            return b""
        try:
            return self._storage.get(entry.path)
        except StorageError as failure:
            return failure

    def _take(self, job: str, entry: Entry, read: bytes | StorageError) -> None:
        if isinstance(read, NotFound):
            return  # deleted meanwhile
        if isinstance(read, StorageError):
            self._note(f"{entry.path} cannot be read", read)
            return
        try:
            _refuse_large(entry)
            archive = parsed(read, job)
        except Damaged as damaged:
            why = str(damaged)
            log.warning("an archive is damaged", path=entry.path, reason=why)
            self._view.replace(job, lambda first: facts_of_damaged(job, entry.path, why, entry.modified_ms, first))
        else:
            self._view.replace(job, lambda first: facts_of(archive, entry.path, first))
            if self._events is not None:
                try:
                    self._events.put(archive.detail)
                except StorageError as failure:
                    self._note(f"event logs of job {job} cannot be copied to {self._events.folder}", failure)
                    return
        self._known[job] = entry


def find(storage: Storage, job: str) -> tuple[str, Archive] | None:
    """The newest archive of a job and its path, whether it is among those that are shown or not. Raises StorageError, Damaged."""
    found = max(storage.list(f"{FOLDER}/{job}"), key=lambda entry: (entry.modified_ms, entry.path), default=None)
    if found is None:
        return None
    _refuse_large(found)
    return found.path, parsed(storage.get(found.path), job)


def job_of(path: str) -> str:
    """Whose archive it is, by its name; empty: it is none."""
    parts = path.split("/")
    return parts[1] if len(parts) == 4 and path.endswith(".json") and re.fullmatch(JOB_ID_PATTERN, parts[1]) else ""


def _refuse_large(entry: Entry) -> None:
    if entry.size > ARCHIVE_MOST:
        raise Damaged(f"it has {entry.size} bytes, more than the {ARCHIVE_MOST} that are read")


def _batches(new: list[tuple[str, Entry]]) -> Iterator[list[tuple[str, Entry]]]:
    batch: list[tuple[str, Entry]] = []
    size = 0
    for each in new:
        if batch and (len(batch) == BATCH_MOST or size + each[1].size > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(each)
        size += min(each[1].size, ARCHIVE_MOST)
    if batch:
        yield batch
