"""What only the real adapters can get wrong."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import lru_cache

import pytest

from millrace.io.etcd import streams as etcd_streams
from millrace.io.etcd.store import EtcdStore
from millrace.io.interfaces import Entry, Put, Txn, Unavailable, UnknownOutcome
from millrace.io.kafka.admin import KafkaAdmin
from millrace.io.kafka.bus import KafkaBus
from millrace.runtime.forked import forked
from millrace.runtime.readings import of_kafka
from tests.conftest import RealEtcd, RealKafka, stopped
from tests.contract.conftest import asked, eventually


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where nobody listens, and nobody can begin to."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        host, port = taken.getsockname()
        yield f"{host}:{port}"


def test_a_full_local_queue_waits_in_order_and_runs_no_callback_in_between(real_kafka: RealKafka) -> None:
    topic = real_kafka.topic("inbox")
    KafkaAdmin(real_kafka.bootstrap).ensure_topics([(topic, 1, {})])
    options = {"queue.buffering.max.messages": 50}
    bus = KafkaBus(real_kafka.bootstrap, client_id="test", on_fatal=pytest.fail, options=options)
    ran: list[int] = []

    def append(name: int) -> None:
        for number in range(1000):
            bus.append(topic, 0, b"%d %d" % (name, number), on_ack=lambda: ran.append(name))

    threads = [threading.Thread(target=append, args=(name,)) for name in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ran == []
    eventually(lambda: bus.flush(100) == 0, "all acknowledged")
    assert len(ran) == 2000
    reader = bus.reader(topic, 0, 0)
    values: list[list[int]] = []

    def all_read() -> bool:
        values.extend([int(part) for part in one.value.split()] for one in reader.poll(100))
        return len(values) >= 2000

    eventually(all_read, "2000 records")
    for name in range(2):
        assert [number for who, number in values if who == name] == list(range(1000))
    reader.close()
    bus.close()


def test_what_goes_aside_is_in_order_and_acknowledged_as_all_else(real_kafka: RealKafka) -> None:
    topics = real_kafka.topic("inbox"), real_kafka.topic("events")
    KafkaAdmin(real_kafka.bootstrap).ensure_topics([(topic, 1, {}) for topic in topics])
    bus = KafkaBus(real_kafka.bootstrap, client_id="test", on_fatal=pytest.fail, aside=topics[1:])
    ran: list[str] = []
    for number in range(100):
        for topic in topics:
            bus.append(topic, 0, b"%d" % number, on_ack=lambda topic=topic: ran.append(topic))
    for topic in topics:
        while ran.count(topic) < 100:
            bus.serve(1_000, topic)  # whichever it waits for, it hears of both
    for topic in topics:
        reader, values = bus.reader(topic, 0, 0), []
        while len(values) < 100:
            values += [one.value for one in reader.poll(1_000)]
        assert values == [b"%d" % number for number in range(100)]
        reader.close()
    bus.close()


def test_a_process_ends_in_order_while_records_wait_for_a_broker_that_is_paused(real_kafka: RealKafka) -> None:
    topic = real_kafka.topic("inbox")
    KafkaAdmin(real_kafka.bootstrap).ensure_topics([(topic, 1, {})])
    bus = KafkaBus(real_kafka.bootstrap, client_id="test", on_fatal=pytest.fail)
    bus.append(topic, 0, b"a")
    eventually(lambda: bus.flush(100) == 0, "acknowledged")
    with stopped(real_kafka.broker.pid):
        bus.append(topic, 0, b"b")
        assert bus.flush(300) == 1, "it is on its way"
        with pytest.raises(Unavailable):
            bus.offsets(topic, 0)
        bus.close()
        bus.append(topic, 0, b"c")
        bus.serve()
        assert bus.flush(300) == 0, "a thread that comes too late does nothing, and is not told that it failed"


def test_a_broker_that_was_never_there_is_unavailable_and_blocks_nothing(nobody: str) -> None:
    bus = KafkaBus(nobody, client_id="test", on_fatal=pytest.fail)
    bus.append("inbox", 0, b"x")
    reader = bus.reader("inbox", 0, 0)
    assert reader.poll(10) == []
    bus.serve()
    assert bus.flush(0) == 1
    reader.close()
    bus.close()
    admin = KafkaAdmin(nobody, timeout_s=0.5)
    for ask in (
        lambda: admin.offsets("inbox", 0),
        lambda: admin.log_id("inbox"),
        lambda: admin.delete_below("inbox", 0, 1),
        lambda: admin.delete_topics(["inbox"]),
        lambda: admin.ensure_topics([("inbox", 1, {})]),
    ):
        with pytest.raises(Unavailable, match=nobody):
            ask()


def test_an_etcd_that_was_never_there_is_unavailable_and_known_to_have_changed_nothing(nobody: str) -> None:
    store = EtcdStore(nobody, "/test")
    for ask in (
        lambda: store.get("a"),
        lambda: store.txn(Txn((), [Put("a", b"")])),
        lambda: store.grant(5),
        lambda: store.keep_alive(1),
        lambda: store.watch("a", print, print),
    ):
        with pytest.raises(Unavailable, match=nobody) as failed:
            ask()
        assert not isinstance(failed.value, UnknownOutcome)
    store.close()


def test_a_store_is_closed_in_order_while_its_watches_call_back_slowly(nobody: str) -> None:
    store = EtcdStore(nobody, "/test", timeout_s=0.1)
    with pytest.raises(Unavailable):
        store.watch("a", print, print)
    go_on = threading.Event()
    etcd_streams._loop().call_soon_threadsafe(go_on.wait)
    store.close()
    store.close()
    go_on.set()


def test_the_streams_of_a_process_share_one_thread_whoever_asks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[asyncio.AbstractEventLoop] = []
    both = threading.Barrier(2)

    def make() -> asyncio.AbstractEventLoop:
        made.append(make_loop())
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.3)  # for another that is let in here
        return made[-1]

    make_loop = asyncio.new_event_loop
    monkeypatch.setattr(asyncio, "new_event_loop", make)
    monkeypatch.setattr(etcd_streams, "_started", lru_cache(maxsize=1)(etcd_streams._started.__wrapped__))
    threads = [threading.Thread(target=etcd_streams._loop) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for loop in made:
        loop.call_soon_threadsafe(loop.stop)
    assert len(made) == 1


def test_a_call_ends_though_the_thread_of_the_streams_is_held_up(real_etcd: RealEtcd) -> None:
    store = EtcdStore(real_etcd.endpoint, real_etcd.prefix, timeout_s=1.0)
    told, go_on = queue.SimpleQueue[Entry | None](), threading.Event()
    lease = asked(lambda: store.grant(60))  # a busy etcd may need longer than this second
    assert asked(lambda: store.keep_alive(lease))
    etcd_streams._loop().call_soon_threadsafe(go_on.wait, 30)
    with pytest.raises(UnknownOutcome):
        store.keep_alive(lease)
    with pytest.raises(Unavailable):
        store.watch("a", told.put, lambda: told.put(None))
    go_on.set()
    eventually(lambda: _answers(lambda: store.keep_alive(lease)), "a renewal")
    changed = threading.Event()
    asked(lambda: store.watch("a", lambda _: changed.set(), lambda: None))
    asked(lambda: store.txn(Txn((), [Put("a", b"")])))
    assert changed.wait(60)
    assert len(store._streams._watches) == 1 and told.empty(), "a watch that nobody has"
    store.close()


def _answers(ask: Callable[[], bool]) -> bool:
    with contextlib.suppress(Unavailable):
        return ask()
    return False


def test_an_etcd_that_takes_connections_and_says_nothing_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        store = EtcdStore(address, "/test", timeout_s=0.3)
        for ask in (
            lambda: store.txn(Txn((), [Put("a", b"")])),
            lambda: store.get("a"),
            lambda: store.watch("a", print, print),
        ):
            with pytest.raises(Unavailable, match=address):
                ask()
        store.close()


def test_a_process_is_copied_while_it_asks_and_watches_etcd(real_etcd: RealEtcd) -> None:
    """As for a snapshot. With gRPC's own handlers of forks, its threads began anew in the copy, and ended most of them."""
    store = EtcdStore(real_etcd.endpoint, real_etcd.prefix)
    changed, collected, lease = threading.Event(), queue.SimpleQueue[bytes | None](), store.grant(60)
    store.watch("a", lambda _: changed.set(), lambda: None)

    def slowly() -> Iterator[bytes]:
        for _ in range(10):
            time.sleep(0.005)
            yield b"x"

    for _ in range(12):
        forked(slowly, collected.put)
        assert store.keep_alive(lease)
        assert collected.get(timeout=60) == b"x" * 10
    store.txn(Txn((), [Put("a", b"")]))
    assert changed.wait(60)
    store.close()


# ---- what the metrics rest on


def test_the_library_says_how_long_brokers_take(real_kafka: RealKafka) -> None:
    topic = real_kafka.topic("inbox")
    KafkaAdmin(real_kafka.bootstrap).ensure_topics([(topic, 1, {})])
    bus = KafkaBus(real_kafka.bootstrap, client_id="test", on_fatal=pytest.fail, options={"statistics.interval.ms": 100})
    assert list(of_kafka(bus)) == [], "it has said nothing yet"

    def told() -> dict[str, float]:
        bus.append(topic, 0, b"a record")
        bus.serve()
        return {f"{sample.metric.name} {' '.join(sample.labels)}": sample.value for sample in of_kafka(bus) if sample.labels}

    found = eventually(told, "a figure")
    assert set(found) == {"millrace_kafka_request_seconds 0.5", "millrace_kafka_request_seconds 0.99"}
    assert all(0 < seconds < 60 for seconds in found.values()), found
    bus.close()


def test_questions_to_etcd_are_timed_by_their_kind_and_whether_they_were_answered(real_etcd: RealEtcd, nobody: str) -> None:
    told: list[tuple[str, bool]] = []

    def answered(operation: str, seconds: float, was: bool) -> None:
        assert seconds > 0
        told.append((operation, was))

    store = EtcdStore(real_etcd.endpoint, real_etcd.prefix, answered=answered)
    lease = store.grant(60)
    store.get("a")
    store.txn(Txn([], [Put("a", b"1")]))
    store.keep_alive(lease)
    store.revoke(lease)
    store.close()
    assert told == [("lease", True), ("range", True), ("txn", True), ("lease", True), ("lease", True)]
    told.clear()
    alone = EtcdStore(nobody, "/millrace/test/", timeout_s=0.2, answered=answered)
    with pytest.raises(Unavailable):
        alone.get("a")
    alone.close()
    assert told == [("range", False)]
