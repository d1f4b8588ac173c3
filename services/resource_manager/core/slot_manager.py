"""Slots and allocations: registered, reported, granted, freed, gone.

Every change goes through here, so that slots, jobs, the queue and the index of free slots agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from millrace.core.allocation import allocation_name, life_of
from millrace.core.machine import Output, Publish, Say
from millrace.core.messages.events import SlotChanged
from millrace.core.messages.jobs import DeclareAgain, RequestSlots
from millrace.core.messages.slots import AllocateSlot, ReportedSlot, SlotFreed, SlotUnused
from millrace.core.states import ALLOCATED_SLOT, HELD_SLOT, UNUSABLE_SLOT, SlotState
from millrace.core.topics import TASK_MANAGER, shard_scope

from . import liveness, matching, queue
from .state import (
    Job,
    Slot,
    State,
    TaskManager,
    is_quiet,
    slot_key,
)


def request(state: State, shard: int, life: int, wanted: RequestSlots) -> Iterator[Output]:
    """The job's whole wanted set; replaces what it wanted before. What it holds too much it gives back itself. `life`: of the shard; what
    the job holds from a life before has to be over first [11]."""
    job = state.jobs.get(wanted.job)
    if job is None:
        if not wanted.slots:
            return
        job = state.jobs[wanted.job] = Job()
    queue.leave(state, wanted.job)
    if not wanted.slots:
        job.told = job.told_position = None  # who wants nothing knows that it does not wait
    job.wanted, job.shard, job.priority, job.since_ms = wanted.slots, shard, wanted.priority, wanted.since_ms
    if job.life != life:
        job.life = life
        job.earlier = sum(life_of(each) < life for each in _allocations(state, wanted.job)) if job.held else 0
    job.memory_mb = wanted.memory_mb or 0
    job.rank = matching.rank(job.priority, job.since_ms, state.limits.ageing_ms)
    yield from queue.settle(state, wanted.job)


def _allocations(state: State, job: str) -> Iterator[str]:
    """All that a job holds."""
    for task_manager in state.task_managers.values():
        for slot in task_manager.slots.values():
            if slot.job == job and slot.allocation is not None:
                yield slot.allocation


def forget_requests(state: State, shard: int) -> None:
    """A shard lives anew: what its jobs wanted counts no more until it declares it; what they hold stays."""
    for name in [name for name, job in state.jobs.items() if job.shard == shard]:
        forget_request(state, name)


def forget_request(state: State, name: str) -> None:
    """What a job wanted counts no more until its shard asks anew."""
    job = state.jobs[name]
    queue.leave(state, name)
    job.wanted, job.told, job.told_position = 0, None, None
    for _ in queue.settle(state, name):
        raise AssertionError("a job that was told nothing is told that it does not wait")


def pass_over(state: State, shard: int) -> Iterator[Output]:
    """A shard is away: its jobs are granted nothing until it declares. What they hold stays theirs [31]."""
    if shard not in state.silent:
        state.silent[shard] = None
        yield from _settle_all(state, shard)


def heard(state: State, shard: int) -> Iterator[Output]:
    """A shard has declared."""
    state.declared[shard] = None
    if state.silent.pop(shard, shard) is None:
        yield from _settle_all(state, shard)


def _settle_all(state: State, shard: int) -> Iterator[Output]:
    for name in [name for name, job in state.jobs.items() if job.shard == shard]:
        yield from queue.settle(state, name)


def unused(state: State, name: str, said: SlotUnused) -> Iterator[Output]:
    """A JobMaster that is down would be granted the slot again and again, each time for as long as its TaskManager waits for a task."""
    slot = state.task_managers[name].slots.get(said.slot)
    if slot is None or slot.allocation != said.allocation or slot.job is None:
        return
    shard = state.jobs[slot.job].shard
    if shard not in state.silent and shard >= 0:
        yield from pass_over(state, shard)
        yield Say(shard_scope(shard), DeclareAgain())


def grant(state: State, record: str, stamp_ms: int) -> Iterator[Output]:
    """Gives free slots to waiting jobs until nothing fits. `record` names the record that led to it, of `stamp_ms`."""
    if not state.open:
        return
    told: list[Output] = []  # the grants go first: they are on the way of a submission
    while (found := matching.match_slots(state.queues, state.free)) is not None:
        name, (task_manager, slot) = found
        job = state.jobs[name]
        allocation = allocation_name(record, state.granted, job.life)
        state.granted += 1
        giver = state.task_managers[task_manager]
        if is_quiet(giver):
            liveness.heard(state, giver, stamp_ms)
        allocate = AllocateSlot(slot=slot, allocation=allocation, job=name, shard=job.shard)
        # A shard that is offered a slot before it hears of the loss for which it needs one gives it back.
        yield Say(f"{TASK_MANAGER}/{task_manager}", allocate, after="TaskManagerLost")
        told += _set(state, task_manager, slot, SlotState.PENDING, allocation, name)
    yield from told


def register(state: State, name: str, task_manager: TaskManager, states: Sequence[ReportedSlot]) -> Iterator[Output]:
    """Takes a TaskManager's slots in, with the allocations that they carry."""
    state.task_managers[name] = task_manager
    for number, now, allocation, job in _sound(state, name, states):
        yield from _set(state, name, number, now, allocation, job)  # TaskManagerJoined tells what they are


def unregister(state: State, name: str) -> Iterator[Output]:
    """Drops a TaskManager with its slots; the jobs that held some wait again."""
    for slot in list(state.task_managers[name].slots):
        yield from _set(state, name, slot, SlotState.BROKEN, None, None)
    del state.task_managers[name]


def report(state: State, name: str, states: Sequence[ReportedSlot], now_ms: int) -> Iterator[Output]:
    """Slots as their TaskManager sees them."""
    for number, now, allocation, job in _sound(state, name, states):
        yield from _reported(state, name, number, now, allocation, job, now_ms)


def _sound(
    state: State, name: str, states: Sequence[ReportedSlot]
) -> Iterator[tuple[int, SlotState, str | None, str | None]]:
    """(slot, state, allocation, job) of what a TaskManager says. What it said before it heard of our grant does not count against
    that."""
    slots = state.task_managers[name].slots
    for said in states:
        slot = slots.get(said.slot)
        if slot is None or (slot.state is SlotState.PENDING and said.allocation != slot.allocation):
            continue
        now, allocation = SlotState(said.state), said.allocation
        if now not in ALLOCATED_SLOT:
            allocation = None
        elif allocation is None:
            now = SlotState.STARTING  # makes no sense; not free, until it says more
        slot.broken = said.broken if now is SlotState.BROKEN else None
        yield said.slot, now, allocation, said.job


def freed(state: State, name: str, said: SlotFreed, now_ms: int) -> Iterator[Output]:
    """An allocation is over. One that we do not know is over already."""
    slot = state.task_managers[name].slots.get(said.slot)
    if slot is not None and slot.allocation == said.allocation:
        yield from _reported(state, name, said.slot, SlotState(said.state), None, None, now_ms)


def _reported(
    state: State, name: str, number: int, now: SlotState, allocation: str | None, job: str | None, now_ms: int
) -> Iterator[Output]:
    slot = state.task_managers[name].slots[number]
    before = slot.state
    yield from _set(state, name, number, now, allocation, job)
    if before is not now and (before in UNUSABLE_SLOT or now in UNUSABLE_SLOT):
        slot.changes += 1
        event = SlotChanged(
            task_manager=name, incarnation=state.task_managers[name].incarnation, slot=number, state=now.value, at_ms=now_ms,
            count=slot.changes,
        )  # fmt: skip
        yield Publish("cluster.events", name, event)


def _set(
    state: State, name: str, number: int, now: SlotState, allocation: str | None, job: str | None
) -> Iterator[Output]:
    """The one place where a slot changes: keeps the free slots, what jobs hold and the queue in step."""
    slot = state.task_managers[name].slots[number]
    job = job or "" if now in HELD_SLOT else None
    key, before, same = slot_key(name, number), slot.job, (slot.job, slot.allocation) == (job, allocation)
    if slot.state is SlotState.FREE and now is not SlotState.FREE:
        group = state.free[slot.memory_mb]
        del group[key]
        if not group:
            del state.free[slot.memory_mb]
    elif now is SlotState.FREE and slot.state is not SlotState.FREE:
        state.free.setdefault(slot.memory_mb, {})[key] = (name, number)
    _count(state, slot, -1)
    slot.state, slot.allocation, slot.job = now, allocation, job
    _count(state, slot, 1)
    if same:
        return
    for each in dict.fromkeys((job, before)):
        if each is not None:
            yield from queue.settle(state, each)


def _count(state: State, slot: Slot, by: int) -> None:
    """A slot joins what its job holds, or leaves it."""
    if slot.job is None or slot.allocation is None:
        return
    job = state.jobs.setdefault(slot.job, Job())
    job.held += by
    if life_of(slot.allocation) < job.life:
        job.earlier += by
