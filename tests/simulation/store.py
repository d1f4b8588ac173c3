"""etcd in memory. `MemoryEtcd` is the cluster that all share; a `MemoryStore` is one process's client of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from millrace.io.etcd.store import TXN_MAX_BYTES, request_of
from millrace.io.interfaces import PAGE, Change, Delete, Entry, Put, Txn, TxnResult, Unavailable, UnknownOutcome
from tests.simulation import Clock

TXN_MAX_OPERATIONS = 128

Fault = Literal["unavailable", "unknown, not done", "unknown, done"]


@dataclass
class _Lease:
    ttl_ms: int
    ends_ms: int
    keys: dict[str, None] = field(default_factory=dict)  # a set in the order of insertion


@dataclass(eq=False)
class _Watch:
    store: MemoryStore
    key: str
    on_change: Callable[[Entry | None], None]
    on_lost: Callable[[], None]
    over: bool = False
    on_each: Callable[[Change], None] | None = None  # of a watch of all keys below `key`


def _lost(told: Callable[[bool], None], compacted: bool) -> Callable[[], None]:
    return lambda: told(compacted)


class MemoryEtcd:
    """Keys, leases and watches, and what can happen to them. Callbacks of watches run in `deliver` alone."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.paused = False
        self.revision = 1
        self.history: list[tuple[int, str, bytes | None]] = []  # (revision, key, value; None: deleted), all changes
        self.compacted = 0  # what was before this revision is not told any more
        self.writes: list[tuple[str, str, bytes]] = []  # (client, key, who led the Dispatcher then), of all writes to jobs
        self.foreign: dict[tuple[int, str], None] = {}  # (revision, key) of jobs that strangers have changed
        self.given_back: list[tuple[str, str, bytes]] = []  # (client, key, whose it was), of all leader keys that were deleted
        self._entries: dict[str, Entry] = {}
        self._leases: dict[int, _Lease] = {}
        self._granted = 0
        self._watches: list[_Watch] = []
        self._news: deque[tuple[_Watch, Callable[[], None]]] = deque()

    def pause(self) -> None:
        """etcd is away: every call fails, watches are lost, no lease ends."""
        self.expire()
        self.paused = True
        self.lose_watches()

    def resume(self) -> None:
        """etcd is back. Leases start anew with their full time, as after an election."""
        self.paused = False
        for lease in self._leases.values():
            lease.ends_ms = self.clock.now_ms() + lease.ttl_ms

    def lose_watches(self, store: MemoryStore | None = None) -> None:
        """A compaction or a broken connection: every watch (of one client) ends; what was not delivered yet never is."""
        lost = [watch for watch in self._watches if store in (None, watch.store)]
        for watch in lost:
            self._news = deque((of, say) for of, say in self._news if of is not watch)
            self._news.append((watch, watch.on_lost))
        self._watches = [watch for watch in self._watches if watch not in lost]

    @property
    def has_news(self) -> bool:
        """Whether `deliver` has something to tell or to end."""
        now_ms = self.clock.now_ms()
        return bool(self._news) or (not self.paused and any(each.ends_ms <= now_ms for each in self._leases.values()))

    def deliver(self, most: int | None = None) -> int:
        """Runs the callbacks of the oldest `most` changes that watches have not been told (None: all). How many."""
        self.expire()
        told = 0
        while self._news and told != most:
            watch, say = self._news.popleft()
            if not watch.over:
                watch.over = say is watch.on_lost
                say()
                told += 1
        return told

    def expire(self) -> None:
        """Ends the leases whose time is over, in the order of their ends."""
        if self.paused:
            return
        due = [(lease.ends_ms, id_) for id_, lease in self._leases.items() if lease.ends_ms <= self.clock.now_ms()]
        for _, id_ in sorted(due):
            self.end_lease(id_)

    def end_lease(self, id_: int) -> None:
        lease = self._leases.pop(id_, None)
        if lease is not None:
            self._commit([Delete(key) for key in lease.keys])

    def entry(self, key: str) -> Entry | None:
        return self._entries.get(key)

    def entries(self, prefix: str) -> list[Entry]:
        return [self._entries[key] for key in sorted([key for key in self._entries if key.startswith(prefix)], key=_bytes)]

    def txn(self, txn: Txn) -> TxnResult:
        _check(txn)
        holds = all(getattr(self._entries.get(one.key), "mod_revision", 0) == one.mod_revision for one in txn.compares)
        if holds:
            for one in txn.then:
                if isinstance(one, Put) and one.lease and one.lease not in self._leases:
                    raise Unavailable(f"lease {one.lease} has ended")
            self._commit(txn.then)
        return TxnResult(holds, self.revision, {key: self._entries.get(key) for key in txn.reads})

    def grant(self, ttl_s: int) -> int:
        self._granted += 1
        id_ = 7_000_000 + self._granted
        self._leases[id_] = _Lease(ttl_s * 1000, self.clock.now_ms() + ttl_s * 1000)
        return id_

    def keep_alive(self, id_: int) -> bool:
        lease = self._leases.get(id_)
        if lease is not None:
            lease.ends_ms = self.clock.now_ms() + lease.ttl_ms
        return lease is not None

    def watch(self, watch: _Watch) -> None:
        self._watches.append(watch)

    def compact(self) -> None:
        """etcd forgets its history. Who watches goes on."""
        self.revision += 1
        self.compacted = self.revision

    def changes(self, watch: _Watch, since: int, on_lost: Callable[[bool], None]) -> None:
        """A watch that begins with what came after `since`. What is compacted etcd says when it has confirmed the watch."""
        if since and since + 1 < self.compacted:
            watch.on_lost = _lost(on_lost, True)
            self._news.append((watch, watch.on_lost))
            return
        self._watches.append(watch)
        created: dict[str, int] = {}
        for revision, key, value in self.history:
            first = created[key] = 0 if value is None else created.get(key) or revision
            if since and revision > since and key.startswith(watch.key):
                self._news.append((watch, self._change(watch, Change(key, revision, value, first))))

    def _change(self, watch: _Watch, change: Change) -> Callable[[], None]:
        assert watch.on_each is not None, "it watches many keys"
        shown, tell = Change(watch.store.own(change.key), change.revision, change.value, change.created), watch.on_each
        return lambda: tell(shown)

    def unwatch(self, watch: _Watch) -> None:
        watch.over = True
        self._watches = [one for one in self._watches if one is not watch]

    def watches_of(self, store: MemoryStore) -> list[_Watch]:
        return [watch for watch in self._watches if watch.store is store]

    def _commit(self, operations: list[Put | Delete] | tuple[Put | Delete, ...]) -> None:
        """Carries out one transaction's operations: one revision for all, none if nothing changes."""
        operations = [one for one in operations if isinstance(one, Put) or one.key in self._entries]
        self.revision += bool(operations)
        for one in operations:
            before = self._entries.get(one.key)
            if before is not None and before.lease in self._leases:
                self._leases[before.lease].keys.pop(one.key, None)
            if isinstance(one, Put):
                created = before.create_revision if before is not None else self.revision
                self._entries[one.key] = Entry(one.key, one.value, created, self.revision, one.lease)
                if one.lease:
                    self._leases[one.lease].keys[one.key] = None
            else:
                del self._entries[one.key]
            self.history.append((self.revision, one.key, one.value if isinstance(one, Put) else None))
            self._tell(one.key)

    def _tell(self, key: str) -> None:
        entry = self._entries.get(key)
        for watch in self._watches:
            if watch.on_each is not None and key.startswith(watch.key):
                change = Change(key, self.revision, None)
                if entry is not None:
                    change = Change(key, self.revision, entry.value, entry.create_revision)
                self._news.append((watch, self._change(watch, change)))
            elif watch.key == key and watch.on_each is None:
                self._news.append((watch, lambda watch=watch: watch.on_change(watch.store.shown(entry))))


class MemoryStore:
    """A process's client of a `MemoryEtcd`; see `Store`. `faults`: what happens to the next calls, one each."""

    def __init__(self, etcd: MemoryEtcd, prefix: str, name: str = "") -> None:
        self._etcd, self.name = etcd, name
        self._prefix = prefix.rstrip("/") + "/"
        self._closed = False
        self.cut_off = False  # etcd does not hear this client
        self.faults: deque[Fault] = deque()
        self.write_faults: deque[Fault] = deque()  # of the next writes to jobs alone
        self.revision = 0

    def get(self, key: str) -> Entry | None:
        return self._call(lambda: self.shown(self._etcd.entry(self._prefix + key)))

    def list(self, prefix: str) -> tuple[list[Entry], int]:
        return self._call(
            lambda: ([self.shown(one) for one in self._etcd.entries(self._prefix + prefix)], self._etcd.revision)
        )

    def page(self, prefix: str, after: str = "", most: int = PAGE) -> list[Entry]:
        above = _bytes(self._prefix + after) if after else b""

        def found() -> list[Entry]:
            entries = self._etcd.entries(self._prefix + prefix)
            return [self.shown(one) for one in entries if _bytes(one.key) > above][:most]

        return self._call(found)

    def count(self, prefix: str) -> int:
        return self._call(lambda: len(self._etcd.entries(self._prefix + prefix)))

    def txn(self, txn: Txn) -> TxnResult:
        full = Txn(
            [type(one)(self._prefix + one.key, one.mod_revision) for one in txn.compares],
            [
                Put(self._prefix + one.key, one.value, one.lease)
                if isinstance(one, Put)
                else Delete(self._prefix + one.key)
                for one in txn.then
            ],
            [self._prefix + key for key in txn.reads],
        )
        if self.write_faults and any(one.key.startswith("jobs/") for one in txn.then):
            self.faults.appendleft(self.write_faults.popleft())
        result = self._call(lambda: self._txn(full), changes=bool(txn.then))
        reads = {key: self.shown(result.reads[self._prefix + key]) for key in txn.reads}
        return TxnResult(result.succeeded, result.revision, reads)

    def _txn(self, full: Txn) -> TxnResult:
        leader = self._etcd.entry(f"{self._prefix}leaders/dispatcher")
        held = {one.key: self._etcd.entry(one.key) for one in full.then if isinstance(one, Delete) and "/leaders/" in one.key}
        result = self._etcd.txn(full)
        jobs = [one.key for one in full.then if result.succeeded and one.key.startswith(f"{self._prefix}jobs/")]
        if self.name == "stranger":
            self._etcd.foreign |= {(result.revision, key): None for key in jobs}
            return result
        if result.succeeded:
            self._etcd.given_back += [(self.name, key, entry.value) for key, entry in held.items() if entry is not None]
        self._etcd.writes += [(self.name, key, leader.value if leader is not None else b"") for key in jobs]
        return result

    def grant(self, ttl_s: int) -> int:
        return self._call(lambda: self._etcd.grant(ttl_s), changes=True)

    def keep_alive(self, lease: int) -> bool:
        return self._call(lambda: self._etcd.keep_alive(lease), changes=True)

    def revoke(self, lease: int) -> None:
        self._call(lambda: self._etcd.end_lease(lease), changes=True)

    def watch(
        self, key: str, on_change: Callable[[Entry | None], None], on_lost: Callable[[], None]
    ) -> Callable[[], None]:
        watch = _Watch(self, self._prefix + key, on_change, on_lost)
        self._call(lambda: self._etcd.watch(watch))
        return lambda: self._etcd.unwatch(watch)

    def changes(
        self, prefix: str, since: int, on_change: Callable[[Change], None], on_lost: Callable[[bool], None]
    ) -> Callable[[], None]:
        watch = _Watch(self, self._prefix + prefix, lambda entry: None, _lost(on_lost, False), on_each=on_change)
        self._call(lambda: self._etcd.changes(watch, since, on_lost))
        return lambda: self._etcd.unwatch(watch)

    def own(self, key: str) -> str:
        """A key as this client names it: without the prefix."""
        return key[len(self._prefix) :]

    def close(self) -> None:
        for watch in self._etcd.watches_of(self):
            self._etcd.unwatch(watch)
            watch.on_lost()
        self._closed = True

    def shown(self, entry: Entry | None) -> Entry | None:
        """An entry as this client sees it: its key without the prefix."""
        if entry is None:
            return None
        return Entry(self.own(entry.key), entry.value, entry.create_revision, entry.mod_revision, entry.lease)

    def _call(self, ask: Callable, *, changes: bool = False):
        if self._closed or self._etcd.paused or self.cut_off:
            raise Unavailable("the store is closed" if self._closed else "etcd in memory does not answer")
        self._etcd.expire()
        fault = self.faults.popleft() if self.faults else None
        if fault == "unknown, done":
            ask()
        if fault is not None:
            unknown = changes and fault != "unavailable"
            raise (UnknownOutcome if unknown else Unavailable)(f"etcd in memory was told to fail: {fault}")
        answer = ask()
        self.revision = max(self.revision, self._etcd.revision)
        return answer


def _bytes(key: str) -> bytes:
    """A key as etcd has it."""
    return key.encode(errors="surrogateescape")


def _check(txn: Txn) -> None:
    """Refuses what etcd refuses. Its keys are whole."""
    if max(len(txn.compares), len(txn.then) + len(txn.reads)) > TXN_MAX_OPERATIONS:
        raise ValueError("too many operations in a transaction")
    keys = [one.key for one in txn.then]
    if len(set(keys)) != len(keys):
        raise ValueError("one key twice in a transaction")
    roughly = sum(len(one.value) for one in txn.then if isinstance(one, Put))
    if roughly > TXN_MAX_BYTES // 2 and request_of(txn, "").ByteSize() > TXN_MAX_BYTES:
        raise ValueError(f"a transaction above {TXN_MAX_BYTES} bytes")
