"""Slots for second attempts of slow subtasks [R38]: of what is left once no waiting job can use it. They are no wish of the queue: nothing
is kept for them, no TaskManager is started for them, and a job that gets none is not told that it waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from millrace.core.profile import Profile, by_size

from .state import State


class Spare(NamedTuple):
    """A free slot, and the job that gets it."""

    job: str
    task_manager: str
    slot: int


def next_spare(state: State) -> Spare | None:  # [R38]
    """The next such grant, jobs in the order in which they asked. Called when no waiting job can be granted anything."""
    for name in state.spare:
        job = state.jobs[name]
        left = job.wanted + len(job.spare) - job.held
        if not 0 < left <= len(job.spare) or job.earlier or job.ending or job.shard in state.silent:
            continue
        if not state.waiting.allows(job.tenant, 1):
            continue
        wanted = next(iter(job.wants), Profile(job.memory_mb))
        for profile in sorted(state.free, key=by_size):
            if profile.satisfies(wanted) and not _is_wanted(state, profile):
                found = _elsewhere(state.free[profile], job.spare)
                if found is not None:
                    return Spare(name, *found)
    return None


def _is_wanted(state: State, profile: Profile) -> bool:
    """Whether free slots of this profile are kept for a job, or one waits for several of them at once."""
    turn = state.turns.get(profile)
    kept = turn is not None and turn.kept_for
    return bool(kept) or any(line.by_share and profile.satisfies(wanted.profile) for wanted, line in state.waiting.lines.items())


def _elsewhere(free: Mapping[str, tuple[str, int]], taken: list[str]) -> tuple[str, int] | None:
    """The slot that is free for longest on another TaskManager than one of these attempts."""
    return next(((name, slot) for name, slot in free.values() if any(each != name for each in taken)), None)
