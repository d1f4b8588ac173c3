"""Which of the free slots of a size a job gets. A policy over plain values.

`warmest` takes the slot whose JVM has finished most attempts since one failed, and of those alike the one that was freed last. It has
compiled what jobs do; a cold one takes two to three times as long. The one freed last alone would not do: of a job's two subtasks the
colder slot ends later. Slots with a new JVM, or whose attempt failed, have their turn when no other is left: so a broken machine is not
chosen again and again. `longest_free` takes all in turn. `packed` fills a TaskManager before the next one, so that the others are idle,
and a provider may stop them. `spread` takes the TaskManager that has least to do, so that jobs share its disks and its network with few.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

Free = tuple[str, int]
"""A TaskManager, and the number of its slot."""
Use = tuple[int, int]
"""Of a TaskManager: how many of its slots are allocated, and how many it has."""
SHARE = 1_000_000


def place(free: Mapping[str, Free], warm: Mapping[int, dict[str, Free]], placement: str, use_of: Callable[[str], Use]) -> Free:
    """One of `free`, which has the slot first that is free for longest: that one goes first among equals. `warm`: by the attempts that
    their JVMs have finished, at most WARM_MOST, those of them that have; each has the slot last that was freed last."""
    if placement == WARMEST and warm:
        return next(reversed(warm[max(warm)].values()))
    by = BY_USE.get(placement)
    if by is None:
        return next(iter(free.values()))
    return min(free.values(), key=lambda slot: by(*use_of(slot[0])))


BY_USE: dict[str, Callable[[int, int], int]] = {
    "packed": lambda used, slots: -(used * SHARE // slots),
    "spread": lambda used, slots: used * SHARE // slots,
}
"""Placement -> what is least of the TaskManager whose slot is granted next."""
WARMEST = "warmest"
PLACEMENTS = (WARMEST, "longest_free", *BY_USE)
