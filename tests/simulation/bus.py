"""Kafka in memory. `MemoryBroker` is the cluster that all share; a `MemoryBus` is one process's client of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from millrace.io.interfaces import Damaged, OffsetGone, Received, Unavailable
from tests.simulation import Clock

MESSAGE_MAX_BYTES = 1_000_000  # of what this product's own producers write, as `millrace.io.kafka.config` sets them
RECORD_OVERHEAD = 36  # what the library counts for a record beside its parts
BATCH_OVERHEAD = 72  # what a batch of one large record has beside that record's value


def record_bytes(value: bytes, key: bytes | None = None, headers: Sequence[tuple[str, bytes]] = ()) -> int:
    """The size of a record as the library counts it, before it asks any broker."""
    of_headers = sum(len(name) + len(one) + _varint(len(name)) + _varint(len(one)) for name, one in headers)
    return RECORD_OVERHEAD + len(value) + len(key or b"") + of_headers


def _varint(length: int) -> int:
    """The bytes of a length as Kafka's protocol writes it: seven bits a byte, and one bit for the sign."""
    return max(1, ((2 * length).bit_length() + 6) // 7)


@dataclass
class Log:
    """One partition: the records from offset `first` on."""

    first: int = 0
    records: list[Received] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)  # where it was cut, one after the other
    flipped: set[int] = field(default_factory=set)  # offsets whose bytes are not those that were written
    bombs: set[int] = field(default_factory=set)  # offsets whose records end the process that reads them
    gone: set[int] = field(default_factory=set)  # offsets that nobody reads any more, as if nothing had stood there

    @property
    def end(self) -> int:
        return self.first + len(self.records)


@dataclass
class Topic:  # its id in base64, which has / and +, as in Kafka
    log_id: str
    partitions: list[Log]
    config: dict[str, str]


class MemoryBroker:
    """The topics, and what can happen to a broker. Stamps are the clock's time of the append, as with LogAppendTime."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.skew_ms = 0  # of its clock, whose time the stamps are
        self.paused = False
        self.journal: list[Received] = []  # every record ever appended, in the order of all partitions together
        self.times_ms: list[int] = []  # when each was, by the clock that nobody sets
        self._topics: dict[str, Topic] = {}
        self._made = 0
        self._buses: list[MemoryBus] = []

    def ensure_topics(self, topics: Iterable[tuple[str, int, Mapping[str, Any]]]) -> list[str]:
        """As `KafkaAdmin.ensure_topics`, but with any config key."""
        self._answering()
        wanted = [(name, n, {k: str(v) for k, v in config.items()}) for name, n, config in topics]
        for name, partitions, _ in wanted:
            there = self._topics.get(name)
            if there is not None and len(there.partitions) != partitions:
                raise ValueError(f"{name} has {len(there.partitions)} partitions and not {partitions}")
        lines = []
        for name, partitions, config in wanted:
            if name not in self._topics:
                self._made += 1
                self._topics[name] = Topic(f"log/{self._made}+id", [Log() for _ in range(partitions)], config)
                lines.append(f"created {name} ({partitions} partition{'s' * (partitions != 1)})")
                continue
            now = self._topics[name].config
            lines += [f"set {name} {k}={v} (was {now.get(k)})" for k, v in config.items() if now.get(k) != v]
            now.update(config)
        return lines

    def delete_topics(self, names: Sequence[str]) -> None:
        self._answering()
        for name in names:
            del self._topics[self._known(name)]

    def pause(self) -> None:
        """The broker is away: nothing is taken, nothing read, no question answered. What it has, it keeps."""
        self.paused = True

    def resume(self) -> None:
        """The broker is back; what the buses hold reaches it, in order."""
        self.paused = False
        for bus in self._buses:
            if bus.prompt:
                bus.deliver()

    def note(self, record: Received) -> None:
        self.journal.append(record)
        self.times_ms.append(self.clock.now_ms())

    def now_ms(self) -> int:
        return self.clock.now_ms() + self.skew_ms

    def truncate(self, topic: str, partition: int, end: int) -> None:
        """Cuts the records from offset `end` on: an unclean election, or a power cut. Offsets are given out again."""
        log = self.log(topic, partition)
        del log.records[max(0, end - log.first) :]
        log.cuts.append(end)
        log.flipped, log.gone = ({offset for offset in each if offset < end} for each in (log.flipped, log.gone))

    def replace(self, name: str) -> None:
        """A topic is deleted and made again: another log, from offset 0 on."""
        before = self._topics.pop(name)
        self._made += 1
        self._topics[name] = Topic(f"log/{self._made}+id", [Log() for _ in before.partitions], before.config)

    def repeat(self, topic: str, partition: int, offset: int) -> None:
        """Appends a record a second time, as a producer without idempotence does, or another process in its place."""
        log = self.log(topic, partition)
        record = replace(log.records[offset - log.first], offset=log.end, stamp_ms=self.now_ms())
        log.records.append(record)
        self.note(record)

    def largest(self, topic: str) -> int:
        """The bytes of the largest record, of a value alone, that the topic takes from a producer that bounds nothing."""
        return int(self._topics[topic].config["max.message.bytes"]) - BATCH_OVERHEAD

    def log(self, topic: str, partition: int) -> Log:
        """One partition as it is, whether the broker answers or not; KeyError or IndexError when it is not there."""
        return self._topics[topic].partitions[partition]

    def find(self, topic: str, partition: int) -> Log:
        """One partition, asked for over the network; raises Unavailable."""
        self._answering()
        partitions = self._topics[self._known(topic)].partitions
        if not 0 <= partition < len(partitions):
            raise Unavailable(f"{topic} has {len(partitions)} partitions, none with number {partition}")
        return partitions[partition]

    def log_id(self, topic: str) -> str:
        self._answering()
        return self._topics[self._known(topic)].log_id

    def _answering(self) -> None:
        if self.paused:
            raise Unavailable("the broker in memory is paused")

    def _known(self, topic: str) -> str:
        if topic not in self._topics:
            raise Unavailable(f"unknown topic {topic}")
        return topic


@dataclass(frozen=True, eq=False)
class _Queued:
    topic: str
    partition: int
    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, bytes], ...]
    on_ack: Callable[[], None] | None


class MemoryBus:
    """A process's client of a `MemoryBroker`; see `Bus`. `poll` and `flush` never wait: their time-outs are ignored.

    `prompt`: a record reaches the broker, and its acknowledgement this bus, as soon as the broker takes it. Otherwise
    both wait for `deliver` and `acknowledge`, so that a simulator says when. Callbacks run in `serve`, never before.
    `stranger`: its producer takes records of any size; the topic refuses what is too large for it.
    """

    def __init__(
        self, broker: MemoryBroker, *, client_id: str, on_fatal: Callable[[str], None], prompt: bool = True, stranger: bool = False
    ) -> None:
        self._stranger = stranger
        self._broker, self.client_id, self._on_fatal, self.prompt = broker, client_id, on_fatal, prompt
        self._queue: deque[_Queued] = deque()
        self._unacknowledged: deque[_Queued] = deque()
        self._acked: deque[_Queued] = deque()
        self._fatal: str | None = None
        self._ended = False
        broker._buses.append(self)

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
        if self._ended:
            return
        too_large = len(value) > self._broker.largest(topic) if self._stranger else record_bytes(value, key, headers) > MESSAGE_MAX_BYTES
        if too_large:
            raise ValueError(f"a record of {len(value)} bytes is too large for {topic}[{partition}]")
        self._queue.append(_Queued(topic, partition, key, value, tuple(headers), on_ack))
        if self.prompt:
            self.deliver()

    def queued(self) -> list[tuple[str, int]]:
        """The partitions with records that wait for `deliver`, the longest waiting first."""
        return list(dict.fromkeys((one.topic, one.partition) for one in self._queue))

    def unacknowledged(self) -> list[tuple[str, int]]:
        """The partitions with delivered records that wait for `acknowledge`, the longest waiting first."""
        return list(dict.fromkeys((one.topic, one.partition) for one in self._unacknowledged))

    def deliver(self, most: int | None = None, only: tuple[str, int] | None = None) -> int:
        """The broker takes the oldest `most` records queued here (None: all), none while it is paused. How many.

        `only`: of this partition; what is queued for one partition does not wait for another, as with Kafka's brokers.
        """
        taken = 0
        for queued in [one for one in self._queue if only in (None, (one.topic, one.partition))][:most]:
            if self._broker.paused or self._fatal is not None:
                break
            try:
                log = self._broker.find(queued.topic, queued.partition)
            except Unavailable as failure:
                self._fatal = f"a record for {queued.topic}[{queued.partition}] cannot be delivered: {failure}"
                break
            stamp_ms = self._broker.now_ms()
            record = Received(
                queued.topic, queued.partition, log.end, stamp_ms, queued.key, queued.value, queued.headers
            )
            log.records.append(record)
            self._broker.note(record)
            if self._queue[0] is queued:
                self._queue.popleft()
            else:
                self._queue.remove(queued)
            self._unacknowledged.append(queued)
            taken += 1
        if self.prompt:
            self.acknowledge()
        return taken

    def acknowledge(self, most: int | None = None, only: tuple[str, int] | None = None) -> int:
        """The answers for the oldest `most` delivered records (None: all) arrive; `serve` runs callbacks. How many."""
        arrived = [one for one in self._unacknowledged if only in (None, (one.topic, one.partition))][:most]
        for one in arrived:
            self._unacknowledged.remove(one)
        self._acked.extend(arrived)
        return len(arrived)

    @property
    def has_answers(self) -> bool:
        """Whether `serve` has something to tell."""
        return bool(self._acked) or self._fatal is not None

    def serve(self, patience_ms: int = 0, topic: str = "") -> None:
        while self._acked and not self._ended:
            queued = self._acked.popleft()
            if queued.on_ack is not None:
                queued.on_ack()
        if self._fatal is not None and not self._ended:
            self._ended = True
            self._on_fatal(self._fatal)

    def flush(self, timeout_ms: int) -> int:
        self.serve()
        return len(self._queue) + len(self._unacknowledged)

    def reader(self, topic: str, partition: int, offset: int) -> MemoryReader:
        return MemoryReader(self._broker, topic, partition, offset)

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        log = self._broker.find(topic, partition)
        return log.first, log.end

    def end(self, topic: str, partition: int) -> int:
        return self.offsets(topic, partition)[1]

    def first_stamp_ms(self, topic: str, partition: int) -> int | None:
        return next((one.stamp_ms for one in self._broker.find(topic, partition).records), None)

    def offset_after(self, topic: str, partition: int, stamp_ms: int) -> int:
        log = self._broker.find(topic, partition)
        return next((one.offset for one in log.records if one.stamp_ms > stamp_ms), log.end)

    def log_id(self, topic: str) -> str:
        return self._broker.log_id(topic)

    def delete_below(self, topic: str, partition: int, offset: int) -> None:
        log = self._broker.find(topic, partition)
        if offset > log.end:
            raise ValueError(f"{topic}[{partition}] ends at {log.end}, below {offset}")
        if offset > log.first:
            del log.records[: offset - log.first]
            log.first = offset

    def close(self) -> None:
        """Ends at once, as a kill does: what is queued here never reaches the broker."""
        self._ended = True
        self._queue.clear()
        self._broker._buses.remove(self)


class MemoryReader:
    """Reads one partition of a `MemoryBroker`; see `Reader`. An error is final, as with the real one. A cut below what was read is
    noticed also when the log has grown again: Kafka tells by the epochs of a partition's leaders (KIP-320)."""

    def __init__(self, broker: MemoryBroker, topic: str, partition: int, offset: int) -> None:
        self._broker, self._topic, self._partition, self._next = broker, topic, partition, offset
        self._failure: Exception | None = None
        self._closed = False
        made = broker._topics.get(topic)
        known = made is not None and partition < len(made.partitions)
        self._log: Log | None = made.partitions[partition] if made is not None and known else None  # as it was last looked at
        self._cuts = len(self._log.cuts) if self._log is not None else 0  # of it, at that time

    def poll(self, timeout_ms: int, most: int = 500) -> list[Received]:
        if self._closed:
            raise RuntimeError("the reader is closed")
        if self._failure is not None:
            raise self._failure
        if self._broker.paused:
            return []
        try:
            log = self._broker.find(self._topic, self._partition)
            cut = self._is_cut(log)
            self._log, self._cuts = log, len(log.cuts)
            if cut or not log.first <= self._next <= log.end:
                raise OffsetGone(self._topic, self._partition, self._next, log.first, log.end)
        except (Unavailable, OffsetGone) as failure:
            self._failure = failure
            raise
        start = self._next - log.first
        records = []
        for record in log.records[start : start + most]:
            if record.offset in log.flipped:
                if not records:
                    self._failure = Damaged(self._topic, self._partition, record.offset, "a byte of it is another one")
                    raise self._failure
                break
            self._next = record.offset + 1
            if record.offset not in log.gone:
                records.append(record)
        return records

    def _is_cut(self, log: Log) -> bool:
        """Whether what was read is not in the log any more: it was cut below, or another log stands in its place."""
        if self._log is None:
            return False
        if self._log is not log:
            return True
        return len(log.cuts) > self._cuts and any(end < self._next for end in log.cuts[self._cuts :])

    def close(self) -> None:
        self._closed = True
