"""The shard's heartbeats to the ResourceManager, with the allocations that it holds."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.allocation import part_of
from millrace.core.clocks import after
from millrace.core.machine import Output, Say
from millrace.core.messages.jobs import HeldSlots, JobMasterHeartbeat
from millrace.core.topics import RESOURCE_MANAGER, task_manager_name

from .state import State

HELD_MOST = 200
"""Allocations in a heartbeat, about: 8 KB."""


def beat(state: State) -> Iterator[Output]:  # [R31]
    """Once in `heartbeat_ms`, while a job wants slots, and at the first tick of the first job: from then on its silence is noticed. A shard
    of thousands of slots sends a part of their names each time."""
    if not state.settings.heartbeat_ms or state.now_ms < state.heartbeat_ms or not any(job.wanted for job in state.jobs.values()):
        return
    state.heartbeat_ms = after(state.now_ms, state.settings.heartbeat_ms)
    parts = -(-len(state.allocations) // HELD_MOST) or 1
    part = state.heartbeats % parts
    state.heartbeats += 1
    held: dict[tuple[str, int], list[str]] = {}
    for allocation, job in state.allocations.items():
        if part_of(allocation, parts) == part:
            slot = state.jobs[job].slots[allocation]
            held.setdefault((task_manager_name(slot.task_manager), slot.incarnation), []).append(allocation)
    its = [HeldSlots(task_manager=name, incarnation=life, allocations=all_) for (name, life), all_ in held.items()]
    yield Say(RESOURCE_MANAGER, JobMasterHeartbeat(part=part, parts=parts, held=its))
