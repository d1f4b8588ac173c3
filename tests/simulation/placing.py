"""Where slots are granted: what must hold of each grant by the setting `slots_placement`, computed anew from the slots alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

from millrace.core.machine import Do, Envelope, Output, Say
from millrace.core.messages.jobs import TaskManagerLost
from millrace.core.messages.slots import AllocateSlot, AllocateSlots, DrainAnswered, SlotFreed
from millrace.core.messages.worker_effects import StopWorker
from millrace.core.profile import Profile
from millrace.core.states import SlotState
from millrace.core.topics import RESOURCE_MANAGER, Scope, task_manager_name
from services.resource_manager.core.placement import BY_USE
from services.resource_manager.core.state import State
from tests.simulation import workload

SPREAD: dict[str, Any] = {
    "task_managers": 3, "slots": 3, "deciding": {RESOURCE_MANAGER: {"slots_placement": "spread"}},
    "graphs": (workload.single, workload.wide, workload.roots),
}  # fmt: skip
Slot = tuple[str, int]
"""A TaskManager, and the number of its slot."""
PACKED: dict[str, Any] = {**SPREAD, "deciding": {RESOURCE_MANAGER: {"slots_placement": "packed"}}}


def grants_in(said: Iterable[Output]) -> list[tuple[Scope, AllocateSlot]]:
    """Which slots of whom are granted, each by itself, in the order in which they were chosen: it is in the names of allocations."""
    found = []
    for each in said:
        if isinstance(each, Say) and isinstance(each.body, AllocateSlot):
            found.append((Scope(each.to), each.body))
        elif isinstance(each, Say) and isinstance(each.body, AllocateSlots):
            found += [(Scope(each.to), one) for one in alone(each.body)]
    return sorted(found, key=lambda each: int(each[1].allocation.partition("/")[0].rpartition(".")[2]))


def alone(body: AllocateSlots) -> list[AllocateSlot]:
    """The same, one by one."""
    return [AllocateSlot(slot=each.slot, allocation=each.allocation, job=body.job, shard=body.shard) for each in body.slots]


def watched(state: State, told: Envelope, outputs: Iterable[Output]) -> Iterator[Output]:
    """What a handler yields, once all of it is known."""
    warm = _warm(state, told)
    said = list(_kept(state, told, outputs))
    placement = state.limits.slots_placement
    if not any(isinstance(each, Say) and isinstance(each.body, TaskManagerLost) for each in said):
        if placement in BY_USE:
            _look(state, placement, grants_in(said))
        elif placement == "warmest":
            _look_how_warm(state, warm, grants_in(said))
    yield from said


def _warm(state: State, told: Envelope) -> dict[Slot, int]:
    """How warm slots are before a record is handled: those that are free, and the one that it frees."""
    found = {
        (name, number): slot.warm for name, each in state.task_managers.items() for number, slot in each.slots.items()
        if slot.state is SlotState.FREE
    }  # fmt: skip
    if isinstance(told.body, SlotFreed):
        found[task_manager_name(told.sender), told.body.slot] = told.body.warm
    return found


def _kept(state: State, told: Envelope, outputs: Iterable[Output]) -> Iterator[Output]:
    """What a handler yields. Who agrees to be stopped, because it is idle, and was given a slot since it was asked is kept [R33]."""
    asked = isinstance(told.body, DrainAnswered) and state.task_managers.get(task_manager_name(told.sender))
    held = [slot.job for slot in asked.slots.values() if slot.allocation is not None] if asked else []
    for each in outputs:
        stops = held and isinstance(each, Do) and isinstance(each.effect, StopWorker)
        assert not stops, f"[R33]: {told.sender} is stopped because it is idle, and has a slot of {held}"
        yield each


def _look(state: State, placement: str, grants: list[tuple[Scope, AllocateSlot]]) -> None:
    """From the last grant back to the first: each slot was free, and its TaskManager had one less in use."""
    used = {name: sum(slot.allocation is not None for slot in each.slots.values()) for name, each in state.task_managers.items()}
    free = _free(state)
    for to, body in reversed(grants):
        name, number = task_manager_name(to), body.slot
        size = state.task_managers[name].slots[number].profile
        used[name] -= 1
        free[name, number] = size
        others = dict.fromkeys(other for (other, _), its in free.items() if its == size)
        share = {other: Fraction(used[other], len(state.task_managers[other].slots)) for other in others}
        best = max(share.values()) if placement == "packed" else min(share.values())
        assert share[name] == best, f"[R35]: {placement}: a slot of {name} is granted, and of the TaskManagers is in use: {share}"


def _look_how_warm(state: State, warm: dict[Slot, int], grants: list[tuple[Scope, AllocateSlot]]) -> None:
    """From the last grant back to the first. A second attempt of a straggler gets a slot elsewhere, however cold that is [R38]."""
    free = {(name, number): (size, state.task_managers[name].slots[number].warm) for (name, number), size in _free(state).items()}
    for to, body in reversed(grants):
        slot = (task_manager_name(to), body.slot)
        size, its = state.task_managers[slot[0]].slots[body.slot].profile, warm.get(slot, 0)
        warmest = max((how for other, how in free.values() if other == size), default=0)
        spare = body.job in state.jobs and state.jobs[body.job].spare
        assert its >= warmest or spare, f"[R35]: {slot} is granted, in which {its} attempts have finished; in a free one {warmest} have"
        free[slot] = size, its


def _free(state: State) -> dict[Slot, Profile]:
    return {
        (name, number): slot.profile for name, each in state.task_managers.items() for number, slot in each.slots.items()
        if slot.state is SlotState.FREE and not state.is_blocked(name)
    }  # fmt: skip
