"""Records that end processes: counted in etcd, and parked after two [R26]."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import structlog
from pydantic import TypeAdapter

from millrace.core.fold import Diverged, Parked
from millrace.core.machine import UnknownMessage
from millrace.core.messages.records import UnknownRecord
from millrace.io.interfaces import Compare, Entry, Put, Store, Txn, Unavailable

from . import foreign

ENDED_MOST = 2  # processes: then its machine gets PassedOver in its place; one more, and it gets nothing

log = structlog.get_logger("parked")


@dataclass(frozen=True)
class Counted:
    """What `parked/<scope>/<generation>/<offset>` holds."""

    ended: int
    error: str
    build: str = ""


COUNTED = TypeAdapter(Counted)


def _counted(entry: Entry) -> Counted | None:
    """None: it is foreign."""
    try:
        return foreign.read(COUNTED, entry.value, entry.key)
    except foreign.Foreign:
        return None


class ParkedRecords:  # [R26]
    """The bad records of one scope. Read before anything is folded, so that every replica skips the same ones."""

    def __init__(self, store: Store, scope: str, build: str) -> None:
        self._store, self._scope, self._build = store, scope, build
        self._prefix = ""
        self._offsets: dict[int, Parked] = {}

    def load(self, generation: int) -> None:
        """Of this generation: where a log was cut, another record stands at the offset in the next one. Raises Unavailable."""
        self._prefix = f"parked/{self._scope}/{generation}/"
        entries, _ = self._store.list(self._prefix)
        self._offsets = {}
        for entry in entries:
            counted, offset = _counted(entry), entry.key[len(self._prefix) :]
            if counted is None or not re.fullmatch(r"[0-9]{1,19}", offset):
                log.error("a foreign key is passed over: delete it", key=entry.key)
            elif counted.ended >= ENDED_MOST:
                self._offsets[int(offset)] = Parked(counted.error if counted.ended == ENDED_MOST else None)

    def offsets(self) -> dict[int, Parked]:
        """Offset -> all that are passed over."""
        return dict(self._offsets)

    def find(self, offset: int) -> Parked | None:
        """None: the record is good."""
        found = self._offsets.get(offset)
        if found is not None:
            log.error("a parked record is passed over", key=f"{self._prefix}{offset}", error=found.error)
        return found

    def blame(self, offset: int, failure: Exception) -> None:
        """Counts against the record what its fold has raised, which is to go on and end the process."""
        if not isinstance(failure, (Diverged, UnknownMessage, UnknownRecord)):  # a replica's own fault, or its build's: others fold it
            self._count(offset, f"{type(failure).__name__}: {failure}"[:500])

    def _count(self, offset: int, error: str) -> None:
        key = f"{self._prefix}{offset}"
        try:
            entry = self._store.get(key)
            counted = _counted(entry) if entry is not None else None
            before = counted.ended if counted is not None and counted.build == self._build else 0
            # A process that folded the record itself proves nothing about PassedOver: a leader and its standby may end at once.
            ended = before + 1 if offset in self._offsets else min(before + 1, ENDED_MOST)
            value = {"ended": ended, "build": self._build, "error": error}
            put = Put(key, json.dumps(value, separators=(",", ":")).encode())
            self._store.txn(Txn([Compare(key, entry.mod_revision if entry is not None else 0)], [put]))
        except Unavailable as unavailable:
            log.warning("the bad record could not be counted", key=key, reason=str(unavailable))
