"""Rules of docs/rules.md about snapshots and other builds, by one hosted scope over Kafka and etcd in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from millrace.core.election import QUIET_TICK_MS
from millrace.core.messages.records import Probe
from millrace.core.states import Role
from millrace.runtime.snapshots import Pointer, Snapshots, freeze, thaw
from tests.docs.of_scope import SCOPE, TOPIC, World, replaced


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
