"""What both implementations of `Bus` do, word for word."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from millrace.io.interfaces import Damaged, OffsetGone, Unavailable
from tests.contract.conftest import BusWorld, MemoryBusWorld, asked, eventually


def numbered(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def test_a_partition_keeps_the_order_of_the_appends(bus_world: BusWorld) -> None:
    topic, bus = bus_world.topic(partitions=2), bus_world.bus()
    for value in numbered(0, 2000):
        bus.append(topic, 1, value)
    records = bus_world.read(bus_world.reader(bus, topic, 1), 2000)
    assert [one.value for one in records] == numbered(0, 2000)
    assert [one.offset for one in records] == list(range(2000))
    assert {(one.topic, one.partition) for one in records} == {(topic, 1)}
    assert bus_world.offsets(bus, topic, 0) == (0, 0)
    assert bus_world.offsets(bus, topic, 1) == (0, 2000)
    assert bus_world.fatal == []


def test_a_record_of_which_a_byte_is_another_one_is_told_behind_those_before_it(bus_world: BusWorld) -> None:
    topic, bus = bus_world.topic(), bus_world.bus()
    for value in (b"good", b"bad--record", b"behind"):
        bus.append(topic, 0, value)
        bus_world.acknowledged(bus)
    bus_world.flip(topic, b"bad--record")
    for first, before in ((0, [b"good"]), (1, [])):
        reader, read = bus_world.reader(bus, topic, 0, first), []
        with pytest.raises(Damaged) as told:
            eventually(lambda reader=reader, read=read: read.extend(reader.poll(100)), "damage")
        assert [one.value for one in read] == before
        assert (told.value.topic, told.value.offset) == (topic, 1)
        with pytest.raises(Damaged):
            reader.poll(0)
    assert [one.value for one in bus_world.read(bus_world.reader(bus, topic, 0, 2), 1)] == [b"behind"]


def test_key_value_and_headers_come_back_as_they_were(bus_world: BusWorld) -> None:
    topic, bus = bus_world.topic(), bus_world.bus()
    sent = [
        (b"", None, ()),
        (b"\x00\xff" * 100, b"", ()),
        ("größer".encode(), b"k", (("ce_id", b"1"), ("ce_id", b"2"), ("empty", b""))),
    ]
    for value, key, headers in sent:
        bus.append(topic, 0, value, key=key, headers=headers)
    records = bus_world.read(bus_world.reader(bus, topic), 3)
    assert [(one.value, one.key, tuple(one.headers)) for one in records] == sent


def test_a_callback_runs_when_its_record_is_in_the_log_in_order_and_on_the_thread_that_serves(
    bus_world: BusWorld,
) -> None:
    topic, bus = bus_world.topic(), bus_world.bus()
    ran: list[tuple[int, int, int]] = []

    def on_ack(number: int) -> None:
        ran.append((number, threading.get_ident(), bus_world.offsets(bus, topic, 0)[1]))

    other = threading.Thread(
        target=lambda: [bus.append(topic, 0, b"x", on_ack=lambda number=number: on_ack(number)) for number in range(20)]
    )
    other.start()
    other.join()
    bus.append(topic, 0, b"without a callback")
    assert ran == []

    def served() -> bool:
        bus.serve()
        return len(ran) >= 20

    eventually(served, "20 callbacks")
    assert [number for number, _, _ in ran] == list(range(20))
    assert {thread for _, thread, _ in ran} == {threading.get_ident()}
    assert all(end > number for number, _, end in ran)
    bus.serve()
    assert len(ran) == 20


def test_a_callback_may_append(bus_world: BusWorld) -> None:
    topic, bus = bus_world.topic(), bus_world.bus()
    bus.append(topic, 0, b"first", on_ack=lambda: bus.append(topic, 0, b"second"))
    eventually(lambda: bus.flush(100) == 0 and bus_world.offsets(bus, topic, 0) == (0, 2), "two records")


def test_flush_tells_how_many_are_not_acknowledged_and_runs_the_callbacks(bus_world: BusWorld) -> None:
    topic, bus = bus_world.topic(), bus_world.bus()
    ran: list[bytes] = []
    for value in numbered(0, 3):
        bus.append(topic, 0, value, on_ack=lambda value=value: ran.append(value))
    bus_world.acknowledged(bus)
    assert ran == numbered(0, 3)
    assert bus.flush(0) == 0


def test_a_poll_returns_no_more_than_asked_for_and_nothing_twice(bus_world: BusWorld) -> None:
    topic, bus = bus_world.topic(), bus_world.bus()
    for value in numbered(0, 10):
        bus.append(topic, 0, value)
    bus_world.acknowledged(bus)
    reader = bus_world.reader(bus, topic)
    assert [one.value for one in eventually(lambda: reader.poll(100, most=1), "a record")] == [b"0"]
    polls: list[list[bytes]] = []

    def all_read() -> bool:
        polls.append([one.value for one in reader.poll(100, most=4)])
        return sum(map(len, polls)) >= 9

    eventually(all_read, "the other nine")
    assert max(map(len, polls)) <= 4
    assert sum(polls, []) == numbered(1, 10)
    assert reader.poll(0) == []


def test_a_reader_starts_at_any_offset_and_at_the_end_waits(bus_world: BusWorld) -> None:
    topic, bus = bus_world.topic(), bus_world.bus()
    for value in numbered(0, 5):
        bus.append(topic, 0, value)
    bus_world.acknowledged(bus)
    middle, end = bus_world.reader(bus, topic, offset=3), bus_world.reader(bus, topic, offset=5)
    assert [(one.offset, one.value) for one in bus_world.read(middle, 2)] == [(3, b"3"), (4, b"4")]
    assert end.poll(10) == []
    bus.append(topic, 0, b"5")
    assert [(one.offset, one.value) for one in bus_world.read(end, 1)] == [(5, b"5")]
    assert [(one.offset, one.value) for one in bus_world.read(middle, 1)] == [(5, b"5")]


def test_two_readers_of_two_processes_see_the_same(bus_world: BusWorld) -> None:
    topic, one, two = bus_world.topic(), bus_world.bus(), bus_world.bus()
    readers = [bus_world.reader(one, topic), bus_world.reader(two, topic)]
    for value in numbered(0, 50):
        one.append(topic, 0, value)
    bus_world.acknowledged(one)
    for value in numbered(50, 100):
        two.append(topic, 0, value)
    first, second = (bus_world.read(reader, 100) for reader in readers)
    assert [record.value for record in first] == numbered(0, 100)
    assert first == second


def test_stamps_are_the_brokers(bus_world: BusWorld) -> None:
    topic, bus = bus_world.topic(), bus_world.bus()
    reader = bus_world.reader(bus, topic)
    stamps = []
    for value in numbered(0, 5):
        bus.append(topic, 0, value)
        stamps += [one.stamp_ms for one in bus_world.read(reader, 1)]
        if isinstance(bus_world, MemoryBusWorld):
            assert stamps[-1] == bus_world.clock.now_ms()
            bus_world.clock.advance(7)
    assert stamps == sorted(stamps)
    assert all(isinstance(stamp, int) for stamp in stamps)
    again = bus_world.read(bus_world.reader(bus, topic), 5)
    assert [one.stamp_ms for one in again] == stamps


def test_the_stamp_of_the_first_record_is_told_though_it_cannot_be_read(bus_world: BusWorld) -> None:
    topic, bus = bus_world.topic(), bus_world.bus()
    assert asked(lambda: bus.first_stamp_ms(topic, 0)) is None
    for value in (b"one", b"bad--record", b"two"):
        bus.append(topic, 0, value)
        bus_world.acknowledged(bus)
        if isinstance(bus_world, MemoryBusWorld):
            bus_world.clock.advance(7)
    stamps = [one.stamp_ms for one in bus_world.read(bus_world.reader(bus, topic), 3)]
    assert asked(lambda: bus.first_stamp_ms(topic, 0)) == stamps[0]
    asked(lambda: bus.delete_below(topic, 0, 1))
    bus_world.flip(topic, b"bad--record")
    assert asked(lambda: bus.first_stamp_ms(topic, 0)) == stamps[1]
    asked(lambda: bus.delete_below(topic, 0, 3))
    assert asked(lambda: bus.first_stamp_ms(topic, 0)) is None


def test_the_first_record_after_a_stamp_is_found(bus_world: BusWorld) -> None:
    topic, bus = bus_world.topic(), bus_world.bus()
    assert asked(lambda: bus.offset_after(topic, 0, 0)) == 0
    for value in (b"one", b"two", b"three"):
        bus.append(topic, 0, value)
        bus_world.acknowledged(bus)
        if isinstance(bus_world, MemoryBusWorld):
            bus_world.clock.advance(7)
    stamps = [one.stamp_ms for one in bus_world.read(bus_world.reader(bus, topic), 3)]
    for stamp_ms in (0, stamps[0] - 1, stamps[0], stamps[1], stamps[2], stamps[2] + 3_600_000):
        found = asked(partial(bus.offset_after, topic, 0, stamp_ms))
        assert found == sum(each <= stamp_ms for each in stamps)
    asked(lambda: bus.delete_below(topic, 0, 2))
    assert asked(lambda: bus.offset_after(topic, 0, 0)) == 2


def test_records_below_an_offset_can_be_deleted(bus_world: BusWorld) -> None:
    topic, bus = bus_world.topic(), bus_world.bus()
    for value in numbered(0, 10):
        bus.append(topic, 0, value)
    bus_world.acknowledged(bus)
    asked(lambda: bus.delete_below(topic, 0, 6))
    assert bus_world.offsets(bus, topic, 0) == (6, 10) and asked(lambda: bus.end(topic, 0)) == 10
    asked(lambda: bus.delete_below(topic, 0, 4))
    assert bus_world.offsets(bus, topic, 0) == (6, 10)
    assert [one.offset for one in bus_world.read(bus_world.reader(bus, topic, offset=6), 4)] == [6, 7, 8, 9]
    with pytest.raises(ValueError, match="11"):
        asked(lambda: bus.delete_below(topic, 0, 11))
    asked(lambda: bus.delete_below(topic, 0, 10))
    assert bus_world.offsets(bus, topic, 0) == (10, 10)
    bus.append(topic, 0, b"10")
    assert [one.offset for one in bus_world.read(bus_world.reader(bus, topic, offset=10), 1)] == [10]


@pytest.mark.parametrize("offset", [2, 6])
def test_an_offset_outside_the_log_is_gone(bus_world: BusWorld, offset: int) -> None:
    topic, bus = bus_world.topic(), bus_world.bus()
    for value in numbered(0, 5):
        bus.append(topic, 0, value)
    bus_world.acknowledged(bus)
    asked(lambda: bus.delete_below(topic, 0, 3))
    reader = bus_world.reader(bus, topic, offset=offset)
    with pytest.raises(OffsetGone) as gone:
        eventually(lambda: reader.poll(100), "an error")
    told = gone.value
    assert (told.topic, told.partition, told.offset, told.first, told.end) == (topic, 0, offset, 3, 5)
    bus.append(topic, 0, b"5")
    bus_world.acknowledged(bus)
    with pytest.raises(OffsetGone):
        reader.poll(100)


def test_a_log_has_an_identity_that_ends_with_it(bus_world: BusWorld) -> None:
    topic, bus = bus_world.topic(), bus_world.bus()
    other = bus_world.topic("other")
    before = asked(lambda: bus.log_id(topic))
    bus.append(topic, 0, b"0")
    bus.append(topic, 0, b"1")
    reader = bus_world.reader(bus, topic)
    bus_world.read(reader, 2)
    assert asked(lambda: bus.log_id(topic)) == before
    assert asked(lambda: bus.log_id(other)) != before
    bus_world.delete(topic)
    bus_world.topic()
    assert asked(lambda: bus.log_id(topic)) not in (before, asked(lambda: bus.log_id(other)))
    assert bus_world.offsets(bus, topic, 0) == (0, 0)
    with pytest.raises(OffsetGone):
        eventually(lambda: reader.poll(100), "an error")


@pytest.mark.parametrize("name, partition", [("none", 0), ("inbox", 1)])
def test_what_is_not_there_is_unavailable(bus_world: BusWorld, name: str, partition: int) -> None:
    topic = bus_world.topic().replace("inbox", name)
    bus = bus_world.bus()
    with pytest.raises(Unavailable, match=name):
        bus.offsets(topic, partition)
    with pytest.raises(Unavailable, match=name):
        bus.end(topic, partition)
    with pytest.raises(Unavailable, match=name):
        bus.delete_below(topic, partition, 0)
    if name == "none":
        with pytest.raises(Unavailable, match=name):
            bus.log_id(topic)
    reader = bus_world.reader(bus, topic, partition)
    with pytest.raises(Unavailable, match=name):
        eventually(lambda: reader.poll(100), "an error")


def test_a_reader_of_a_deleted_topic_is_told(bus_world: BusWorld) -> None:
    topic, bus = bus_world.topic(), bus_world.bus()
    bus.append(topic, 0, b"0")
    reader = bus_world.reader(bus, topic)
    bus_world.read(reader, 1)
    bus_world.delete(topic)
    with pytest.raises(Unavailable):
        eventually(lambda: reader.poll(100), "an error")


@pytest.mark.parametrize("name, partition", [("none", 0), ("inbox", 1)])
def test_a_record_that_can_never_be_delivered_is_fatal_once(bus_world: BusWorld, name: str, partition: int) -> None:
    topic = bus_world.topic().replace("inbox", name)
    bus = bus_world.bus()
    acked: list[int] = []
    for number in range(3):
        bus.append(topic, partition, b"x", on_ack=lambda number=number: acked.append(number))

    def died() -> bool:
        bus.serve()
        return bool(bus_world.fatal)

    eventually(died, "the end of the bus")
    bus.append(topic, partition, b"x")
    bus.serve()
    assert len(bus_world.fatal) == 1
    assert f"{topic}[{partition}]" in bus_world.fatal[0]
    assert acked == []


def test_a_record_may_have_900_kb_and_not_more_than_a_million_bytes(bus_world: BusWorld) -> None:
    topic, bus = bus_world.topic(), bus_world.bus()
    with pytest.raises(ValueError, match="1000001 bytes is too large"):
        bus.append(topic, 0, b"x" * 1_000_001)
    bus.append(topic, 0, b"y" * 900_000, key=b"k" * 50, headers=[("ce_type", b"t" * 500)])
    bus.append(topic, 0, b"z" * 999_000)
    assert [len(one.value) for one in bus_world.read(bus_world.reader(bus, topic), 2)] == [900_000, 999_000]
    assert bus_world.fatal == []


def test_a_broker_that_is_away_blocks_no_append_and_takes_all_in_order_when_it_is_back(bus_world: BusWorld) -> None:
    topic, bus = bus_world.topic(partitions=2), bus_world.bus()
    reader = bus_world.reader(bus, topic)
    identity = asked(lambda: bus.log_id(topic))
    ran: list[bytes] = []
    for value in numbered(0, 100):
        bus.append(topic, 0, value, on_ack=lambda value=value: ran.append(value))
    bus_world.acknowledged(bus)
    records = bus_world.read(reader, 100)
    bus_world.stop()
    for value in numbered(100, 300):
        bus.append(topic, 0, value, on_ack=lambda value=value: ran.append(value))
    bus.serve()
    assert reader.poll(10) == []
    assert bus.flush(0) == 200
    assert ran == numbered(0, 100)
    with pytest.raises(Unavailable):
        bus.offsets(topic, 0)
    with pytest.raises(Unavailable):
        bus.log_id(topic)
    bus_world.start()
    bus_world.acknowledged(bus)
    records += bus_world.read(reader, 200)
    assert [one.value for one in records] == ran == numbered(0, 300)
    assert [one.offset for one in records] == list(range(300))
    assert asked(lambda: bus.log_id(topic)) == identity
    assert bus_world.offsets(bus, topic, 0) == (0, 300)
    assert bus_world.fatal == []


def test_close_loses_what_is_queued_and_waits_for_nothing(bus_world: BusWorld) -> None:
    topic, bus, other = bus_world.topic(), bus_world.bus(), bus_world.bus()
    ran: list[int] = []
    bus_world.stop()
    bus.append(topic, 0, b"lost", on_ack=lambda: ran.append(1))
    bus.close()
    bus_world._open.remove(bus)
    bus.append(topic, 0, b"too late")
    bus_world.start()
    other.append(topic, 0, b"kept")
    bus_world.acknowledged(other)
    assert [one.value for one in bus_world.read(bus_world.reader(other, topic), 1)] == [b"kept"]
    assert ran == []
    assert bus_world.fatal == []


def test_a_closed_reader_says_so(bus_world: BusWorld) -> None:
    topic, bus = bus_world.topic(), bus_world.bus()
    reader = bus.reader(topic, 0, 0)
    reader.close()
    with pytest.raises(RuntimeError):
        reader.poll(0)


def test_topics_become_what_is_asked_for(bus_world: BusWorld) -> None:
    one, two = bus_world.topic("one"), bus_world.topic("one").replace("one", "two")
    wanted = [(one, 1, {"retention.ms": -1}), (two, 3, {"retention.ms": -1, "cleanup.policy": "compact"})]
    lines = bus_world.admin.ensure_topics(wanted)
    assert sorted(line.split(" (")[0] for line in lines) == sorted([f"created {two}", f"set {one} retention.ms=-1"])
    assert bus_world.admin.ensure_topics(wanted) == []
    assert bus_world.offsets(bus_world.bus(), two, 2) == (0, 0)
    with pytest.raises(ValueError, match=f"{two} has 3 partitions and not 4"):
        bus_world.admin.ensure_topics([(one, 1, {"retention.ms": 5}), (two, 4, {}), (one + "x", 1, {})])
    assert bus_world.admin.ensure_topics(wanted) == []
    with pytest.raises(Unavailable):
        bus_world.bus().log_id(one + "x")


def test_a_killed_broker_loses_nothing_that_it_acknowledged(bus_world: BusWorld) -> None:
    topic, bus = bus_world.topic(), bus_world.bus()
    for value in numbered(0, 100):
        bus.append(topic, 0, value)
    bus_world.acknowledged(bus)
    bus_world.kill()
    for value in numbered(100, 200):
        bus.append(topic, 0, value)
    bus_world.start()
    bus_world.acknowledged(bus)
    assert [one.value for one in bus_world.read(bus_world.reader(bus, topic), 200)] == numbered(0, 200)
