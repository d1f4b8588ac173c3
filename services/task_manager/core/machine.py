"""The TaskManager: one process's truth about its slots. What ResourceManager and JobMasters believe is rebuilt from what it sends."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.election import QUIET_TICK_MS
from millrace.core.fold import TICK_MS
from millrace.core.machine import Born, Configured, Envelope, Handler, Output, PeerBorn, Ticked, dispatch
from millrace.core.messages.effects import AnswerSought, AttemptKillSent, AttemptLaunched, AttemptOrderSent
from millrace.core.messages.slots import (
    AllocateSlot,
    AllocateSlots,
    AnswerClient,
    AnswerFound,
    AttemptEnded,
    AttemptRunning,
    CancelTasks,
    CaughtUp,
    DeployTasks,
    DrainTaskManager,
    FellBehind,
    FreeSlots,
    FreeUnused,
    OrderAnswered,
    OrderAttempts,
    ReleaseTaskManager,
    SlotBroken,
    SlotReady,
    SlotReplacing,
    SlotsProgressed,
    StopAsked,
    TaskManagerRegistered,
    Unheard,
)
from millrace.core.timing import QUIET_BEATS
from millrace.core.topics import RESOURCE_MANAGER, shard_scope, task_manager_scope

from . import slot_table
from .answering import on_answer_client, on_answer_found, on_answer_sought
from .commands import (
    on_allocate_slot,
    on_allocate_slots,
    on_cancel_tasks,
    on_deploy_tasks,
    on_free_slots,
    on_free_unused,
    on_task_manager_registered,
)
from .leaving import on_drain_task_manager, on_release_task_manager, on_stop_asked, on_unheard
from .life import on_born, on_configured, on_peer_born, on_ticked
from .local_facts import (
    on_attempt_ended,
    on_attempt_kill_sent,
    on_attempt_launched,
    on_attempt_running,
    on_caught_up,
    on_fell_behind,
    on_slot_broken,
    on_slot_ready,
    on_slot_replacing,
)
from .running import on_attempt_order_sent, on_order_answered, on_order_attempts, on_slots_progressed
from .state import State

HANDLERS: dict[type, Handler] = {
    Born: on_born,
    Configured: on_configured,
    Ticked: on_ticked,
    PeerBorn: on_peer_born,
    # the ResourceManager
    TaskManagerRegistered: on_task_manager_registered,
    AllocateSlot: on_allocate_slot,
    AllocateSlots: on_allocate_slots,
    ReleaseTaskManager: on_release_task_manager,
    DrainTaskManager: on_drain_task_manager,
    AnswerClient: on_answer_client,
    FreeUnused: on_free_unused,
    # JobMasters
    DeployTasks: on_deploy_tasks,
    CancelTasks: on_cancel_tasks,
    FreeSlots: on_free_slots,
    OrderAttempts: on_order_attempts,
    # its slots and its process
    SlotReady: on_slot_ready,
    SlotReplacing: on_slot_replacing,
    SlotBroken: on_slot_broken,
    AttemptRunning: on_attempt_running,
    AttemptEnded: on_attempt_ended,
    SlotsProgressed: on_slots_progressed,
    OrderAnswered: on_order_answered,
    AnswerFound: on_answer_found,
    AttemptLaunched: on_attempt_launched,
    AttemptKillSent: on_attempt_kill_sent,
    AttemptOrderSent: on_attempt_order_sent,
    AnswerSought: on_answer_sought,
    StopAsked: on_stop_asked,
    Unheard: on_unheard,
    FellBehind: on_fell_behind,
    CaughtUp: on_caught_up,
}


class TaskManager:
    """See `millrace.core.machine.Machine`. Its life is an incarnation: one process, and one Elected record."""

    state_type: type = State

    def __init__(self, name: str, shards: int) -> None:
        """`name`: its id; `shards`: how many JobMaster shards the cluster has."""
        self.scope: str = task_manager_scope(name)
        self.peers = (RESOURCE_MANAGER, *map(shard_scope, range(shards)))

    def blank(self) -> State:
        return State()

    def handle(self, state: State, envelope: Envelope) -> Iterator[Output]:
        """Once it ends, nothing is handled any more."""
        if state.ending is None:
            yield from dispatch(HANDLERS, state, envelope)

    def is_idle(self, state: State) -> bool:
        """Nobody holds a slot of it, and it has nothing new to send: its ticks may come as slowly as its heartbeats."""
        busy = state.changed or slot_table.any_allocated(state)
        return not busy and state.stop_due_ms is None and state.ending is None

    def rest_ms(self, state: State) -> int:
        """Between two ticks while it is idle: a heartbeat's time."""
        return max(TICK_MS, min(QUIET_BEATS * state.interval_ms, QUIET_TICK_MS))
