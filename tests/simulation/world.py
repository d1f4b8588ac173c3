"""What the parties of a simulated cluster share: time, chance, Kafka, etcd, storage, and the book of what was observed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import fsspec
from fsspec.implementations.memory import MemoryFileSystem

from millrace.core.topics import TOPICS, Topology, shard_scope
from millrace.io.interfaces import Entry as StoreEntry
from millrace.io.interfaces import Unavailable
from millrace.io.storage.backends import Entry, Remote
from millrace.io.storage.store import Storage, StorageError
from millrace.runtime import identity
from millrace.runtime.identity import OWNER, claim
from services.resource_manager.providers import Provider, Standalone
from tests.simulation import Clock
from tests.simulation.behaviour import Script, Timing
from tests.simulation.book import Book, Poisoned
from tests.simulation.bus import MemoryBroker, MemoryBus, MemoryReader
from tests.simulation.store import MemoryEtcd, MemoryStore

PREFIX = "/millrace/simulated/"
STALLED_MS = (5, 50, 300)


@dataclass
class World:
    """`script` says how attempts behave, `timing` how long things take; a leader writes a snapshot every
    `snapshot_records`; `stalls` is the chance that the way to a partition, or effects of one type, stand still for a while when it is their
    turn; to handle the start of a job in `poison` ends a process."""

    topology: Topology
    seed: int
    script: Script
    timing: Timing = field(default_factory=Timing)
    snapshot_records: int = 1_000
    stalls: float = 0.0
    poison: tuple[str, ...] = ()
    keep_ms: int = 168 * 3_600_000  # how long leavings are kept
    clock: Clock = field(default_factory=Clock)
    book: Book = field(default_factory=Book)
    starts: int = 0  # of processes: names each for ever
    beside: World | None = None  # another cluster, whose storage and sinks this one is given
    strangers: bool = False  # whether somebody else writes under the keys of jobs, so that these are watched
    provider: Provider = field(default_factory=Standalone)  # of TaskManagers

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.broker = MemoryBroker(self.clock)
        self.broker.ensure_topics((each.name, each.count(self.topology), each.config()) for each in TOPICS)
        self.etcd = MemoryEtcd(self.clock)
        self._schedules = (0, False)  # whether there were any, at this revision
        drawn = random.Random(f"cluster {self.seed}{' beside another' if self.beside else ''}")
        self.cluster = f"{drawn.getrandbits(128):032x}"
        bus = MemoryBus(self.broker, client_id="provision", on_fatal=lambda reason: None)
        claim(bus, MemoryStore(self.etcd, PREFIX), "simulated", lambda: self.cluster)
        self.storage = MemoryStorage(self.clock, self.cluster, self.beside.storage if self.beside else None)
        if self.beside is None:
            memory: Any = fsspec.filesystem("memory")  # of sinks, one for all of the interpreter: a world begins with an empty one
            memory.store.clear()
            memory.pseudo_dirs[:] = [""]

    def look_whose(self) -> None:
        """What a process does before it starts. Raises OtherCluster."""
        identity.check_storage(self.storage, identity.Owner(self.cluster, "simulated"), MemoryStore(self.etcd, PREFIX))

    def next_start(self) -> int:
        self.starts += 1
        return self.starts

    @property
    def has_schedules(self) -> bool:
        revision, found = self._schedules
        if revision != self.etcd.revision:
            found = bool(self.etcd.entries(f"{PREFIX}schedules/"))
            self._schedules = (self.etcd.revision, found)
        return found

    def job_entry(self, job: str) -> StoreEntry | None:
        """What a Dispatcher has put under the job's key; None: nothing, or it is of somebody else."""
        entry = self.etcd.entry(f"{PREFIX}jobs/{job}")
        return entry if entry is not None and (entry.mod_revision, entry.key) not in self.etcd.foreign else None

    def has_ended(self, job: str) -> bool:
        """Whether etcd has its ending, or its tombstone."""
        entry = self.job_entry(job)
        return entry is not None and json.loads(entry.value)["state"] != "accepted"

    def is_of_lost_log(self, job: str, attempt: str) -> bool:
        """Whether the log is lost of the JobMaster that has deployed this attempt: who came after it has ended the job without knowing of
        the attempt, and ends that once its TaskManager is heard."""
        entry = self.etcd.entry(f"{PREFIX}generations/{shard_scope(self.topology.shard_of(job))}")
        life = int(attempt.rpartition("/")[2].partition(".")[0])
        return entry is not None and life < json.loads(entry.value)["generation"]


class Seen(Remote):
    """Files are as old as it is that they were first looked at, by the world's clock."""

    def __init__(self, memory: Any, root: str, clock: Clock) -> None:
        super().__init__(memory, root)
        self._clock = clock
        self._since_ms: dict[str, int] = {}

    def _entry(self, info: dict[str, Any]) -> Entry:
        entry = super()._entry(info)
        return Entry(entry.path, entry.size, self._since_ms.setdefault(entry.path, self._clock.now_ms()))

    def delete(self, path: str) -> None:
        super().delete(path)
        self._since_ms.pop(path, None)


class MemoryStorage(Storage):
    """Storage in memory, as one cluster has it: a later world in this interpreter shares nothing with it, unless it is given that one's
    (`of`). What is put there takes no way over a file on a disk. `full`: it takes nothing."""

    full = False

    def __init__(self, clock: Clock, cluster: str, of: MemoryStorage | None = None) -> None:
        super().__init__("memory://millrace")
        self._cluster = cluster
        self._memory = of._memory if of else MemoryFileSystem(global_store=False, skip_instance_cache=True)
        self._whose: dict[str, str] = of._whose if of else {}  # path -> the cluster that has put it there
        self._backend = Seen(self._memory, "/millrace", clock)

    def _mine(self, path: str, does: str) -> None:
        whose = self._whose.get(path, self._cluster)
        assert whose == self._cluster, f"[R29]: cluster {self._cluster} {does} {path}, which is of cluster {whose}"

    def delete_tree(self, path: str) -> None:
        for each in [path, *(each.path for each in self._walk(path))]:
            if each != OWNER:
                self._mine(each, "deletes")
                self._whose.pop(each, None)
        super().delete_tree(path)

    def chunks(self, path: str, start: int, length: int) -> Iterator[bytes]:
        self._mine(path, "takes")
        return super().chunks(path, start, length)

    def copy_new(self, source: str, path: str) -> None:
        super().copy_new(source, path)
        self._mine(path, "takes")
        self._whose[path] = self._cluster

    def leave(self, path: str, data: bytes) -> None:
        """An attempt has written there: it does so by itself."""
        self._memory.pipe_file(self._place(path), data)
        self._whose[path] = self._cluster

    def lies(self, path: str) -> bool:
        """Whether there is something, also while nobody is answered."""
        return bool(self._memory.exists(self._place(path)))

    def tear(self, path: str) -> None:
        """What stands there is not what was put there."""
        data = bytearray(self._memory.cat_file(self._place(path)))
        data[len(data) // 2] ^= 1
        self._memory.pipe_file(self._place(path), bytes(data))

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if self.full:
            raise StorageError(path, "there is no room", "wait")
        place = self._place(path)
        if self._memory.exists(place):
            self._mine(path, "takes the name of")
            assert self._memory.cat_file(place) == data, f"[R20]: {path} is a name that something else has"
            return False
        self._memory.pipe_file(place, data)
        if path != OWNER and not path.startswith("uploads/"):  # the same bytes for all who have them
            self._whose[path] = self._cluster
        return True


class PacedBus(MemoryBus):
    """A bus whose readers get a few records at a time, as a network gives them."""

    def __init__(self, world: World, client_id: str, on_fatal: Any) -> None:
        super().__init__(world.broker, client_id=client_id, on_fatal=on_fatal, prompt=False)
        self._world = world
        self.appended = 0
        self.holed = False  # a record was refused: its process ends when it hears of that
        self.cut_off = False  # nothing goes to the broker, nothing comes from it
        self.mute = self.deaf = False  # one of the two alone
        self.may_ask = False  # mute in its records alone: where a log ends it is told, as who has lost the right to write
        self._stalled: dict[tuple[str, int], int] = {}  # partition -> until when
        self.held_ms: dict[tuple[str, int], int] = {}  # partition -> how long stalls have held it since its last delivery

    def append(self, topic: str, partition: int, value: bytes, **given: Any) -> None:
        self.appended += 1
        super().append(topic, partition, value, **given)

    def reader(self, topic: str, partition: int, offset: int) -> PacedReader:
        return PacedReader(self._world, self, topic, partition, offset)

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        self._reachable()
        return super().offsets(topic, partition)

    def offset_after(self, topic: str, partition: int, stamp_ms: int) -> int:
        self._reachable()
        return super().offset_after(topic, partition, stamp_ms)

    def log_id(self, topic: str) -> str:
        self._reachable()
        return super().log_id(topic)

    def delete_below(self, topic: str, partition: int, offset: int) -> None:
        self._reachable()
        super().delete_below(topic, partition, offset)

    def _reachable(self) -> None:
        if self.cut_off or (self.mute and not self.may_ask) or self.deaf:
            raise Unavailable("the broker cannot be reached")

    def deliver(self, most: int | None = None, only: tuple[str, int] | None = None) -> int:
        if self.cut_off or self.mute:
            return 0
        places = [place for one in self._queue if only in (None, place := (one.topic, one.partition))]
        taken = super().deliver(most, only)
        for place in places[:taken]:
            self.held_ms.pop(place, None)
        return taken

    def acknowledge(self, most: int | None = None, only: tuple[str, int] | None = None) -> int:
        return 0 if self.cut_off or self.mute else super().acknowledge(most, only)

    def lose_one(self) -> str | None:
        """A session with a hole: the broker refuses the oldest record of a partition for ever, and takes those behind it.
        The partition; None: nothing is on its way."""
        if self.cut_off or self.mute or self._broker.paused or not self._queue:
            return None
        lost, self.holed = self._queue.popleft(), True
        self._world.book.holes[lost.topic, lost.partition] = None
        self.deliver(None, (lost.topic, lost.partition))
        self._fatal = f"a record for {lost.topic}[{lost.partition}] was refused"
        return f"{lost.topic}[{lost.partition}]"

    @property
    def moves(self) -> bool:
        """Something is on its way to the broker or back, and the way is open."""
        return bool(self._queue or self._unacknowledged) and not (self.cut_off or self.mute or self._broker.paused)

    def some(self) -> bool:
        """The broker takes some of what is queued for one partition or for all, and some of the answers arrive."""
        chance, now_ms = self._world.random, self._world.clock.now_ms()
        queued, unacknowledged = self.queued(), self.unacknowledged()
        flowing = [each for each in queued if self._stalled.get(each, 0) <= now_ms]
        moved = 0
        if flowing and chance.random() < self._world.stalls:
            span_ms, place = chance.choice(STALLED_MS), chance.choice(flowing)
            self._stalled[place] = now_ms + span_ms
            self.held_ms[place] = self.held_ms.get(place, 0) + span_ms
        elif flowing:
            only = chance.choice((*flowing, None)) if len(flowing) == len(queued) else chance.choice(flowing)
            moved += self.deliver(chance.choice((1, 2, 8, None)), only)
        if unacknowledged:
            moved += self.acknowledge(chance.choice((1, 8, None)), chance.choice((*unacknowledged, None)))
        return moved > 0


class PacedReader(MemoryReader):
    def __init__(self, world: World, bus: PacedBus, topic: str, partition: int, offset: int) -> None:
        super().__init__(world.broker, topic, partition, offset)
        self._chance, self._bus = world.random, bus

    def has_news(self) -> bool:
        """Whether a poll that waits would end now."""
        if self._broker.paused or self._bus.cut_off or self._bus.deaf:
            return False
        log = self._broker.log(self._topic, self._partition)
        return not log.first <= self._next == log.first + len(log.records) or self._is_cut(log)

    def poll(self, timeout_ms: int, most: int = 500) -> list[Any]:
        if (self._bus.cut_off or self._bus.deaf) and not self._closed:
            return []
        read = super().poll(timeout_ms, min(most, self._chance.choice((1, 4, 500))))
        bombs = self._broker.log(self._topic, self._partition).bombs
        if any(one.offset in bombs for one in read):
            raise Poisoned(f"a record of {self._topic} is too large for this process")
        return read
