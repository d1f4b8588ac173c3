"""The slots that a job holds, and what it requests. A slot that is held is in `Job.slots` and in `State.allocations`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from millrace.core.jobgraph.compile import Plan
from millrace.core.machine import Output, Say
from millrace.core.messages.jobs import RequestSlots
from millrace.core.messages.profiles import WantedSlots, parts_of
from millrace.core.messages.slots import FreeSlots
from millrace.core.profile import Profile
from millrace.core.topics import RESOURCE_MANAGER, Scope
from millrace.core.trace_context import in_one, job_span, of_job

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


def wants_by_profile(plan: Plan | None, job: Job, scheduled: Mapping[str, int]) -> dict[Profile, int]:
    """What slots the job wants, where their profiles differ; else nothing. `scheduled`: task -> its subtasks that wait for a slot.

    A slot in use counts by its own profile. Else the ResourceManager might take one that suits two subtasks for that of the one that
    waits, while the other one runs in it, and grant what suits nobody."""
    if plan is None or plan.profile is not None:
        return {}
    wants: dict[Profile, int] = {}
    for profile, number in (
        *((slot.profile, 1) for slot in job.slots.values()), *((plan.profiles[task], number) for task, number in scheduled.items())
    ):  # fmt: skip
        if number:
            wants[profile] = wants.get(profile, 0) + number
    return wants


def request_slots(state: State, plan: Plan | None, job: Job, given_back: Sequence[str] = ()) -> Say:
    """How many slots the job wants in all: those that it holds among them. `given_back`: those that it has just given back."""
    context = of_job(job.id, job.graph).below(job_span(job.acceptance)) if state.settings.traced else None
    same = plan.profile if plan is not None else Profile.of(job.graph.get("resources", {}).get("memory_mb"))
    wants = job.wants
    if same is not None and same != Profile(same.memory_mb) and job.wanted:
        wants = {same: job.wanted}
    return Say(
        RESOURCE_MANAGER,
        RequestSlots(
            job=job.id,
            slots=job.wanted,
            priority=job.graph.get("priority", 0),
            since_ms=job.accepted_ms,
            memory_mb=(same.memory_mb or None) if same is not None and not wants else None,
            tenant=job.graph.get("tenant", ""),
            together=job.is_gang,
            given_back=list(given_back) if job.is_gang else [],
            profiles=[WantedSlots(slots=number, **parts_of(profile)) for profile, number in wants.items()],
            spare=job.spare,
            trace=in_one(context) if context is not None and context.sampled else "",
        ),
    )
