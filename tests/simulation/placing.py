"""Where slots are granted: what must hold of each grant by the setting `slots_placement`, computed anew from the slots alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

from millrace.core.machine import Output, Say
from millrace.core.messages.jobs import TaskManagerLost
from millrace.core.messages.slots import AllocateSlot
from millrace.core.states import SlotState
from millrace.core.topics import RESOURCE_MANAGER
from services.resource_manager.core.state import State
from tests.simulation import workload

SPREAD: dict[str, Any] = {
    "task_managers": 3, "slots": 3, "deciding": {RESOURCE_MANAGER: {"slots_placement": "spread"}},
    "graphs": (workload.single, workload.wide, workload.roots),
}  # fmt: skip
PACKED: dict[str, Any] = {**SPREAD, "deciding": {RESOURCE_MANAGER: {"slots_placement": "packed"}}}


def watched(state: State, outputs: Iterable[Output]) -> Iterator[Output]:
    """What a handler yields, once all of it is known."""
    said = list(outputs)
    placement = state.limits.slots_placement
    if placement != "longest_free" and not any(isinstance(each, Say) and isinstance(each.body, TaskManagerLost) for each in said):
        _look(state, placement, [each for each in said if isinstance(each, Say) and isinstance(each.body, AllocateSlot)])
    yield from said


def _look(state: State, placement: str, grants: list[Say]) -> None:
    """From the last grant back to the first: each slot was free, and its TaskManager had one less in use."""
    used = {name: sum(slot.allocation is not None for slot in each.slots.values()) for name, each in state.task_managers.items()}
    free = {
        (name, number): slot.profile for name, each in state.task_managers.items() for number, slot in each.slots.items()
        if slot.state is SlotState.FREE and not state.is_blocked(name)
    }  # fmt: skip
    for each in reversed(grants):
        name, number = each.to.partition("/")[2], each.body.slot
        size = state.task_managers[name].slots[number].profile
        used[name] -= 1
        free[name, number] = size
        others = dict.fromkeys(other for (other, _), its in free.items() if its == size)
        share = {other: Fraction(used[other], len(state.task_managers[other].slots)) for other in others}
        best = max(share.values()) if placement == "packed" else min(share.values())
        assert share[name] == best, f"[R35]: {placement}: a slot of {name} is granted, and of the TaskManagers is in use: {share}"
