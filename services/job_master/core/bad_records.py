"""Whom a record concerns that is passed over because it ended processes [26]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millrace.core.messages import jobs, slots
from millrace.core.topics import TASK_MANAGER

from .state import Job, State

Current = Callable[[State, slots.TaskStateChanged], "tuple[Job, str, int] | None"]


def concerned(state: State, body: Any, current: Current) -> dict[str, list[tuple[str, int]]]:
    """The jobs known here that a message is about, each with the subtasks whose attempts are over by it: nobody says that again."""
    if isinstance(body, slots.TaskStateChanged):
        found = current(state, body)
        return {found[0].id: [found[1:]] if body.state != "RUNNING" else []} if found is not None else {}
    if isinstance(body, slots.OfferSlots):
        return {offer.job: [] for offer in body.offers if offer.job in state.jobs}
    if isinstance(body, (slots.FailSlot, jobs.TaskManagerLost)):
        gone = {job.id: _gone(job, body) for job in state.jobs.values()}
        return {job: over for job, over in gone.items() if over}
    job = state.jobs.get(getattr(body, "job", ""))
    # What was said of another acceptance under this id is no concern of the job known here.
    mine = job is not None and getattr(body, "acceptance", job.acceptance) == job.acceptance
    return {job.id: []} if job is not None and mine else {}


def held_on(job: Job, scope: str, upto: int) -> list[str]:
    """The allocations that the job holds on a TaskManager's lives up to `upto`."""
    return [a for a, slot in job.slots.items() if slot.task_manager == scope and slot.incarnation <= upto]


def _gone(job: Job, body: slots.FailSlot | jobs.TaskManagerLost) -> list[tuple[str, int]]:
    if isinstance(body, slots.FailSlot):
        gone = [body.allocation] if body.allocation in job.slots else []
    else:
        gone = held_on(job, f"{TASK_MANAGER}/{body.task_manager}", body.incarnation)
    return [(slot.task, slot.subtask) for slot in (job.slots[each] for each in gone) if slot.task is not None]
