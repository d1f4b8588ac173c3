"""What a job leaves is deleted, then its key becomes a tombstone. One try: what could not be deleted is found by the sweep."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from millrace.core.messages.effects import CleanJob, JobCleaned, JobKept, KeepJob
from millrace.io.interfaces import Compare, Entry, Put, Store, Txn
from millrace.io.storage.store import Storage, StorageError
from millrace.runtime import troubles
from millrace.runtime.performer import Fence

from .staging import Staging
from .stored import Unreadable, key_of, repeat_key, stored_of, value_of

log = structlog.get_logger("cleaning")


class Cleaning:
    """The ports of CleanJob and KeepJob."""

    def __init__(self, store: Store, storage: Storage, staging: Staging) -> None:
        self._store, self._storage, self._staging = store, storage, staging

    def clean(self, effects: Sequence[CleanJob], fence: Fence) -> list[JobCleaned | None]:
        """Deletes first, so that a crash between leaves the job dirty and is tried again."""
        reads = self._store.txn(Txn([], [], [key_of(effect.job) for effect in effects])).reads
        dirty = [(effect, entry) for effect in effects if (entry := reads[key_of(effect.job)]) and _is_dirty(entry)]
        for effect, _ in dirty:
            if effect.exchange:
                delete_tree(self._storage, effect.job, effect.exchange)
            delete_tree(self._storage, effect.job, f"blobs/{effect.job}/{effect.tombstone.acceptance}")
        self._unstage([effect for effect, _ in dirty], fence)
        if dirty:
            compares = [Compare(key_of(e.job), entry.mod_revision) for e, entry in dirty]
            puts = [Put(key_of(e.job), value_of(e.tombstone)) for e, _ in dirty]
            done = self._store.txn(Txn([fence.compare(), *compares], puts, [fence.compare().key]))
            if not done.succeeded:
                fence.check_read(done.reads)
                return [None for _ in effects]  # an earlier try, whose answer was lost, came between: look again
        return [JobCleaned(job=effect.job) for effect in effects]

    def keep(self, effect: KeepJob, fence: Fence) -> JobKept:
        """The sweep may have deleted the tombstone while the state still had the job, and may do so now. Then it is put back: a
        new generation reads the repeat and recognises the job by nothing else."""
        key, repeat = key_of(effect.job), Put(repeat_key(effect.job), b"%d" % effect.at_ms)
        while True:
            stands = self._store.get(key)
            puts = [repeat]
            if stands is None and effect.tombstone is not None:
                puts.append(Put(key, value_of(effect.tombstone)))
            revision = stands.mod_revision if stands is not None else 0
            done = self._store.txn(Txn([fence.compare(), Compare(key, revision)], puts, [fence.compare().key]))
            if done.succeeded:
                return JobKept(job=effect.job)
            fence.check_read(done.reads)

    def _unstage(self, effects: Sequence[CleanJob], fence: Fence) -> None:
        """All together, in a moment. What is left then is written down before the job counts as clean."""
        problems = self._staging.delete([folder for effect in effects for folder in effect.staging])
        for effect in effects:
            left = {folder: problems[folder] for folder in effect.staging if folder in problems}
            if left:
                reason = next(iter(left.values()))
                facts = troubles.Facts(reason=reason, folders=list(left), since_ms=effect.tombstone.ended_ms or 0)
                troubles.note(self._store, fence, "staging", effect.job, facts)


def delete_tree(storage: Storage, job: str, path: str) -> None:
    """Whatever is left of it is swept later."""
    try:
        storage.delete_tree(path)
    except StorageError as failure:
        log.warning("leavings of a job are not deleted yet", job=job, reason=str(failure))


def _is_dirty(entry: Entry) -> bool:
    """Also what nobody can read: the log knows that the job has ended, and how."""
    try:
        stands = stored_of(entry)
    except Unreadable:
        return True
    return stands is not None and stands.state == "dirty"
