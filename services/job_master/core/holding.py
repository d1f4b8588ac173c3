"""The slots of jobs: offered and taken, waited for, lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from millrace.core.allocation import granted_in, life_of
from millrace.core.clocks import AtMs
from millrace.core.faults import fault
from millrace.core.machine import Envelope, Forget, Output, Say
from millrace.core.messages.jobs import LOST_KEPT, JobQueued, NotEnoughResources, ReconcileSlots, TaskManagerLost
from millrace.core.messages.slots import FailSlot, FreeSlots, OfferSlots, SlotOffer
from millrace.core.states import ENDED_JOB, ENDING_JOB
from millrace.core.topics import Scope, task_manager_name, task_manager_scope

from .attempts import fail_attempt
from .failover import fail
from .reporting import job_waiting, status_changed
from .scheduling import advance
from .slot_pool import drop_slot, hold_slot, slots_on
from .state import HeldSlot, Job, State


def on_offer_slots(state: State, body: OfferSlots, envelope: Envelope) -> Iterator[Output]:  # [R11]
    """Takes what live jobs are offered; a job gives back at once what it does not want. The rest is given back, too."""
    freed: list[str] = []
    taken: dict[str, list[str]] = {}  # job -> allocations
    occupied = {report.allocation for report in body.attempts}
    for offer in body.offers:
        if offer.allocation in state.allocations:
            continue  # taken before
        job = state.jobs.get(offer.job)
        usable = offer.allocation not in occupied and not _is_of_earlier_life(state, offer, envelope)
        if job is None or job.status in ENDED_JOB or not usable:
            freed.append(offer.allocation)
            continue
        hold_slot(state, job, offer.allocation, _held(offer, envelope))
        taken.setdefault(job.id, []).append(offer.allocation)
    for name, allocations in taken.items():
        yield from advance(state, state.jobs[name], envelope.at_ms, idle=allocations, offered=True)
    if freed:
        yield Say(envelope.sender, FreeSlots(allocations=freed))


def _held(offer: SlotOffer, envelope: Envelope) -> HeldSlot:
    return HeldSlot(envelope.sender, envelope.life, offer.slot, profile=offer.profile, takes_runs=offer.takes_runs)


def _is_of_earlier_life(state: State, offer: SlotOffer, envelope: Envelope) -> bool:
    """Whether the slot was granted to an earlier life of this shard, or by an earlier life of the ResourceManager [R11].

    An attempt of the former must end before its subtask runs anew. The latter's successor may never learn of the TaskManager, and so
    could not report that it is lost.
    """
    return life_of(offer.allocation) < envelope.generation or granted_in(offer.allocation) < state.declared_to


def on_job_queued(state: State, body: JobQueued, envelope: Envelope) -> Iterator[Output]:
    """The reason why the job waits for slots; None: it was given one, whose TaskManager offers it."""
    job = state.jobs.get(body.job)
    if job is None or job.status in ENDED_JOB or not job.wanted:
        return
    if (job.waiting, job.position, job.expected_ms) == (body.reason, body.position, body.expected_ms):
        return
    job.waiting, job.position, job.expected_ms = body.reason, body.position, body.expected_ms
    if body.reason is None:
        job.running_ms = job.running_ms or envelope.at_ms
    yield status_changed(job)
    if body.reason is not None:
        yield job_waiting(job, envelope.at_ms)


def on_not_enough_resources(state: State, body: NotEnoughResources, envelope: Envelope) -> Iterator[Output]:
    """The job fails, whatever `restart` says: it would wait for the same again. Its attempts that run are canceled."""
    job = state.jobs.get(body.job)
    if job is None or job.status in (*ENDED_JOB, *ENDING_JOB) or not job.wanted:
        return
    before = job.status
    fail(job, fault("timeout", f"not enough resources: {body.reason}"), envelope.at_ms)
    yield from advance(state, job, envelope.at_ms, before)


def on_task_manager_lost(state: State, body: TaskManagerLost, envelope: Envelope) -> Iterator[Output]:
    """Decided by the ResourceManager, once, for all."""
    scope = task_manager_scope(body.task_manager)
    yield from fail_slots_of(state, scope, body.incarnation, body.reason, envelope.at_ms)
    yield from forget_task_manager(state, body)


def on_fail_slot(state: State, body: FailSlot, envelope: Envelope) -> Iterator[Output]:
    job = state.jobs.get(state.allocations.get(body.allocation, ""))
    if job is not None:
        yield from _fail_slots(state, job, [body.allocation], body.reason, envelope.at_ms)


def on_reconcile_slots(state: State, body: ReconcileSlots, envelope: Envelope) -> Iterator[Output]:  # [R31]
    """What is held here now decides, and not what was when the ResourceManager looked."""
    for its in body.unclaimed:
        freed = [allocation for allocation in its.allocations if allocation not in state.allocations]
        if freed:
            yield Say(task_manager_scope(its.task_manager), FreeSlots(allocations=freed))
    for allocation in body.gone:
        job = state.jobs.get(state.allocations.get(allocation, ""))
        if job is not None:
            yield from _fail_slots(state, job, [allocation], "its TaskManager does not have it any more", envelope.at_ms)


def forget_task_manager(state: State, body: TaskManagerLost) -> Iterator[Output]:
    """Takes no more messages of this incarnation, and sends it none."""
    before = state.lost.pop(body.task_manager, 0)
    state.lost[body.task_manager] = max(body.incarnation, before)
    if len(state.lost) > LOST_KEPT:
        del state.lost[next(iter(state.lost))]
    yield Forget(task_manager_scope(body.task_manager), body.incarnation)


def fail_slots_of(
    state: State, task_manager: Scope, last_incarnation: int, reason: str, at_ms: AtMs
) -> Iterator[Output]:
    """All slots on the incarnations of a TaskManager up to this one are lost; their attempts run elsewhere."""
    reason = f"{task_manager_name(task_manager)} was lost: {reason}"
    for job in list(state.jobs.values()):
        allocations = slots_on(job, task_manager, last_incarnation)
        if allocations:
            yield from _fail_slots(state, job, allocations, reason, at_ms)


def _fail_slots(state: State, job: Job, allocations: Sequence[str], reason: str, at_ms: AtMs) -> Iterator[Output]:
    before = job.status
    for allocation in allocations:
        if job.slots[allocation].task is not None:
            yield from fail_attempt(state, job, allocation, fault("lost", reason, retryable=True), at_ms)
        drop_slot(state, job, allocation)
    yield from advance(state, job, at_ms, before)
