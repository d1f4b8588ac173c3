"""A record that is passed over because it ended processes [R26]: what it requested is not done, but no slot and no shard waits for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from millrace.core.answering import refuse
from millrace.core.clocks import after
from millrace.core.machine import Envelope, Output, PassedOver, Say
from millrace.core.messages.blocklist import AskBlocklist, BlocklistRead, BlockStored
from millrace.core.messages.jobs import AskTaskManager, JobMasterDeclared, JobQueued, Query, RequestSlots
from millrace.core.messages.slots import SlotFreed
from millrace.core.messages.worker_effects import WorkersListed, WorkerStarted, WorkerStopped
from millrace.core.timing import registration_ms

from . import answers, blocklist, providing, requests, shards, slot_manager, workers
from .state import State, shard_of

Outputs = Iterator[Output]


def on_passed_over(state: State, body: PassedOver, envelope: Envelope) -> Outputs:  # [R26]
    """Of other records nothing is done, and nobody waits for them."""
    handler = _INSTEAD.get(type(body.body))
    if handler is not None:
        yield from handler(state, body.body, body.error, envelope)


def _request_slots(state: State, body: RequestSlots, error: str, envelope: Envelope) -> Outputs:
    """A shard requests slots once: it is notified why its job waits, and the user can cancel the job.

    What the job wanted before is dropped: if it has ended, it would be granted that again and again."""
    if body.job in state.jobs:
        requests.forget_request(state, body.job)
    if body.slots:
        reason = f"its request for slots was not taken, by a fault of Millrace: {error}; cancel the job"
        yield Say(envelope.sender, JobQueued(job=body.job, reason=reason, position=None))


def _slot_freed(state: State, body: SlotFreed, error: str, envelope: Envelope) -> Outputs:
    """It may come before any report of its grant, and no report counts until then. The next report has what the slot is now."""
    return slot_manager.on_slot_freed(state, body.model_copy(update={"state": "STARTING"}), envelope)


def _job_master_declared(state: State, body: JobMasterDeclared, error: str, envelope: Envelope) -> Outputs:
    """It is sent once, and nothing is granted before. Where the shard holds slots is not looked at: all have time to register."""
    shard = shard_of(envelope)
    if shard not in state.declared:
        state.open_ms = max(state.open_ms, after(envelope.now_ms, registration_ms(state.lost_after_ms)))
    yield from shards.include(state, shard)


def _query(state: State, body: Query, error: str, envelope: Envelope) -> Outputs:
    if body.reply_to:
        yield from answers.refuse(body, error)


def _worker_started(state: State, body: WorkerStarted, error: str, envelope: Envelope) -> Outputs:
    """Whether it has is seen by whether it registers in time."""
    return workers.on_worker_started(state, body.model_copy(update={"problem": None}), envelope)


def _workers_listed(state: State, body: WorkersListed, error: str, envelope: Envelope) -> Outputs:
    """It is asked again."""
    return providing.on_workers_listed(state, body.model_copy(update={"problem": error}), envelope)


def _worker_stopped(state: State, body: WorkerStopped, error: str, envelope: Envelope) -> Outputs:
    return workers.on_worker_stopped(state, body, envelope)


def _ask_task_manager(state: State, body: AskTaskManager, error: str, envelope: Envelope) -> Outputs:
    if body.reply_to:
        yield from refuse(body, "internal", f"a fault of Millrace in handling this request: {error}")


def _ask_blocklist(state: State, body: AskBlocklist, error: str, envelope: Envelope) -> Outputs:
    return blocklist.refuse(body, "internal", f"a fault of Millrace in handling this request: {error}")


def _block_stored(state: State, body: BlockStored, error: str, envelope: Envelope) -> Outputs:
    asked = blocklist.take(state, body.number)
    if asked is not None:
        yield from _ask_blocklist(state, asked, error, envelope)


def _blocklist_read(state: State, body: BlocklistRead, error: str, envelope: Envelope) -> Outputs:
    """No host is blocked then, and who looks at the list sees it: a cluster that grants nothing for ever is worse."""
    return blocklist.on_blocklist_read(state, body.model_copy(update={"hosts": []}), envelope)


_INSTEAD: dict[type, Callable[[State, Any, str, Envelope], Outputs]] = {
    RequestSlots: _request_slots,
    SlotFreed: _slot_freed,
    JobMasterDeclared: _job_master_declared,
    Query: _query,
    WorkerStarted: _worker_started,
    WorkersListed: _workers_listed,
    WorkerStopped: _worker_stopped,
    AskTaskManager: _ask_task_manager,
    AskBlocklist: _ask_blocklist,
    BlockStored: _block_stored,
    BlocklistRead: _blocklist_read,
}
"""Class of a record's body -> what is done instead of its handler."""
