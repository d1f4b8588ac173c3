"""The Dispatcher's effects on schedules in etcd. Every write compares the leader key [R17]."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from millrace.core.messages.base import Body
from millrace.core.messages.schedule_effects import (
    ChangeSchedule,
    FindSchedules,
    ScheduleChanged,
    SchedulesFound,
    ScheduleStored,
    StoreSchedule,
)
from millrace.core.messages.schedules import ScheduleGraph, ScheduleProgress, StoredSchedule
from millrace.io.interfaces import Compare, Delete, Entry, Put, Store, Txn
from millrace.io.storage.store import NotFound, Storage, upload_path
from millrace.runtime.performer import Fence, PerEffect, Port

from . import times
from .stored import GRAPHS, PROGRESS, SCHEDULES, Unreadable, progress_of, read, runs_left_out, summary, value_of

SCHEDULES_MOST = 1_000


class ScheduleStore:  # [R36]
    """`changed` is set whenever a schedule may stand otherwise than before. `wall_ms` is the real clock, Unix time."""

    def __init__(self, store: Store, storage: Storage, wall_ms: Callable[[], int], changed: threading.Event) -> None:
        self._store, self._storage, self._wall_ms, self._changed = store, storage, wall_ms, changed

    def ports(self) -> dict[type[Body], Port]:
        return {
            StoreSchedule: PerEffect(self.put),
            ChangeSchedule: PerEffect(self.change),
            FindSchedules: PerEffect(self.find),
        }

    def put(self, effect: StoreSchedule, fence: Fence) -> ScheduleStored | None:  # [R32]
        """Its progress stays: the times that were run are those of the name. None: the key was changed under it."""
        key, number = f"{SCHEDULES}{effect.schedule}", effect.number
        entry, progress, room = self._read(effect.schedule, fence)
        stands = _readable(entry)
        if stands is None or stands.revision != effect.stored.revision:
            if entry is None and self._store.count(SCHEDULES) >= SCHEDULES_MOST:
                return ScheduleStored(number=number, problem=f"there are {SCHEDULES_MOST} schedules already: remove some")
            for sha256 in effect.stored.modules:
                try:
                    self._storage.touch(upload_path(sha256))  # before it is named in etcd nobody keeps it
                except NotFound:
                    return ScheduleStored(number=number, problem=f"the module {sha256} was not uploaded, or too long ago: set it again")
            graph = Put(f"{GRAPHS}{effect.schedule}", value_of(effect.graph))
            if not self._write(fence, entry, key, [Put(key, value_of(effect.stored)), graph]):
                return None
            stands = effect.stored
        return ScheduleStored(number=number, summary=summary(effect.schedule, stands, progress, self._wall_ms()))

    def change(self, effect: ChangeSchedule, fence: Fence) -> ScheduleChanged | None:
        """None: the key was changed under it."""
        key, number = f"{SCHEDULES}{effect.schedule}", effect.number
        entry, progress, _ = self._read(effect.schedule, fence)
        if entry is None:
            return ScheduleChanged(number=number, found=False)
        if effect.change == "remove":
            gone = [Delete(f"{kind}{effect.schedule}") for kind in (SCHEDULES, GRAPHS, PROGRESS)]
            return ScheduleChanged(number=number, found=True) if self._write(fence, entry, key, gone) else None
        try:
            stands = read(StoredSchedule, entry)
        except Unreadable as reason:
            return ScheduleChanged(number=number, found=True, problem=str(reason))
        paused = effect.change == "pause"
        if stands.paused != paused:
            since = {} if paused else {"since_ms": max(effect.at_ms, stands.since_ms)}
            stands = stands.model_copy(update={"paused": paused, **since})
            if not self._write(fence, entry, key, [Put(key, value_of(stands))]):
                return None
        return ScheduleChanged(number=number, found=True, summary=summary(effect.schedule, stands, progress, self._wall_ms()))

    def find(self, effect: FindSchedules, fence: Fence) -> SchedulesFound:
        if not effect.schedule:
            return self._page(effect)
        entry, progress, graph = self._read(effect.schedule, fence)
        if entry is None:
            return SchedulesFound(number=effect.number, schedules=[])
        try:
            stored = read(StoredSchedule, entry)
            shown = summary(effect.schedule, stored, progress, self._wall_ms())
            if effect.run_at_ms is None:
                return SchedulesFound(number=effect.number, schedules=[shown], left_out=runs_left_out(stored, progress))
            if graph is None:
                raise Unreadable(f"etcd has no graph of schedule {effect.schedule}: set it again")
            run = submitted(stored, read(ScheduleGraph, graph), effect.run_at_ms)
        except (Unreadable, times.NoTimes) as reason:
            return SchedulesFound(number=effect.number, schedules=[], problem=str(reason))
        return SchedulesFound(number=effect.number, schedules=[shown], graph=run)

    def _page(self, effect: FindSchedules) -> SchedulesFound:
        """What cannot be read is left out: the log has it."""
        after = f"{SCHEDULES}{effect.after}" if effect.after else ""
        entries = self._store.page(SCHEDULES, after, effect.limit)
        progress = {entry.key[len(PROGRESS) :]: entry for entry in self._store.list(PROGRESS)[0]}
        wall_ms, found = self._wall_ms(), []
        for entry in entries:
            name, stored = entry.key[len(SCHEDULES) :], _readable(entry)
            if stored is not None:
                found.append(summary(name, stored, progress_of(progress.get(name)), wall_ms))
        more = entries[-1].key[len(SCHEDULES) :] if len(entries) == effect.limit else None
        return SchedulesFound(number=effect.number, schedules=found, next=more)

    def _read(self, name: str, fence: Fence) -> tuple[Entry | None, ScheduleProgress, Entry | None]:
        """The schedule, what became of its times, and its graph."""
        keys = [f"{kind}{name}" for kind in (SCHEDULES, PROGRESS, GRAPHS)]
        reads = self._store.txn(Txn([], [], [fence.compare().key, *keys])).reads
        fence.check_read(reads)
        return reads[keys[0]], progress_of(reads[keys[1]]), reads[keys[2]]

    def _write(self, fence: Fence, entry: Entry | None, key: str, then: Sequence[Put | Delete]) -> bool:
        compare = Compare(key, entry.mod_revision if entry is not None else 0)
        self._changed.set()  # before: a thread that reads in between reads once too often
        result = self._store.txn(Txn([fence.compare(), compare], then, [fence.compare().key]))
        self._changed.set()
        if not result.succeeded:
            fence.check_read(result.reads)
        return result.succeeded


def submitted(stored: StoredSchedule, graph: ScheduleGraph, ms: int) -> ScheduleGraph:
    """What a run for this time is submitted with. Raises NoTimes."""
    values = times.parameters(graph.graph, graph.parameters, stored.cron, stored.time_zone, ms)
    return graph.model_copy(update={"parameters": values})


def _readable(entry: Entry | None) -> StoredSchedule | None:
    try:
        return read(StoredSchedule, entry) if entry is not None else None
    except Unreadable:
        return None
