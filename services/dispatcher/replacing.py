"""Ports about a job's key that somebody else has written: a graph put there is accepted, or what the log knows is put back [R24]."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from millrace.core.messages.effects import (
    JobGraphKept,
    JobGraphStored,
    KeepJobGraph,
    PutJobGraph,
    RepairRefused,
    StoredJob,
)
from millrace.io.interfaces import Compare, Entry, Put, Store, Txn
from millrace.runtime import troubles
from millrace.runtime.performer import Fence

from .stored import Unreadable, key_of, stored_of, value_of

CHANGED = "what somebody else put there was changed again, or removed, before it was accepted"

log = structlog.get_logger("ports")


class Replacing:
    """The port of KeepJobGraph, and what PutJobGraph does that replaces something."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def put(self, effect: PutJobGraph, fence: Fence, keep_modules: Callable[[PutJobGraph], bool]) -> JobGraphStored | None:  # [R18]
        """Puts the accepted job where the other value stood. None: again later. Raises UnknownOutcome, Unavailable, Refused."""
        key = key_of(effect.job)
        entry = self._read(key, fence)
        stands = _readable(entry)
        if stands is not None and stands.acceptance == effect.stored.acceptance:
            return JobGraphStored(job=effect.job, stands=stands)  # by a try before, whose answer was lost
        if entry is None or entry.mod_revision != effect.replaces:
            return JobGraphStored(job=effect.job, stands=None, refused=RepairRefused(kind="conflict", reason=CHANGED))
        if not keep_modules(effect):
            return None
        compares = [fence.compare(), Compare(key, effect.replaces)]
        done = self._store.txn(Txn(compares, [Put(key, value_of(effect.stored))], [fence.compare().key]))
        if not done.succeeded:
            fence.check_read(done.reads)
            return None  # it was changed just now: look again
        troubles.over(self._store, fence, "graphs", effect.job)
        return JobGraphStored(job=effect.job, stands=effect.stored.model_copy(update={"graph": None}))

    def keep(self, effect: KeepJobGraph, fence: Fence) -> JobGraphKept | None:
        key = key_of(effect.job)
        entry = self._read(key, fence)
        stands = _readable(entry)
        ended = stands is not None and stands.status is not None
        known = effect.stored
        same = stands is not None and known.status is None and (stands.acceptance, stands.graph) == (known.acceptance, known.graph)
        if not (ended or same or (entry is None and effect.stored.status is not None)):  # a tombstone that is gone was swept
            log.error("a job's key was changed by somebody else: what the log has of it is put back", job=effect.job)
            revision = entry.mod_revision if entry is not None else 0
            done = self._store.txn(
                Txn([fence.compare(), Compare(key, revision)], [Put(key, value_of(effect.stored))], [fence.compare().key])
            )
            if not done.succeeded:
                fence.check_read(done.reads)
                return None
        return JobGraphKept(job=effect.job)

    def _read(self, key: str, fence: Fence) -> Entry | None:
        reads = self._store.txn(Txn([], [], [fence.compare().key, key])).reads
        fence.check_read(reads)
        return reads[key]


def _readable(entry: Entry | None) -> StoredJob | None:
    try:
        return stored_of(entry)
    except Unreadable:
        return None
