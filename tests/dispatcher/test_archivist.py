"""Copies of archives in a place of their own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from millrace.io.storage.store import Storage, StorageError
from services.dispatcher import archivist
from services.dispatcher.archivist import RECENT_MS, TRIES, Archivist
from services.dispatcher.settings import DispatcherSettings

PATH = "archives/j/0.1/1.json"
NOW_MS, KEEP_MS = 1_700_000_000_000, 30 * 24 * 3_600_000


class World:
    def __init__(self, folder: Path) -> None:
        self.storage, self.place = Storage(str(folder / "storage")), _Place(str(folder / "place"))
        self.waited: list[float] = []
        self.archivist = Archivist(self.storage, self.place, KEEP_MS, self.waited.append)

    def archive(self, path: str = PATH, age_ms: int = 0, of: Storage | None = None) -> str:
        where = of or self.storage
        where.put_new(path, path.encode())
        os.utime(where.local(path), ((NOW_MS - age_ms) / 1000,) * 2)
        return path

    def copies(self) -> list[str]:
        return [each.path for each in self.place.list()]


class _Place(Storage):
    away = 0

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if self.away:
            self.away -= 1
            raise StorageError(path, "does not answer", "check archive_url")
        return super().put_if_absent(path, data)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_an_archive_is_copied_once_under_its_name(world: World) -> None:
    world.archivist.take(world.archive())
    world.archivist.take(PATH)
    world.archivist.work()
    assert world.copies() == [PATH] and world.place.get(PATH) == world.storage.get(PATH)


def test_while_the_place_is_away_it_is_tried_again(world: World) -> None:
    world.place.away = TRIES - 1
    world.archivist.take(world.archive())
    world.archivist.work()
    assert world.copies() == [PATH] and len(world.waited) == TRIES - 1


def test_what_was_left_out_is_copied_by_the_sweep_and_what_is_old_goes(world: World) -> None:
    """A Dispatcher that is killed takes what waits with it; and a place may be away for longer than it is tried again."""
    world.place.away = TRIES
    world.archivist.take(world.archive())
    world.archivist.work()
    assert world.copies() == []
    world.archive("archives/old/0.1/1.json", RECENT_MS + 1)
    world.archive("archives/gone/0.1/1.json", KEEP_MS + 1, world.place)
    kept = world.archive("archives/kept/0.1/1.json", KEEP_MS - 1, world.place)
    world.archivist.sweep(NOW_MS)
    world.archivist.work()
    assert world.copies() == [PATH, kept]


def test_above_its_bound_nothing_waits_and_nobody_is_held_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archivist, "WAITING_MOST", 2)
    few = Archivist(world.storage, world.place, KEEP_MS)
    paths = [world.archive(f"archives/j{n}/0.1/1.json") for n in range(3)]
    for path in paths:
        few.take(path)
    few.work()
    assert world.copies() == paths[:2]
    few.sweep(NOW_MS)
    few.work()
    assert world.copies() == paths


def test_its_thread_outlives_what_it_cannot_do(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: str) -> Any:
        raise ValueError("a library's own error")

    with monkeypatch.context() as patched:
        patched.setattr(world.place, "exists", broken)
        world.archivist.take("archives/x/0.1/1.json")
        with pytest.raises(ValueError, match="own error"):
            world.archivist.work()
    world.archivist.start()
    world.archivist.take(world.archive())
    while world.copies() != [PATH]:
        pass


def test_the_place_is_another_one_than_storage() -> None:
    with pytest.raises(ValueError, match="archive_url is storage_url, where the archives are in any case"):
        DispatcherSettings(blob_token=SecretStr("t"), storage_url="/data/s", archive_url="/data/s/")
