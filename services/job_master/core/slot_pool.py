"""The slots that a job holds, and what it requests. A slot that is held is in `Job.slots` and in `State.allocations`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from millrace.core.machine import Output, Say
from millrace.core.messages.jobs import RequestSlots
from millrace.core.messages.slots import FreeSlots
from millrace.core.topics import RESOURCE_MANAGER, Scope

from .state import HeldSlot, Job, State


def hold_slot(state: State, job: Job, allocation: str, slot: HeldSlot) -> None:
    job.slots[allocation] = slot
    state.allocations[allocation] = job.id


def drop_slot(state: State, job: Job, allocation: str) -> None:
    """The job holds this slot no more."""
    del job.slots[allocation]
    del state.allocations[allocation]


def vacate_slot(job: Job, allocation: str) -> None:
    """The attempt in this slot is over: its subtask leaves it. The slot stays held, and is idle until the job is moved on."""
    slot = job.slots[allocation]
    assert slot.task is not None
    job.tasks[slot.task].rows[slot.subtask].allocation = None
    slot.task, slot.subtask, slot.progress = None, 0, None


def slots_on(job: Job, task_manager: Scope, last_incarnation: int) -> list[str]:
    """The job's allocations on the incarnations of a TaskManager (its scope) up to this one."""
    return [
        allocation
        for allocation, slot in job.slots.items()
        if slot.task_manager == task_manager and slot.incarnation <= last_incarnation
    ]


def free_slots(state: State, job: Job, allocations: Sequence[str]) -> Iterator[Output]:
    """Gives these slots of the job back, all of one TaskManager in one message."""
    freed: dict[str, list[str]] = {}
    for allocation in allocations:
        freed.setdefault(job.slots[allocation].task_manager, []).append(allocation)
        drop_slot(state, job, allocation)
    for task_manager, its in freed.items():
        yield Say(task_manager, FreeSlots(allocations=its))


def request_slots(job: Job, given_back: Sequence[str] = ()) -> Say:
    """How many slots the job wants in all: those that it holds among them. `given_back`: those that it has just given back."""
    return Say(
        RESOURCE_MANAGER,
        RequestSlots(
            job=job.id,
            slots=job.wanted,
            priority=job.graph.get("priority", 0),
            since_ms=job.accepted_ms,
            memory_mb=job.graph.get("resources", {}).get("memory_mb"),
            tenant=job.graph.get("tenant", ""),
            together=job.is_gang,
            given_back=list(given_back) if job.is_gang else [],
        ),
    )
