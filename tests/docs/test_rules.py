"""Rules of docs/rules.md about logs, generations and leader keys, by one hosted scope over Kafka and etcd in memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millrace.core.election import QUIET_TICK_MS
from millrace.core.fold import Fold, Oversized
from millrace.core.messages.events import TaskManagerGone
from millrace.core.messages.records import Elected, Probe, encode
from millrace.core.states import Role
from millrace.io.interfaces import Delete, Put, Txn
from services.resource_manager.core.machine import ResourceManager
from tests.docs.of_scope import SCOPE, TOPIC, TOPOLOGY, World, replaced


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


def test_what_kafka_would_not_take_is_a_bug_and_says_so() -> None:  # [R15]
    fold = Fold(ResourceManager(1), TOPOLOGY)
    folded = fold.blank(1, 0)
    gone = TaskManagerGone(task_manager="t", incarnation=1, reason="x" * 900_000, at_ms=1)
    with pytest.raises(Oversized, match="says a TaskManagerGone of 900"):
        fold._publish(folded, "cluster.events", 0, "t", gone)
    assert folded.said == 0 and folded.outbox == {}


def test_a_campaign_whose_answer_was_lost_is_won_when_the_key_is_seen(world: World) -> None:  # [R17]
    world.turn(1)
    generations, check = world.loop.generations, world.loop.generations._refuse_older_store

    def the_next_answer_is_lost(known: int) -> None:
        generations._refuse_older_store = check
        check(known)
        world.store.faults.extend(["unknown, done", "unavailable"])

    generations._refuse_older_store = the_next_answer_is_lost
    world.turn(200)
    assert world.loop.replica.leads


def test_a_resignation_whose_answer_was_lost_leaves_no_scope_without_a_leader(world: World) -> None:  # [R6]
    world.lead()
    replica = world.loop.replica
    replica.election.follow(world.clock.now_ms())
    world.turn(200)
    assert world.loop.replica.leads
