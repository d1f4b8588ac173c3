"""The machines: who leads, whether their ticks come, how far they and their snapshots are behind, whose clock differs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar, cast

from confluent_kafka import Consumer, KafkaException, TopicPartition

from millrace.core.topics import Topology
from millrace.io.interfaces import Entry, Store
from millrace.runtime import foreign
from millrace.runtime.generations import STORED, Stored
from millrace.runtime.parked import COUNTED
from millrace.runtime.saving import SNAPSHOT_RECORDS
from millrace.runtime.snapshots import Pointer

from .findings import Finding, Unreachable, note, ok, problem

TICKS_WITHIN_S = 4.0  # a leader with nothing to do ticks every two seconds
CLOCK_MOST_MS = 2_000
DEAD_LETTERS = "dead-letters"

T = TypeVar("T")


@dataclass(frozen=True)
class Scope:
    """What is known of one scope from outside."""

    scope: str
    leader: str | None
    generation: int
    reason: str | None
    """Why the generation was raised last; None in the first."""
    first: int
    end: int
    """Offsets of its inbox: the first record, and the next."""
    tick_ms: int | None
    """Broker's stamp of a record that came while we watched, less our clock then; None: none came."""
    snapshot: int | None
    """Offset of the newest snapshot of this generation."""
    parked: tuple[str, ...]
    """Records that ended processes: offset and error."""
    foreign: bool = False
    """The leader key has no lease: no leader wrote it."""
    odd: tuple[str, ...] = ()
    """What stands under other keys of it and was written by no build."""


def read(bootstrap: str, store: Store, topology: Topology) -> list[Scope]:
    """Looks at every scope; watches their inboxes for some seconds, unless each ticks sooner. Raises Unreachable, Unavailable."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "millrace-doctor", "enable.auto.commit": False, "log_level": 0})
    try:
        inboxes = {scope: topology.inbox(scope) for scope in topology.scopes()}
        marks = {
            scope: consumer.get_watermark_offsets(TopicPartition(*inbox), timeout=5.0) for scope, inbox in inboxes.items()
        }
        consumer.assign([TopicPartition(*inbox, marks[scope][1]) for scope, inbox in inboxes.items()])
        ticks = _watch(consumer, {inbox: scope for scope, inbox in inboxes.items()})
    except KafkaException as failure:
        raise Unreachable(f"Kafka at {bootstrap} does not answer for the inboxes ({failure.args[0].str()})") from None
    finally:
        consumer.close()
    return [_scope(store, scope, marks[scope], ticks.get(scope)) for scope in inboxes]


def _watch(consumer: Consumer, scopes: dict[tuple[str, int], str]) -> dict[str, int]:
    seen: dict[str, int] = {}
    deadline = time.monotonic() + TICKS_WITHIN_S
    while len(seen) < len(scopes) and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is None or message.error() is not None or b'"record":"Tick"' not in (message.value() or b""):
            continue
        inbox = cast("tuple[str, int]", (message.topic(), message.partition()))  # a record that was read has both
        seen.setdefault(scopes[inbox], message.timestamp()[1] - time.time_ns() // 1_000_000)
    return seen


def _scope(store: Store, scope: str, marks: tuple[int, int], tick_ms: int | None) -> Scope:
    leader, generation, pointer = (store.get(f"{kind}/{scope}") for kind in ("leaders", "generations", "snapshots"))
    odd: list[str] = []
    life = _known(lambda entry: foreign.read(STORED, entry.value, entry.key), generation, odd) or Stored(0, "", 0)
    snapshot = _known(lambda entry: Pointer.parse(entry.value, entry.key), pointer, odd)
    counted = [
        (entry.key.rpartition("/")[2], _known(lambda entry: foreign.read(COUNTED, entry.value, entry.key), entry, odd))
        for entry in store.list(f"parked/{scope}/")[0]
    ]
    parked = [f"offset {offset}: {known.error}" for offset, known in counted if known is not None]
    return Scope(
        scope,
        leader.value.decode(errors="replace") if leader is not None else None,
        life.generation,
        life.reason if life.generation > 1 else None,
        *marks,
        tick_ms,
        snapshot.offset if snapshot is not None and snapshot.generation == life.generation else None,
        tuple(parked),
        leader is not None and not leader.lease,
        tuple(odd),
    )


def _known(read: Callable[[Entry], T], entry: Entry | None, odd: list[str]) -> T | None:
    """What a key holds; None, and added to `odd`: no build wrote it."""
    try:
        return read(entry) if entry is not None else None
    except foreign.Foreign as failure:
        odd.append(str(failure))
        return None


def findings(scopes: list[Scope]) -> Iterator[Finding]:
    """What is wrong with any of them."""
    for scope in scopes:
        found = list(_findings(scope))
        yield from found
        if not any(finding.level == "problem" for finding in found):
            yield ok(scope.scope, f"{scope.leader} leads it, and has read its log to the end ({scope.end})")
    clocks = [scope.tick_ms for scope in scopes if scope.tick_ms is not None]
    if clocks:
        yield from clock("Kafka", min(clocks, key=abs))


def clock(whose: str, difference_ms: int) -> Iterator[Finding]:
    """The clock of `whose` less ours."""
    if abs(difference_ms) > CLOCK_MOST_MS:
        ahead = "ahead of" if difference_ms > 0 else "behind"
        yield problem(
            "clocks", f"the clock of {whose} is {abs(difference_ms) / 1000:.1f} s {ahead} this machine's: times in answers mislead, "
            "and submissions that are to be accepted in time may be refused",
            "have all machines follow one time server (chrony, systemd-timesyncd)",
        )  # fmt: skip
    else:
        yield ok("clocks", f"{whose} differs by less than {CLOCK_MOST_MS // 1000} s from this machine")


def _findings(scope: Scope) -> Iterator[Finding]:
    name = scope.scope
    if scope.leader is None:
        yield problem(
            name, "nobody leads it", f"start a process of it (`python -m services.{_module(name)}`), or see the log of the one that runs"
        )
    elif scope.foreign:
        yield problem(
            name, f"its leader key was written by hand ({scope.leader!r}, without a lease), and nobody replaces it: no process of it runs",
            f"start a process of it (`python -m services.{_module(name)}`), which takes the key within a second; see who writes to etcd",
        )  # fmt: skip
    elif scope.tick_ms is None:
        yield problem(
            name, f"{scope.leader} leads it, and no tick came within {TICKS_WITHIN_S:.0f} s: it is stuck, busy, or has just died",
            "see its log; once its lease has ended (5 s) a standby or a new process takes over",
        )  # fmt: skip
    if scope.reason is not None:
        yield note(
            name, f"it lives in generation {scope.generation}: its log was damaged once ({scope.reason})",
            "find out why Kafka lost records, or storage its snapshots; what was accepted is in etcd and goes on",
        )  # fmt: skip
    for odd in scope.odd:
        yield problem(
            name, odd, "see who writes to etcd; delete a key under parked/ or snapshots/, write generations/ anew by `millrace recover`"
        )
    yield from _snapshot(scope)
    for parked in scope.parked:
        yield problem(
            name, f"a record ended a process of it, {parked}",
            "a job that it was about has failed with that cause; report it with `millrace bundle`",
        )  # fmt: skip


def _snapshot(scope: Scope) -> Iterator[Finding]:
    behind = scope.end - (scope.snapshot if scope.snapshot is not None else scope.first)
    if scope.snapshot is not None and scope.snapshot < scope.first:
        yield problem(
            scope.scope, f"its snapshot is at {scope.snapshot} and its log begins at {scope.first}: nobody can start from it",
            "stop nothing that still runs; report it with `millrace bundle`",
        )  # fmt: skip
    elif behind > 3 * SNAPSHOT_RECORDS:
        yield problem(
            scope.scope, f"its newest snapshot is {behind:,} records old (one is due every {SNAPSHOT_RECORDS:,}): a start takes long",
            "see its log for what hinders it to write into the storage",
        )  # fmt: skip


def dead_letters(bootstrap: str) -> Iterator[Finding]:
    """How many records lie there. They are not read, for there can be many: which of them are letters, `millrace dlq list` tells."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "millrace-doctor", "log_level": 0})
    try:
        first, end = consumer.get_watermark_offsets(TopicPartition(DEAD_LETTERS, 0), timeout=5.0)
    except KafkaException:
        return  # the topic is not there, and that is said
    finally:
        consumer.close()
    if end > first:
        yield note(
            "dead letters",
            f"{end - first} records are on {DEAD_LETTERS}, for 30 days: "
            "what could not be used or was refused, and what of it was sent again",
            "`millrace dlq list` tells who and why; correct them, then `millrace dlq redrive` or `millrace dlq purge`",
        )  # fmt: skip
    else:
        yield ok("dead letters", "none")


def _module(scope: str) -> str:
    return scope.partition("/")[0].replace("-", "_")
