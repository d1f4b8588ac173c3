"""client.commands loses its end, below what the Dispatcher has read: an unclean election, a power cut on one replica, a restored disk."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.io.interfaces import OffsetGone, Put, Txn, Unavailable
from millrace.io.storage.store import Storage
from services.dispatcher import request_marks
from services.dispatcher.client_port import Copier
from services.dispatcher.request_marks import RequestMarks
from tests.dispatcher.of_client_port import World


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path))


def later(world: World, count: int) -> None:
    """Each of them has a stamp of its own."""
    for _ in range(count):
        world.broker.clock.advance(10)
        world.ask(1)


def ports(world: World, marks: RequestMarks) -> Iterator[Copier]:
    """Ports, one after the other, until one copies."""
    for _ in range(20):
        with contextlib.suppress(Unavailable, OffsetGone):
            copier = Copier(world.bus, world.intake, world.term(), marks, world.try_it)
            copier.copy(0)
            yield copier


def lossy(storage: Storage, end: int, *, asked: int = 10) -> tuple[World, RequestMarks]:
    """So many requests are folded, then the log is cut there."""
    world = World(storage)
    marks = RequestMarks(world.store, itertools.count(0.0, 2.0).__next__)
    later(world, asked)
    next(ports(world, marks))
    world.fold_all()
    assert world.taken() == asked
    world.broker.truncate("client.commands", 0, end)
    return world, marks


@pytest.mark.parametrize("came", [3, 5, 8])
def test_a_log_that_lost_its_end_is_read_on_from_there_and_nothing_twice(storage: Storage, came: int) -> None:
    """What came at the offsets that were lost was never read, or its first part was not: no answer, no dead letter."""
    world, marks = lossy(storage, 5)
    later(world, came)  # before anybody has noticed
    copied = len(world.log)
    copier = next(ports(world, marks))
    assert [(each.log, each.prev, each.offset, each.decided) for each in world.log[copied : copied + 2]] == [
        (f"{world.bus.log_id('client.commands')}:1", -1, 5, False),
        (f"{world.bus.log_id('client.commands')}:1", 5, 6, False),
    ]
    later(world, 2)
    copier.copy(0)
    world.fold_all()
    assert [each.offset for each in world.log[copied:]] == list(range(5, 5 + came + 2))
    assert world.taken() == 5 + came + 2


def test_a_log_that_lost_all_of_it_is_read_from_its_start(storage: Storage) -> None:
    world, marks = lossy(storage, 0)
    later(world, 2)
    next(ports(world, marks))
    world.fold_all()
    assert world.taken() == 2 and world.folded.client_log.endswith(":1")


def test_a_log_that_loses_its_end_again_and_again_has_a_new_name_each_time(storage: Storage) -> None:
    world, marks = lossy(storage, 8)
    for end in (8, 6, 7):
        world.broker.truncate("client.commands", 0, end)
        later(world, 3)
        next(ports(world, marks))
        world.fold_all()
        assert world.taken() == end + 3
    assert world.folded.client_log == f"{world.bus.log_id('client.commands')}:3"


def test_what_comes_while_ports_are_replaced_after_a_loss_is_read(storage: Storage) -> None:
    """The place where the log was cut is kept: a port that begins at the end of today would pass over what came since."""
    world, marks = lossy(storage, 5)
    for _ in range(4):
        with contextlib.suppress(Unavailable):
            Copier(world.bus, world.intake, world.term(), marks, world.try_it).close()
    later(world, 2)
    next(ports(world, RequestMarks(world.store)))
    world.fold_all()
    assert world.taken() == 7
    later(world, 1)
    next(ports(world, RequestMarks(world.store)))
    world.fold_all()
    assert world.taken() == 8 and world.folded.client_log.endswith(":1")


def test_a_log_that_loses_its_end_once_more_before_any_request_came_is_read_from_there(storage: Storage) -> None:
    world, marks = lossy(storage, 8)
    next(ports(world, marks))
    world.broker.truncate("client.commands", 0, 5)
    later(world, 4)
    next(ports(world, marks))
    world.fold_all()
    assert world.taken() == 9 and [each.offset for each in world.log[11:]] == [5, 6, 7, 8]


def test_an_end_of_a_broker_that_has_just_begun_to_lead_is_no_loss(storage: Storage) -> None:
    world, marks = lossy(storage, 10)
    whole, world.bus.offsets = world.bus.offsets, lambda topic, partition: (0, 7)
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"ends at 7, and was read up to 9: it is asked again for 5 s"):
            Copier(world.bus, world.intake, world.term(), marks, world.try_it)
    world.bus.offsets = whole
    later(world, 1)
    next(ports(world, marks))
    world.fold_all()
    assert (world.taken(), world.folded.client_log) == (11, world.bus.log_id("client.commands"))


def test_ends_that_were_seen_in_two_terms_prove_nothing(storage: Storage) -> None:
    world, _ = lossy(storage, 10)
    marks = RequestMarks(world.store, iter((0.0, 4.0, 100.0, 104.0, 105.0)).__next__)
    place = marks.place(world.bus.log_id("client.commands"), world.folded)
    for _ in range(4):
        with pytest.raises(Unavailable):
            marks.is_short(place, 7)
    assert marks.is_short(place, 7)


def test_what_has_no_later_stamp_than_what_was_lost_is_passed_over(storage: Storage) -> None:
    """Rather than to carry out twice what was there before."""
    world, marks = lossy(storage, 5)
    world.broker.skew_ms = -3_600_000
    later(world, 3)
    port = next(ports(world, marks))
    world.broker.skew_ms = 0
    later(world, 1)
    copied = len(world.log)
    port.copy(0)
    assert [each.offset for each in world.log[copied:]] == [8]


def test_a_dispatcher_that_is_born_anew_carries_out_what_came_after_a_loss(storage: Storage) -> None:
    """It stood below the mark of what was decided."""
    world, marks = lossy(storage, 5)
    kept = {"log": world.bus.log_id("client.commands"), "mark": 9, "stamp_ms": world.folded.client_stamp[2]}
    world.store.txn(Txn([], [Put(request_marks.KEY, json.dumps(kept).encode())]))
    later(world, 3)
    anew = World(storage)
    anew.broker, anew.bus, anew.store = world.broker, world.bus, world.store
    next(ports(anew, marks))
    assert [(each.offset, each.decided) for each in anew.log[1:]] == [(offset, offset < 5) for offset in range(8)]


def test_a_port_whose_log_lost_what_was_copied_and_not_folded_is_replaced(storage: Storage) -> None:
    world = World(storage)
    later(world, 10)
    world.copier().copy(0)  # its copies are on their way
    world.broker.truncate("client.commands", 0, 5)
    later(world, 2)
    slow = world.copier()
    slow.copy(0)
    world.fold_all()
    with pytest.raises(Unavailable, match="requests up to 9 are folded"):
        slow.copy(0)
    next(ports(world, RequestMarks(world.store, itertools.count(0.0, 2.0).__next__)))
    world.fold_all()
    assert world.taken() == 7 and world.folded.client_log.endswith(":1")


@pytest.mark.parametrize("came", [5, 9])
def test_a_chain_does_not_go_on_from_what_was_copied_before_the_log_lost_it(storage: Storage, came: int) -> None:
    """The copies of what was lost were folded, and then those of what came behind these offsets: what came at them was passed over."""
    world = World(storage)
    later(world, 10)
    world.copier().copy(0)  # its copies are on their way
    world.broker.truncate("client.commands", 0, 5)
    later(world, came)
    slow = world.copier()
    slow.copy(0)
    world.fold_all()
    assert world.taken() == 10
    if came == 5:
        with pytest.raises(Unavailable, match="requests up to 9 are folded"):
            slow.copy(0)
    next(ports(world, RequestMarks(world.store, itertools.count(0.0, 2.0).__next__)))
    world.fold_all()
    assert world.taken() == 5 + came and world.folded.client_log.endswith(":1")


def test_a_clock_that_was_set_back_is_no_loss(storage: Storage) -> None:
    world, marks = lossy(storage, 10)
    world.broker.skew_ms = -3_600_000
    later(world, 3)
    for port in itertools.islice(ports(world, marks), 3):
        world.fold_all()
        port.copy(0)
    assert (world.taken(), world.folded.client_log) == (13, world.bus.log_id("client.commands"))
    assert len(world.log) == 14, "none is read twice"


def test_a_last_request_that_is_damaged_since_is_not_compared(storage: Storage) -> None:
    world, marks = lossy(storage, 10)
    world.broker.log("client.commands", 0).flipped.add(9)
    later(world, 2)
    copier = next(ports(world, marks))
    copier.copy(0)
    world.fold_all()
    assert (world.taken(), world.folded.client_log) == (12, world.bus.log_id("client.commands"))
