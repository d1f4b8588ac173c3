"""Records that are passed over because handling them ended processes [R26]: the jobs that they are about fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millrace.core.answering import refuse
from millrace.core.faults import fault
from millrace.core.machine import Envelope, Output, PassedOver, Say
from millrace.core.messages.attempts import Fault
from millrace.core.messages.effects import SinkPublished
from millrace.core.messages.jobs import DeclareAgain, JobQuestion, StartJob, TaskManagerLost
from millrace.core.messages.slots import FailSlot, FreeSlots, OfferSlots, TaskStateChanged
from millrace.core.states import ENDED_JOB
from millrace.core.topics import task_manager_scope

from . import births, holding, lifecycle
from .attempts import current_attempt, fail_attempt
from .failover import fail
from .plans import plan_of
from .reporting import job_ended
from .scheduling import advance
from .slot_pool import slots_on
from .state import Job, State


def on_passed_over(state: State, body: PassedOver, envelope: Envelope) -> Iterator[Output]:
    """The jobs that the record is about fail, and nothing else does [R26]. What is over by it is over: nobody sends it again."""
    record = body.body
    if isinstance(record, JobQuestion):
        reason = f"a fault of Millrace in handling this request: {body.error}"
        yield from refuse(record, "internal", reason)
        return
    if isinstance(record, StartJob):
        yield from lifecycle.forget_other(state, record)
        if record.job not in state.jobs:
            lifecycle.new_job(state, record, {}, envelope)  # its graph may be what ended the processes
    message = f"a fault of Millrace in handling a {record.type} of this job: {body.error}"
    cause = fault("infrastructure", message)
    for name, allocations in _concerned(state, record).items():
        job = state.jobs[name]
        if job.status not in ENDED_JOB:
            yield from _fail(state, job, allocations, cause, record, envelope)
        elif isinstance(record, StartJob):
            # A Dispatcher that was born anew waits for it, as after any StartJob [R21].
            yield job_ended(job, plan_of(state, job))
    if isinstance(record, OfferSlots):
        freed = [offer.allocation for offer in record.offers if offer.allocation not in state.allocations]
        yield Say(envelope.sender, FreeSlots(allocations=freed))
    elif isinstance(record, TaskManagerLost):
        yield from holding.forget_task_manager(state, record)
    elif isinstance(record, DeclareAgain):
        yield from births.on_declare_again(state, record, envelope)


def _fail(
    state: State, job: Job, allocations: list[str], cause: Fault, record: Any, envelope: Envelope
) -> Iterator[Output]:
    """Fails the job, with the attempts in these slots."""
    before = job.status
    fail(job, cause, envelope.at_ms)
    for allocation in allocations:
        yield from fail_attempt(state, job, allocation, cause, envelope.at_ms)
    if isinstance(record, SinkPublished) and record.vertex in job.sinks:
        job.sinks[record.vertex] = True
    yield from advance(state, job, envelope.at_ms, before, idle=allocations)


def _concerned(state: State, record: Any) -> dict[str, list[str]]:  # [R26]
    """The jobs known here that a message is about, each with the allocations whose attempts are over by it."""
    if isinstance(record, TaskStateChanged):
        current = current_attempt(state, record)
        if current is None:
            return {}
        return {current.job.id: [record.allocation] if record.state != "RUNNING" else []}
    if isinstance(record, OfferSlots):
        return {offer.job: [] for offer in record.offers if offer.job in state.jobs}
    if isinstance(record, (FailSlot, TaskManagerLost)):
        lost = {job.id: _lost_slots(job, record) for job in state.jobs.values()}
        return {job: allocations for job, allocations in lost.items() if allocations}
    job = state.jobs.get(getattr(record, "job", ""))
    # A record about another acceptance under this id does not concern the job known here.
    mine = job is not None and getattr(record, "acceptance", job.acceptance) == job.acceptance
    return {job.id: []} if job is not None and mine else {}


def _lost_slots(job: Job, record: FailSlot | TaskManagerLost) -> list[str]:
    if isinstance(record, FailSlot):
        return [record.allocation] if record.allocation in job.slots else []
    return slots_on(job, task_manager_scope(record.task_manager), record.incarnation)
