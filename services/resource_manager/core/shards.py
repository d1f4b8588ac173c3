"""JobMaster shards declare themselves to a new life of the ResourceManager. One that is away is excluded until it declares [R31].

An excluded shard's jobs are granted nothing, and do not count as waiting. What they hold stays theirs. After `job_timeout_ms` what they
want is forgotten, and what they hold without an attempt in it is freed: a shard that is back then is asked for all that it wants.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.clocks import NowMs, after
from millrace.core.machine import Envelope, Output, Say
from millrace.core.messages.jobs import STARTED_ANEW, DeclareAgain, JobMasterDeclared, TaskManagerLost
from millrace.core.messages.slots import FreeUnused, SlotUnused
from millrace.core.states import SlotState
from millrace.core.timing import registration_ms
from millrace.core.topics import shard_scope, task_manager_scope

from . import queue, requests
from .state import Expected, State, shard_of, task_manager_of

Outputs = Iterator[Output]
UNUSED_EVERY_MS = 5_000
NEVER = NowMs(0)
"""Of a shard that is not excluded."""


def on_job_master_declared(state: State, body: JobMasterDeclared, envelope: Envelope) -> Outputs:
    yield from include(state, shard_of(envelope))
    due_ms = after(envelope.now_ms, registration_ms(state.lost_after_ms))
    for name, incarnation in body.task_managers.items():
        known = state.task_managers.get(name)
        if known is None:
            before = state.expected.get(name)
            if before is None or before.incarnation < incarnation:
                state.expected[name] = Expected(incarnation, due_ms)
        elif known.incarnation > incarnation:
            lost = TaskManagerLost(task_manager=name, incarnation=incarnation, reason=STARTED_ANEW)
            yield Say(envelope.sender, lost)


def on_slot_unused(state: State, body: SlotUnused, envelope: Envelope) -> Outputs:  # [R31]
    """The JobMaster did not use the slot in time, so it may be down. Without an exclusion it would be granted the slot again and again,
    each time for as long as the TaskManager waits for a task."""
    task_manager = state.task_managers.get(task_manager_of(envelope))
    slot = task_manager.slots.get(body.slot) if task_manager is not None else None
    if slot is None or slot.allocation != body.allocation or slot.job is None:
        return
    shard = state.jobs[slot.job].shard
    if shard not in state.silent and shard >= 0:
        yield from exclude(state, shard, envelope.now_ms)
        yield Say(shard_scope(shard), DeclareAgain())


def note_heard(state: State, shard: int) -> None:
    """Something was received of it. The detector's clock goes on at ticks alone, by limited steps: a pause of the broker is no silence."""
    if shard in state.heard_ms:
        state.heard_ms[shard] = state.clock_ms


def exclude_silent(state: State, now_ms: NowMs) -> Outputs:  # [R31]
    """Excludes the shards that have sent nothing for too long, though a job of theirs wants slots, and that send heartbeats then: those of
    builds before do not. Else a job of a dead shard is found to be one by a slot that it does not use, and keeps that from others
    meanwhile."""
    limit_ms = state.limits.job_master_silent_ms
    late = [shard for shard, ms in state.heard_ms.items() if shard not in state.silent and state.clock_ms - ms > limit_ms]
    if late:
        wanting = dict.fromkeys(job.shard for job in state.jobs.values() if job.wanted)
        for shard in late:
            if shard in wanting:
                yield from exclude(state, shard, now_ms)
                yield Say(shard_scope(shard), DeclareAgain())
            else:
                note_heard(state, shard)  # nothing is expected of it, and the jobs are not looked at again with each tick


def give_up(state: State, now_ms: NowMs) -> Outputs:  # [R31]
    """Forgets what the jobs of a shard want that is away for `job_timeout_ms`; frees what they hold, as far as nothing lives there."""
    for shard, due_ms in state.silent.items():
        if due_ms is not None and now_ms >= due_ms:
            state.silent[shard], state.unused_ms = None, now_ms
            requests.forget_requests_of(state, shard)
            yield Say(shard_scope(shard), DeclareAgain(requests=True))
    if state.silent and now_ms >= state.unused_ms:
        state.unused_ms = after(now_ms, UNUSED_EVERY_MS)
        yield from _free_unused(state)


def _free_unused(state: State) -> Outputs:
    for name, task_manager in state.task_managers.items():
        unused = [
            slot.allocation for slot in task_manager.slots.values()
            if slot.state is SlotState.ALLOCATED and slot.allocation and state.silent.get(state.jobs[slot.job or ""].shard, NEVER) is None
        ]  # fmt: skip
        if unused and task_manager.build:  # 0.1.0 does not know it, and would end at it
            yield Say(task_manager_scope(name), FreeUnused(allocations=unused))


def exclude_undeclared(state: State, now_ms: NowMs) -> Outputs:
    """Excludes the shards that have not declared in time, so that the others do not wait for them."""
    if now_ms >= state.declare_ms and len(state.declared) < state.shards:
        for shard in range(state.shards):
            if shard not in state.declared:
                yield from exclude(state, shard, now_ms)


def exclude(state: State, shard: int, now_ms: NowMs) -> Outputs:  # [R31]
    """Grants nothing to the shard's jobs until it declares."""
    if shard not in state.silent:
        state.silent[shard] = after(now_ms, state.limits.job_timeout_ms)
        yield from _update_jobs(state, shard)


def include(state: State, shard: int) -> Outputs:
    """The shard has declared."""
    state.declared[shard] = None
    if shard in state.silent:
        del state.silent[shard]
        yield from _update_jobs(state, shard)


def _update_jobs(state: State, shard: int) -> Outputs:
    for name in [name for name, job in state.jobs.items() if job.shard == shard]:
        yield from queue.update(state, name)
