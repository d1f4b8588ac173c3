"""Rules of docs/rules.md about records that end processes, by one hosted scope over Kafka and etcd in memory."""

from __future__ import annotations

import json

import pytest

from millrace.core.fold import Diverged, Fold, Parked
from millrace.core.messages.jobs import JobMasterDeclared
from millrace.core.messages.records import Elected, Hello, Message, Tick, encode
from millrace.runtime.parked import ParkedRecords
from millrace.runtime.snapshots import freeze, thaw
from tests.docs.of_scope import SCOPE, TOPIC, TOPOLOGY, World


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
        parked.blame(7, ZeroDivisionError())
    parked.load(1)
    assert parked.find(7) is None
    assert json.loads(world.store.get(f"parked/{SCOPE}/1/7").value)["ended"] == 1


def test_a_bad_record_that_ends_a_leader_and_its_standbys_at_once_is_told_of(world: World) -> None:  # [R26]
    replicas = [ParkedRecords(world.store, SCOPE, "b1") for _ in range(3)]
    for each in replicas:
        each.load(1)
    for each in replicas:
        each.blame(7, ZeroDivisionError("bad"))
    replicas[0].load(1)
    assert replicas[0].find(7) == Parked("ZeroDivisionError: bad")
    replicas[0].blame(7, ZeroDivisionError("bad"))  # hearing of it ends a process, too
    replicas[0].load(1)
    assert replicas[0].find(7) == Parked(None)


def test_a_bad_record_is_bad_in_its_own_generation_alone(world: World) -> None:  # [R26], [R22]
    parked = ParkedRecords(world.store, SCOPE, "b1")
    parked.load(1)
    for _ in range(2):
        parked.blame(7, ZeroDivisionError())
    parked.load(1)
    assert parked.find(7) is not None
    parked.load(2)  # the log was cut below 7: another record stands there now
    assert parked.find(7) is None


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
