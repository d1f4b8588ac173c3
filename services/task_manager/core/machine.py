"""The TaskManager: one process's truth about its slots. What ResourceManager and JobMasters believe is rebuilt from what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from millrace.core.machine import Born, Configured, Do, Envelope, Output, PeerBorn, Say, Ticked, dispatch_old
from millrace.core.messages.effects import AttemptKillSent, AttemptLaunched, EndProcess
from millrace.core.messages.jobs import SlotSpec
from millrace.core.messages.slots import (
    QUIET_BEATS,
    AllocateSlot,
    AttemptEnded,
    AttemptRunning,
    CancelTasks,
    CaughtUp,
    DeployTasks,
    DisconnectTaskManager,
    FellBehind,
    FreeSlots,
    RegisterTaskManager,
    ReleaseTaskManager,
    SlotBroken,
    SlotReady,
    SlotReplacing,
    StopAsked,
    TaskManagerHeartbeat,
    TaskManagerRegistered,
    Unheard,
)
from millrace.core.messages.slots import SlotState as Reported
from millrace.core.topics import JOB_MASTER, RESOURCE_MANAGER, TASK_MANAGER, shard_scope

from . import slot_table
from .state import Slot, State

EARLY_MS = 50  # a heartbeat goes at the tick that is nearest to when it is due
FULL_REPORT_BEATS = 10  # every so many heartbeats carry all slots, changed or not
STOP_MS = 2_500  # for attempts to end, when the process is asked to stop


class TaskManager:
    """See `millrace.core.machine.Machine`. Its life is an incarnation: one process, and one Elected record."""

    state_type = State

    def __init__(self, name: str, shards: int) -> None:
        """`name`: its id; `shards`: how many JobMaster shards the cluster has."""
        self.scope = f"{TASK_MANAGER}/{name}"
        self.peers = (RESOURCE_MANAGER, *map(shard_scope, range(shards)))

    def blank(self) -> State:
        return State()

    def handle(self, state: State, envelope: Envelope) -> Iterator[Output]:
        """Once it ends, nothing is handled any more."""
        if state.ending is None:
            yield from dispatch_old(HANDLERS, state, envelope)

    def is_idle(self, state: State) -> bool:
        """Nobody holds a slot of it, and it has nothing new to say: its ticks may come as slowly as its heartbeats."""
        held = state.changed or any(slot.allocation is not None for slot in state.slots.values())
        return not held and state.stop_due_ms is None and state.ending is None


def _configured(state: State, envelope: Envelope) -> Iterator[Output]:
    settings = envelope.body.settings
    state.incarnation, state.host = settings["incarnation"], settings["host"]
    state.allocation_timeout_ms = settings["allocation_timeout_ms"]
    state.slots = {number: Slot(memory_mb) for number, memory_mb in enumerate(settings["slots_memory_mb"])}
    yield from ()


def _nothing(state: State, envelope: Envelope) -> Iterator[Output]:
    """Born: nothing to ask. AttemptLaunched, AttemptKillSent: what becomes of the attempt is told by facts."""
    yield from ()


def _ticked(state: State, envelope: Envelope) -> Iterator[Output]:
    yield from slot_table.overdue(state, envelope.now_ms)
    held = any(slot.allocation is not None for slot in state.slots.values())
    interval_ms = state.interval_ms if held or state.changed else QUIET_BEATS * state.interval_ms
    if envelope.now_ms + EARLY_MS >= state.beat_ms + interval_ms:
        full = state.changed or state.beats % FULL_REPORT_BEATS == 0
        state.beat_ms, state.beats = envelope.now_ms, state.beats + 1
        yield Say(RESOURCE_MANAGER, TaskManagerHeartbeat(states=_states(state) if full else None))
    if state.stop_due_ms is not None and envelope.now_ms >= state.stop_due_ms:
        yield from _leave(state)


def _peer_born(state: State, envelope: Envelope) -> Iterator[Output]:
    """A new life knows nothing of us [10]."""
    peer = envelope.body.peer
    if peer == RESOURCE_MANAGER:
        specs = [SlotSpec(slot=number, memory_mb=slot.memory_mb) for number, slot in state.slots.items()]
        state.beat_ms = envelope.now_ms
        yield Say(peer, RegisterTaskManager(host=state.host, slots=specs, states=_states(state)))
    else:
        shard = int(peer.removeprefix(f"{JOB_MASTER}/"))
        slot_table.give_up_waiting(state, shard)
        for body in slot_table.offers(state, shard):
            yield Say(peer, body)


def _registered(state: State, envelope: Envelope) -> Iterator[Output]:
    body: TaskManagerRegistered = envelope.body
    state.interval_ms, state.lost_after_ms = body.heartbeat_interval_ms, body.lost_after_ms
    yield from ()


def _allocate(state: State, envelope: Envelope) -> Iterator[Output]:
    return slot_table.allocate(state, envelope.body, envelope.now_ms)


def _deploy(state: State, envelope: Envelope) -> Iterator[Output]:
    for task in envelope.body.tasks:
        yield from slot_table.deploy(state, envelope.sender, task, envelope.now_ms)


def _cancel(state: State, envelope: Envelope) -> Iterator[Output]:
    for attempt in envelope.body.attempts:
        yield from slot_table.cancel(state, envelope.sender, attempt, envelope.body.reason)


def _free(state: State, envelope: Envelope) -> Iterator[Output]:
    for allocation in envelope.body.allocations:
        yield from slot_table.free(state, allocation, "its job gave the slot back")


def _release(state: State, envelope: Envelope) -> Iterator[Output]:
    body: ReleaseTaskManager = envelope.body
    if body.incarnation == state.incarnation:
        yield from _end(state, f"the ResourceManager declared this TaskManager lost: {body.reason}", again=True)


def _unheard(state: State, envelope: Envelope) -> Iterator[Output]:
    silent_ms = envelope.body.silent_ms
    reason = f"neither Kafka nor etcd has answered for {silent_ms} ms: others must count this TaskManager as lost"
    yield from _end(state, reason, again=True)


def _fell_behind(state: State, envelope: Envelope) -> Iterator[Output]:
    state.late = True
    yield from ()


def _caught_up(state: State, envelope: Envelope) -> Iterator[Output]:
    state.late = False
    yield from slot_table.launch_waiting(state)


def _stop(state: State, envelope: Envelope) -> Iterator[Output]:
    """Attempts end first: the moment the ResourceManager hears of it, they run elsewhere."""
    if state.stop_due_ms is None:
        state.stop_due_ms = envelope.now_ms + STOP_MS
        yield from slot_table.kill_all(state, "its TaskManager was stopped")
        yield from _leave_if_idle(state)


def _of_slot(handler: Callable[[State, int], Iterator[Output]]) -> Any:
    """A handler of a local event that needs the slot alone."""
    return lambda state, envelope: handler(state, envelope.body.slot)


def _broken(state: State, envelope: Envelope) -> Iterator[Output]:
    yield from slot_table.broken(state, envelope.body.slot, envelope.body.reason)
    yield from _leave_if_idle(state)


def _running(state: State, envelope: Envelope) -> Iterator[Output]:
    return slot_table.running(state, envelope.body.slot, envelope.body.attempt, envelope.now_ms)


def _ended(state: State, envelope: Envelope) -> Iterator[Output]:
    yield from slot_table.ended(state, envelope.body)
    yield from _leave_if_idle(state)


def _leave_if_idle(state: State) -> Iterator[Output]:
    if state.stop_due_ms is not None and not slot_table.living(state):
        yield from _leave(state)


def _leave(state: State) -> Iterator[Output]:
    reason = "it was stopped"
    yield Say(RESOURCE_MANAGER, DisconnectTaskManager(reason=reason))
    yield from _end(state, reason, again=False)


def _end(state: State, reason: str, *, again: bool) -> Iterator[Output]:
    state.ending = reason
    yield Do("process", EndProcess(reason=reason, again=again))


def _states(state: State) -> list[Reported]:
    state.changed = False
    return [slot_table.reported(number, slot) for number, slot in state.slots.items()]


HANDLERS: dict[type, Any] = {
    Born: _nothing,
    Configured: _configured,
    Ticked: _ticked,
    PeerBorn: _peer_born,
    # the ResourceManager
    TaskManagerRegistered: _registered,
    AllocateSlot: _allocate,
    ReleaseTaskManager: _release,
    # JobMasters
    DeployTasks: _deploy,
    CancelTasks: _cancel,
    FreeSlots: _free,
    # the own slots and process
    SlotReady: _of_slot(slot_table.ready),
    SlotReplacing: _of_slot(slot_table.replacing),
    SlotBroken: _broken,
    AttemptRunning: _running,
    AttemptEnded: _ended,
    AttemptLaunched: _nothing,
    AttemptKillSent: _nothing,
    StopAsked: _stop,
    Unheard: _unheard,
    FellBehind: _fell_behind,
    CaughtUp: _caught_up,
}
