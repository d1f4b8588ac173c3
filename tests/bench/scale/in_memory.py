"""Leaders with their real shells in one process, over Kafka and etcd in memory. What each costs is counted apart: its processor time.

Peers that are not measured are scripted (`Peer`). Effects are performed by who measures, at once.
"""

from __future__ import annotations

import gc
import json
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from millrace import __version__
from millrace.core.fold import ScopeState
from millrace.core.machine import Machine
from millrace.core.messages.base import Body, Part
from millrace.core.messages.records import Hello, Message, decode, encode, message_json
from millrace.core.replica import Perform
from millrace.core.topics import Topology
from millrace.io.interfaces import Received
from millrace.io.storage.store import Storage
from millrace.runtime.beat import LEASE_RENEW_S, Beat
from millrace.runtime.hosting import Count, Hosted, Surroundings
from millrace.runtime.loop import ScopeLoop
from tests.simulation import Clock
from tests.simulation.store import MemoryEtcd, MemoryStore

TURN_MS = 10  # between two turns of what rests: a tick comes at most so late
POLL_MOST = 500


class Kafka:
    """Partitions of which each record is read once. See `millrace.io.interfaces.Bus`; every append is acknowledged at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.inboxes: dict[tuple[str, int], deque[Received]] = {}
        self._ends: dict[tuple[str, int], int] = {}
        self.others: deque[Received] = deque()  # what goes to partitions that no leader reads
        self._acked: deque[Callable[[], None]] = deque()

    def append(
        self, topic: str, partition: int, value: bytes, *, key: bytes | None = None,
        headers: Sequence[tuple[str, bytes]] = (), on_ack: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        end = self._ends.get((topic, partition), 0)
        self._ends[topic, partition] = end + 1
        received = Received(topic, partition, end, self._clock.now_ms(), key, value, headers)
        self.inboxes.get((topic, partition), self.others).append(received)
        if on_ack is not None:
            self._acked.append(on_ack)

    def serve(self, patience_ms: int = 0, topic: str = "") -> None:
        while self._acked:
            self._acked.popleft()()

    def flush(self, timeout_ms: int) -> int:
        self.serve()
        return 0

    def reader(self, topic: str, partition: int, offset: int) -> KafkaReader:
        return KafkaReader(self.inboxes[topic, partition])

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        return 0, self._ends.get((topic, partition), 0)

    def log_id(self, topic: str) -> str:
        return topic

    def delete_below(self, topic: str, partition: int, offset: int) -> None:
        """Nothing that was read is kept."""


class KafkaReader:
    def __init__(self, inbox: deque[Received]) -> None:
        self._inbox = inbox

    def poll(self, timeout_ms: int, most: int = POLL_MOST) -> list[Received]:
        return [self._inbox.popleft() for _ in range(min(most, len(self._inbox)))]

    def close(self) -> None:
        pass


class Effects:
    """In place of `millrace.runtime.performer.Performer`: keeps what is to be performed."""

    def __init__(self, outcome: Callable[[Perform, Body], None]) -> None:
        self.outcome, self.waiting = outcome, deque[Perform]()

    def perform(self, action: Perform, type: str) -> None:
        self.waiting.append(action)

    def stop(self, timeout_s: float) -> None:
        self.waiting.clear()


class Leader:
    """One scope, with the loop of its service. `cpu_s`: processor time of its turns, with snapshots, which a copy of a process makes."""

    def __init__(self, house: House, machine: Machine, deciding: dict[str, Any], counts: Mapping[str, Count]) -> None:
        self.cpu_s = 0.0
        self.machine = machine
        house.kafka.inboxes[house.topology.inbox(machine.scope)] = deque()
        around = Surroundings(
            house.kafka, house.store, house.storage, house.topology, "bench", __version__, house.beat.lease, _fail,
            clock=house.clock.now_ms, performer=self._effects, wait=lambda event, seconds: None,
            beside=lambda make, then: then(b"".join(make())),
        )  # fmt: skip
        self.loop = ScopeLoop(Hosted(machine, {}, deciding, counts=counts), around)

    def _effects(self, scope: str, ports: Any, outcome: Callable[[Perform, Body], None], *_: Any) -> Effects:
        self.effects = Effects(outcome)
        return self.effects

    @property
    def folded(self) -> ScopeState:
        assert self.loop.replica is not None
        return self.loop.replica.folded

    @property
    def state(self) -> Any:
        return self.folded.state

    @contextmanager
    def charged(self) -> Iterator[None]:
        started = time.process_time()
        yield
        self.cpu_s += time.process_time() - started

    def turn(self) -> bool:
        with self.charged():
            return self.loop.turn()

    def performed(self, answer: Callable[[dict[str, Any]], Body]) -> bool:
        """All effects that wait have the outcomes that `answer` gives. False: none waits."""
        waits = bool(self.effects.waiting)
        while self.effects.waiting:
            action = self.effects.waiting.popleft()
            outcome = answer(json.loads(action.value))
            with self.charged():
                self.effects.outcome(action, outcome)
        return waits


def _fail(reason: str) -> None:
    raise RuntimeError(reason)


class House:
    """What the leaders share. `take` is given what goes to scripted peers and to the public, key and value. `answer`: the outcome of an
    effect."""

    def __init__(
        self, storage: str, topology: Topology, take: Callable[[str, str, bytes], None], answer: Callable[[dict[str, Any]], Body]
    ) -> None:
        self.clock, self.topology = Clock(), topology
        self.kafka, self.storage = Kafka(self.clock), Storage(storage)
        etcd = MemoryEtcd(self.clock)
        self.store = MemoryStore(etcd, "/bench/")
        self.leaders: list[Leader] = []
        self.beat = Beat(self.store, lambda: [leader.loop for leader in self.leaders], self.clock.now_ms)
        self._take, self._answer, self._beat_ms = take, answer, 0

    def lead(self, machine: Machine, deciding: dict[str, Any] | None = None, counts: Mapping[str, Count] | None = None) -> Leader:
        leader = Leader(self, machine, deciding or {}, counts or {})
        self.leaders.append(leader)
        return leader

    def begin(self) -> None:
        """Until all lead."""
        while not all(each.loop.replica is not None and each.loop.replica.leads for each in self.leaders):
            self.advance(TURN_MS)
        self.settle()

    def advance(self, ms: int) -> None:
        """Time goes on, and all that follows happens."""
        self.clock.advance(ms)
        if self.clock.now_ms() >= self._beat_ms:
            assert self.beat.turn()
            self._beat_ms = self.clock.now_ms() + int(1000 * LEASE_RENEW_S)
        self.settle()

    def settle(self) -> None:
        """Everything is read, answered and performed; no time passes."""
        moves = True
        while moves:
            moves = False
            for leader in self.leaders:
                moves = leader.turn() or moves
                moves = leader.performed(self._answer) or moves
            while self.kafka.others:
                one = self.kafka.others.popleft()
                self._take(one.topic, (one.key or b"").decode(), one.value)
                moves = True

    def append(self, scope: str, value: bytes) -> None:
        """A record for the inbox of a leader."""
        self.kafka.append(*self.topology.inbox(scope), value, key=scope.encode())

    def give(self, scope: str, record: Part) -> None:
        self.append(scope, encode(record))


class Peer:
    """A scope that is scripted. It says what it is made to say, each a link of its chain."""

    def __init__(self, house: House, scope: str, life: int, *to: str) -> None:
        self.house, self.scope, self.life = house, scope, life
        self._said: dict[str, tuple[int, int]] = {}
        for each in to:
            self.say(each, Hello())

    def say(self, to: str, body: Body) -> None:
        last = self._said.get(to)
        key = (last[0] + 1 if last else 1, 0)
        self.house.append(to, message_json(to, 1, self.scope, self.life, key, last, body).encode())
        self._said[to] = key


def body_of(value: bytes) -> Body:
    """What a leader said to a scripted peer."""
    record = decode(value)
    assert isinstance(record, Message)
    return record.body


@contextmanager
def house(
    take: Callable[[str, str, bytes], None], answer: Callable[[dict[str, Any]], Body], topology: Topology | None = None
) -> Iterator[House]:
    with tempfile.TemporaryDirectory() as storage:
        yield House(storage, topology or Topology(), take, answer)


def cpu_of(leader: Leader, happens: Callable[[], object]) -> float:
    """Seconds of the processor that a leader spends while this happens. Garbage of before is collected first."""
    gc.collect()
    before = leader.cpu_s
    happens()
    return leader.cpu_s - before
