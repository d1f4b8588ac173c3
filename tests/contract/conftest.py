"""Two worlds for each contract: the one in memory, and real Kafka and etcd."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import pytest
from confluent_kafka import KafkaError, Producer
from etcd3.etcdrpc import rpc_pb2

from millrace.io.etcd.store import EtcdStore
from millrace.io.interfaces import Bus, Reader, Received, Store, Unavailable
from millrace.io.kafka.admin import KafkaAdmin
from millrace.io.kafka.bus import KafkaBus
from tests.conftest import RealEtcd, RealKafka, stopped
from tests.simulation import Clock
from tests.simulation.bus import MemoryBroker, MemoryBus
from tests.simulation.store import MemoryEtcd, MemoryStore

T = TypeVar("T")

LOG_APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}


def eventually(ask: Callable[[], T], what: str) -> T:
    """The first true answer. A hang is a failure with a name."""
    began_s = time.monotonic()
    while not (answer := ask()):
        waited_s = time.monotonic() - began_s
        assert waited_s < 60, f"never: {what}"
        time.sleep(min(0.2, max(0.005, waited_s / 20)))  # a question costs: who waits for long asks less often
    return answer


def asked(ask: Callable[[], T]) -> T:
    """What a broker says that may be busy for longer than a bus waits for it."""
    answers: list[T] = []

    def answered() -> bool:
        with contextlib.suppress(Unavailable):
            answers.append(ask())
        return bool(answers)

    eventually(answered, "an answer of the broker")
    return answers[0]


class BusWorld:
    """A broker that can be stopped, and buses on it."""

    def __init__(self) -> None:
        self.fatal: list[str] = []
        self._open: list[Bus | Reader] = []

    def bus(self) -> Bus:
        """Another process's bus."""
        bus = self._new_bus(f"test-{len(self._open)}")
        self._open.append(bus)
        return bus

    def reader(self, bus: Bus, topic: str, partition: int = 0, offset: int = 0) -> Reader:
        reader = bus.reader(topic, partition, offset)
        self._open.append(reader)
        return reader

    def offsets(self, bus: Bus, topic: str, partition: int) -> tuple[int, int]:
        return asked(lambda: bus.offsets(topic, partition))

    def read(self, reader: Reader, count: int) -> list[Received]:
        """The next `count` records; what comes more than that fails the test."""
        records: list[Received] = []

        def enough() -> bool:
            records.extend(reader.poll(100))
            return len(records) >= count

        eventually(enough, f"{count} records")
        assert len(records) == count
        return records

    def acknowledged(self, bus: Bus) -> None:
        eventually(lambda: bus.flush(100) == 0, "all acknowledged")

    def end(self) -> None:
        self.start()
        for one in reversed(self._open):
            one.close()

    def topic(self, name: str = "inbox", partitions: int = 1, config: Mapping[str, str] = LOG_APPEND_TIME) -> str:
        """A new topic with stamps of the broker; its full name."""
        raise NotImplementedError

    def takes(self, topic: str, value: bytes) -> bool:
        """Whether the topic takes this from a stranger, whose producer bounds nothing."""
        raise NotImplementedError

    def delete(self, topic: str) -> None:
        raise NotImplementedError

    def flip(self, topic: str, value: bytes) -> None:
        """A bit of the record with this value is another one on the broker's disk."""
        raise NotImplementedError

    def stop(self) -> None:
        """The broker ends in an orderly way; all its data stay."""
        raise NotImplementedError

    def kill(self) -> None:
        """The broker ends at once."""
        raise NotImplementedError

    def start(self) -> None:
        raise NotImplementedError

    def _new_bus(self, client_id: str) -> Bus:
        raise NotImplementedError


class MemoryBusWorld(BusWorld):
    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.broker = MemoryBroker(self.clock)
        self.admin = self.broker
        self.stop, self.kill, self.start = self.broker.pause, self.broker.pause, self.broker.resume

    def topic(self, name: str = "inbox", partitions: int = 1, config: Mapping[str, str] = LOG_APPEND_TIME) -> str:
        self.broker.ensure_topics([(name, partitions, config)])
        return name

    def takes(self, topic: str, value: bytes) -> bool:
        stranger = MemoryBus(self.broker, client_id="stranger", on_fatal=self.fatal.append, stranger=True)
        try:
            stranger.append(topic, 0, value)
        except ValueError:
            return False
        return True

    def delete(self, topic: str) -> None:
        self.broker.delete_topics([topic])

    def flip(self, topic: str, value: bytes) -> None:
        log = self.broker.log(topic, 0)
        log.flipped.update(one.offset for one in log.records if one.value == value)

    def _new_bus(self, client_id: str) -> Bus:
        return MemoryBus(self.broker, client_id=client_id, on_fatal=self.fatal.append)


class KafkaBusWorld(BusWorld):
    # An unknown topic may be one that a broker does not know yet: half a minute by default, too long for a test.
    OPTIONS = {"topic.metadata.propagation.max.ms": 1000}  # noqa: RUF012

    def __init__(self, real: RealKafka) -> None:
        super().__init__()
        self.real = real
        self.admin = KafkaAdmin(real.bootstrap)
        self.stop, self.start = real.broker.stop, real.broker.start

    def kill(self) -> None:
        self.real.broker.stop(patience_s=0)

    def topic(self, name: str = "inbox", partitions: int = 1, config: Mapping[str, str] = LOG_APPEND_TIME) -> str:
        full = self.real.topic(name)
        self.admin.ensure_topics([(full, partitions, config)])
        return full

    def takes(self, topic: str, value: bytes) -> bool:
        refused: list[KafkaError] = []
        stranger = Producer({"bootstrap.servers": self.real.bootstrap, "message.max.bytes": 900_000_000})
        stranger.produce(topic, value, partition=0, on_delivery=lambda error, _: refused.extend([error] if error else []))
        assert stranger.flush(60) == 0
        assert all(error.code() == KafkaError.MSG_SIZE_TOO_LARGE for error in refused), refused
        return not refused

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])

    def flip(self, topic: str, value: bytes) -> None:
        [segment] = self.real.broker.data_dir.glob(f"**/{topic}-0/00000000000000000000.log")
        place = segment.read_bytes().index(value)
        with segment.open("r+b") as file:
            file.seek(place)
            file.write(bytes([value[0] ^ 1]))

    def _new_bus(self, client_id: str) -> Bus:
        return KafkaBus(
            self.real.bootstrap, client_id=client_id, on_fatal=self.fatal.append, options=dict(self.OPTIONS)
        )


class StoreWorld:
    """An etcd that can be stopped, and stores on it."""

    def __init__(self) -> None:
        self._open: list[Store] = []

    def store(self, cluster: str = "one") -> Store:
        """Another process's store."""
        store = self._new_store(cluster)
        self._open.append(store)
        return store

    def seen(self, ask: Callable[[], T], what: str) -> T:
        """As `eventually`, with time going on and watches being told."""

        def asked() -> T:
            self.go_on()
            return ask()

        return eventually(asked, what)

    def end(self) -> None:
        self.start()
        for store in self._open:
            store.close()

    def go_on(self) -> None:
        """Some time goes by; watches are told what changed."""

    def prefix(self, cluster: str = "one") -> str:
        """What stands before each key of its stores."""
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def start(self) -> None:
        raise NotImplementedError

    def compact(self, store: Store) -> None:
        """etcd forgets what was before this moment."""
        raise NotImplementedError

    def losing_answers(self, store: Store) -> contextlib.AbstractContextManager[None]:
        """Meanwhile what `store` asks arrives, and no answer comes back in time."""
        raise NotImplementedError

    def _new_store(self, cluster: str) -> Store:
        raise NotImplementedError


class MemoryStoreWorld(StoreWorld):
    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.etcd = MemoryEtcd(self.clock)
        self.stop, self.start = self.etcd.pause, self.etcd.resume

    def go_on(self) -> None:
        self.clock.advance(100)
        self.etcd.deliver()

    def compact(self, store: Store) -> None:
        self.etcd.compact()

    @contextlib.contextmanager
    def losing_answers(self, store: MemoryStore) -> Iterator[None]:
        store.faults.extend(["unknown, done"] * 100)
        yield
        store.faults.clear()

    def _new_store(self, cluster: str) -> Store:
        return MemoryStore(self.etcd, self.prefix(cluster))

    def prefix(self, cluster: str = "one") -> str:
        return f"/{cluster}/"


class EtcdStoreWorld(StoreWorld):
    def __init__(self, real: RealEtcd) -> None:
        super().__init__()
        self.real = real
        self.stop, self.start = real.server.stop, real.server.start

    def compact(self, store: EtcdStore) -> None:
        store.get("any")  # now it knows the revision
        store._kv.Compact(rpc_pb2.CompactionRequest(revision=store.revision, physical=True), timeout=10)

    @contextlib.contextmanager
    def losing_answers(self, store: EtcdStore) -> Iterator[None]:
        with stopped(self.real.server.pid):
            yield

    def _new_store(self, cluster: str) -> Store:
        return EtcdStore(self.real.endpoint, self.prefix(cluster))

    def prefix(self, cluster: str = "one") -> str:
        return f"{self.real.prefix}{cluster}/"


@pytest.fixture(params=["memory", "kafka"])
def bus_world(request: pytest.FixtureRequest) -> Iterator[BusWorld]:
    world = MemoryBusWorld() if request.param == "memory" else KafkaBusWorld(request.getfixturevalue("real_kafka"))
    yield world
    world.end()


@pytest.fixture(params=["memory", "etcd"])
def store_world(request: pytest.FixtureRequest) -> Iterator[StoreWorld]:
    world = MemoryStoreWorld() if request.param == "memory" else EtcdStoreWorld(request.getfixturevalue("real_etcd"))
    yield world
    world.end()
