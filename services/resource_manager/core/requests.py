"""How many slots each job wants."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.allocation import life_of
from millrace.core.machine import Envelope, Output
from millrace.core.messages.jobs import RequestSlots

from . import matching, queue
from .state import Job, State, shard_of


def on_request_slots(state: State, body: RequestSlots, envelope: Envelope) -> Iterator[Output]:
    """The job's whole wanted set: it replaces what the job wanted before. What it holds too much it gives back itself.

    What the job holds from an earlier life of its shard has to be over first [R11]. Each submission comes this way, so nothing is sent for
    a new job before its grant."""
    job = state.jobs.get(body.job)
    if job is None:
        if not body.slots:
            return
        job = state.jobs[body.job] = Job()
    queue.remove(state, body.job)
    if not body.slots:
        job.sent_reason = job.sent_position = job.sent_expected_ms = None  # its shard knows that it does not wait
    job.wanted, job.shard, job.priority, job.since_ms = body.slots, shard_of(envelope), body.priority, body.since_ms
    if job.life != envelope.life:
        job.life, job.ending = envelope.life, {}
        job.earlier = sum(life_of(each) < job.life for each in _allocations(state, body.job)) if job.held else 0
    job.memory_mb, job.together = body.memory_mb or 0, body.together
    job.wants = {each.profile: each.slots for each in body.profiles}
    job.spare = list(body.spare)
    if body.spare:
        state.spare[body.job] = None
    else:
        state.spare.pop(body.job, None)
    if body.given_back:
        job.ending |= {each: None for each in _allocations(state, body.job) if each in body.given_back}
    if job.tenant != body.tenant:
        state.waiting.hold(job.tenant, -job.held)
        job.tenant = body.tenant
        state.waiting.hold(job.tenant, job.held)
    job.rank = matching.rank(job.priority, job.since_ms, state.limits.ageing_ms)
    job.trace = body.trace
    if job.trace and job.short and job.lacks_ms is None:
        job.lacks_ms = envelope.at_ms
    yield from queue.update(state, body.job)


def _allocations(state: State, job: str) -> Iterator[str]:
    """All that a job holds."""
    for task_manager in state.task_managers.values():
        for slot in task_manager.slots.values():
            if slot.job == job and slot.allocation is not None:
                yield slot.allocation


def forget_requests_of(state: State, shard: int) -> None:
    """The shard is born anew: what its jobs wanted is dropped until it requests it again. What they hold stays."""
    for name in [name for name, job in state.jobs.items() if job.shard == shard]:
        forget_request(state, name)


def forget_request(state: State, name: str) -> None:
    """What a job wanted is dropped until its shard requests it again."""
    job = state.jobs[name]
    queue.remove(state, name)
    job.wanted, job.wants, job.spare = 0, {}, []
    state.spare.pop(name, None)
    job.sent_reason, job.sent_position, job.sent_expected_ms = None, None, None
    for _ in queue.update(state, name):
        raise AssertionError("a job was never queued, and its shard is notified that it does not wait any more")
