"""What a service asks of Kafka and etcd, as two small protocols.

Each has two implementations: the real one (`io/kafka/bus.py`, `io/etcd/store.py`) and the in-memory one of the tests
(`tests/simulation/bus.py`, `tests/simulation/store.py`); one contract suite (`tests/contract`) holds both to the same words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

PAGE, PAGE_MOST = 64, 5_000
"""Entries that are asked for at once: 64 are 16 MB, if each is the largest graph that is stored. More when they are small."""
PAGE_BYTES = 4 << 20


Answered = Callable[[str, float, bool], None]
"""Is called with what was asked of etcd, how many seconds the answer took, and whether there was one. Must not wait, or raise."""


class Unavailable(Exception):
    """The broker or etcd did not answer; nothing is known about what was asked. The message says where it was looked for."""


class UnknownOutcome(Unavailable):
    """A transaction was sent and its answer was lost: it may have been carried out, or not. Never an answer: ask again until known."""


@dataclass(frozen=True)
class Received:
    """One record as a reader sees it. `stamp_ms` is the broker's append time (LogAppendTime)."""

    topic: str
    partition: int
    offset: int
    stamp_ms: int
    key: bytes | None
    value: bytes
    headers: Sequence[tuple[str, bytes | None]] = ()


class Reader(Protocol):
    """Reads one partition from a given offset on, in order, without a consumer group."""

    def poll(self, timeout_ms: int, most: int = 500) -> list[Received]:
        """The next records, at once when there is at least one, else an empty list after `timeout_ms`. Raises Unavailable only
        for what does not heal by itself (unknown topic); `Damaged` when the next one cannot be read; `OffsetGone` when the offset asked
        for is no longer (or not yet) there."""
        ...

    def close(self) -> None: ...


class OffsetGone(Exception):
    """The reader's next offset is outside the log: records were deleted below it, or the log was cut above it."""

    def __init__(self, topic: str, partition: int, offset: int, first: int, end: int) -> None:
        super().__init__(f"{topic}[{partition}] has offsets {first} to {end}, not {offset}")
        self.topic, self.partition, self.offset, self.first, self.end = topic, partition, offset, first, end


class Damaged(Unavailable):
    """What stands at the reader's next offset cannot be read: its bytes are not those that were written, or do not unpack."""

    def __init__(self, topic: str, partition: int, offset: int, reason: str) -> None:
        super().__init__(f"{topic}[{partition}] cannot be read at offset {offset}: {reason}")
        self.topic, self.partition, self.offset = topic, partition, offset


class Bus(Protocol):
    """Kafka, as far as a service needs it. One bus a process; its producers have acks=all, are idempotent, with one request in flight,
    no message time-out, gapless, so that what reaches a partition is a prefix of what was appended to it [R12]."""

    def append(
        self,
        topic: str,
        partition: int,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
        on_ack: Callable[[], None] | None = None,
    ) -> None:
        """Queues one record; never blocks on the broker. `on_ack` is called (from `serve` or from a poll, on the caller's thread)
        when every in-sync replica has it. A delivery that can never succeed calls the bus's `on_fatal(reason)` given at
        construction: the process ends [R12]. Callable from any thread."""
        ...

    def serve(self, patience_ms: int = 0, topic: str = "") -> None:
        """Runs the callbacks of delivered records that wait. `patience_ms`: waits so long for one, of this topic or of one that shares its
        producer."""
        ...

    def flush(self, timeout_ms: int) -> int:
        """Waits until all that was appended is acknowledged; returns how many are not."""
        ...

    def reader(self, topic: str, partition: int, offset: int) -> Reader: ...

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """(first offset in the log, offset that the next record will get); raises Unavailable."""
        ...

    def end(self, topic: str, partition: int) -> int:
        """The second of the `offsets` alone, for half as many requests; raises Unavailable."""
        ...

    def first_stamp_ms(self, topic: str, partition: int) -> int | None:
        """The broker's stamp of the first record that is still there, of which this process reads nothing. None: there is none. Raises
        Unavailable."""
        ...

    def offset_after(self, topic: str, partition: int, stamp_ms: int) -> int:
        """The offset of the first record whose stamp is later; the end of the log if there is none. Reads none. Raises Unavailable."""
        ...

    def log_id(self, topic: str) -> str:
        """The identity (topic id) of a topic: another one after the topic was deleted and made again. Raises Unavailable."""
        ...

    def delete_below(self, topic: str, partition: int, offset: int) -> None:
        """Deletes the records below `offset` (retention of inboxes)."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Entry:
    """One key of the store. Revisions are the store's global, increasing ones."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int = 0


@dataclass(frozen=True)
class Change:
    """A key was put, or deleted (`value` is None), at this revision. `created`: the revision of its first put; 0: it was deleted."""

    key: str
    revision: int
    value: bytes | None
    created: int = 0


@dataclass(frozen=True)
class Compare:
    """One condition of a transaction: the key's `mod_revision` equals this one; 0 means that the key is absent."""

    key: str
    mod_revision: int


@dataclass(frozen=True)
class Put:
    key: str
    value: bytes
    lease: int = 0


@dataclass(frozen=True)
class Delete:
    key: str


TXN_OPERATIONS = 128
"""What etcd takes at most, of compares and of what it carries out [R19]."""


@dataclass(frozen=True)
class Txn:
    """`then` is carried out if all compares hold; in either case `reads` are answered from the same revision (after `then`)."""

    compares: Sequence[Compare]
    then: Sequence[Put | Delete] = ()
    reads: Sequence[str] = ()

    def __post_init__(self) -> None:
        most = max(len(self.compares), len(self.then) + len(self.reads))
        assert most <= TXN_OPERATIONS, f"etcd takes {TXN_OPERATIONS} operations in a transaction, and this has {most} [R19]"


@dataclass(frozen=True)
class TxnResult:
    succeeded: bool
    revision: int
    reads: Mapping[str, Entry | None] = field(default_factory=dict)


def pages(store: Store, prefix: str, after: str = "") -> Iterator[Entry]:
    """All entries below the prefix, above `after`, of which a page at a time is held. Raises Unavailable in between. Millions of
    tombstones are asked for in thousands: the next page is as long as entries of this one's size allow."""
    most, at_most = PAGE, PAGE_MOST
    while True:
        try:
            page = store.page(prefix, after, most)
        except Unavailable:
            if most == PAGE:
                raise
            most = at_most = max(PAGE, most // 8)  # large ones stand behind small ones, and take longer than one call may
            continue
        yield from page
        if len(page) < most:
            return
        after = page[-1].key
        size = sum(len(entry.key) + len(entry.value) for entry in page)
        most = min(at_most, max(PAGE, PAGE_BYTES * len(page) // size))


class Store(Protocol):
    """etcd, as far as a service needs it. Keys are given without the cluster's prefix; reads are linearizable. All calls may raise
    Unavailable (nothing was changed) and the changing ones UnknownOutcome. Callable from any thread."""

    @property
    def revision(self) -> int:
        """The highest revision that an answer to this client has carried; 0: none yet. Asks nothing."""
        ...

    def get(self, key: str) -> Entry | None: ...

    def list(self, prefix: str) -> tuple[Sequence[Entry], int]:
        """The entries below the prefix, in key order, and the store's revision as of the read. Pages through large ranges, and
        holds all of it: for what is few."""
        ...

    def page(self, prefix: str, after: str = "", most: int = PAGE) -> Sequence[Entry]:
        """The first `most` entries below the prefix whose keys are above `after`, in key order; fewer: there are no more. Two pages are
        of two revisions: what changes meanwhile is in one of them, or not."""
        ...

    def count(self, prefix: str) -> int:
        """How many keys there are below the prefix."""
        ...

    def txn(self, txn: Txn) -> TxnResult:
        """One checked transaction, at most TXN_OPERATIONS and 1 MiB [R19]."""
        ...

    def grant(self, ttl_s: int) -> int:
        """A new lease; its id."""
        ...

    def keep_alive(self, lease: int) -> bool:
        """Renews the lease once; False: it has ended."""
        ...

    def revoke(self, lease: int) -> None: ...

    def watch(
        self, key: str, on_change: Callable[[Entry | None], None], on_lost: Callable[[], None]
    ) -> Callable[[], None]:
        """Calls `on_change` (on another thread) with the key's entry after each change (None: deleted). `on_lost`: the watch ended
        (compaction, connection) and must be made anew after a read. Returns what ends the watch."""
        ...

    def changes(
        self, prefix: str, since: int, on_change: Callable[[Change], None], on_lost: Callable[[bool], None]
    ) -> Callable[[], None]:
        """As `watch`, of all keys below the prefix, with what has happened after revision `since`; 0: after this call. What is told stands
        in etcd's order. `on_lost` is given whether etcd has forgotten what came after `since`: then all must be read."""
        ...

    def close(self) -> None: ...
