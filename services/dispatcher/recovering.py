"""The port of RecoverJobs: what stands in etcd is told to a new generation of the Dispatcher, in pages [R24]."""

from __future__ import annotations

import heapq

from millrace.core.messages.effects import JobsRecovered, RecoverJobs, StoredJob
from millrace.io.interfaces import Entry, Store, pages
from millrace.runtime import troubles
from millrace.runtime.performer import Fence

from .stored import JOBS, Unreadable, job_of, key_of, stored_of

PAGE_BYTES = 600_000  # of a JobsRecovered: it must fit into one record


class Recovering:  # [R32]
    """Reads etcd twice, a page at a time: there may be millions of tombstones, of which the newest few are told. The first time it finds
    how old those are; another leader that goes on does so, too."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._oldest, self._epoch = (0, ""), 0  # of the ended jobs that are told, in the term of that epoch

    def recover(self, effect: RecoverJobs, fence: Fence) -> JobsRecovered:
        if not effect.after or self._epoch != fence.epoch:
            self._oldest, self._epoch = self._oldest_reported(effect.retained), fence.epoch
        page: dict[str, StoredJob] = {}
        size = left_out_ms = 0
        for entry in pages(self._store, JOBS, key_of(effect.after) if effect.after else ""):
            job = job_of(entry)
            try:
                stands = stored_of(entry)
            except Unreadable as reason:  # that job's trouble alone: no other waits for it
                troubles.note(self._store, fence, "unreadable", job, troubles.Facts(reason=str(reason)))
                continue
            assert stands is not None, "it was listed"
            if stands.state == "clean" and (stands.ended_ms or 0, job) < self._oldest:
                left_out_ms = max(left_out_ms, stands.accepted_ms)
                continue
            size += len(entry.value) + len(job)
            if page and size > PAGE_BYTES:
                return JobsRecovered(jobs=page, through=next(reversed(page)), left_out_ms=left_out_ms)
            page[job] = stands
        return JobsRecovered(jobs=page, through=None, left_out_ms=left_out_ms)

    def _oldest_reported(self, retained: int) -> tuple[int, str]:
        newest: list[tuple[int, str]] = []  # a heap
        for entry in pages(self._store, JOBS):
            ended = _ended(entry)
            if ended is not None:
                (heapq.heappush if len(newest) < retained else heapq.heappushpop)(newest, ended)
        if len(newest) < retained:
            return (0, "")
        return newest[0] if newest else (1 << 62, "")


def _ended(entry: Entry) -> tuple[int, str] | None:
    """When a clean job has ended, with its id."""
    try:
        stands = stored_of(entry)
    except Unreadable:
        return None
    return (stands.ended_ms or 0, job_of(entry)) if stands is not None and stands.state == "clean" else None
