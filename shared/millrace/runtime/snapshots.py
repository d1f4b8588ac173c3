"""Snapshots of a scope: the folded state in storage, the pointer in etcd, forward only within a generation [R25]."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, get_type_hints

import structlog
import zstandard
from pydantic import AliasChoices, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from millrace.core.cluster import short
from millrace.core.fold import ScopeState
from millrace.core.machine import Machine, stored_fields
from millrace.io.interfaces import Compare, Put, Store, Txn
from millrace.io.storage.store import NotFound, Storage

from . import foreign

SILENT = {"client_stamp": ScopeState(generation=0, next_offset=0).client_stamp}
"""Fields of a scope that builds before do not know: left out while they say nothing, so that such a build reads the snapshot."""
CHUNK_ENTRIES = 500  # of a table: none holds the interpreter for long, neither written nor read

log = structlog.get_logger("snapshots")


@dataclass(frozen=True)
class Pointer:
    """What `snapshots/<scope>` holds. The name in storage carries the hash: a torn or flipped snapshot is known by it.

    `final`: the leader that wrote it has ended its term with it, and said nothing about later records: another build may go on from
    here [R27]. `before`: the snapshot before this one, to fall back to. `cluster`: whose it is, by its uuid; "" before clusters had one
    [R29]."""

    generation: int
    offset: int
    sha256: str
    build: str
    final: bool = False
    before: Pointer | None = None
    cluster: str = ""

    @staticmethod
    def parse(value: bytes, key: str = "snapshots/") -> Pointer:
        """Raises Foreign, which names the key."""
        return foreign.read(_pointers(), value, key)

    def value(self) -> bytes:
        """As it stands in etcd: one snapshot before this one, not all."""
        before = dataclasses.replace(self.before, before=None) if self.before else None
        return json.dumps(asdict(dataclasses.replace(self, before=before)), separators=(",", ":")).encode()

    @property
    def order(self) -> tuple[int, int, bool]:
        return self.generation, self.offset, self.final

    def path(self, scope: str) -> str:  # [R20], [R29]
        whose = f"{short(self.cluster)}-" if self.cluster else ""
        return f"{folder(scope)}/{whose}{self.generation}-{self.offset}-{self.sha256[:16]}.jsonl.zst"


@functools.cache
def _pointers() -> TypeAdapter[Pointer]:
    return TypeAdapter(Pointer)


class Unreadable(ValueError):
    """Another build wrote the snapshot, and this one does not know what is in it."""


@dataclass(frozen=True)
class Named:
    """A snapshot by its name in storage: `cluster` is the beginning of a uuid, or ""."""

    cluster: str
    generation: int
    offset: int
    sha256: str
    path: str


def folder(scope: str) -> str:
    """In storage."""
    return f"snapshots/{scope}"


def named(storage: Storage, scope: str) -> Iterator[Named]:
    """All that lie in a scope's folder, whosever they are. What others leave there (.nfs*, .DS_Store) is none. Raises StorageError."""
    for entry in storage.list(folder(scope)):
        if found := re.fullmatch(r"(?:([0-9a-f]+)-)?(\d+)-(\d+)-([0-9a-f]+)\.jsonl\.zst", entry.path.rpartition("/")[2]):
            yield Named(found[1] or "", int(found[2]), int(found[3]), found[4], entry.path)


@functools.cache
def _names(owner: type) -> dict[str, str]:
    """The name of a field, today's or one that it had formerly -> today's."""
    hints = get_type_hints(owner, include_extras=True)
    choices = {name: _formerly(hints[name]) for name in _adapters(owner)}
    return {each: name for name, every in choices.items() for each in (name, *every)}


def _formerly(hint: Any) -> list[Any]:
    marks = [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, FieldInfo)]
    return [name for mark in marks if isinstance(mark.validation_alias, AliasChoices) for name in mark.validation_alias.choices]


@functools.cache
def _adapters(owner: type) -> dict[str, TypeAdapter[Any]]:
    """Field -> its adapter. Made once: that takes longer than most snapshots."""
    hints = get_type_hints(owner)
    return {name: TypeAdapter(hints[name]) for name in stored_fields(owner) if (owner, name) != (ScopeState, "state")}


def chunks(machine: Machine, folded: ScopeState) -> Iterator[bytes]:
    """The bytes of a snapshot, piece by piece: a line for each field, and one for every few entries of a table."""
    compressor = zstandard.ZstdCompressor(level=3).compressobj()
    for name, owner, holder in (("core", ScopeState, folded), ("state", machine.state_type, folded.state)):
        for field, adapter in _adapters(owner).items():
            if owner is ScopeState and field in SILENT and getattr(holder, field) == SILENT[field]:
                continue
            for part in _parts(getattr(holder, field)):
                line = b"%s %s %s\n" % (name.encode(), field.encode(), adapter.dump_json(part))
                yield compressor.compress(line)
    yield compressor.flush()


def _parts(value: Any) -> Iterator[Any]:
    if not isinstance(value, dict) or len(value) <= CHUNK_ENTRIES:
        yield value
        return
    keys = list(value)
    for first in range(0, len(keys), CHUNK_ENTRIES):
        yield type(value)((key, value[key]) for key in keys[first : first + CHUNK_ENTRIES])  # pydantic warns of a dict for an OrderedDict


def freeze(machine: Machine, folded: ScopeState) -> bytes:  # [R13]
    """A snapshot in one piece: equal states, equal bytes."""
    return b"".join(chunks(machine, folded))


def thaw(machine: Machine, data: bytes) -> ScopeState:
    """The folded state of a snapshot's bytes. Raises ValueError for what is none, or none of this build."""
    found: dict[str, dict[str, Any]] = {"core": {}, "state": {}}
    owners = {"core": ScopeState, "state": machine.state_type}
    try:
        for line in io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(data)):
            part_of, written, text = line.decode().split(" ", 2)
            owner, values = owners[part_of], found[part_of]
            field = _names(owner)[written]
            part = _part(machine, part_of, field, _adapters(owner)[field], text)
            if field in values:
                values[field].update(part)
            else:
                values[field] = part
        return ScopeState(**found["core"], state=machine.state_type(**found["state"]))
    except ValidationError as failure:
        raise ValueError(f"{failure.error_count()} values of {field} are not what they should be") from None
    except KeyError as failure:
        raise ValueError(f"there is no field {failure}") from None
    except (TypeError, zstandard.ZstdError) as failure:
        raise ValueError(str(failure)) from None


def _part(machine: Machine, part_of: str, field: str, adapter: TypeAdapter[Any], text: str) -> Any:
    """What is not of today's shape may be of an earlier one, which the machine knows."""
    try:
        return adapter.validate_json(text)
    except ValidationError:
        of_earlier = getattr(machine, "of_earlier", None)
        if part_of != "state" or of_earlier is None:
            raise
        return adapter.validate_json(json.dumps(of_earlier(field, json.loads(text))))


class Snapshots:
    """Writes and reads the snapshots of one scope."""

    def __init__(self, store: Store, storage: Storage, machine: Machine, cluster: str = "") -> None:
        self._store, self._storage, self._machine, self._cluster = store, storage, machine, cluster
        self._key = f"snapshots/{machine.scope}"

    def newest(self, generation: int) -> Pointer | None:
        """The newest snapshot's pointer; None: there is none of this generation [R22]. Raises Unavailable."""
        entry = self._store.get(self._key)
        pointer = Pointer.parse(entry.value, entry.key) if entry is not None else None
        return pointer if pointer is not None and pointer.generation == generation else None

    def load(self, pointer: Pointer) -> tuple[ScopeState, Pointer] | None:  # [R22], [R25]
        """The snapshot, or if it is damaged the one before it; None: there is none that is whole. Raises StorageError if storage does not
        answer or has neither, Unreadable."""
        missing: NotFound | None = None
        for each in (pointer, pointer.before):
            if each is None or each.generation != pointer.generation:
                continue
            path = each.path(self._machine.scope)
            try:
                data = self._storage.get(path)
            except NotFound as failure:
                missing = missing or failure
                log.error("a snapshot is not in storage", path=path)
                continue
            if hashlib.sha256(data).hexdigest() != each.sha256:
                log.error("a snapshot is damaged: its hash differs", path=path)
                continue
            try:
                return thaw(self._machine, data), each
            except ValueError as failure:
                raise Unreadable(
                    f"build {each.build} wrote the snapshot {path}, which this build cannot read: run the build that wrote it ({failure})"
                ) from None
        if missing is not None:
            raise missing
        return None

    def save(self, folded: ScopeState, final: bool = False) -> Pointer | None:
        """Writes a snapshot of `folded` (which must not change meanwhile); None: a newer one stands. Raises Unavailable, StorageError."""
        return self.keep(folded.generation, folded.next_offset, folded.build, freeze(self._machine, folded), final)

    def keep(self, generation: int, offset: int, build: str, data: bytes, final: bool = False) -> Pointer | None:  # [R25]
        """As `save`, of bytes that were made before."""
        pointer = Pointer(generation, offset, hashlib.sha256(data).hexdigest(), build, final, cluster=self._cluster)
        self._storage.put_new(pointer.path(self._machine.scope), data)
        entry, fallen = self._store.get(self._key), None
        if entry is not None:
            standing = Pointer.parse(entry.value, entry.key)
            if standing.order >= pointer.order:
                return None
            same = standing.order[:2] == pointer.order[:2]  # the end of a term in which nothing was folded since
            pointer = dataclasses.replace(pointer, before=standing.before if same else standing)
            fallen = standing if same else standing.before
        put = Put(self._key, pointer.value())
        if not self._store.txn(Txn([Compare(self._key, entry.mod_revision if entry else 0)], [put])).succeeded:
            return None
        self._delete_old(pointer.before or pointer, fallen)
        log.info("snapshot", scope=self._machine.scope, offset=offset, bytes=len(data), final=final)
        return pointer

    def _delete_old(self, oldest: Pointer, fallen: Pointer | None) -> None:
        """All of this cluster below the older one of the two that count; what lies above may be another's who is just writing. One without
        a cluster in its name is known to be this cluster's by its pointer alone."""
        for each in named(self._storage, self._machine.scope):
            if each.cluster == short(self._cluster) and (each.generation, each.offset) < oldest.order[:2]:
                self._storage.delete_tree(each.path)
        if fallen is not None and fallen.cluster != self._cluster:
            self._storage.delete_tree(fallen.path(self._machine.scope))
