"""The keys of a scope in etcd: `leaders/<scope>` (who speaks; its mod_revision is the epoch) and `generations/<scope>` (which log)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from pydantic import TypeAdapter

from millrace.io.interfaces import Bus, Compare, Delete, Entry, Put, Store, Txn, Unavailable, UnknownOutcome

from . import foreign


@dataclass(frozen=True)
class Generation:
    """Generation `number` is the log `log_id` from `first_offset` on [R22]. `revision`: of the key. `won`: the epoch, if this
    process raised it and so leads it."""

    number: int
    log_id: str
    first_offset: int
    revision: int
    won: int = 0


@dataclass(frozen=True)
class Stored:
    """What `generations/<scope>` holds. `reason`: why it was raised."""

    generation: int
    log_id: str
    first_offset: int
    reason: str | None = None


STORED = TypeAdapter(Stored)


def stored(entry: Entry) -> Stored:
    """The generation's key as a build wrote it. Raises Foreign."""
    return foreign.read(STORED, entry.value, entry.key)


class Generations:
    """The two keys of one scope, each write of them checked."""

    def __init__(self, store: Store, bus: Bus, scope: str, topic: str, partition: int, who: str) -> None:
        self._store, self._bus, self._topic, self._partition, self._who = store, bus, topic, partition, who
        self.leader_key, self.generation_key = f"leaders/{scope}", f"generations/{scope}"
        self._raised: Generation | None = None

    def current(self) -> Generation:  # [R22]
        """The generation to fold; the first one is made here. Raises Unavailable: also while a replaced log waits for the old
        leader's lease to end, before its generation can be raised."""
        log_id = self._bus.log_id(self._topic)
        entry = self._store.get(self.generation_key)
        if entry is None:
            first = {
                "generation": 1,
                "log_id": log_id,
                "first_offset": self._bus.offsets(self._topic, self._partition)[0],
            }
            self._store.txn(Txn([Compare(self.generation_key, 0)], [Put(self.generation_key, _json(first))]))
            entry = self._store.get(self.generation_key)
            if entry is None:
                raise Unavailable("the generation could not be stored in etcd")
        value = stored(entry)
        found = Generation(value.generation, value.log_id, value.first_offset, entry.mod_revision)
        if found.log_id != log_id:
            raise LogReplaced(found, f"{self._topic} is another log than generation {found.number} was folded from")
        if self._raised is not None and self._raised.number == found.number and self._raised.won:
            found, self._raised = self._raised, None
        return found

    def campaign(self, expected: int, lease: int, generation: Generation, known: int = 0) -> int | None:
        """Takes the leader key if its mod_revision is `expected` (0: absent) and the generation stands; the epoch, or None.
        Raises Unavailable, OlderStore (etcd is below the revision `known`), UnknownOutcome (then the next look at the key tells)."""
        self._refuse_older_store(known)
        txn = Txn(
            [Compare(self.leader_key, expected), Compare(self.generation_key, generation.revision)],
            [Put(self.leader_key, self._who.encode(), lease)],
        )
        try:
            result = self._store.txn(txn)
        except UnknownOutcome:
            entry = self._store.get(self.leader_key)
            if entry is not None and entry.value == self._who.encode() and entry.lease == lease:
                return entry.mod_revision
            raise
        return result.revision if result.succeeded else None

    def resign(self, epoch: int) -> None:
        """Gives the leader key back if it is still that of `epoch`."""
        self._store.txn(Txn([Compare(self.leader_key, epoch)], [Delete(self.leader_key)]))

    def raise_(self, generation: Generation, epoch: int, lease: int, reason: str, known: int = 0) -> bool:
        """Raises the generation and takes the leader key, in one transaction [R23]. False, and nothing happens, if either has changed.
        Raises Unavailable, OlderStore."""
        self._refuse_older_store(known)
        log_id, end = self._bus.log_id(self._topic), self._bus.offsets(self._topic, self._partition)[1]
        new = Stored(generation.number + 1, log_id, end, reason[:500])
        txn = Txn(
            [Compare(self.leader_key, epoch), Compare(self.generation_key, generation.revision)],
            [Put(self.generation_key, _json(asdict(new))), Put(self.leader_key, self._who.encode(), lease)],
        )
        result = self._store.txn(txn)
        if result.succeeded:
            self._raised = Generation(new.generation, log_id, end, result.revision, won=result.revision)
        return result.succeeded

    def _refuse_older_store(self, known: int) -> None:  # [R24]
        revision = self._store.txn(Txn([], [], [self.leader_key])).revision
        if revision < known:
            raise OlderStore(
                f"etcd is at revision {revision} and this log knows of {known}: it was restored from a backup; end all control "
                "services, run `millrace recover`, start them again"
            )


class OlderStore(Unavailable):
    """etcd is older than the log [R24]."""


class LogReplaced(Unavailable):
    """The topic was deleted and made again: the generation must be raised, which waits for the leader key to be free."""

    def __init__(self, generation: Generation, reason: str) -> None:
        super().__init__(reason)
        self.generation = generation


def _json(value: dict[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
