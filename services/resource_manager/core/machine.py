"""The ResourceManager: registers TaskManagers, detects their failure, and grants slots to jobs.

This file is the table of contents: which function handles what.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.machine import (
    Born,
    Configured,
    Envelope,
    Handler,
    Output,
    PassedOver,
    PeerBorn,
    Ticked,
    dispatch,
)
from millrace.core.messages.blocklist import AskBlocklist, BlocklistRead, BlockStored
from millrace.core.messages.effects import TaskManagerFenced
from millrace.core.messages.jobs import (
    AskTaskManager,
    JobMasterDeclared,
    JobMasterHeartbeat,
    Query,
    RequestSlots,
    TaskManagersParted,
)
from millrace.core.messages.slots import (
    ClientAnswered,
    DisconnectTaskManager,
    DrainAnswered,
    RegisterTaskManager,
    SlotFreed,
    SlotReport,
    SlotUnused,
    TaskManagerHeartbeat,
)
from millrace.core.messages.worker_effects import WorkersListed, WorkerStarted, WorkerStopped
from millrace.core.topics import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, shard_scope

from . import (
    answers,
    asking,
    bad_records,
    births,
    blocklist,
    providing,
    reconciling,
    registration,
    requests,
    shards,
    slot_manager,
    timers,
    workers,
)
from .state import State, shard_of, waiting_of

HANDLERS: dict[type, Handler] = {
    # from the core
    Born: births.on_born,
    Configured: births.on_configured,
    PeerBorn: births.on_peer_born,
    Ticked: timers.on_ticked,
    PassedOver: bad_records.on_passed_over,
    # from JobMasters
    RequestSlots: requests.on_request_slots,
    TaskManagersParted: registration.on_task_managers_parted,
    JobMasterDeclared: shards.on_job_master_declared,
    JobMasterHeartbeat: reconciling.on_job_master_heartbeat,
    # from TaskManagers
    RegisterTaskManager: registration.on_register_task_manager,
    DisconnectTaskManager: registration.on_disconnect_task_manager,
    TaskManagerHeartbeat: slot_manager.on_task_manager_heartbeat,
    SlotReport: slot_manager.on_slot_report,
    SlotFreed: slot_manager.on_slot_freed,
    SlotUnused: shards.on_slot_unused,
    DrainAnswered: providing.on_drain_answered,
    ClientAnswered: asking.on_client_answered,
    # from the Dispatcher
    Query: answers.on_query,
    AskTaskManager: asking.on_ask_task_manager,
    AskBlocklist: blocklist.on_ask_blocklist,
    # from etcd
    TaskManagerFenced: registration.on_task_manager_fenced,
    BlockStored: blocklist.on_block_stored,
    BlocklistRead: blocklist.on_blocklist_read,
    # from the provider of TaskManagers
    WorkerStarted: workers.on_worker_started,
    WorkerStopped: workers.on_worker_stopped,
    WorkersListed: providing.on_workers_listed,
}


class ResourceManager:
    """See `millrace.core.machine.Machine`."""

    scope = RESOURCE_MANAGER
    state_type = State

    def __init__(self, shards: int) -> None:
        """`shards`: how many JobMaster shards the cluster has."""
        self._shards = shards
        self.peers = (DISPATCHER, *map(shard_scope, range(shards)))

    def blank(self) -> State:
        return State(shards=self._shards)

    def handle(self, state: State, envelope: Envelope) -> Iterator[Output]:
        """Any record may have freed a slot or made a job want one, so each ends with granting."""
        if state.waiting is None:
            state.queues = {}
            state.waiting = waiting_of(state)
        if envelope.sender.startswith(JOB_MASTER):
            shards.note_heard(state, shard_of(envelope))
        yield from dispatch(HANDLERS, state, envelope)
        yield from slot_manager.grant(state, envelope)

    def is_idle(self, state: State) -> bool:
        waits = state.jobs or state.expected or state.asked or workers.pending(state) or state.blocklist.reading or state.blocklist.due
        return not waits and state.waiting is not None and not state.waiting.allocated
