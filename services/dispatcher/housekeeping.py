"""What jobs leave behind goes, while this replica leads [R32]: files that are old or that nobody owns, tombstones that no repeat needs.

Nothing here decides anything about a job, and nothing is held but a page, or a folder: there may be millions. Whatever is deleted
is deleted at once, so that a sweep that is interrupted has done its part, and the next one goes on.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator

import structlog

from millrace.core.messages.base import parsed
from millrace.core.states import Recovery
from millrace.core.topics import DISPATCHER, TOPICS
from millrace.io.interfaces import Bus, Compare, Delete, Entry, Store, Txn, Unavailable, pages
from millrace.io.storage.store import Storage, StorageError, upload_path
from millrace.runtime import troubles
from millrace.runtime.hosting import Term
from millrace.runtime.inspection import FOLDER as ASKED
from millrace.runtime.metrics import FENCED
from millrace.runtime.performer import Fence, Refused

from .archivist import Archivist
from .core.retirement import KEPT_AFTER_MS
from .core.state import State
from .kept_exchange import KeptExchange
from .schedules.stored import in_use
from .staging import Staging
from .stored import JOBS, Unreadable, job_of, repeat_key, stored_of

FIRST_S, EVERY_S = 60.0, 3600.0
CLOCKS_MS = 300_000  # the stamp is that of the last record that was folded, and a tick comes each two seconds
LEFT_MS = 3_600_000  # what nobody owns is younger while its job is being accepted
MINUTE_MS = 60_000
ARCHIVES_MOST = 1_000_000
BATCH_MOST = 40
SOON_MS = 2 * KEPT_AFTER_MS  # it is told by another clock
CLIENTS = "client.commands"
REPEATS_MS = next(topic.retention_ms for topic in TOPICS if topic.name == CLIENTS)

_STAMP = re.compile(rb"[0-9]{1,15}")

log = structlog.get_logger("housekeeping")


class Housekeeping:  # [R18], [R32], [R36]
    """`lead(term)` starts a thread that ends with the term. `fatal(reason)` ends the process."""

    def __init__(
        self,
        store: Store,
        storage: Storage,
        bus: Bus,
        staging: Staging,
        keep_ms: int,
        fatal: Callable[[str], None],
        archives_most: int = ARCHIVES_MOST,
        keep_ended_ms: int = 0,
        keep_uploads_ms: int | None = None,
        archivist: Archivist | None = None,
    ) -> None:
        """`keep_uploads_ms`: of uploads, if not `keep_ms`. `keep_ended_ms`: so long a tombstone stays at least. None goes before nobody can
        send its job's submission again."""
        self._store, self._storage, self._bus, self._staging = store, storage, bus, staging
        self._keep_ms, self._fatal, self._archives_most = keep_ms, fatal, archives_most
        self._archivist = archivist
        self._keep_ended_ms, self._keep_uploads_ms = keep_ended_ms, keep_ms if keep_uploads_ms is None else keep_uploads_ms

    def lead(self, term: Term) -> None:
        threading.Thread(target=self._run, args=(term,), name="housekeeping", daemon=True).start()

    def _run(self, term: Term) -> None:
        wait_s = FIRST_S
        try:
            while not term.ended.wait(wait_s):
                wall_ms, broker_ms = time.time_ns() // 1_000_000, term.folded.stamp_ms
                if abs(wall_ms - broker_ms) > CLOCKS_MS:
                    # Else all would be as old as a wrong clock says: a year ahead, everything that young jobs have would go
                    log.warning("not swept: this machine's clock and Kafka's differ", wall_ms=wall_ms, kafka_ms=broker_ms)
                    wait_s = FIRST_S
                    continue
                self.sweep(min(wall_ms, broker_ms), Fence(DISPATCHER, term.epoch), term.folded.state)
                wait_s = EVERY_S
        except Exception as failure:  # else what grows would grow, and nobody would know
            log.exception("the housekeeping ends")
            self._fatal(f"housekeeping: {type(failure).__name__}: {failure}")

    def sweep(self, wall_ms: int, fence: Fence, state: State) -> None:  # [R30]
        """All of it, once. What cannot be reached now is swept the next time."""
        try:
            scheduled, kept = in_use(self._store), KeptExchange(self._store, self._storage)
            live, unreadable = self._jobs(wall_ms, fence, scheduled.jobs, kept)
            kept.over(wall_ms, state.settings, fence)
            self._troubles(wall_ms, fence)
        except Refused:
            FENCED.add(DISPATCHER)
            return  # the term is over
        except Unavailable as failure:
            log.warning("not swept", reason=str(failure))
            return
        if unreadable and state.recovery is not Recovery.DONE:
            return  # which of those jobs live is not known yet
        # Of a live job whose key is damaged the state alone knows the acceptance. One call copies it, while the loop goes on
        live |= {job.acceptance: None for job in list(state.live.values())}
        read = {acceptance: None for job in list(state.live.values()) if job.kept for acceptance in parsed(job.kept)["jobs"]}
        if scheduled.known:
            self._files("uploads", ["uploads"], self._keep_uploads_ms, wall_ms, {upload_path(sha256) for sha256 in scheduled.uploads})
        self._files("archives", ["archives"], self._keep_ms, wall_ms)
        if self._archivist is not None:
            self._archivist.sweep(wall_ms)
        self._archives(live, unreadable, wall_ms)
        self._files("asked", [ASKED], LEFT_MS, wall_ms)
        for folder in ("logs", "results"):  # of a job that runs for longer than they are kept they are still written
            self._files(folder, self._owned_by_none(folder, live), self._keep_ms, wall_ms)
        self._files("exchange", self._owned_by_none("exchange", {**live, **read, **kept.owned}), LEFT_MS, wall_ms)
        blobs = (each for job in self._names("blobs") if job not in unreadable for each in self._owned_by_none(f"blobs/{job}", live))
        self._files("blobs", blobs, LEFT_MS, wall_ms)

    # in etcd

    def _jobs(
        self, wall_ms: int, fence: Fence, scheduled: Container[str], kept: KeptExchange
    ) -> tuple[dict[str, None], dict[str, None]]:
        """Deletes tombstones; returns the acceptances of the jobs that are not cleaned up, and the ids of those that cannot be read. Of
        a job in `scheduled` the tombstone stays: its schedule may be about to submit it again, after a death or days without a leader."""
        asked_ms = self._oldest_request_ms(wall_ms)
        live: dict[str, None] = {}
        unreadable: dict[str, None] = {}
        over: list[Entry] = []
        for entry in pages(self._store, JOBS):
            try:
                stands = stored_of(entry)
            except Unreadable as reason:
                troubles.note(self._store, fence, "unreadable", job_of(entry), troubles.Facts(reason=str(reason)))
                unreadable[job_of(entry)] = None
                continue
            assert stands is not None, "it was listed"
            kept.see(entry, stands)
            if stands.state != "clean":
                live[stands.acceptance] = None
            elif job_of(entry) in scheduled or stands.kept_until_ms is not None:
                continue
            elif wall_ms - (stands.ended_ms or 0) > self._keep_ended_ms and _is_over(stands.ended_ms or 0, wall_ms, asked_ms):
                over.append(entry)
            if len(over) == BATCH_MOST:
                self._forget(over, wall_ms, asked_ms, fence)
                over = []
        self._forget(over, wall_ms, asked_ms, fence)
        return live, unreadable

    def _oldest_request_ms(self, wall_ms: int) -> int:
        """The broker's stamp of the first record that client.commands still has. None is read: it may end who reads it [R30]. While Kafka
        does not answer, it is of any age, and no tombstone goes."""
        try:
            stamp_ms = self._bus.first_stamp_ms(CLIENTS, 0)
        except Unavailable as failure:
            log.warning("no tombstone is swept", reason=str(failure))
            return 0
        return wall_ms if stamp_ms is None else stamp_ms

    def _forget(self, over: list[Entry], wall_ms: int, asked_ms: int, fence: Fence) -> None:
        """A new generation of the Dispatcher reads all of client.commands again: a tombstone stays while a submission of its job may
        stand there, also one that came when the job had ended."""
        if not over:
            return
        repeats = self._store.txn(Txn([], [], [repeat_key(job_of(entry)) for entry in over])).reads
        compares, deletes = [], []
        for entry in over:
            repeat = repeats[repeat_key(job_of(entry))]
            if repeat is None or _is_over(_stamp_ms(repeat), wall_ms, asked_ms):
                revision = repeat.mod_revision if repeat is not None else 0
                compares += [Compare(entry.key, entry.mod_revision), Compare(repeat_key(job_of(entry)), revision)]
                deletes += [Delete(entry.key), Delete(repeat_key(job_of(entry)))]
        leader = self._store.txn(Txn([fence.compare(), *compares], deletes, [fence.compare().key])).reads[fence.compare().key]
        if leader is None or leader.mod_revision != fence.epoch:
            raise Refused  # else one of them was asked for just now, and the next sweep looks at all again

    def _troubles(self, wall_ms: int, fence: Fence) -> None:
        """Staged output is tried again for as long as leavings are kept, then given up."""
        for job, facts, _ in troubles.noted(self._store, "staging"):
            if facts.reason == troubles.UNKNOWN:
                log.error("a trouble is forgotten", job=job, reason=facts.reason)
            problems = self._staging.delete(facts.folders)
            if not problems:
                troubles.over(self._store, fence, "staging", job)
            elif wall_ms - facts.since_ms > self._keep_ms:
                log.error("staged output is given up: delete it by hand", job=job, folders=list(problems), reason=facts.reason)
                troubles.over(self._store, fence, "staging", job)
        for job, _, _ in troubles.noted(self._store, "unreadable"):
            if _is_readable(self._store.get(f"{JOBS}{job}")):
                troubles.over(self._store, fence, "unreadable", job)

    # in storage

    def _files(self, what: str, folders: Iterable[str], keep_ms: int, wall_ms: int, keep: Container[str] = ()) -> None:
        """Deletes what was not changed for longer than that, but the paths `keep`."""
        files = size = 0
        for folder in folders:
            try:
                swept = self._storage.sweep(folder, keep_ms, wall_ms, keep)
            except StorageError as failure:
                log.warning("not swept", folder=folder, reason=str(failure))
                continue
            files, size = files + swept.files, size + swept.bytes
        if files:
            log.info("swept", what=what, files=files, bytes=size)

    def _archives(self, live: dict[str, None], unreadable: dict[str, None], wall_ms: int) -> None:
        """Deletes the oldest beyond so many, to the minute. Not those of jobs that are not cleaned up, or whose key in etcd cannot be read:
        their end may be announced again. Nor what is younger than an hour, for somebody may be about to ask for its result."""
        try:
            minutes = Counter(entry.modified_ms // MINUTE_MS for entry in self._storage.walk("archives"))
            newer = before_ms = 0
            for minute in sorted(minutes, reverse=True):
                if newer >= self._archives_most:
                    before_ms = min((minute + 1) * MINUTE_MS, wall_ms - LEFT_MS)
                    break
                newer += minutes[minute]
            if not before_ms:
                return
            deleted = 0
            for entry in self._storage.walk("archives"):
                _, job, acceptance, *_ = *entry.path.split("/"), "", ""
                if entry.modified_ms < before_ms and acceptance not in live and job not in unreadable:
                    self._storage.delete_tree(entry.path)
                    deleted += 1
        except StorageError as failure:
            log.warning("not swept", folder="archives", reason=str(failure))
            return
        if deleted:
            log.info("archives beyond the number that is kept were deleted", deleted=deleted, kept=self._archives_most)

    def _owned_by_none(self, folder: str, live: dict[str, None]) -> Iterator[str]:
        """The folders in it that are named by another acceptance than these."""
        return (f"{folder}/{name}" for name in self._names(folder) if name not in live)

    def _names(self, folder: str) -> Iterator[str]:
        try:
            yield from self._storage.folders(folder)
        except StorageError as failure:
            log.warning("not swept", folder=folder, reason=str(failure))


def _is_over(last_ms: int, wall_ms: int, asked_ms: int) -> bool:
    """Whether client.commands has nothing from before, and nothing from soon after."""
    return wall_ms - last_ms > REPEATS_MS and asked_ms > last_ms + SOON_MS


def _stamp_ms(repeat: Entry) -> int:
    """Of a foreign value: none."""
    return int(repeat.value) if _STAMP.fullmatch(repeat.value) else 0


def _is_readable(entry: Entry | None) -> bool:
    try:
        stored_of(entry)
    except Unreadable:
        return False
    return True
