"""The port that copies strangers' requests into the Dispatcher's inbox."""

from __future__ import annotations

import itertools
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from millrace.core.fold import PendingEffect
from millrace.core.messages.records import Client, encode
from millrace.io.interfaces import OffsetGone, Put, Received, Txn
from millrace.io.storage.store import Storage
from millrace.runtime import troubles
from millrace.runtime.hosting import Term
from millrace.runtime.metrics import COMMAND_LAG
from services.dispatcher import client_port, request_marks
from services.dispatcher.client_port import Copier
from services.dispatcher.request_marks import RequestMarks
from services.dispatcher.trial import Inconclusive
from tests.core.of_dispatcher import end_effect, stored
from tests.core.of_requests import of, submit
from tests.dispatcher.of_client_port import World
from tests.io.of_metrics import value_of


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path))


def test_requests_are_copied_as_a_chain_and_not_too_many_at_once(storage: Storage) -> None:
    world = World(storage)
    world.ask(client_port.IN_FLIGHT + 44)
    copier = world.copier()
    assert copier.copy(0)
    assert len(world.log) == 1 + client_port.TOGETHER_MOST
    while copier.copy(0):
        pass  # until the others wait for these to be folded
    assert [(each.prev, each.offset) for each in world.log[1:4]] == [(-1, 0), (0, 1), (1, 2)]
    assert len(world.log) == 1 + client_port.IN_FLIGHT
    world.fold_all()
    for _ in range(3):
        assert copier.copy(0)
    world.fold_all()
    assert world.taken() == client_port.IN_FLIGHT + 44


def test_what_two_leaders_copy_is_folded_once_in_order(storage: Storage) -> None:
    world = World(storage)
    world.ask(3)
    zombie = world.copier()
    zombie.copy(0)
    successor = world.copier()
    world.ask(3)
    successor.copy(0)
    zombie.copy(0)
    world.fold_all()
    assert world.taken() == 6
    later = world.copier()
    world.ask(1)
    later.copy(0)
    world.fold_all()
    assert world.taken() == 7


def test_a_log_that_was_made_anew_is_read_from_its_start(storage: Storage) -> None:
    world = World(storage)
    world.ask(5)
    copier = world.copier()
    copier.copy(0)
    world.fold_all()
    world.broker.delete_topics(["client.commands"])
    world.broker.ensure_topics([("client.commands", 1, {})])
    world.ask(2)
    with pytest.raises(OffsetGone):
        copier.copy(0)
    anew = world.copier()
    anew.copy(0)
    world.fold_all()
    assert (world.taken(), world.folded.client_log) == (2, world.bus.log_id("client.commands"))


def test_what_was_deleted_unread_is_passed_over(storage: Storage) -> None:
    world = World(storage)
    world.ask(2)
    copier = world.copier()
    copier.copy(0)
    world.fold_all()
    world.ask(5)
    world.bus.delete_below("client.commands", 0, 6)
    anew = world.copier()
    anew.copy(0)
    world.fold_all()
    assert world.taken() == 7
    assert world.log[-1].prev == 1


def test_the_ports_thread_copies_until_its_term_ends(storage: Storage) -> None:
    world = World(storage)
    copied = threading.Event()
    failed: list[str] = []

    def append(record: object) -> None:
        world.append(record)
        copied.set()

    term = Term(world.term().epoch, world.folded, append)
    port = world.port(failed.append)
    port.lead(term)
    world.ask(1)
    assert copied.wait(120)
    term.ended.set()
    thread = next((each for each in threading.enumerate() if each.name == "client-port"), None)
    if thread is not None:
        thread.join(120)
        assert not thread.is_alive()
    assert failed == []


def test_a_port_that_fails_ends_the_process(storage: Storage) -> None:
    world = World(storage)
    ended = threading.Event()
    world.ask(1)
    term = Term(world.term().epoch, world.folded, None)
    world.port(lambda reason: ended.set()).lead(term)
    assert ended.wait(120)


def test_a_record_that_the_intake_fails_at_is_a_dead_letter_and_ends_nothing(storage: Storage) -> None:
    """Each Dispatcher that read it ended."""
    world = World(storage)
    world.ask(3)
    record = world.intake.record

    def fail(received: Received, *rest: Any) -> Client:
        if received.offset == 1:
            raise IndexError
        return record(received, *rest)

    world.intake.record = fail
    world.copier().copy(0)
    world.fold_all()
    assert world.letters() == [(1, "a fault of Millrace in understanding it (IndexError)")]
    assert world.taken() == 3


def test_a_request_that_the_inbox_does_not_take_is_a_dead_letter(storage: Storage) -> None:
    world = World(storage)
    world.ask(3)
    copier, append = world.copier(), world.append

    def too_large(record: Any) -> None:
        if record.offset == 1 and record.refusal is None:
            raise ValueError("a record of 2000000 bytes is too large")
        append(record)

    copier._term.append = too_large
    copier.copy(0)
    world.fold_all()
    assert world.letters() == [(1, "it cannot be copied: a record of 2000000 bytes is too large")]
    assert world.taken() == 3


def test_damaged_requests_are_passed_over_with_one_letter_and_those_behind_are_read(storage: Storage) -> None:
    """The port read the same bytes in vain for as long as the topic kept them."""
    world = World(storage)
    world.ask(6)
    world.broker.log("client.commands", 0).flipped.update((2, 3))
    until_folded(world, world.copier(), 6)
    [(offset, reason)] = world.letters()
    assert offset == 3
    assert reason.startswith("offsets 2 to 3 cannot be read: client.commands[0] cannot be read at offset 2")


def test_how_late_a_request_is_taken_in_is_measured_when_it_is_read_first(storage: Storage) -> None:
    """Whoever read all again, days later, told of days."""
    world = World(storage)
    marks = RequestMarks(world.store)

    def read(marks: RequestMarks) -> float:
        before = value_of(COMMAND_LAG, client_port.TOPIC, suffix="_count")
        Copier(world.bus, world.intake, world.term(), marks, world.try_it).copy(0)
        return value_of(COMMAND_LAG, client_port.TOPIC, suffix="_count") - before

    world.ask(3)
    assert read(marks) == 3
    world.ask(2)
    assert read(marks) == 2, "the chain is taken up anew: three are copied again"
    kept = {"log": world.bus.log_id("client.commands"), "mark": 3}
    world.store.txn(Txn([], [Put(request_marks.KEY, json.dumps(kept).encode())]))
    assert read(RequestMarks(world.store)) == 1, "another process, from a new log: four are decided"
    world.broker.delete_topics(["client.commands"])
    world.broker.ensure_topics([("client.commands", 1, {})])
    world.ask(1)
    assert read(marks) == 1


def until_folded(world: World, copier: Copier, taken: int) -> None:
    for _ in range(20):
        copier.copy(0)
        world.fold_all()
    assert world.taken() == taken


def test_a_record_that_ended_two_processes_is_passed_over_and_those_beside_it_are_read(storage: Storage) -> None:
    """A gigabyte of zeros ended one Dispatcher after the other: nothing counts an end that no exception tells of."""
    world = World(storage)
    world.ask(2)
    until_folded(world, world.copier(), 2)
    world.ask(4)
    world.broker.log("client.commands", 0).bombs.add(3)
    world.copier()  # reading ends this one: the record before is fetched with the bad one
    assert world.tried == [], "nobody knows yet"
    until_folded(world, world.copier(), 6)
    assert world.tried == [2, 3]
    assert world.letters() == [(3, "it cannot be read: reading it has ended 2 processes")]


def test_nothing_behind_is_read_before_all_in_front_of_it_is_folded(storage: Storage) -> None:
    world = World(storage)
    world.ask(3)
    world.broker.log("client.commands", 0).bombs.add(1)
    world.copier()
    copier = world.copier()
    copier.copy(0)
    assert [each.offset for each in world.log[1:]] == [0]
    assert not copier.copy(0)
    assert (world.tried, copier._reader) == ([0], None)


def test_a_good_record_at_which_processes_were_killed_is_read(storage: Storage) -> None:
    world = World(storage)
    world.ask(2)
    for _ in range(2):
        world.copier()
    until_folded(world, world.copier(), 2)
    assert (world.tried, world.letters()) == ([0], [])


def test_requests_wait_and_are_told_of_while_nobody_can_tell_whether_they_can_be_read(storage: Storage) -> None:
    """What failed for its own reasons was taken for the record's fault, and all that waited was passed over."""
    world = World(storage)
    world.ask(2)
    world.untold = "the process that reads it ended with code 1"
    world.copier()
    for _ in range(2):
        with pytest.raises(Inconclusive):
            world.copier().copy(0)
    [(where, facts, _)] = troubles.noted(world.store, "requests")
    assert (where, facts) == ("client.commands", troubles.Facts(reason=world.untold, offset=0))
    world.untold = ""
    until_folded(world, world.copier(), 2)
    assert world.letters() == [] and not list(troubles.noted(world.store, "requests"))


def test_a_process_that_does_not_lead_any_more_is_none_of_those_that_have_begun(storage: Storage) -> None:
    world = World(storage)
    marks, log_id = RequestMarks(world.store), world.bus.log_id("client.commands")
    assert marks.begin(log_id, world.term().epoch + 1, 0, waits=True).in_vain == 0
    assert [RequestMarks(world.store).begin(log_id, world.term().epoch, 0, waits=True).in_vain for _ in range(2)] == [0, 1]
    assert marks.begin(log_id, world.term().epoch, 0, waits=True).in_vain == 2


def test_a_port_that_is_made_anew_in_one_process_counts_once(storage: Storage) -> None:
    world = World(storage)
    world.ask(2)
    marks = RequestMarks(world.store)
    for _ in range(5):
        copier = Copier(world.bus, world.intake, world.term(), marks, world.try_it)
        copier.close()
    until_folded(world, copier, 2)
    assert world.tried == []


def test_a_flood_of_what_is_no_request_costs_the_inbox_little(storage: Storage) -> None:
    """A million tiny records were a million dead letters, and for minutes nobody else was heard."""
    world = World(storage)
    for _ in range(3_000):
        world.bus.append("client.commands", 0, b"{}")
    world.ask(1)
    copier = world.copier()
    while world.taken() < 3_001:
        copier.copy(0)
        world.fold_all()
    letters = world.letters()
    assert len(letters) < client_port.ALONE_MOST + 3_000 // client_port.IN_FLIGHT + 20
    assert [offset for offset, _ in letters[: client_port.ALONE_MOST - 1]] == list(range(client_port.ALONE_MOST - 1))
    offset, reason = letters[-1]
    assert offset == 2_999
    assert reason.startswith("no message: ") and "; those from offset " in reason


HALVES = ({"mark": "x"}, {"mark": 1.5}, {"began": None}, {"times": -1}, {"mark": 0, "began": 0, "times": "2"})


def test_a_foreign_value_where_the_port_keeps_what_it_knows_is_replaced(storage: Storage) -> None:
    world = World(storage)
    world.ask(1)
    halves = [json.dumps({"log": log_id, **half}).encode() for log_id in [world.bus.log_id("client.commands")] for half in HALVES]
    for value in (b"by hand", b"[]", b'{"log": 1, "more": 2}', *halves):
        world.store.txn(Txn([], [Put(request_marks.KEY, value)]))
        world.copier()
        assert json.loads(world.store.get(request_marks.KEY).value)["began"] == 0


def test_what_a_dispatcher_had_refused_is_not_carried_out_by_one_that_is_born_anew(storage: Storage) -> None:
    """A cancel that was refused, for there was no such job, canceled that job a week later; a submission that was told
    "busy" ran beside the one that its client had sent instead."""
    world = World(storage)
    marks = RequestMarks(world.store, itertools.count(0.0, 10.0).__next__)
    for value in (of({"type": "CancelJob", "version": 1, "job": "x"}), submit(job="x"), submit(job="busy"), submit(job="open")):
        world.bus.append("client.commands", 0, value)
    copier = Copier(world.bus, world.intake, world.term(), marks, world.try_it)
    copier.copy(0)
    world.folded.next_offset, world.folded.client_mark = 4, 2  # all but the last are decided
    world.folded.client_log = world.bus.log_id("client.commands")
    for _ in range(2):
        marks.note(world.folded, world.term().epoch)

    anew = World(storage)
    anew.broker, anew.bus, anew.store = world.broker, world.bus, world.store
    anew.copier().copy(0)
    assert [each.decided for each in anew.log[1:]] == [True, True, True, False]


def test_the_mark_of_what_is_decided_waits_for_what_is_pending(storage: Storage) -> None:
    world = World(storage)
    marks = RequestMarks(world.store, itertools.count(0.0, 10.0).__next__)
    world.bus.append("client.commands", 0, submit())
    epoch = world.term().epoch
    Copier(world.bus, world.intake, world.term(), marks, world.try_it).copy(0)
    world.fold_all()
    assert list(world.folded.effects) != []

    def mark() -> int:
        marks.note(world.folded, epoch)
        return json.loads(world.store.get(request_marks.KEY).value)["mark"]

    assert [mark(), mark()] == [-1, -1]
    world.folded.effects.clear()
    assert mark() == 0


def test_the_mark_of_what_is_decided_does_not_wait_for_the_end_of_another_job(storage: Storage) -> None:
    """One archive that could not be written for hours kept the mark where it was: a cancel that was refused meanwhile came again."""
    world = World(storage)
    marks = RequestMarks(world.store, itertools.count(0.0, 10.0).__next__)
    world.bus.append("client.commands", 0, submit())
    Copier(world.bus, world.intake, world.term(), marks, world.try_it).copy(0)
    world.fold_all()
    ending = end_effect("old", stored("old", "dirty", status="FAILED", archive="a"))
    world.folded.effects = {"1.0.0": PendingEffect("old", encode(ending).decode())}
    for _ in range(2):
        marks.note(world.folded, world.term().epoch)
    assert json.loads(world.store.get(request_marks.KEY).value)["mark"] == 0
