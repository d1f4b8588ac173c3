"""JobMaster shards declare themselves to a new life of the ResourceManager. One that is away is excluded until it declares [R31].

An excluded shard's jobs are granted nothing. What they hold stays theirs.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.clocks import NowMs, after
from millrace.core.machine import Envelope, Output, Say
from millrace.core.messages.jobs import STARTED_ANEW, DeclareAgain, JobMasterDeclared, TaskManagerLost
from millrace.core.messages.slots import SlotUnused
from millrace.core.timing import registration_ms
from millrace.core.topics import shard_scope

from . import queue
from .state import Expected, State, shard_of, task_manager_of

Outputs = Iterator[Output]


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
        yield from exclude(state, shard)
        yield Say(shard_scope(shard), DeclareAgain())


def exclude_undeclared(state: State, now_ms: NowMs) -> Outputs:
    """Excludes the shards that have not declared in time, so that the others do not wait for them."""
    if now_ms >= state.declare_ms and len(state.declared) < state.shards:
        for shard in range(state.shards):
            if shard not in state.declared:
                yield from exclude(state, shard)


def exclude(state: State, shard: int) -> Outputs:  # [R31]
    """Grants nothing to the shard's jobs until it declares."""
    if shard not in state.silent:
        state.silent[shard] = None
        yield from _update_jobs(state, shard)


def include(state: State, shard: int) -> Outputs:
    """The shard has declared."""
    state.declared[shard] = None
    if state.silent.pop(shard, shard) is None:
        yield from _update_jobs(state, shard)


def _update_jobs(state: State, shard: int) -> Outputs:
    for name in [name for name, job in state.jobs.items() if job.shard == shard]:
        yield from queue.update(state, name)
