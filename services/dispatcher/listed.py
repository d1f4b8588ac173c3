"""The port of ListStoredJobs: the jobs that have ended, from etcd, newest first."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from millrace.core.bounded import fitting
from millrace.core.messages.client import JobDetails, ListJobDetails
from millrace.core.messages.effects import ListStoredJobs, StoredJob, StoredJobsListed
from millrace.io.interfaces import Store, pages
from millrace.runtime.performer import Fence

from .core.answers import allowed
from .core.listing import Key, before
from .stored import JOBS, Unreadable, job_of, stored_of

AHEAD_MOST = 4_000
AHEAD_MS = 10_000


class Row(NamedTuple):
    """A job in the order of their keys."""

    accepted_ms: int
    job: str
    stored: StoredJob


class _Ahead(NamedTuple):
    """What one reading of etcd has found, for the pages that follow."""

    asked: dict[str, Any]
    after: Key | None
    rows: list[Row]
    more: bool
    until_ms: int


class StoredListing:  # [R32]
    """Each listing reads all of etcd's jobs, a page at a time, for they stand there by their ids. Of the newest that it finds the next
    pages are answered, for some seconds: who reads all of a long list has etcd read once for thousands of jobs."""

    def __init__(self, store: Store, wall_ms: Callable[[], int], ahead: int = AHEAD_MOST) -> None:
        self._store, self._wall_ms, self._ahead = store, wall_ms, ahead
        self._last: _Ahead | None = None
        self._endings = 0

    def forget(self) -> None:
        """A job has ended: what was read before does not have it, and its row in the Dispatcher's state may be gone soon."""
        self._endings += 1
        self._last = None

    def listed(self, effect: ListStoredJobs, fence: Fence) -> StoredJobsListed:
        request, last = effect.asked, self._last  # which another thread may forget
        found = self._from(last, request) if last is not None and self._wall_ms() < last.until_ms else None
        if found is None:
            after, count, endings = before(request), max(self._ahead, request.limit), self._endings
            read = heapq.nlargest(count + 1, self._rows(request, after), key=lambda row: row[:2])
            last = _Ahead(_only(request), after, read[:count], len(read) > count, self._wall_ms() + AHEAD_MS)
            found = self._from(last, request)
            assert found is not None, "it was read just now"
            self._last = last if endings == self._endings else None
        rows, more = found
        jobs = fitting(_details(row) for row in rows[: request.limit])
        return StoredJobsListed(number=effect.number, jobs=jobs, more=more or len(rows) > len(jobs))

    def _from(self, last: _Ahead, request: ListJobDetails) -> tuple[list[Row], bool] | None:
        """The page's jobs and those behind them, and whether there are others; None: they must be read."""
        after = before(request)
        if last.asked != _only(request):
            return None
        if last.after is not None and (after is None or after > last.after):
            return None
        rows = [row for row in last.rows if after is None or row[:2] < after]
        return None if len(rows) < request.limit and last.more else (rows, last.more)

    def _rows(self, request: ListJobDetails, after: Key | None) -> Iterator[Row]:
        for entry in pages(self._store, JOBS):
            try:
                stands = stored_of(entry)
            except Unreadable:
                continue  # the housekeeping notes it
            if stands is None or stands.status is None:
                continue  # it lives: the Dispatcher's state has it
            row = Row(stands.accepted_ms, job_of(entry), stands)
            if (after is None or row[:2] < after) and allowed(request, stands.name, stands.status, stands.accepted_ms):
                yield row._replace(stored=stands.model_copy(update={"graph": None, "cause": None, "staging": []}))


def _only(request: ListJobDetails) -> dict[str, Any]:
    """What a listing asks for, on whichever page."""
    return request.model_dump(include={"name", "states", "since_ms", "until_ms"})


def _details(row: Row) -> JobDetails:
    stored = row.stored
    assert stored.status is not None, "it has ended"
    return JobDetails(
        job=row.job, name=stored.name, status=stored.status, accepted_ms=stored.accepted_ms, ended_ms=stored.ended_ms,
        running_ms=stored.running_ms, archive=stored.archive, scheduled=stored.scheduled,
    )  # fmt: skip
