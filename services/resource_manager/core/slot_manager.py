"""Slots and allocations: registered, reported, granted, freed, gone.

Every change of a slot goes through here, so that slots, jobs, the queue and the index of free slots agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from millrace.core.allocation import allocation_name, life_of
from millrace.core.clocks import AtMs, NowMs, after
from millrace.core.machine import Envelope, Output, Publish, Say
from millrace.core.messages.events import SlotChanged
from millrace.core.messages.slots import (
    AllocateSlot,
    AllocateSlots,
    ReportedSlot,
    SlotAllocation,
    SlotFreed,
    SlotReport,
    TaskManagerHeartbeat,
)
from millrace.core.states import ALLOCATED_SLOT, HELD_SLOT, UNUSABLE_SLOT, SlotState
from millrace.core.topics import task_manager_scope

from . import liveness, matching, pace, placement, queue, spare, workers
from .state import Job, Slot, State, TaskManager, Turn, is_quiet, slot_key, task_manager_of

Outputs = Iterator[Output]
Granted = dict[tuple[str, str], list[SlotAllocation]]
"""TaskManager, job -> slots of the one that are given to the other by one record, in order."""
VAIN_MOST = 6
"""So often the time is doubled for which slots are kept: attempts may always take longer than the first one."""


def on_task_manager_heartbeat(state: State, body: TaskManagerHeartbeat, envelope: Envelope) -> Outputs:
    name = task_manager_of(envelope)
    task_manager = state.task_managers.get(name)
    if task_manager is not None:
        task_manager.last_beat_ms = envelope.at_ms
        liveness.note_heartbeat(state, task_manager, envelope.at_ms)
        yield from report(state, name, body.states or (), envelope.at_ms)


def on_slot_report(state: State, body: SlotReport, envelope: Envelope) -> Outputs:
    name = task_manager_of(envelope)
    if name in state.task_managers:
        yield from report(state, name, body.states, envelope.at_ms)


def on_slot_freed(state: State, body: SlotFreed, envelope: Envelope) -> Outputs:
    """An allocation is over. One that is not known here is over already."""
    name = task_manager_of(envelope)
    task_manager = state.task_managers.get(name)
    slot = task_manager.slots.get(body.slot) if task_manager is not None else None
    if slot is not None and slot.allocation == body.allocation:
        pace.note_freed(state, envelope.at_ms)
        yield from _change_and_publish(state, name, body.slot, SlotState(body.state), None, None, envelope.at_ms)
        if body.warm and slot.state is SlotState.FREE and not state.is_blocked(name):
            slot.warm = body.warm
            state.warm.setdefault(slot.profile, {}).setdefault(slot.warm, {})[slot_key(name, body.slot)] = (name, body.slot)


def grant(state: State, envelope: Envelope) -> Outputs:  # [R11]
    """Grants free slots to waiting jobs until nothing fits."""
    if not state.open:
        return
    granted: Granted = {}
    others: list[Output] = []  # the grants go first: a submission waits for them
    while (found := _next(state, envelope.now_ms)).job is not None:
        for profile in found.profiles:
            free, warm, setting = state.free[profile], state.warm.get(profile, {}), state.limits.slots_placement
            task_manager, slot = placement.place(free, warm, setting, lambda name: _use(state, name))
            others += _give(state, envelope, found.job, task_manager, slot, granted)
    while (second := spare.next_spare(state)) is not None:
        others += _give(state, envelope, second.job, second.task_manager, second.slot, granted)
    for (task_manager, name), slots in granted.items():
        for body in _allocating(state, task_manager, name, slots):
            # A shard that is offered a slot before it receives the loss for which it needs one gives the slot back.
            yield Say(task_manager_scope(task_manager), body, after="TaskManagerLost")
    yield from others


def _give(state: State, envelope: Envelope, name: str, task_manager: str, slot: int, granted: Granted) -> Outputs:
    """Grants a free slot to a job: adds it to `granted`. What is yielded goes out behind all grants."""
    job = state.jobs[name]
    allocation = allocation_name(envelope.id, state.granted, job.life)
    state.granted += 1
    granter = state.task_managers[task_manager]
    if is_quiet(granter):
        liveness.note_heartbeat(state, granter, envelope.at_ms)
    workers.keep(state, task_manager)
    granted.setdefault((task_manager, name), []).append(SlotAllocation(slot=slot, allocation=allocation))
    granter.slots[slot].waited = (job.lacks_ms, envelope.at_ms) if job.lacks_ms is not None else None
    yield from _change(state, task_manager, slot, SlotState.PENDING, allocation, name)


def _allocating(state: State, task_manager: str, name: str, slots: Sequence[SlotAllocation]) -> Iterator[AllocateSlot | AllocateSlots]:
    """What a TaskManager is sent of its slots that a job is granted: one message, for a JobMaster folds and answers each offer."""
    shard = state.jobs[name].shard
    if len(slots) > 1 and state.task_managers[task_manager].build:
        yield AllocateSlots(job=name, shard=shard, slots=list(slots))
        return
    for each in slots:
        yield AllocateSlot(slot=each.slot, allocation=each.allocation, job=name, shard=shard)


def _use(state: State, name: str) -> placement.Use:
    slots = state.task_managers[name].slots
    return sum(slot.allocation is not None for slot in slots.values()), len(slots)


def _next(state: State, now_ms: NowMs) -> matching.Match:
    """What is granted next; notes whose turn it was."""
    turns, found = state.turns, matching.Match()
    if not state.waiting:
        turns.clear()
        state.freed = []
    elif state.free:
        for turn in turns.values():
            if turn.kept_ms is not None and now_ms >= after(turn.kept_ms, state.limits.ageing_ms << min(turn.vain, VAIN_MOST)):
                turn.passed, turn.vain = 0, turn.vain + 1  # what runs in the slots that are missing may never end
        due = [profile for profile, turn in turns.items() if turn.passed >= matching.PASSED_MAX]
        found = matching.match_slots(state.waiting, state.free, due)
        for profile in dict.fromkeys(found.profiles):
            turn = turns.setdefault(profile, Turn())
            if profile in found.passed:
                turn.passed += 1
            else:
                turn.passed = turn.vain = 0
    for profile in dict.fromkeys((*found.kept, *turns)):
        turn = turns.setdefault(profile, Turn())
        turn.kept_for = found.kept.get(profile, "")
        turn.kept_ms = (now_ms if turn.kept_ms is None else turn.kept_ms) if turn.kept_for else None
        if turn == Turn() or profile not in state.waiting.slots:
            del turns[profile]
    return found


def give_last(state: State, name: str) -> None:
    """Puts the free slots of a TaskManager behind all others that are free."""
    for number, slot in state.task_managers[name].slots.items():
        if slot.state is SlotState.FREE and not state.is_blocked(name):
            group, key = state.free[slot.profile], slot_key(name, number)
            group[key] = group.pop(key)


def register(state: State, name: str, task_manager: TaskManager, states: Sequence[ReportedSlot]) -> Outputs:
    """Adds a TaskManager's slots, with the allocations that they carry. TaskManagerJoined has their states."""
    state.task_managers[name] = task_manager
    for slot in task_manager.slots.values():
        if not state.is_blocked(name):
            state.waiting.count_slot(slot.profile, 1)
    for number, now, allocation, job in _usable_reports(state, name, states):
        yield from _change(state, name, number, now, allocation, job)


def unregister(state: State, name: str) -> Outputs:
    """Removes a TaskManager with its slots. The jobs that held some wait again."""
    for slot in list(state.task_managers[name].slots):
        yield from _change(state, name, slot, SlotState.BROKEN, None, None)
    del state.task_managers[name]


def exclude(state: State, name: str) -> None:
    """The host of a TaskManager is blocked from now on: its slots are granted no more."""
    for number, slot in state.task_managers[name].slots.items():
        if slot.state is SlotState.FREE:
            _take_from_free(state, slot, slot_key(name, number))
        if slot.state is not SlotState.BROKEN:
            state.waiting.count_slot(slot.profile, -1)


def include(state: State, name: str) -> None:
    """The host of a TaskManager is blocked no more."""
    for number, slot in state.task_managers[name].slots.items():
        if slot.state is SlotState.FREE:
            state.free.setdefault(slot.profile, {})[slot_key(name, number)] = (name, number)
        if slot.state is not SlotState.BROKEN:
            state.waiting.count_slot(slot.profile, 1)


def report(state: State, name: str, states: Sequence[ReportedSlot], at_ms: AtMs) -> Outputs:
    """Slots as their TaskManager sees them."""
    for number, now, allocation, job in _usable_reports(state, name, states):
        yield from _change_and_publish(state, name, number, now, allocation, job, at_ms)


def _usable_reports(
    state: State, name: str, states: Sequence[ReportedSlot]
) -> Iterator[tuple[int, SlotState, str | None, str | None]]:
    """(slot, state, allocation, job) of a report, and notes why a slot is broken. What the TaskManager reported before it
    received our grant is left out."""
    slots = state.task_managers[name].slots
    for reported in states:
        slot = slots.get(reported.slot)
        if slot is None or (slot.state is SlotState.PENDING and reported.allocation != slot.allocation):
            continue
        now, allocation = SlotState(reported.state), reported.allocation
        if now not in ALLOCATED_SLOT:
            allocation = None
        elif allocation is None:
            now = SlotState.STARTING  # makes no sense; not free, until the next report
        slot.broken = reported.broken if now is SlotState.BROKEN else None
        yield reported.slot, now, allocation, reported.job


def _change_and_publish(
    state: State, name: str, number: int, now: SlotState, allocation: str | None, job: str | None, at_ms: AtMs
) -> Outputs:
    """Changes a slot. SlotChanged is published where it becomes unusable, or usable again."""
    slot = state.task_managers[name].slots[number]
    before = slot.state
    yield from _change(state, name, number, now, allocation, job)
    if before is not now and (before in UNUSABLE_SLOT or now in UNUSABLE_SLOT):
        slot.changes += 1
        event = SlotChanged(
            task_manager=name, incarnation=state.task_managers[name].incarnation, slot=number, state=now.value, at_ms=at_ms,
            count=slot.changes,
        )  # fmt: skip
        yield Publish("cluster.events", name, event)


def _change(state: State, name: str, number: int, now: SlotState, allocation: str | None, job: str | None) -> Outputs:
    """The one place where the state of a slot changes: keeps the free slots, what jobs hold and the queue in step."""
    slot = state.task_managers[name].slots[number]
    job = job or "" if now in HELD_SLOT else None
    key, before, same = slot_key(name, number), slot.job, (slot.job, slot.allocation) == (job, allocation)
    if before in state.jobs and not same:
        state.jobs[before].ending.pop(slot.allocation or "", None)
    if not state.is_blocked(name):
        if slot.state is SlotState.FREE and now is not SlotState.FREE:
            _take_from_free(state, slot, key)
        elif now is SlotState.FREE and slot.state is not SlotState.FREE:
            state.free.setdefault(slot.profile, {})[key] = (name, number)
        broken = SlotState.BROKEN
        state.waiting.count_slot(slot.profile, (slot.state is broken) - (now is broken))
    state.waiting.allocated += (allocation is not None) - (slot.allocation is not None)
    _count(state, slot, -1)
    slot.state, slot.allocation, slot.job = now, allocation, job
    _count(state, slot, 1)
    if same:
        return
    for each in dict.fromkeys((job, before)):
        if each is not None:
            yield from queue.update(state, each)


def _take_from_free(state: State, slot: Slot, key: str) -> None:
    group = state.free[slot.profile]
    del group[key]
    if not group:
        del state.free[slot.profile]
    if slot.warm:
        levels = state.warm[slot.profile]
        del levels[slot.warm][key]
        if not levels[slot.warm]:
            del levels[slot.warm]
        if not levels:
            del state.warm[slot.profile]
        slot.warm = 0


def _count(state: State, slot: Slot, by: int) -> None:
    """Counts a slot among those that its job holds, or no more."""
    if slot.job is None or slot.allocation is None:
        return
    job = state.jobs.setdefault(slot.job, Job())
    job.held += by
    state.waiting.hold_slot(slot.job, slot.profile, by)
    state.waiting.hold(job.tenant, by)
    if life_of(slot.allocation) < job.life:
        job.earlier += by
