"""Commands of the ResourceManager and of JobMasters about slots, and what runs in them."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.machine import Envelope, Output
from millrace.core.messages.slots import (
    AllocateSlot,
    AllocateSlots,
    CancelTasks,
    DeployTasks,
    FreeSlots,
    FreeUnused,
    SlotAllocation,
    TaskManagerRegistered,
)

from . import slot_table
from .state import State


def on_task_manager_registered(state: State, body: TaskManagerRegistered, envelope: Envelope) -> Iterator[Output]:
    state.interval_ms, state.lost_after_ms = body.heartbeat_interval_ms, body.lost_after_ms
    yield from ()


def on_allocate_slot(state: State, body: AllocateSlot, envelope: Envelope) -> Iterator[Output]:
    given = [SlotAllocation(slot=body.slot, allocation=body.allocation)]
    return slot_table.allocate(state, body.job, body.shard, given, envelope.now_ms)


def on_allocate_slots(state: State, body: AllocateSlots, envelope: Envelope) -> Iterator[Output]:
    return slot_table.allocate(state, body.job, body.shard, body.slots, envelope.now_ms)


def on_deploy_tasks(state: State, body: DeployTasks, envelope: Envelope) -> Iterator[Output]:
    for task in body.tasks:
        yield from slot_table.deploy(state, envelope.sender, task, envelope.now_ms)


def on_cancel_tasks(state: State, body: CancelTasks, envelope: Envelope) -> Iterator[Output]:
    for attempt in body.attempts:
        yield from slot_table.cancel(state, envelope.sender, attempt, body.reason, body.within_ms)


def on_free_slots(state: State, body: FreeSlots, envelope: Envelope) -> Iterator[Output]:
    for allocation in body.allocations:
        yield from slot_table.free(state, allocation, "its job gave the slot back")


def on_free_unused(state: State, body: FreeUnused, envelope: Envelope) -> Iterator[Output]:
    for allocation in body.allocations:
        yield from slot_table.free_unused(state, allocation)
