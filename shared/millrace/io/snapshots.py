"""Snapshots of a scope: the folded state in storage, the pointer in etcd, forward only within a generation [25]."""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import dataclass
from typing import Any

import structlog
import zstandard
from pydantic import TypeAdapter, ValidationError

from millrace.core.fold import Folded
from millrace.core.machine import Machine

from .interfaces import Compare, Put, Store, Txn
from .storage import Storage

log = structlog.get_logger("snapshots")


@dataclass(frozen=True)
class Pointer:
    """What `snapshots/<scope>` holds. The name in storage carries the hash: a torn or flipped snapshot is known by it."""

    generation: int
    offset: int
    sha256: str
    build: str

    def path(self, scope: str) -> str:
        return f"snapshots/{scope}/{self.generation}-{self.offset}-{self.sha256[:16]}.json.zst"


@functools.cache
def _adapter(what: type) -> TypeAdapter[Any]:
    """Made once: that takes longer than most snapshots."""
    return TypeAdapter(what)


def freeze(machine: Machine, folded: Folded) -> bytes:
    """The bytes of a snapshot: equal states, equal bytes."""
    core = _adapter(Folded).dump_python(folded, mode="json", exclude={"state"})
    core["state"] = _adapter(machine.state_type).dump_python(folded.state, mode="json")
    return zstandard.compress(json.dumps(core, separators=(",", ":")).encode(), 3)


def thaw(machine: Machine, data: bytes) -> Folded:
    """The folded state of a snapshot's bytes."""
    core: dict[str, Any] = json.loads(zstandard.decompress(data))
    state = _adapter(machine.state_type).validate_python(core.pop("state"))
    folded = _adapter(Folded).validate_python(core)
    folded.state = state
    return folded


class Snapshots:
    """Writes and reads the snapshots of one scope."""

    def __init__(self, store: Store, storage: Storage, machine: Machine) -> None:
        self._store, self._storage, self._machine = store, storage, machine
        self._key = f"snapshots/{machine.scope}"

    def load(self, generation: int) -> tuple[Folded, Pointer] | None:
        """The newest snapshot of this generation; None: there is none that counts [22]. Raises Unavailable."""
        entry = self._store.get(self._key)
        if entry is None:
            return None
        pointer = Pointer(**json.loads(entry.value))
        if pointer.generation != generation:
            return None
        data = self._storage.get(pointer.path(self._machine.scope))
        if hashlib.sha256(data).hexdigest() != pointer.sha256:
            raise ValueError(f"the snapshot {pointer.path(self._machine.scope)} is damaged: its hash differs")
        try:
            return thaw(self._machine, data), pointer
        except ValidationError as failure:
            raise ValueError(
                f"build {pointer.build} wrote the snapshot {pointer.path(self._machine.scope)}, which this build cannot read: "
                f"run the build that wrote it ({failure.error_count()} fields differ)"
            ) from None

    def _delete_old(self, newest: Pointer) -> None:
        """All but the newest two: the one before it may be being read."""
        folder = f"snapshots/{self._machine.scope}"
        names = [entry.path for entry in self._storage.list(folder)]
        old = sorted(names, key=lambda path: [int(part) for part in path.rpartition("/")[2].split("-")[:2]])[:-2]
        for path in old:
            if path != newest.path(self._machine.scope):
                self._storage.delete_tree(path)

    def save(self, folded: Folded) -> Pointer | None:
        """Writes a snapshot of `folded` (which must not change meanwhile); None: a newer one stands. Raises Unavailable."""
        data = freeze(self._machine, folded)
        pointer = Pointer(folded.generation, folded.next_offset, hashlib.sha256(data).hexdigest(), folded.build)
        self._storage.put_new(pointer.path(self._machine.scope), data)
        entry = self._store.get(self._key)
        if entry is not None:
            standing = Pointer(**json.loads(entry.value))
            if (standing.generation, standing.offset) >= (pointer.generation, pointer.offset):
                return None
        value = json.dumps(pointer.__dict__, separators=(",", ":")).encode()
        done = self._store.txn(Txn([Compare(self._key, entry.mod_revision if entry else 0)], [Put(self._key, value)]))
        if not done.succeeded:
            return None
        self._delete_old(pointer)
        log.info("snapshot", scope=self._machine.scope, offset=pointer.offset, bytes=len(data))
        return pointer
