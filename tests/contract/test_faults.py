"""What the worlds in memory do beyond the contract: the faults, at a time of the test's choice."""

from __future__ import annotations

import pytest

from millrace.io.interfaces import Compare, OffsetGone, Put, Txn, Unavailable, UnknownOutcome
from tests.simulation import Clock
from tests.simulation.bus import MemoryBroker, MemoryBus
from tests.simulation.store import MemoryEtcd, MemoryStore


def broker_with_topic() -> MemoryBroker:
    broker = MemoryBroker(Clock())
    broker.ensure_topics([("inbox", 1, {})])
    return broker


def make_bus(broker: MemoryBroker, **options: bool) -> MemoryBus:
    return MemoryBus(broker, client_id="test", on_fatal=pytest.fail, **options)


def values(broker: MemoryBroker) -> list[bytes]:
    return [one.value for one in broker.log("inbox", 0).records]


def test_a_simulator_says_when_records_arrive_and_when_answers_do() -> None:
    broker = broker_with_topic()
    bus = make_bus(broker, prompt=False)
    ran: list[int] = []
    for number in range(4):
        bus.append("inbox", 0, b"%d" % number, on_ack=lambda number=number: ran.append(number))
    assert values(broker) == []
    assert bus.deliver(3) == 3
    assert values(broker) == [b"0", b"1", b"2"]
    bus.serve()
    assert ran == []
    assert bus.flush(0) == 4
    assert bus.acknowledge(2) == 2
    assert ran == []
    bus.serve()
    assert ran == [0, 1]
    assert bus.flush(0) == 2
    broker.pause()
    assert bus.deliver() == 0
    broker.resume()
    assert values(broker) == [b"0", b"1", b"2"]
    assert (bus.deliver(), bus.acknowledge()) == (1, 2)
    assert bus.flush(0) == 0
    assert ran == [0, 1, 2, 3]


def test_what_a_killed_process_had_queued_arrives_as_a_prefix() -> None:
    broker = broker_with_topic()
    bus = make_bus(broker, prompt=False)
    for number in range(4):
        bus.append("inbox", 0, b"%d" % number, on_ack=lambda: pytest.fail("a dead process was called"))
    bus.deliver(2)
    bus.close()
    bus.deliver()
    bus.acknowledge()
    bus.serve()
    make_bus(broker).append("inbox", 0, b"next")
    assert values(broker) == [b"0", b"1", b"next"]


def test_a_cut_log_gives_its_offsets_out_again_and_a_reader_beyond_is_told() -> None:
    broker = broker_with_topic()
    bus = make_bus(broker)
    for number in range(4):
        bus.append("inbox", 0, b"%d" % number)
    reader, late = bus.reader("inbox", 0, 0), bus.reader("inbox", 0, 2)
    assert len(reader.poll(0)) == 4
    broker.truncate("inbox", 0, 2)
    assert bus.offsets("inbox", 0) == (0, 2)
    with pytest.raises(OffsetGone):
        reader.poll(0)
    bus.append("inbox", 0, b"other")
    assert [(one.offset, one.value) for one in late.poll(0)] == [(2, b"other")]


def test_a_record_can_come_a_second_time() -> None:
    broker = broker_with_topic()
    bus = make_bus(broker)
    bus.append("inbox", 0, b"a", key=b"k", headers=[("h", b"1")])
    bus.append("inbox", 0, b"b")
    broker.clock.advance(5)
    broker.repeat("inbox", 0, 0)
    first, _, again = bus.reader("inbox", 0, 0).poll(0)
    assert (again.value, again.key, again.headers) == (first.value, first.key, first.headers)
    assert (again.offset, again.stamp_ms) == (2, first.stamp_ms + 5)


def test_a_brokers_clock_may_go_back() -> None:
    broker = broker_with_topic()
    bus = make_bus(broker)
    bus.append("inbox", 0, b"a")
    broker.clock.advance(-1000)
    bus.append("inbox", 0, b"b")
    first, second = bus.reader("inbox", 0, 0).poll(0)
    assert second.stamp_ms == first.stamp_ms - 1000


@pytest.mark.parametrize(
    "fault, error, done",
    [
        ("unavailable", Unavailable, False),
        ("unknown, not done", UnknownOutcome, False),
        ("unknown, done", UnknownOutcome, True),
    ],
)
def test_a_call_fails_as_told_and_the_next_does_not(fault: str, error: type[Exception], done: bool) -> None:
    store = MemoryStore(MemoryEtcd(Clock()), "/one")
    store.faults.append(fault)
    with pytest.raises(Unavailable) as failed:
        store.txn(Txn([Compare("a", 0)], [Put("a", b"1")]))
    assert failed.type is error
    assert (store.get("a") is not None) == done
    store.faults.append(fault)
    with pytest.raises(Unavailable) as failed:
        store.get("a")
    assert failed.type is Unavailable


def test_a_lease_ends_exactly_at_its_time_and_watchers_are_told_when_the_world_says() -> None:
    etcd = MemoryEtcd(Clock())
    store = MemoryStore(etcd, "/one")
    told: list[object] = []
    lease = store.grant(5)
    store.txn(Txn((), [Put("a", b"", lease)]))
    store.watch("a", told.append, lambda: told.append("lost"))
    etcd.clock.advance(4999)
    assert store.keep_alive(lease)
    etcd.clock.advance(4999)
    assert store.get("a") is not None
    etcd.clock.advance(1)
    assert store.get("a") is None
    assert told == []
    assert etcd.deliver() == 1
    assert told == [None]


def test_no_lease_ends_while_etcd_is_away_and_all_start_anew_when_it_is_back() -> None:
    etcd = MemoryEtcd(Clock())
    store = MemoryStore(etcd, "/one")
    lease = store.grant(5)
    store.txn(Txn((), [Put("a", b"", lease)]))
    etcd.clock.advance(4999)
    etcd.pause()
    etcd.clock.advance(60_000)
    etcd.resume()
    etcd.clock.advance(4999)
    assert store.get("a") is not None
    etcd.clock.advance(1)
    assert store.get("a") is None


def test_a_lost_watch_tells_its_loss_alone_and_once() -> None:
    etcd = MemoryEtcd(Clock())
    store = MemoryStore(etcd, "/one")
    told: list[object] = []
    store.watch("a", lambda _: told.append("change"), lambda: told.append("lost"))
    cancelled = store.watch("a", lambda _: told.append("change"), lambda: told.append("cancelled one lost"))
    store.txn(Txn((), [Put("a", b"1")]))
    etcd.lose_watches()
    cancelled()
    store.txn(Txn((), [Put("a", b"2")]))
    etcd.lose_watches()
    assert etcd.deliver() == 1
    assert told == ["lost"]
    store.close()
    assert told == ["lost"]
