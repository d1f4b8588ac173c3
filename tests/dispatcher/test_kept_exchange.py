"""Exchange data of jobs that may be repaired: they stay for their time and within their bound, and as long as somebody reads them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from millrace.io.interfaces import Put, Txn
from services.dispatcher.core.state import LiveJob, Settings
from services.dispatcher.kept_exchange import KeptExchange
from services.dispatcher.stored import value_of
from tests.core.of_dispatcher import stored
from tests.dispatcher.test_housekeeping import HOUR_MS, World

OLD_MS = 2 * HOUR_MS
"""Of files that would be swept if nobody owned them."""


@pytest.fixture
def world(tmp_path: Path) -> World:
    found = World(tmp_path)
    found.clock.advance(1000 * HOUR_MS)
    return found


def is_kept(world: World, job: str) -> bool:
    stands = world.holds(job)
    assert stands is not None
    return stands.kept_until_ms is not None


def failed(world: World, job: str, ended_h: float = 3, keep_h: float = 24, size: int = 1, **fields: Any) -> str:
    """A job that ended so many hours ago, and its file in the exchange."""
    acceptance = f"0.{job}"
    ended_ms = int(world.clock.now_ms() - ended_h * HOUR_MS)
    kept = {"kept_until_ms": int(ended_ms + keep_h * HOUR_MS), "kept_of": {acceptance: job}}
    world.set(job, "clean", acceptance=acceptance, status="FAILED", ended_ms=ended_ms, **{**kept, **fields})
    path = world.file(f"exchange/{acceptance}/1/0-v/0/1/part", OLD_MS)
    if size > 1:
        world.storage.local(path).write_bytes(b"x" * size)
        when_s = (world.clock.now_ms() - OLD_MS) / 1000
        os.utime(world.storage.local(path), (when_s, when_s))
    return path


def test_they_stay_for_their_time_and_go_behind_it(world: World) -> None:
    young, old, never = failed(world, "young"), failed(world, "old", ended_h=25), failed(world, "never", kept_until_ms=None, kept_of={})
    assert world.sweep() == [young]
    assert is_kept(world, "young")
    stone = world.holds("old")
    assert stone is not None and (stone.kept_until_ms, stone.kept_of, stone.status) == (None, {}, "FAILED")
    assert old != never
    assert world.sweep(22 * HOUR_MS) == []


def test_a_shorter_time_is_heeded_for_those_that_have_ended_already(world: World) -> None:
    path = failed(world, "a", ended_h=3)
    world.state.settings = Settings(keep_for_repair_ms=4 * HOUR_MS)
    assert world.sweep() == [path]
    world.state.settings = Settings(keep_for_repair_ms=0)
    assert world.sweep() == []


def test_of_more_than_may_stay_the_oldest_go(world: World) -> None:
    paths = [failed(world, f"j{n}", ended_h=n, size=600_000) for n in (1, 2, 3)]
    world.state.settings = Settings(keep_for_repair_mb=1)
    assert world.sweep() == paths[:1]
    assert [is_kept(world, f"j{n}") for n in (1, 2, 3)] == [True, False, False]


@pytest.mark.parametrize(
    ("reader", "stays"),
    [
        ({"state": "accepted"}, True),
        ({"state": "dirty", "status": "FAILED"}, True),
        ({"state": "clean", "status": "FAILED", "kept_until_ms": 1 << 50, "kept_of": {"0.a": "a"}}, True),
        ({"state": "clean", "status": "FINISHED"}, False),
        (None, False),
    ],
)
def test_they_stay_while_a_repair_lives_or_is_kept_itself(world: World, reader: dict[str, Any] | None, stays: bool) -> None:
    path = failed(world, "a", ended_h=48, repaired_by=["r"])
    if reader is not None:
        ended = {} if reader["state"] == "accepted" else {"ended_ms": world.clock.now_ms() - HOUR_MS}
        world.set("r", acceptance="0.r", **ended, **reader)
    assert (path in world.sweep()) is stays
    assert is_kept(world, "a") is stays


def test_what_is_repaired_while_it_is_swept_stays(world: World) -> None:
    """A repair is stored between the listing and the deletion: its transaction has changed the key."""
    path = failed(world, "a", ended_h=48)
    kept = KeptExchange(world.store, world.storage)
    entry = world.store.get("jobs/a")
    stands = world.holds("a")
    assert entry is not None and stands is not None
    kept.see(entry, stands)
    repaired = stands.model_copy(update={"repaired_by": ["r"]})
    world.store.txn(Txn([], [Put("jobs/a", value_of(repaired)), Put("jobs/r", value_of(stored("r", acceptance="0.r")))]))
    kept.over(world.clock.now_ms(), Settings(), world.fence)
    assert "0.a" in kept.owned and world.holds("a") == repaired
    assert world.sweep() == [path]


def test_what_a_live_job_reads_stays_also_where_etcd_has_forgotten_of_whom_it_is(world: World) -> None:
    """etcd was restored from a backup: the tombstone has nothing of it, the live job's key has."""
    path = failed(world, "a", kept_until_ms=None, kept_of={})
    world.set("r", "accepted", acceptance="0.r", kept_of={"0.a": "a"})
    assert world.sweep() == [path]
    world.store.txn(Txn([], [Put("jobs/r", b"damaged")]))
    world.state.live["r"] = LiveJob(
        acceptance="0.r", digest="d", shard=0, accepted_ms=0, name="r", graph="{}", kept='{"jobs":{"0.a":"a"}}'
    )
    assert world.sweep() == [path], "of a damaged key the state knows it"
    del world.state.live["r"]
    assert world.sweep() == []


def test_a_tombstone_stays_while_its_data_do(world: World) -> None:
    path = failed(world, "a", ended_h=24 * 30, keep_h=24 * 60)
    world.state.settings = Settings(keep_for_repair_ms=24 * 60 * HOUR_MS)
    assert world.sweep() == [path] and world.holds("a") is not None
