"""Rules of docs/rules.md about logs, generations, snapshots and bad records, by one hosted scope over Kafka and etcd in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from millrace.core.election import QUIET_TICK_MS
from millrace.core.fold import Diverged, Fold, Oversized, Parked, ScopeState
from millrace.core.messages.events import TaskManagerGone
from millrace.core.messages.jobs import JobMasterDeclared
from millrace.core.messages.records import Elected, Hello, Message, Probe, Tick, decode, encode
from millrace.core.states import Role
from millrace.core.topics import TOPICS, Topology
from millrace.io.interfaces import Delete, Put, Txn
from millrace.io.storage.store import Storage
from millrace.runtime.hosting import Hosted, Surroundings
from millrace.runtime.loop import ScopeLoop
from millrace.runtime.parked import ParkedRecords
from millrace.runtime.snapshots import Pointer, Snapshots, freeze, thaw
from services.resource_manager.core.machine import ResourceManager
from tests.simulation import Clock
from tests.simulation.bus import MemoryBroker, MemoryBus
from tests.simulation.store import MemoryEtcd, MemoryStore

TOPIC, SCOPE = "resource-manager.commands", "resource-manager"
TOPOLOGY = Topology()


@dataclass
class World:
    """One process that hosts the ResourceManager; `turn` lets it work, with its view of the leader key up to date."""

    folder: Path
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.broker, self.etcd = MemoryBroker(self.clock), MemoryEtcd(self.clock)
        self.broker.ensure_topics([(topic.name, topic.count(TOPOLOGY), topic.config()) for topic in TOPICS])
        self.fatal: list[str] = []
        self.bus = MemoryBus(self.broker, client_id="p", on_fatal=self.fatal.append)
        self.store = MemoryStore(self.etcd, "/test/")
        self.storage = Storage(str(self.folder))
        self.lease = self.store.grant(5)
        self.loop = self.host()

    def host(self, who: str = "p", build: str = "b1") -> ScopeLoop:
        around = Surroundings(
            self.bus, self.store, self.storage, TOPOLOGY, who, build, lambda: self.lease, self.fatal.append,
            clock=self.clock.now_ms, wait=lambda event, seconds: None, beside=lambda make, then: then(b"".join(make())),
        )  # fmt: skip
        return ScopeLoop(Hosted(ResourceManager(1), {}, {}), around)

    def turn(self, times: int = 1, ms: int = 100) -> None:
        for _ in range(times):
            self.clock.advance(ms)
            self.store.keep_alive(self.lease)
            self.loop.key.watched(self.store.get(f"leaders/{SCOPE}"))
            self.loop.turn()

    def lead(self) -> ScopeState:
        self.turn(6)
        assert self.loop.replica is not None and self.loop.replica.leads
        return self.loop.replica.folded

    def generation(self) -> dict[str, Any]:
        return json.loads(self.store.get(f"generations/{SCOPE}").value)

    def records(self) -> list[Any]:
        return [decode(each.value) for each in self.broker.log(TOPIC, 0).records]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_generation_is_a_log_from_an_offset_on(world: World) -> None:  # [R22]
    folded = world.lead()
    assert world.generation() == {"generation": 1, "log_id": world.bus.log_id(TOPIC), "first_offset": 0}
    assert isinstance(world.records()[0], Elected)
    assert folded.epoch == world.store.get(f"leaders/{SCOPE}").mod_revision


def test_a_log_that_was_cut_ends_its_generation_and_the_next_is_led_at_once(world: World) -> None:  # [R8], [R22], [R23]
    before = world.lead()
    world.turn(10)
    world.broker.truncate(TOPIC, 0, 2)
    world.turn(5)
    replica = world.loop.replica
    assert replica.leads and (before.generation, replica.folded.generation) == (1, 2)
    generation, leader = world.store.get(f"generations/{SCOPE}"), world.store.get(f"leaders/{SCOPE}")
    assert generation.mod_revision == leader.mod_revision == replica.folded.epoch, (
        "one transaction, and it is the epoch"
    )
    assert world.generation()["first_offset"] == 2


def test_a_log_that_was_cut_and_has_grown_again_ends_its_generation(world: World) -> None:  # [R8]
    world.lead()
    world.turn(10)
    end = world.broker.log(TOPIC, 0).end
    world.broker.truncate(TOPIC, 0, 2)
    while world.broker.log(TOPIC, 0).end <= end:
        world.bus.append(TOPIC, 0, encode(Probe(who="x", n=1)), key=b"x")
    world.turn(5)
    assert world.generation()["generation"] == 2 and world.loop.replica.leads


def test_a_log_that_was_made_anew_begins_a_generation_once_nobody_leads_the_old_one(world: World) -> None:  # [R22], [R23]
    world.lead()
    world.broker.delete_topics([TOPIC])
    world.broker.ensure_topics([(TOPIC, 1, {})])
    world.loop = world.host("q")
    world.turn(3)
    assert world.generation()["generation"] == 1, "the old leader's lease has not ended"
    world.store.revoke(world.lease)
    world.lease = world.store.grant(5)
    world.turn(4)
    assert world.generation()["generation"] == 2
    assert world.generation()["log_id"] == world.bus.log_id(TOPIC)


def test_who_led_a_log_that_was_made_anew_and_lost_its_key_begins_a_generation(world: World) -> None:  # [R22], [R23]
    world.lead()
    world.turn(5)
    world.broker.delete_topics([TOPIC])
    world.broker.ensure_topics([(TOPIC, 1, {})])
    world.store.txn(Txn([], [Delete(f"leaders/{SCOPE}")]))
    world.turn(5)
    assert world.generation()["generation"] == 2 and world.loop.replica.leads


def test_a_log_that_is_made_anew_twice_begins_a_generation_again(world: World) -> None:  # [R22], [R23]
    world.lead()
    world.turn(5)
    for _ in range(2):  # the second time before the new generation is opened, whose key this process holds
        world.broker.delete_topics([TOPIC])
        world.broker.ensure_topics([(TOPIC, 1, {})])
        world.turn(1)
    world.turn(5)
    assert world.generation()["generation"] == 3 and world.loop.replica.leads


def test_who_folded_a_later_epoch_than_etcd_gives_does_not_lead(tmp_path: Path) -> None:  # [R24]
    world = World(tmp_path)
    for n in range(50):
        world.store.txn(Txn([], [Put("other", str(n).encode())]))
    epoch = world.lead().epoch
    restored = World(tmp_path / "restored")  # an etcd of fewer revisions, with the same generation
    restored.broker, restored.bus = world.broker, world.bus
    restored.loop = restored.host("q")
    restored.store.txn(Txn([], [Put(f"generations/{SCOPE}", json.dumps(world.generation()).encode())]))
    restored.turn(10)
    replica = restored.loop.replica
    assert replica.folded.epoch == epoch
    assert replica.election.role is Role.FOLLOWING
    assert restored.store.get(f"leaders/{SCOPE}") is None


def test_who_folded_a_tick_that_knew_a_later_revision_than_etcd_does_not_lead(tmp_path: Path) -> None:  # [R24]
    """The backup was made in the term that still went on: its epoch alone tells nothing."""
    world = World(tmp_path)
    world.lead()
    generation = world.generation()
    for n in range(50):
        world.store.txn(Txn([], [Put("jobs/accepted-after-the-backup", str(n).encode())]))
    world.turn(20)
    restored = World(tmp_path / "restored")
    restored.broker, restored.bus = world.broker, world.bus
    restored.store.txn(Txn([], [Put(f"generations/{SCOPE}", json.dumps(generation).encode())]))
    restored.loop = restored.host("q")
    restored.turn(60)
    assert restored.etcd.revision < restored.loop.replica.folded.revision
    assert restored.store.get(f"leaders/{SCOPE}") is None and not restored.loop.replica.leads
    restored.broker.truncate(TOPIC, 0, 3)
    restored.turn(60)
    assert restored.generation()["generation"] == 1, "a new generation would take what etcd holds for the truth"


def test_a_snapshot_counts_for_its_generation_and_moves_forward_only(world: World) -> None:  # [R22], [R25]
    folded = world.lead()
    machine = world.loop.hosted.machine
    snapshots = Snapshots(world.store, world.storage, machine)
    older = thaw(machine, freeze(machine, folded))
    older.next_offset -= 1
    assert snapshots.save(folded).offset == folded.next_offset
    assert snapshots.save(older) is None and snapshots.save(folded) is None
    pointer = snapshots.newest(1)
    loaded, found = snapshots.load(pointer)
    assert loaded == folded and found == pointer and pointer.offset == folded.next_offset
    assert snapshots.newest(2) is None
    assert snapshots.save(folded, final=True).final, "a term may end where its last snapshot was written"
    assert snapshots.save(folded) is None and snapshots.newest(1).final


def test_a_clean_stop_leaves_a_snapshot_and_gives_the_key_back(world: World) -> None:  # [R25], [R27]
    offset = world.lead().next_offset
    world.loop.close()
    assert world.store.get(f"leaders/{SCOPE}") is None
    pointer = Pointer.parse(world.store.get(f"snapshots/{SCOPE}").value)
    assert pointer.offset >= offset and pointer.final


def replaced(world: World, who: str, build: str) -> None:
    """Another process hosts the scope now; the one before was killed."""
    world.loop = world.host(who, build)
    world.store.revoke(world.lease)
    world.lease = world.store.grant(5)


def test_another_build_goes_on_where_the_leader_has_ended_in_order(world: World) -> None:  # [R27]
    world.lead()
    old, new = world.loop, world.host("q", build="b2")
    world.loop = new
    world.turn(3)
    assert world.loop.replica is not None, "nothing says yet that the log is folded by another build"
    assert new.health()["waits_for"] == "b1" and new.health()["role"] == "waiting"
    old.close()
    world.turn(6)
    assert new.replica.leads and new.replica.folded.build == "b2" and not new.waits_for
    new.close()
    replaced(world, "r", "b1")
    world.turn(6)
    assert world.loop.replica.leads and world.loop.replica.folded.build == "b1", "and back"


@pytest.mark.parametrize("snapshot", [True, False])
def test_another_build_waits_while_the_term_of_a_killed_leader_was_not_ended(
    world: World, snapshot: bool
) -> None:  # [R27]
    world.lead()
    if snapshot:
        world.loop.saving.save(world.loop.replica.folded)
    world.turn(5)
    replaced(world, "q", "b2")
    world.turn(30)
    assert world.store.get(f"leaders/{SCOPE}") is None, "what b1 said of these records b2 might say otherwise"
    assert world.loop.health()["role"] == "starting" and world.loop.waits_for == "b1"
    replaced(world, "p", "b1")
    world.lead()
    world.loop.close()
    replaced(world, "q", "b2")
    assert world.lead().build == "b2"


def test_another_build_stops_where_the_old_one_leads_again(world: World) -> None:  # [R27]
    world.lead()
    world.loop.close()
    waiting = world.host("q", build="b2")
    world.loop = waiting
    world.turn(1)  # it stands on the snapshot of the ended term, and has not campaigned yet
    world.loop = world.host("p")
    world.lead()
    leader, world.loop = world.loop, waiting
    world.turn(5)
    assert waiting.waits_for == "b1" and not waiting.replica.leads
    leader.close()
    world.turn(6)
    assert waiting.replica.leads


def test_who_has_just_won_leads_before_it_ends(world: World) -> None:  # [R27]
    """Else its Elected would stand in the log with nothing behind it that another build could go on from."""
    while world.loop.replica is None or world.loop.replica.election.role is not Role.ELECT:
        world.turn(1)
    world.loop.close()
    assert Pointer.parse(world.store.get(f"snapshots/{SCOPE}").value).final
    replaced(world, "q", "b2")
    assert world.lead().build == "b2"


def test_records_below_a_snapshot_are_deleted_less_a_margin(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:  # [R25]
    monkeypatch.setattr("millrace.runtime.saving.KEPT_RECORDS", 30)
    monkeypatch.setattr("millrace.runtime.saving.SNAPSHOT_RECORDS", 20)
    world.lead()
    world.turn(90, ms=QUIET_TICK_MS)
    pointer = Pointer.parse(world.store.get(f"snapshots/{SCOPE}").value)
    assert pointer.offset > 60
    assert world.broker.log(TOPIC, 0).first == pointer.offset - 30 < pointer.before.offset
    monkeypatch.setattr("millrace.runtime.saving.KEPT_RECORDS", 5)
    world.turn(40, ms=QUIET_TICK_MS)
    pointer = Pointer.parse(world.store.get(f"snapshots/{SCOPE}").value)
    assert world.broker.log(TOPIC, 0).first == pointer.before.offset, "the older snapshot counts if the newer is damaged"
    replaced(world, "q", "b1")
    assert world.lead().next_offset > pointer.offset, "the next one starts from the snapshot"


def test_an_inbox_of_large_records_is_cut_by_their_bytes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:  # [R25], [R32]
    """A submission of 256 KB is one record: 50,000 of them were 10 GB of log, and minutes to fold again."""
    monkeypatch.setattr("millrace.runtime.saving.SNAPSHOT_BYTES", 20_000)
    monkeypatch.setattr("millrace.runtime.saving.KEPT_BYTES", 5_000)
    monkeypatch.setattr("millrace.runtime.saving.MARK_BYTES", 500)
    world.lead()
    sizes = []
    for _ in range(6):
        for _ in range(30):
            world.loop.append(Probe(who="x" * 1_000, n=1))
            world.turn(1, ms=QUIET_TICK_MS)
        sizes.append(sum(len(each.value) for each in world.broker.log(TOPIC, 0).records))
    assert max(sizes[2:]) < 2 * 20_000 + 5_000 + 10_000, sizes


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "torn": lambda data: data[: len(data) // 2],
    "one bit flipped": lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:],
    "empty": lambda data: b"",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_snapshot_is_not_used_but_the_one_before(world: World, damage: str) -> None:  # [R25]
    world.lead()
    world.loop.saving.save(world.loop.replica.folded)
    world.turn(20)
    digest = world.loop.replica.folded.digest
    world.loop.close()
    older, newer = sorted(world.storage.list("snapshots"), key=lambda entry: int(entry.path.split("-")[2]))
    damaged = DAMAGES[damage](world.storage.get(newer.path))
    world.storage.delete_tree(newer.path)
    world.storage.put_new(newer.path, damaged)
    snapshots = Snapshots(world.store, world.storage, world.loop.hosted.machine)
    pointer = snapshots.newest(1)
    folded, found = snapshots.load(pointer)
    assert found == pointer.before and folded.next_offset == found.offset < pointer.offset
    assert found.path(SCOPE) == older.path
    replaced(world, "q", "b1")
    world.turn(2)
    assert world.loop.replica.folded.digest == digest, "what lies between the two is folded again"
    world.lead()


def test_without_any_whole_snapshot_a_log_that_was_shortened_ends_its_generation(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:  # [R22], [R25]
    monkeypatch.setattr("millrace.runtime.saving.KEPT_RECORDS", 5)
    monkeypatch.setattr("millrace.runtime.saving.SNAPSHOT_RECORDS", 20)
    world.lead()
    world.turn(60, ms=QUIET_TICK_MS)
    for entry in world.storage.list("snapshots"):
        world.storage.delete_tree(entry.path)
        world.storage.put_new(entry.path, b"x")
    world.loop = world.host("q")
    world.turn(3)
    assert world.generation()["generation"] == 1, "the old leader's lease has not ended: it knows everything"
    replaced(world, "q", "b1")
    assert world.lead().generation == 2


def test_a_snapshot_that_is_not_in_storage_is_waited_for(world: World) -> None:  # [R25]
    """It may be a wrong storage_url: nothing is given up for that."""
    world.lead()
    world.loop.close()
    [entry] = world.storage.list("snapshots")
    data = world.storage.get(entry.path)
    world.storage.delete_tree(entry.path)
    replaced(world, "q", "b1")
    world.turn(20)
    assert world.loop.replica is None and world.generation()["generation"] == 1
    world.storage.put_new(entry.path, data)
    world.lead()


def test_a_record_that_cannot_be_read_ends_its_generation_at_the_second_try(world: World) -> None:  # [R8]
    """Each process that started ended at it, for ever. The leader was killed: nobody knows what stood there."""
    world.lead()
    world.broker.log(TOPIC, 0).flipped.add(2)
    replaced(world, "q", "b1")
    world.turn(3)
    assert world.loop._reader is None and world.generation()["generation"] == 1, "a bit may have been flipped on the way"
    world.turn(4)
    assert world.generation()["reason"].startswith(f"{TOPIC}[0] cannot be read at offset 2: ")
    assert world.lead().generation == 2
    assert world.fatal == []


def test_a_standby_that_alone_meets_a_missing_record_raises_the_generation(world: World) -> None:  # [R8]
    world.lead()
    world.turn(60)
    world.broker.log(TOPIC, 0).gone.add(1)
    replaced(world, "q", "b1")
    assert world.lead().generation == 2
    assert world.generation()["reason"] == "the records from offset 1 to 1 are missing"


@pytest.mark.parametrize("damage", ["flipped", "gone"])
def test_a_standby_that_cannot_read_takes_nothing_from_a_healthy_leader(
    world: World, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:  # [R8], [R23]
    """One flipped byte in an old segment, which the leader had read long before, ended its generation."""
    monkeypatch.setattr("millrace.runtime.saving.SNAPSHOT_RECORDS", 20)
    world.lead()
    leader, standby = world.loop, world.host("q")
    getattr(world.broker.log(TOPIC, 0), damage).add(1)

    def both(times: int) -> None:
        for _ in range(times):
            for world.loop in (leader, standby):
                world.turn(ms=QUIET_TICK_MS)

    both(5)
    assert standby._reader is None, "it waits"
    assert leader.replica.leads and world.generation()["generation"] == 1
    both(60)
    assert leader.replica.leads and world.generation()["generation"] == 1
    assert standby.replica.folded.next_offset > 20, "it goes on from a snapshot behind the damage"
    replaced(world, "q", "b1")
    assert world.lead().generation == 1, "and takes the key when its leader has gone"


def test_a_leader_key_that_was_written_by_hand_is_replaced(world: World) -> None:  # [R31]
    """It has no lease: its scope stayed without a leader for ever."""
    epoch = world.lead().epoch
    world.store.txn(Txn([], [Put(f"leaders/{SCOPE}", b"by hand")]))
    stranger = world.store.get(f"leaders/{SCOPE}").mod_revision
    world.turn(1)
    assert not world.loop.replica.leads
    world.turn(15)
    assert world.lead().epoch > stranger > epoch
    assert world.store.get(f"leaders/{SCOPE}").lease == world.lease


def test_a_record_that_ended_two_processes_is_passed_over_by_the_third(world: World) -> None:  # [R26]
    world.lead()
    world.bus.append(TOPIC, 0, b"no record of any build", key=b"x")
    offset = world.broker.log(TOPIC, 0).end - 1
    for _ in range(2):
        with pytest.raises(ValueError, match="JSON"):
            world.turn(3)
        world.loop = world.host()
    world.turn(8)
    assert world.loop.replica.folded.next_offset > offset + 1
    entry = json.loads(world.store.get(f"parked/{SCOPE}/1/{offset}").value)
    assert (entry["ended"], entry["build"]) == (2, "b1")


def test_a_bad_record_is_counted_anew_by_another_build(world: World) -> None:  # [R26]
    for build in ("b1", "b2"):
        parked = ParkedRecords(world.store, SCOPE, build)
        parked.load(1)
        with pytest.raises(ZeroDivisionError), parked.blames(7):
            raise ZeroDivisionError
    parked.load(1)
    assert parked.holds(7) is None
    assert json.loads(world.store.get(f"parked/{SCOPE}/1/7").value)["ended"] == 1


def test_a_bad_record_that_ends_a_leader_and_its_standbys_at_once_is_told_of(world: World) -> None:  # [R26]
    replicas = [ParkedRecords(world.store, SCOPE, "b1") for _ in range(3)]
    for each in replicas:
        each.load(1)
    for each in replicas:
        with pytest.raises(ZeroDivisionError), each.blames(7):
            raise ZeroDivisionError("bad")
    replicas[0].load(1)
    assert replicas[0].holds(7) == Parked("ZeroDivisionError: bad")
    with pytest.raises(ZeroDivisionError), replicas[0].blames(7):  # hearing of it ends a process, too
        raise ZeroDivisionError("bad")
    replicas[0].load(1)
    assert replicas[0].holds(7) == Parked(None)


def test_a_bad_record_is_bad_in_its_own_generation_alone(world: World) -> None:  # [R26], [R22]
    parked = ParkedRecords(world.store, SCOPE, "b1")
    parked.load(1)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), parked.blames(7):
            raise ZeroDivisionError
    parked.load(1)
    assert parked.holds(7) is not None
    parked.load(2)  # the log was cut below 7: another record stands there now
    assert parked.holds(7) is None


def test_what_kafka_would_not_take_is_a_bug_and_says_so() -> None:  # [R15]
    fold = Fold(ResourceManager(1), TOPOLOGY)
    folded = fold.blank(1, 0)
    gone = TaskManagerGone(task_manager="t", incarnation=1, reason="x" * 900_000, at_ms=1)
    with pytest.raises(Oversized, match="says a TaskManagerGone of 900"):
        fold._speak(folded, "cluster.events", 0, "t", gone)
    assert folded.said == 0 and folded.outbox == {}


def test_a_campaign_whose_answer_was_lost_is_won_when_the_key_is_seen(world: World) -> None:  # [R17]
    world.turn(1)
    generations, check = world.loop.generations, world.loop.generations._check

    def the_next_answer_is_lost(known: int) -> None:
        generations._check = check
        check(known)
        world.store.faults.extend(["unknown, done", "unavailable"])

    generations._check = the_next_answer_is_lost
    world.turn(200)
    assert world.loop.replica.leads


def test_a_resignation_whose_answer_was_lost_leaves_no_scope_without_a_leader(world: World) -> None:  # [R6]
    world.lead()
    replica = world.loop.replica
    replica.election.follow(world.clock.now_ms())
    world.turn(200)
    assert world.loop.replica.leads


def test_a_replica_that_differs_does_not_park_what_the_others_fold(world: World) -> None:  # [R5], [R26]
    world.lead()
    world.turn(5)
    folded = world.loop.replica.folded
    tick = Tick(epoch=folded.epoch, n=folded.tick + 1, published_through=0, digest="another")
    world.bus.append(TOPIC, 0, encode(tick), key=b"x")
    with pytest.raises(Diverged):
        world.turn(30)
    assert world.store.list(f"parked/{SCOPE}/")[0] == []


def test_a_parked_message_moves_its_senders_mark_and_is_not_done(world: World) -> None:  # [R26]
    fold = world.loop.hosted.machine
    core = Fold(fold, TOPOLOGY)
    folded = core.blank(1, 0)
    core.fold(folded, 0, 1, Elected(generation=1, epoch=1, build="b1", who="x"))
    hello = {"to": SCOPE, "to_life": 1, "sender": "job-master/0", "life": 1}
    core.fold(folded, 1, 2, Message(**hello, key=(0, 0), prev=None, body=Hello()))
    poison = Message(**hello, key=(1, 0), prev=(0, 0), body=JobMasterDeclared())
    before = freeze(fold, folded)
    core.pass_over(folded, 2, 3, poison, Parked(None))
    assert folded.peers["job-master/0"].mark == (1, 0)
    assert folded.state == thaw(fold, before).state
    told = core.fold(folded, 3, 4, Message(**hello, key=(2, 0), prev=(1, 0), body=Hello()))
    assert told.taken and told.damage is None
