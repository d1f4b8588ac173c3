"""The queue for slots: which jobs wait, why, and in which place; and what their shards are sent about that.

That a job waits is sent at the next tick, for most jobs do not wait so long. That it waits no more is sent at once; changed places once
a second. With ten thousand waiting jobs only the first hundred are sent their place. After a flood of jobs a few are notified
at each tick: each notification leads to three more records, and jobs that start would have to wait for those.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice

from millrace.core.clocks import NowMs
from millrace.core.machine import Say
from millrace.core.messages.jobs import JobQueued
from millrace.core.states import SlotState
from millrace.core.topics import shard_scope

from . import scaling
from .state import Job, State

PLACES_MAX = 100
PLACES_EVERY_MS = 1000
NOTIFIED_A_TICK = 20
BEYOND = f"more than {PLACES_MAX} waiting jobs go first"


def update(state: State, name: str) -> Iterator[Say]:
    """Puts a job into or out of the queue after what it wants or holds has changed; forgets a job that does neither."""
    job = state.jobs[name]
    if state.queues_for(job):
        queue = state.queues.setdefault(job.memory_mb, [])
        at = bisect_left(queue, (job.rank, name))
        if queue[at : at + 1] != [(job.rank, name)]:
            queue.insert(at, (job.rank, name))
            if job.sent_reason is None:
                state.unnotified[name] = None
        return
    remove(state, name)
    if job.waits:  # still, but its shard is excluded: a reason is sent again when that declares
        job.sent_reason = job.sent_position = None
    elif job.sent_reason is not None:
        job.sent_reason = job.sent_position = None
        yield Say(shard_scope(job.shard), JobQueued(job=name, reason=None, position=None))
    if not job.wanted and not job.held:
        del state.jobs[name]


def remove(state: State, name: str) -> None:
    """Takes a job out of the queue, if it is there. Its shard is sent nothing."""
    job = state.jobs[name]
    queue = state.queues.get(job.memory_mb, [])
    at = bisect_left(queue, (job.rank, name))
    if queue[at : at + 1] == [(job.rank, name)]:
        del queue[at]
        if not queue:
            del state.queues[job.memory_mb]
    state.unnotified.pop(name, None)
    state.placed.pop(name, None)


def notify(state: State, now_ms: NowMs) -> Iterator[Say]:
    """Notifies the shards of jobs that began to wait, and once a second of places and reasons that changed."""
    again = now_ms - state.places_sent_ms >= PLACES_EVERY_MS and bool(state.queues)
    if not state.unnotified and not again:
        return
    found = {name: (position, reason) for name, position, reason in _places(state)}
    begun = islice(state.unnotified, NOTIFIED_A_TICK)
    names = dict.fromkeys([*begun, *state.placed, *found] if again else begun)
    for name in names:
        state.unnotified.pop(name, None)
        job = state.jobs[name]
        position, reason = found.get(name, (None, BEYOND))
        if position is None:
            state.placed.pop(name, None)
        else:
            state.placed[name] = None
        if (job.sent_reason, job.sent_position) != (reason, position):
            job.sent_reason, job.sent_position = reason, position
            yield Say(shard_scope(job.shard), JobQueued(job=name, reason=reason, position=position))
    if again:
        state.places_sent_ms = now_ms


def _places(state: State) -> Iterator[tuple[str, int | None, str]]:
    """(job, place, reason) of the first jobs in the queue. Also of the first ones for which no registered slot is large enough: they
    delay no other job and have no place."""
    census = _SlotCensus(state)
    possible = [queue for memory, queue in state.queues.items() if census.fits(memory)]
    for position, (_, name) in enumerate(islice(heapq.merge(*possible), PLACES_MAX), 1):
        yield name, position, census.reason(state.jobs[name])
    others = [queue for memory, queue in state.queues.items() if not census.fits(memory)]
    for _, name in islice(heapq.merge(*others), PLACES_MAX):
        yield name, None, census.reason(state.jobs[name])


class _SlotCensus:
    """The registered slots as they are now, counted once for all jobs of a notification."""

    def __init__(self, state: State) -> None:
        self._state = state
        there = (slot.memory_mb for each in state.task_managers.values() for slot in each.slots.values())
        new = [state.limits.worker_memory_mb] if state.limits.provider and state.limits.task_managers_max else []
        self._largest = max([*there, *new], default=0)
        self._outlook = scaling.outlook(state)
        self._counts: dict[int, str] = {}  # by memory_mb

    def fits(self, memory_mb: int) -> bool:
        return memory_mb <= self._largest or not self._largest

    def reason(self, job: Job) -> str:
        """One sentence on why a job waits."""
        part = f"{job.held} of {job.wanted} slots: " if job.wanted > 1 else ""
        state = self._state
        if not state.open:
            missing = state.shards - len(state.declared | state.silent)
            whom = _plural(missing, "JobMaster shard") if missing else "TaskManagers"
            return f"{part}the ResourceManager has just started and waits to hear from {whom}"
        if not self.fits(job.memory_mb):
            return f"{part}needs {job.memory_mb} MB a slot, the largest has {self._largest} MB"
        if job.memory_mb not in self._counts:
            self._counts[job.memory_mb] = self._count(job.memory_mb) if state.task_managers else "no TaskManager is registered"
        outlook = f"; {self._outlook}" if self._outlook and job.memory_mb <= state.limits.worker_memory_mb else ""
        return part + self._counts[job.memory_mb] + outlook

    def _count(self, memory_mb: int) -> str:
        counts = {"busy": 0, "starting": 0, "broken": 0}
        hosts, why = 0, ""
        for name, task_manager in self._state.task_managers.items():
            fitting = [slot for slot in task_manager.slots.values() if slot.memory_mb >= memory_mb]
            hosts += bool(fitting)
            for slot in fitting:
                starting, broken = slot.state is SlotState.STARTING, slot.state is SlotState.BROKEN
                counts["starting" if starting else "broken" if broken else "busy"] += 1
                why = why or (f" ({name}: {slot.broken})" if slot.broken else "")
        total = sum(counts.values())
        if not total:
            return "no TaskManager has a slot"
        size = f" with {memory_mb} MB" if memory_mb else ""
        whole = f"{_plural(total, 'slot')}{size} of {_plural(hosts, 'TaskManager')}"
        some = {word: number for word, number in counts.items() if number}
        if len(some) == 1:
            (word,) = some
            return f"the {whole} is {word}{why}" if total == 1 else f"all {whole} are {word}{why}"
        each = (f"{number} {'is' if number == 1 else 'are'} {word}" for word, number in some.items())
        return f"of {whole} {', '.join(each)}{why}"


def _plural(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
