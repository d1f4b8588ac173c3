"""Whose etcd, Kafka and storage these are [R29].

Names that are made of generations and offsets come again in the next fresh cluster. So a cluster has a uuid: provisioning makes it once,
in etcd and in the first record of a topic, and the first process that starts writes it into storage. Processes start only where all three
say the same.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Protocol

from pydantic import Field, TypeAdapter, ValidationError
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from millrace.core.topics import IDENTITY
from millrace.io.interfaces import Bus, Compare, Put, Reader, Store, Txn, Unavailable
from millrace.io.storage.store import NotFound, Storage, StorageError

from .snapshots import Pointer

KEY = "cluster"
OWNER = "owner.json"
USED = ("snapshots", "exchange", "blobs", "uploads", "archives", "results", "logs")  # folders of storage that a cluster works with
ANSWER_S = 10.0

RESTORE = "give each cluster a Kafka of its own, or restore the etcd that belongs to this one"
GIVE_OVER = "name a storage_url of its own, or, if that one runs no more, give it over by `python -m deploy.provision --take-storage URL`"
NOT_THERE = "mount it, or restore it; if what it held is lost, give it over by `python -m deploy.provision --take-storage URL`"
PROVISION = "run `python -m deploy.provision` once, then services go on by themselves"


_PATIENT = Retrying(
    retry=retry_if_exception_type(Unavailable), stop=stop_after_delay(ANSWER_S), wait=wait_fixed(0.1), reraise=True
)
"""Of who is not asked again: a broker that has just started, or is busy, answers a little later."""


class OtherCluster(Exception):
    """What was found belongs to another cluster. The message says whose it is, whose this is, and what to do."""


class NotProvisioned(Unavailable):
    """The cluster has no identity yet: it was not provisioned, or not since it was made by a version that had none."""


@dataclass(frozen=True)
class Owner:
    """A cluster, by its uuid and the name that it had then."""

    cluster: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    name: str

    @staticmethod
    def parse(value: bytes) -> Owner:
        """Raises ValueError."""
        try:
            return _OWNERS.validate_json(value, strict=True)
        except ValidationError:
            raise ValueError('it is not of the form {"cluster": "<uuid>", "name": "..."}') from None

    def value(self) -> bytes:
        return json.dumps({"cluster": self.cluster, "name": self.name}).encode()

    def __str__(self) -> str:
        return f"cluster {self.name!r} ({self.cluster})" if self.cluster else "a cluster that is not named"


_OWNERS = TypeAdapter(Owner)
SOMEBODY = Owner("", "unknown")
"""Of storage that holds files and names no owner."""


def of_store(store: Store) -> str:
    """The uuid that etcd has; "": none. Raises Unavailable."""
    entry = store.get(KEY)
    return entry.value.decode() if entry is not None else ""


class Logs(Protocol):
    """What is asked of a Bus here, which who only reads has as well."""

    def offsets(self, topic: str, partition: int) -> tuple[int, int]: ...

    def reader(self, topic: str, partition: int, offset: int) -> Reader: ...


def of_log(bus: Logs) -> Owner | None:
    """Who came first to this Kafka; None: nobody yet. Raises Unavailable: also where there is no such topic."""
    first, end = bus.offsets(IDENTITY, 0)
    if first == end:
        return None
    reader, deadline = bus.reader(IDENTITY, 0, first), time.monotonic() + ANSWER_S
    try:
        while not (found := reader.poll(100, 1)):
            if time.monotonic() > deadline:
                raise Unavailable(f"Kafka gives no record of {IDENTITY}")
        return Owner.parse(found[0].value)
    except ValueError as failure:
        raise OtherCluster(f"the first record of Kafka's topic {IDENTITY} names no cluster: {failure}; {RESTORE}") from None
    finally:
        reader.close()


def new() -> str:
    return uuid.uuid4().hex


def claim(bus: Bus, store: Store, name: str, make: Callable[[], str] = new) -> tuple[str, bool]:  # [R29]
    """Gives etcd and Kafka, whose topic of it must be there, one uuid: the one that either has, else a new one. Returns it, and whether
    anything was written. Raises OtherCluster, Unavailable."""
    mine, theirs = of_store(store), _PATIENT(of_log, bus)
    if not mine and theirs is not None and theirs.name != name:
        raise OtherCluster(
            f"this Kafka belongs to {theirs}, and this is cluster {name!r}, of which etcd knows nothing: give each cluster a Kafka of its "
            f"own, or, if it is the same cluster, name it {theirs.name!r}"
        )
    mine = mine or (theirs.cluster if theirs is not None else make())
    wrote = _put(store, mine)
    mine = of_store(store)
    if theirs is None:  # of two who write now, the first one counts for both
        bus.append(IDENTITY, 0, Owner(mine, name).value(), key=KEY.encode())
        if bus.flush(int(ANSWER_S * 1000)):
            raise Unavailable(f"Kafka does not take a record of {IDENTITY}")
        wrote, theirs = True, _PATIENT(of_log, bus)
    _compare("Kafka", theirs, Owner(mine, name), RESTORE)
    return mine, wrote


class StillRuns(Unavailable):
    """A cluster of 0.1.0 is to get its identity, and its control services have not all ended in order."""


def await_end_of_0_1_0(store: Store) -> None:
    """A cluster that was made and has no uuid is of 0.1.0: its control services would end at each word that is new, and new services lead
    as soon as there is a uuid. Raises StillRuns, Unavailable."""
    if of_store(store) or store.get("topology") is None:
        return
    led = [entry.key.removeprefix("leaders/") for entry in store.list("leaders/")[0]]
    pointers = [(entry.key, Pointer.parse(entry.value, entry.key)) for entry in store.list("snapshots/")[0]]
    ended = {key.removeprefix("snapshots/") for key, pointer in pointers if pointer.final}
    begun = [entry.key.removeprefix("generations/") for entry in store.list("generations/")[0]]
    killed = [scope for scope in begun if scope not in ended]  # also before its first snapshot
    if led:
        raise StillRuns(
            f"this cluster is of version 0.1.0, and {', '.join(led)} {'is' if len(led) == 1 else 'are'} led still: end all its control"
            " services by SIGTERM, run this, then start the new ones; TaskManagers, and what runs on them, go on meanwhile"
        )
    if killed:
        raise StillRuns(
            f"this cluster is of version 0.1.0, and the leader of {', '.join(killed)} was killed: start 0.1.0 once more, end it by SIGTERM,"
            " and run this again, for only it can tell what it had begun"
        )


def put_back(bus: Bus, store: Store) -> tuple[str, bool]:
    """Gives an etcd that has none the uuid that Kafka has, never a new one. Returns it ("": neither has one), and whether it was written.
    Raises OtherCluster, Unavailable."""
    mine, theirs = of_store(store), _PATIENT(of_log, bus)
    if mine and theirs is not None:
        _compare("Kafka", theirs, Owner(mine, theirs.name), RESTORE)
    if mine or theirs is None:
        return mine, False
    return theirs.cluster, _put(store, theirs.cluster)


def _put(store: Store, cluster: str) -> bool:
    return store.txn(Txn([Compare(KEY, 0)], [Put(KEY, cluster.encode())])).succeeded


def check(bus: Logs, store: Store, storage: Storage | None, name: str) -> str:  # [R29]
    """The cluster's uuid, if etcd, Kafka and storage are of one cluster; storage that nobody owns is taken. Raises OtherCluster,
    NotProvisioned, Unavailable, StorageError."""
    me = Owner(of_store(store), name)
    theirs = of_log(bus) if me.cluster else None
    if theirs is None:
        raise NotProvisioned(f"{'Kafka' if me.cluster else 'etcd'} holds no identity of this cluster: {PROVISION}")
    _compare("Kafka", theirs, me, "name the Kafka that belongs to this etcd")
    if storage is not None:
        check_storage(storage, me, store)
    return me.cluster


def check_storage(storage: Storage, me: Owner, store: Store) -> None:
    """Raises OtherCluster, Unavailable, StorageError."""
    owner = owner_of(storage)
    if owner is None:  # another of this cluster may take it at this moment, and write to it
        owner = _own(storage, me) if _is_free(storage, store) else owner_of(storage)
    _compare(f"storage {storage.url}", owner or SOMEBODY, me, GIVE_OVER)
    storage.mark = OWNER


def owner_of(storage: Storage) -> Owner | None:
    """Who has written that it owns the storage. Raises OtherCluster (nobody knows who has), StorageError."""
    try:
        return Owner.parse(storage.get(OWNER))
    except NotFound:
        return None
    except ValueError as failure:
        raise OtherCluster(f"{OWNER} of storage {storage.url} names no cluster ({failure}): {GIVE_OVER}") from None


def _is_free(storage: Storage, store: Store) -> bool:
    """Whether storage that nobody is known to own is empty, or this cluster's: etcd names a snapshot that lies in it. A cluster of a
    version that wrote no owner may use it still. Raises StorageError where it is empty and etcd names one: a mount is missing."""
    named = [(each.key.removeprefix("snapshots/"), Pointer.parse(each.value, each.key)) for each in store.list("snapshots/")[0]]
    if any(next(iter(storage.folders(folder)), None) or storage.list(folder) for folder in USED):
        return any(storage.exists(pointer.path(scope)) for scope, pointer in named)
    if named:
        raise StorageError(storage.url, f"is empty, and the cluster has a snapshot of {named[0][0]} in its storage", NOT_THERE)
    return True


def _own(storage: Storage, me: Owner) -> Owner:
    """Of two that write at the same moment the first one owns it."""
    storage.put_if_absent(OWNER, me.value())
    return Owner.parse(storage.get(OWNER))


def take(storage: Storage, me: Owner) -> Owner | None:
    """Makes the storage this cluster's, whoever owned it: nothing in it has a name that this cluster gives. Returns who did, None: it was
    this one or nobody. Raises StorageError."""
    try:
        before = owner_of(storage) or _own(storage, me)
    except OtherCluster:
        before = SOMEBODY
    if before.cluster == me.cluster:
        return None
    storage.delete_tree(OWNER)
    storage.put_if_absent(OWNER, me.value())
    return before


def _compare(what: str, owner: Owner | None, me: Owner, do: str) -> None:
    if owner is None or owner.cluster != me.cluster:
        raise OtherCluster(f"{what} belongs to {owner or 'nobody'}, and this is {me}: {do}")
