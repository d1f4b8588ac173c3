"""Rules of ARCHITECTURE.md about logs, generations, snapshots and bad records, by one hosted scope over Kafka and etcd in memory."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from millrace.core.election import Role
from millrace.core.fold import Diverged, Fold, Folded, Oversized
from millrace.core.messages.events import TaskManagerGone
from millrace.core.messages.jobs import JobMasterDeclared
from millrace.core.messages.records import Elected, Hello, Message, Probe, Tick, decode, encode
from millrace.core.topics import TOPICS, Topology
from millrace.io.interfaces import Put, Txn
from millrace.io.loop import Hosted, ScopeLoop, Surroundings
from millrace.io.parked import Parked
from millrace.io.snapshots import Snapshots, freeze, thaw
from millrace.io.storage import Storage
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
            clock=self.clock.now_ms, wait=lambda event, seconds: None,
        )  # fmt: skip
        return ScopeLoop(Hosted(ResourceManager(1), {}, {}), around)

    def turn(self, times: int = 1, ms: int = 100) -> None:
        for _ in range(times):
            self.clock.advance(ms)
            self.store.keep_alive(self.lease)
            self.loop.watched(self.store.get(f"leaders/{SCOPE}"))
            self.loop.turn()

    def lead(self) -> Folded:
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


def test_a_generation_is_a_log_from_an_offset_on(world: World) -> None:  # [22]
    folded = world.lead()
    assert world.generation() == {"generation": 1, "log_id": world.bus.log_id(TOPIC), "first_offset": 0}
    assert isinstance(world.records()[0], Elected)
    assert folded.epoch == world.store.get(f"leaders/{SCOPE}").mod_revision


def test_a_log_that_was_cut_ends_its_generation_and_the_next_is_led_at_once(world: World) -> None:  # [8], [22], [23]
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


def test_a_log_that_was_cut_and_has_grown_again_ends_its_generation(world: World) -> None:  # [8]
    world.lead()
    world.turn(10)
    end = world.broker.log(TOPIC, 0).end
    world.broker.truncate(TOPIC, 0, 2)
    while world.broker.log(TOPIC, 0).end <= end:
        world.bus.append(TOPIC, 0, encode(Probe(who="x", n=1)), key=b"x")
    world.turn(5)
    assert world.generation()["generation"] == 2 and world.loop.replica.leads


def test_a_log_that_was_made_anew_begins_a_generation_once_nobody_leads_the_old_one(world: World) -> None:  # [22], [23]
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


def test_who_folded_a_later_epoch_than_etcd_gives_does_not_lead(tmp_path: Path) -> None:  # [24]
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
    assert restored.store.get(f"leaders/{SCOPE}") is None, "what it won it gave back"


def test_a_snapshot_counts_for_its_generation_and_moves_forward_only(world: World) -> None:  # [22], [25]
    folded = world.lead()
    machine = world.loop.hosted.machine
    snapshots = Snapshots(world.store, world.storage, machine)
    older = thaw(machine, freeze(machine, folded))
    older.next_offset -= 1
    assert snapshots.save(folded).offset == folded.next_offset
    assert snapshots.save(older) is None
    loaded, pointer = snapshots.load(1)
    assert loaded == folded and pointer.offset == folded.next_offset
    assert snapshots.load(2) is None


def test_a_clean_stop_leaves_a_snapshot_and_gives_the_key_back(world: World) -> None:  # [25], [27]
    offset = world.lead().next_offset
    world.loop.close()
    assert world.store.get(f"leaders/{SCOPE}") is None
    world.loop = world.host("q", build="b2")
    world.turn(6)
    replica = world.loop.replica
    assert replica.leads and replica.folded.build == "b2", "a newer build goes on from there"
    assert json.loads(world.store.get(f"snapshots/{SCOPE}").value)["offset"] >= offset


def test_records_below_a_snapshot_are_deleted_less_a_margin(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:  # [25]
    monkeypatch.setattr("millrace.io.loop.KEPT_RECORDS", 5)
    monkeypatch.setattr("millrace.io.loop.SNAPSHOT_RECORDS", 20)
    world.lead()
    world.turn(60, ms=1_000)
    offset = json.loads(world.store.get(f"snapshots/{SCOPE}").value)["offset"]
    assert offset > 20
    assert world.broker.log(TOPIC, 0).first == offset - 5
    world.loop = world.host("q")
    world.store.revoke(world.lease)
    world.lease = world.store.grant(5)
    assert world.lead().next_offset > offset, "the next one starts from the snapshot"


def test_a_damaged_snapshot_is_not_used(world: World) -> None:  # [25]
    world.lead()
    world.loop.close()
    pointer = json.loads(world.store.get(f"snapshots/{SCOPE}").value)
    [file] = world.storage.list("snapshots")
    world.storage.put(file.path, world.storage.get(file.path)[:-1])
    with pytest.raises(ValueError, match="is damaged: its hash differs"):
        Snapshots(world.store, world.storage, world.loop.hosted.machine).load(pointer["generation"])


def test_a_record_that_ended_two_processes_is_passed_over_by_the_third(world: World) -> None:  # [26]
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


def test_a_bad_record_is_counted_anew_by_another_build(world: World) -> None:  # [26]
    for build in ("b1", "b2"):
        parked = Parked(world.store, SCOPE, build)
        parked.load(1)
        with pytest.raises(ZeroDivisionError), parked.blames(7):
            raise ZeroDivisionError
    parked.load(1)
    assert parked.holds(7) is None
    assert json.loads(world.store.get(f"parked/{SCOPE}/1/7").value)["ended"] == 1


def test_a_bad_record_is_bad_in_its_own_generation_alone(world: World) -> None:  # [26], [22]
    parked = Parked(world.store, SCOPE, "b1")
    parked.load(1)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), parked.blames(7):
            raise ZeroDivisionError
    parked.load(1)
    assert parked.holds(7) is not None
    parked.load(2)  # the log was cut below 7: another record stands there now
    assert parked.holds(7) is None


def test_what_kafka_would_not_take_is_a_bug_and_says_so() -> None:  # [15]
    fold = Fold(ResourceManager(1), TOPOLOGY)
    folded = fold.blank(1, 0)
    gone = TaskManagerGone(task_manager="t", incarnation=1, reason="x" * 900_000, at_ms=1)
    with pytest.raises(Oversized, match="says a TaskManagerGone of 900"):
        fold._speak(folded, "cluster.events", 0, "t", gone)
    assert folded.said == 0 and folded.outbox == {}


def test_a_campaign_whose_answer_was_lost_is_won_when_the_key_is_seen(world: World) -> None:  # [17]
    world.turn(1)
    generations, campaign = world.loop.generations, world.loop.generations.campaign

    def loses_its_answer(*given: Any) -> Any:
        generations.campaign = campaign
        world.store.faults.extend(["unknown, done", "unavailable"])
        return campaign(*given)

    generations.campaign = loses_its_answer
    world.turn(200)
    assert world.loop.replica.leads


def test_a_resignation_whose_answer_was_lost_leaves_no_scope_without_a_leader(world: World) -> None:  # [6]
    world.lead()
    replica = world.loop.replica
    replica.election.follow(world.clock.now_ms())
    world.turn(200)
    assert world.loop.replica.leads


def test_a_replica_that_differs_does_not_park_what_the_others_fold(world: World) -> None:  # [5], [26]
    world.lead()
    world.turn(5)
    folded = world.loop.replica.folded
    tick = Tick(epoch=folded.epoch, n=folded.tick + 1, published_through=0, digest="another")
    world.bus.append(TOPIC, 0, encode(tick), key=b"x")
    with pytest.raises(Diverged):
        world.turn(30)
    assert world.store.list(f"parked/{SCOPE}/")[0] == []


def test_a_parked_message_moves_its_senders_mark_and_is_not_done(world: World) -> None:  # [26]
    fold = world.loop.hosted.machine
    core = Fold(fold, TOPOLOGY)
    folded = core.blank(1, 0)
    core.fold(folded, 0, 1, Elected(generation=1, epoch=1, build="b1", who="x"))
    hello = {"to": SCOPE, "to_life": 1, "sender": "job-master/0", "life": 1}
    core.fold(folded, 1, 2, Message(**hello, key=(0, 0), prev=None, body=Hello()))
    poison = Message(**hello, key=(1, 0), prev=(0, 0), body=JobMasterDeclared())
    before = freeze(fold, folded)
    core.pass_over(folded, 2, 3, poison)
    assert folded.peers["job-master/0"].mark == (1, 0)
    assert folded.state == thaw(fold, before).state
    told = core.fold(folded, 3, 4, Message(**hello, key=(2, 0), prev=(1, 0), body=Hello()))
    assert told.taken and told.damage is None
