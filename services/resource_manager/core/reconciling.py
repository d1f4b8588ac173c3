"""What a JobMaster shard holds, by its heartbeats, against what is counted here: two truths that chains keep the same, but for faults.

A message that ended processes may be passed over by everybody [R26], and a fault of Millrace may lose a slot within a machine. Nothing else
would ever notice. What is on its way makes the two differ for moments, so only what differs for DOUBT_MS is reconciled.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.allocation import part_of
from millrace.core.clocks import after
from millrace.core.machine import Envelope, Output, Say
from millrace.core.messages.jobs import STARTED_ANEW, HeldSlots, JobMasterHeartbeat, ReconcileSlots, TaskManagerLost
from millrace.core.states import SlotState

from .state import State, shard_of

DOUBT_MS = 10_000
RECONCILED_MOST = 500
"""Allocations in one message."""
NOT_REGISTERED = "it is not registered"


def on_job_master_heartbeat(state: State, body: JobMasterHeartbeat, envelope: Envelope) -> Iterator[Output]:  # [R31]
    """Each machine then decides by what it holds when it receives that: see `job_master/core/holding.py:on_reconcile_slots`."""
    shard = shard_of(envelope)
    state.heard_ms[shard] = state.clock_ms
    unclaimed, gone = _unclaimed(state, shard, body), dict(_gone(state, body))
    before = state.doubts.pop(shard, {})
    doubts = {allocation: since for allocation, since in before.items() if part_of(allocation, body.parts) != body.part}
    due: list[str] = []
    for allocation in (*unclaimed, *gone):
        since = before.get(allocation, envelope.now_ms)
        if envelope.now_ms >= after(since, DOUBT_MS) and len(due) < RECONCILED_MOST:
            due.append(allocation)
            since = envelope.now_ms
        doubts[allocation] = since
    if doubts:
        state.doubts[shard] = doubts
    lost = dict.fromkeys(found for allocation in due if (found := gone.get(allocation)) is not None)
    for each in lost:
        yield Say(envelope.sender, each)
    reconcile = ReconcileSlots(
        unclaimed=_by_task_manager(state, unclaimed, [allocation for allocation in due if allocation in unclaimed]),
        gone=[allocation for allocation in due if allocation in gone and gone[allocation] is None],
    )
    if reconcile.unclaimed or reconcile.gone:
        yield Say(envelope.sender, reconcile)


def _unclaimed(state: State, shard: int, body: JobMasterHeartbeat) -> dict[str, str]:
    """Allocation -> TaskManager, of what is counted as held by jobs of the shard, and the shard does not hold. A slot that is PENDING may
    not have been offered."""
    held = {allocation for its in body.held for allocation in its.allocations}
    return {
        slot.allocation: name
        for name, task_manager in state.task_managers.items()
        for slot in task_manager.slots.values()
        if slot.allocation is not None and slot.job is not None and slot.state is not SlotState.PENDING
        and state.jobs[slot.job].shard == shard and part_of(slot.allocation, body.parts) == body.part and slot.allocation not in held
    }  # fmt: skip


def _gone(state: State, body: JobMasterHeartbeat) -> Iterator[tuple[str, TaskManagerLost | None]]:
    """What the shard holds and is not there, each with the loss of its TaskManager, if that is why. One that is expected to register is
    waited for elsewhere."""
    for its in body.held:
        name, known = its.task_manager, state.task_managers.get(its.task_manager)
        lost = None
        if known is None and name in state.expected or known is not None and known.incarnation < its.incarnation:
            continue
        if known is None or known.incarnation > its.incarnation:
            reason = NOT_REGISTERED if known is None else STARTED_ANEW
            lost = TaskManagerLost(task_manager=name, incarnation=its.incarnation, reason=reason)
        there = {slot.allocation for slot in known.slots.values()} if known is not None and lost is None else ()
        yield from ((allocation, lost) for allocation in its.allocations if allocation not in there)


def _by_task_manager(state: State, unclaimed: dict[str, str], due: list[str]) -> list[HeldSlots]:
    found: dict[str, list[str]] = {}
    for allocation in due:
        found.setdefault(unclaimed[allocation], []).append(allocation)
    return [
        HeldSlots(task_manager=name, incarnation=state.task_managers[name].incarnation, allocations=its) for name, its in found.items()
    ]


def forget(state: State, shard: int) -> None:
    """The shard is born anew: it holds other allocations, and perhaps sends no heartbeats."""
    state.doubts.pop(shard, None)
    state.heard_ms.pop(shard, None)
