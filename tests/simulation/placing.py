"""Where slots are granted: what must hold of each grant by the setting `slots_placement`, computed anew from the slots alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

from millrace.core.machine import Do, Envelope, Output, Say
from millrace.core.messages.effects import StopWorker
from millrace.core.messages.jobs import TaskManagerLost
from millrace.core.messages.slots import AllocateSlot, AllocateSlots, DrainAnswered
from millrace.core.states import SlotState
from millrace.core.topics import RESOURCE_MANAGER, Scope, task_manager_name
from services.resource_manager.core.placement import BY_USE
from services.resource_manager.core.state import State
from tests.simulation import workload

SPREAD: dict[str, Any] = {
    "task_managers": 3, "slots": 3, "deciding": {RESOURCE_MANAGER: {"slots_placement": "spread"}},
    "graphs": (workload.single, workload.wide, workload.roots),
}  # fmt: skip
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
    said = list(_kept(state, told, outputs))
    placement = state.limits.slots_placement
    if placement in BY_USE and not any(isinstance(each, Say) and isinstance(each.body, TaskManagerLost) for each in said):
        _look(state, placement, grants_in(said))
    yield from said


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
    free = {
        (name, number): slot.profile for name, each in state.task_managers.items() for number, slot in each.slots.items()
        if slot.state is SlotState.FREE and not state.is_blocked(name)
    }  # fmt: skip
    for to, body in reversed(grants):
        name, number = task_manager_name(to), body.slot
        size = state.task_managers[name].slots[number].profile
        used[name] -= 1
        free[name, number] = size
        others = dict.fromkeys(other for (other, _), its in free.items() if its == size)
        share = {other: Fraction(used[other], len(state.task_managers[other].slots)) for other in others}
        best = max(share.values()) if placement == "packed" else min(share.values())
        assert share[name] == best, f"[R35]: {placement}: a slot of {name} is granted, and of the TaskManagers is in use: {share}"
