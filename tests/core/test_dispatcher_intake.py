"""The edge of the cluster: strangers' bytes, and the port that copies them."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millrace.core.fold import Fold, PendingEffect
from millrace.core.jobgraph.model import DEFAULT_LIMITS
from millrace.core.messages.base import canonical
from millrace.core.messages.effects import EndJob
from millrace.core.messages.records import Client, Elected, decode, encode
from millrace.core.topics import Topology
from millrace.edge.requests import GRAPH_BYTES_MOST
from millrace.io.interfaces import OffsetGone, Put, Received, Txn
from millrace.io.storage.store import Storage, upload_path
from millrace.runtime import troubles
from millrace.runtime.hosting import Term
from services.dispatcher import asked as asked_
from services.dispatcher import client_port
from services.dispatcher.asked import Asked
from services.dispatcher.client_port import ClientPort, Copier
from services.dispatcher.core.machine import Dispatcher
from services.dispatcher.intake import Intake
from services.dispatcher.trial import Tried, Untold
from tests.core.of_dispatcher import stored
from tests.simulation import Clock
from tests.simulation.bus import MemoryBroker, MemoryBus
from tests.simulation.control import tried_in_memory
from tests.simulation.store import MemoryEtcd, MemoryStore

GRAPH = {"name": "one", "vertices": {"v": {"sql": "SELECT 1"}}}


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path))


@pytest.fixture
def intake(storage: Storage) -> Intake:
    return Intake(storage, DEFAULT_LIMITS)


def received(value: bytes, offset: int = 7) -> Received:
    return Received("client.commands", 0, offset, 0, None, value)


def of(value: object) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def submit(graph: object = GRAPH, **fields: object) -> bytes:
    return of({"type": "SubmitJob", "version": 1, "job": "j", "graph": graph, "reply_to": "me", **fields})


def take(intake: Intake, value: bytes) -> Client:
    record = intake.record(received(value), "log", 6)
    assert decode(encode(record)) == record, "it can be a record of the inbox"
    assert (record.log, record.prev, record.offset) == ("log", 6, 7)
    return record


def test_where_queries_stand_makes_no_other_job(intake: Intake) -> None:
    first = take(intake, submit({**GRAPH, "sources": {"v": {"file": "flow.yaml", "line": 3, "indent": 4}}}, reply_to="me"))
    moved = take(intake, submit({**GRAPH, "sources": {"v": {"file": "flow.yaml", "line": 9, "indent": 4}}}, reply_to="me"))
    assert first.digest == moved.digest == take(intake, submit(reply_to="me")).digest
    assert (first.graph or {})["sources"]["v"]["line"] == 3 and (moved.graph or {})["sources"]["v"]["line"] == 9


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "not JSON: Expecting value at line 1, column 1"),
        (b"\xff\xfe", "not UTF-8 at byte 0"),
        (b"[1]", 'no message: a request is an object with "type" and "version"'),
        ({"type": "Nonsense", "version": 1}, "unknown type 'Nonsense'; known are SubmitJob, CancelJob,"),
        ({"type": "CancelJob", "job": "j"}, 'CancelJob has no "version"; this Dispatcher knows version 1'),
        ({"type": "CancelJob", "version": True}, 'CancelJob has true as its "version", which is no integer; this Dispatcher knows'),
        ({"type": "CancelJob", "version": "1"}, """CancelJob has the text '1' as its "version", which is no integer"""),
        ({"type": "CancelJob", "version": 2, "x": 1}, "CancelJob has a newer version, 2; this Dispatcher knows version 1"),
        ({"type": "CancelJob", "version": 0}, "CancelJob has an unknown version, 0"),
        ({"type": "CancelJob", "version": 1}, "no CancelJob: job: Field required"),
        ({"type": "CancelJob", "version": 1, "job": "j", "now": 1}, "no CancelJob: now: Extra inputs are not permitted"),
        ({"type": "CancelJob", "version": 1, "job": "../j"}, "no CancelJob: job: String should match pattern"),
        (b'{"type":' + b"[" * 100 + b"]" * 100 + b"}", "nested more than 32 deep"),
        (b'"' + b"x" * 1_048_576 + b'"', "1048578 bytes are more than the 1048576 allowed"),
    ],
)  # fmt: skip
def test_bytes_that_are_no_request_are_refused_with_the_reason(intake: Intake, value: object, reason: str) -> None:
    data = of(value)
    record = take(intake, data)
    assert record.request is None
    refusal = record.refusal
    assert refusal.reason.startswith(reason)
    assert (refusal.size_bytes, refusal.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert base64.b64decode(refusal.head_base64) == data[:4096]


def test_a_submission_is_checked_once_and_stored_with_its_parameters_put_in(intake: Intake) -> None:
    graph = {"name": "one", "parameters": {"n": 1}, "vertices": {"v": {"sql": "SELECT ${n}"}}}
    record = take(intake, submit(graph, parameters={"n": "2"}, reply_to="me", accept_before_ms=5))
    assert record.graph == {"name": "one", "parameters": {"n": "2"}, "vertices": {"v": {"sql": "SELECT 2"}}}
    assert record.digest == hashlib.sha256(canonical({"graph": graph, "parameters": {"n": "2"}})).hexdigest()
    assert (record.request.graph, record.request.parameters) == ({}, {})
    assert (record.request.reply_to, record.request.accept_before_ms) == ("me", 5)
    assert (record.problems, record.warnings, record.refusal) == ([], [], None)


@pytest.mark.parametrize(
    ("graph", "place", "message"),
    [
        ({**GRAPH, "vertices": {}}, ["vertices"], "must not be empty"),
        ({"name": "n", "vertices": {"v": {"sql": "SELEC 1"}}}, ["vertices", "v", "sql"], "does not parse: unexpected 1 at line 1"),
        ({"name": "n", "vertices": {"v": {"sql": "SELECT * FROM w"}}}, ["vertices", "v", "sql"], "reads w, which is no input"),
        ({**GRAPH, "conf": {"spark.master": "local"}}, ["conf", "spark.master"], "cannot be set by a job: the cluster"),
        ({**GRAPH, "modules": [{"name": "m.py", "sha256": "0" * 64}]}, ["modules", 0], "m.py was not uploaded"),
        (
            {"name": "n", "vertices": {f"v{i}": {"sql": f"SELECT '{'x' * 60_000}'"} for i in range(5)}},
            [], "with parameters put in, the graph has",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_graph_is_told_with_its_place(
    intake: Intake, graph: object, place: list, message: str
) -> None:
    record = take(intake, submit(graph))
    assert record.problems[0].place == place
    assert record.problems[0].message.startswith(message)
    assert (record.graph, record.digest) == (None, None)


def test_a_relative_path_is_refused_for_a_message_has_no_folder(intake: Intake, storage: Storage) -> None:
    """Its sink wrote into the TaskManager's own working folder, and the job FINISHED."""
    source = {"source": {"format": "csv", "path": "in/*.csv"}}
    sink = {"sink": {"format": "parquet", "path": "${out}"}, "inputs": {"a": "forward"}}
    graph = {"name": "n", "parameters": {"out": "out"}, "vertices": {"a": source, "b": sink}}
    hint = "write all of it; only millrace submit puts the folder of a graph's file before it"
    assert [(each.place, each.message, each.hint) for each in take(intake, submit(graph)).problems] == [
        (["vertices", "a", "source", "path"], "in/*.csv is relative", hint),
        (["vertices", "b", "sink", "path"], "out is relative", hint),
    ]
    sha256 = hashlib.sha256(b"1,2").hexdigest()
    storage.put_new(upload_path(sha256), b"1,2")
    with_file = {**graph, "modules": [{"name": "in.csv", "sha256": sha256, "kind": "file"}]}
    assert [each.place[1] for each in take(intake, submit(with_file)).problems] == ["b"], "a source may read what goes with the job"
    for out in ("/data/out", "file:///data/out", "s3a://data/out"):
        assert take(intake, submit(with_file, parameters={"out": out})).problems == []


def test_the_same_graph_is_looked_at_once_but_its_uploads_each_time(intake: Intake, storage: Storage) -> None:
    sha256 = hashlib.sha256(b"code").hexdigest()
    value = submit({**GRAPH, "modules": [{"name": "m.py", "sha256": sha256}]})
    assert take(intake, value).graph is None
    storage.put_new(upload_path(sha256), b"code")
    assert take(intake, value).graph is not None
    storage.delete_tree("uploads")
    assert take(intake, value).graph is None


def test_warnings_do_not_stop_a_submission(intake: Intake) -> None:
    record = take(intake, submit({"name": "n", "vertices": {"v": {"sql": "SHOW TABLES"}}}))
    assert record.graph is not None
    assert [warning.message for warning in record.warnings] == ["only Spark can tell whether this SHOW is right"]


def test_what_is_wrong_with_a_submission_that_wants_no_answer_is_parked(intake: Intake) -> None:
    graph = {"name": "n", "vertices": {"v": {"sql": "SELECT * FROM w"}, "x": {"sql": "SELEC 1"}}}
    record = take(intake, submit(graph, reply_to=""))
    assert record.request is None
    assert record.refusal is not None
    assert record.refusal.reason == (
        "no SubmitJob of job j: vertices.v.sql: reads w, which is no input; "
        "vertices.x.sql: does not parse: unexpected 1 at line 1, column 7"
    )


def test_of_a_submission_that_wants_no_answer_the_record_tells_enough_for_a_letter(intake: Intake) -> None:
    value = submit(reply_to="", correlation="x" * 200, graph={"name": "n" * 100, "vertices": {"v": {"sql": f"SELECT '{'x' * 500}'"}}})
    record = take(intake, value)
    assert record.graph is not None and record.excerpt is not None
    assert (record.excerpt.size_bytes, record.excerpt.sha256) == (len(value), hashlib.sha256(value).hexdigest())
    assert base64.b64decode(record.excerpt.head_base64) == value[:512]
    assert take(intake, submit()).excerpt is None
    assert take(intake, of({"type": "CancelJob", "version": 1, "job": "j"})).excerpt is None


def test_sizes_that_slots_do_not_heed_are_warned_of(intake: Intake) -> None:
    conf = {"spark.executor.memory": "9g", "spark.driver.memory": "9g", "spark.sql.ansi.enabled": "true"}
    record = take(intake, submit({**GRAPH, "conf": conf}))
    assert record.graph is not None
    assert [(each.place, each.message[:13]) for each in record.warnings] == [
        (["conf", "spark.executor.memory"], "has no effect"),
        (["conf", "spark.driver.memory"], "has no effect"),
    ]


def test_local_files_are_looked_for_where_that_is_wanted(storage: Storage, tmp_path: Path) -> None:
    source = {"source": {"format": "csv", "path": f"file://{tmp_path}/none.csv"}}
    value = submit({"name": "n", "vertices": {"v": source}})
    assert take(Intake(storage, DEFAULT_LIMITS), value).graph is not None
    [problem] = take(Intake(storage, DEFAULT_LIMITS, check_local_files=True), value).problems
    assert problem.message == f"no such file: {tmp_path}/none.csv"


def test_no_stranger_can_make_a_record_too_large(intake: Intake) -> None:
    wild = {"\x01" * 90 + str(n): {"\x01" * 99: 1} for n in range(100)}
    assert len(encode(take(intake, submit({"name": "n", "vertices": wild})))) < 600_000
    fat = {"name": "n", "vertices": {"v": {"sql": "SELECT '" + "x" * 60_000 + "'"}, "p": {"python": "m:f"}}}
    graph = {**fat, "parameters": {f"p{n}": "y" * 900 for n in range(200)}}
    assert len(json.dumps(take(intake, submit(graph)).graph)) < GRAPH_BYTES_MOST


@pytest.mark.parametrize("wrong", [{}, {"wrong": {}}])
def test_the_sql_of_too_large_a_graph_is_not_looked_into(intake: Intake, monkeypatch: pytest.MonkeyPatch, wrong: Any) -> None:
    monkeypatch.setattr("millrace.edge.requests.check_sql", lambda _: pytest.fail("looked into"))
    vertices = {f"v{n}": {"sql": f"SELECT {n}, '{'x' * 60_000}'"} for n in range(5)}
    [problem] = take(intake, submit({"name": "n", "vertices": {**vertices, **wrong}})).problems
    assert problem.message.startswith("has no kind" if wrong else "with parameters put in, the graph has 300")


# the port


class World:
    """A broker, the Dispatcher's fold, and a term; what the port appends is folded when asked for."""

    def __init__(self, storage: Storage) -> None:
        self.broker = MemoryBroker(Clock())
        self.broker.ensure_topics([("client.commands", 1, {})])
        self.bus = MemoryBus(self.broker, client_id="d", on_fatal=lambda reason: None)
        self.fold = Fold(Dispatcher(Topology()), Topology())
        self.folded = self.fold.blank(1, 0)
        self.log: list = []
        self.append(Elected(generation=1, epoch=1, build="b", who="w"))
        self.intake = Intake(storage, DEFAULT_LIMITS)
        self.store = MemoryStore(MemoryEtcd(Clock()), "/m/")
        self.store.txn(Txn([], [Put("leaders/dispatcher", b"w")]))
        self.tried: list[int] = []
        self.untold = ""

    def append(self, record: object) -> None:
        self.log.append(record)

    def fold_all(self) -> None:
        for offset in range(self.folded.next_offset, len(self.log)):
            self.fold.fold(self.folded, offset, 0, self.log[offset])

    def term(self) -> Term:
        return Term(self.store.get("leaders/dispatcher").mod_revision, self.folded, self.append)

    def port(self, fatal: Callable[[str], None]) -> ClientPort:
        return ClientPort(self.bus, self.intake, Asked(self.store), self.try_it, fatal)

    def copier(self) -> Copier:
        return Copier(self.bus, self.intake, self.term(), Asked(self.store), self.try_it)

    def try_it(self, offset: int, end: int, ended: threading.Event) -> Tried:
        self.tried.append(offset)
        if self.untold:
            raise Untold(self.untold)
        return tried_in_memory(self.broker.log("client.commands", 0), offset, end)

    def letters(self) -> list[tuple[int, str]]:
        """(offset, reason) of what was parked."""
        return [(each.offset, each.refusal.reason) for each in self.log[1:] if each.refusal is not None]

    def ask(self, count: int) -> None:
        for _ in range(count):
            self.bus.append("client.commands", 0, of({"type": "ListJobs", "version": 1}))

    def taken(self) -> int:
        return self.folded.client_mark + 1


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
    assert copied.wait(20)
    term.ended.set()
    thread = next((each for each in threading.enumerate() if each.name == "client-port"), None)
    if thread is not None:
        thread.join(20)
        assert not thread.is_alive()
    assert failed == []


def test_a_port_that_fails_ends_the_process(storage: Storage) -> None:
    world = World(storage)
    ended = threading.Event()
    world.ask(1)
    term = Term(world.term().epoch, world.folded, None)
    world.port(lambda reason: ended.set()).lead(term)
    assert ended.wait(20)


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
        with pytest.raises(Untold):
            world.copier().copy(0)
    [(where, facts, _)] = troubles.noted(world.store, "requests")
    assert (where, facts) == ("client.commands", troubles.Facts(reason=world.untold, offset=0))
    world.untold = ""
    until_folded(world, world.copier(), 2)
    assert world.letters() == [] and not list(troubles.noted(world.store, "requests"))


def test_a_process_that_does_not_lead_any_more_is_none_of_those_that_have_begun(storage: Storage) -> None:
    world = World(storage)
    asked, log_id = Asked(world.store), world.bus.log_id("client.commands")
    assert asked.begin(log_id, world.term().epoch + 1, 0, waits=True).in_vain == 0
    assert [Asked(world.store).begin(log_id, world.term().epoch, 0, waits=True).in_vain for _ in range(2)] == [0, 1]
    assert asked.begin(log_id, world.term().epoch, 0, waits=True).in_vain == 2


def test_a_port_that_is_made_anew_in_one_process_counts_once(storage: Storage) -> None:
    world = World(storage)
    world.ask(2)
    asked = Asked(world.store)
    for _ in range(5):
        copier = Copier(world.bus, world.intake, world.term(), asked, world.try_it)
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
        world.store.txn(Txn([], [Put(asked_.KEY, value)]))
        world.copier()
        assert json.loads(world.store.get(asked_.KEY).value)["began"] == 0


# a Dispatcher that is born anew


def test_what_a_dispatcher_had_refused_is_not_carried_out_by_one_that_is_born_anew(storage: Storage) -> None:
    """A cancel that was refused, for there was no such job, canceled that job a week later; a submission that was told
    "busy" ran beside the one that its client had sent instead."""
    world = World(storage)
    asked = Asked(world.store, itertools.count(0.0, 10.0).__next__)
    for value in (of({"type": "CancelJob", "version": 1, "job": "x"}), submit(job="x"), submit(job="busy"), submit(job="open")):
        world.bus.append("client.commands", 0, value)
    copier = Copier(world.bus, world.intake, world.term(), asked, world.try_it)
    copier.copy(0)
    world.folded.next_offset, world.folded.client_mark = 4, 2  # all but the last are decided
    world.folded.client_log = world.bus.log_id("client.commands")
    for _ in range(2):
        asked.note(world.folded, world.term().epoch)

    anew = World(storage)
    anew.broker, anew.bus, anew.store = world.broker, world.bus, world.store
    anew.copier().copy(0)
    assert [each.decided for each in anew.log[1:]] == [True, True, True, False]


def test_the_mark_of_what_is_decided_waits_for_what_is_pending(storage: Storage) -> None:
    world = World(storage)
    asked = Asked(world.store, itertools.count(0.0, 10.0).__next__)
    world.bus.append("client.commands", 0, submit())
    epoch = world.term().epoch
    Copier(world.bus, world.intake, world.term(), asked, world.try_it).copy(0)
    world.fold_all()
    assert list(world.folded.effects) != []

    def mark() -> int:
        asked.note(world.folded, epoch)
        return json.loads(world.store.get(asked_.KEY).value)["mark"]

    assert [mark(), mark()] == [-1, -1]
    world.folded.effects.clear()
    assert mark() == 0


def test_the_mark_of_what_is_decided_does_not_wait_for_the_end_of_another_job(storage: Storage) -> None:
    """One archive that could not be written for hours kept the mark where it was: a cancel that was refused meanwhile came again."""
    world = World(storage)
    asked = Asked(world.store, itertools.count(0.0, 10.0).__next__)
    world.bus.append("client.commands", 0, submit())
    Copier(world.bus, world.intake, world.term(), asked, world.try_it).copy(0)
    world.fold_all()
    ending = EndJob(job="old", ending=stored("old", "dirty", status="FAILED", archive="a"), archive={})
    world.folded.effects = {"1.0.0": PendingEffect("old", encode(ending).decode())}
    for _ in range(2):
        asked.note(world.folded, world.term().epoch)
    assert json.loads(world.store.get(asked_.KEY).value)["mark"] == 0


@pytest.mark.parametrize(("vertices", "message"), [
    ({"v": {"source": {"format": "csv", "path": "file://[x/y"}}}, "no such file: /y"),
    ({"v": {"source": {"format": "csv", "path": "/" + "x" * 300}}}, "no such file: /xxx"),
    ({"v": {"sql": "SELECT 1", "inputs": {"s(": "forward"}}}, "no vertex is called s("),
])  # fmt: skip
def test_what_a_stranger_wrote_ends_no_dispatcher(storage: Storage, vertices: Any, message: str) -> None:
    [first, *_] = take(Intake(storage, DEFAULT_LIMITS, check_local_files=True), submit({"name": "n", "vertices": vertices})).problems
    assert first.message.startswith(message)


def test_a_graph_that_the_checks_stumble_over_is_refused(intake: Intake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.dispatcher.intake.check_graph", lambda *_: next(iter(())))
    [problem] = take(intake, submit()).problems
    assert problem.message == "the graph cannot be checked (StopIteration)"
    assert "no SubmitJob of job j: the graph cannot be checked" in take(intake, submit(reply_to="")).refusal.reason
    monkeypatch.undo()
    assert take(intake, submit()).graph is not None, "that is not remembered"
