"""TaskManagers register, disconnect and are lost. Every shard is notified of a loss, once."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.clocks import NowMs
from millrace.core.machine import Do, Envelope, Forget, Output, Publish, Say
from millrace.core.messages.effects import FenceTaskManager, TaskManagerFenced
from millrace.core.messages.events import TaskManagerGone, TaskManagerJoined
from millrace.core.messages.jobs import LOST_KEPT, STARTED_ANEW, TaskManagerLost, TaskManagersParted
from millrace.core.messages.slots import (
    DisconnectTaskManager,
    RegisterTaskManager,
    ReleaseTaskManager,
    TaskManagerRegistered,
)
from millrace.core.states import SlotState
from millrace.core.topics import shard_scope, task_manager_key, task_manager_scope

from . import asking, blocklist, liveness, slot_manager, workers
from .state import Slot, State, TaskManager, task_manager_of

LOST_BEFORE = "an earlier ResourceManager had declared it lost"

Outputs = Iterator[Output]


def on_register_task_manager(state: State, body: RegisterTaskManager, envelope: Envelope) -> Outputs:
    name, life = task_manager_of(envelope), envelope.life
    if state.parted.pop(name, 0) >= life:
        state.parted[name] = life
        state.expected.pop(name, None)
        yield from _report_loss(state, name, life, LOST_BEFORE)
        yield Say(envelope.sender, ReleaseTaskManager(incarnation=life, reason=LOST_BEFORE))
        yield Forget(envelope.sender, life)
        return
    refused = workers.refusal(state, name)
    if refused is not None:
        yield from workers.stop(state, name, refused, envelope.at_ms)
        yield Say(envelope.sender, ReleaseTaskManager(incarnation=life, reason=refused))
        yield Forget(envelope.sender, life)
        return
    old = state.task_managers.get(name)
    again = old if old is not None and old.incarnation == life else None
    freed: list[Output] = []
    if again is not None:
        freed += slot_manager.unregister(state, name)
    elif old is not None:
        yield from lose(state, envelope, name, STARTED_ANEW, alive=False)
    expected = state.expected.pop(name, None)
    if expected is not None and expected.incarnation < life:
        yield from _report_loss(state, name, expected.incarnation, STARTED_ANEW)
    slots = {each.slot: Slot(each.profile, SlotState.STARTING) for each in body.slots}
    if again is not None:
        for number, slot in slots.items():  # SlotChanged events about it are counted on [R16]
            slot.changes = again.slots[number].changes if number in again.slots else 0
    since_ms = again.since_ms if again is not None else envelope.at_ms
    task_manager = TaskManager(life, body.host, since_ms, envelope.at_ms, state.clock_ms, slots, body.build)
    liveness.note_heartbeat(state, task_manager, envelope.at_ms)
    freed += slot_manager.register(state, name, task_manager, body.states)
    freed += workers.registered(state, name, envelope.now_ms, envelope.at_ms)
    yield from adjust_heartbeats(state)
    yield Say(envelope.sender, _registered(state))
    if again is None:
        yield Publish("cluster.events", name, TaskManagerJoined(
            task_manager=name, incarnation=life, host=body.host, slots=len(slots), at_ms=envelope.at_ms,
            states=[slot.state.value for _, slot in sorted(slots.items())],
        ))  # fmt: skip
    yield from blocklist.notify_shards(state)
    yield from freed


def on_disconnect_task_manager(state: State, body: DisconnectTaskManager, envelope: Envelope) -> Outputs:
    name = task_manager_of(envelope)
    if name in state.task_managers:
        yield from lose(state, envelope, name, body.reason, alive=False)


def on_task_managers_parted(state: State, body: TaskManagersParted, envelope: Envelope) -> Outputs:
    """An earlier life of the ResourceManager had declared them lost."""
    for name, incarnation in body.lost.items():
        known = state.task_managers.get(name)
        if known is None:
            _note_lost(state, name, incarnation)
        elif known.incarnation <= incarnation:
            yield from lose(state, envelope, name, LOST_BEFORE)


def on_task_manager_fenced(state: State, body: TaskManagerFenced, envelope: Envelope) -> Outputs:
    """Nothing depends on it."""
    yield from ()


def lose_silent(state: State, envelope: Envelope) -> Outputs:
    """Declares TaskManagers lost that have sent no heartbeat for too long."""
    for name in liveness.silent(state):
        silent_ms = state.clock_ms - state.task_managers[name].silent_from_ms
        yield from lose(state, envelope, name, f"no heartbeat for {silent_ms} ms")


def lose_unregistered(state: State, now_ms: NowMs) -> Outputs:
    """Declares TaskManagers lost on which a shard holds allocations, and that have not registered in time."""
    for name in liveness.unregistered(state, now_ms):
        incarnation = state.expected.pop(name).incarnation
        _note_lost(state, name, incarnation)
        yield from _report_loss(state, name, incarnation, "it did not register with the restarted ResourceManager")
        yield _fence(name, incarnation)


def lose(state: State, envelope: Envelope, name: str, reason: str, *, alive: bool = True) -> Outputs:
    """Declares a registered TaskManager lost. `alive`: its process may live on, and is released and fenced."""
    lost = state.task_managers[name]
    yield from _report_loss(state, name, lost.incarnation, reason)
    scope = task_manager_scope(name)
    if alive:
        yield Say(scope, ReleaseTaskManager(incarnation=lost.incarnation, reason=reason))
        yield _fence(name, lost.incarnation)
    yield Forget(scope, lost.incarnation)
    yield Publish("cluster.events", name, TaskManagerGone(
        task_manager=name, incarnation=lost.incarnation, reason=reason, at_ms=envelope.at_ms
    ))  # fmt: skip
    yield from slot_manager.unregister(state, name)
    yield from blocklist.notify_shards(state)
    yield from workers.lost(state, name, reason, alive=alive, envelope=envelope)
    yield from asking.answer_lost(state, name, reason)
    yield from adjust_heartbeats(state)


def adjust_heartbeats(state: State, lost_after_ms: int | None = None) -> Outputs:
    """Keeps the heartbeats of all TaskManagers together below the limit. `lost_after_ms`: what was promised, if settings have changed."""
    promised = state.interval_ms, state.lost_after_ms if lost_after_ms is None else lost_after_ms
    state.interval_ms = liveness.interval_ms(state.limits, len(state.task_managers), state.interval_ms)
    if (state.interval_ms, state.lost_after_ms) != promised:
        liveness.keep_promise(state, promised[1])
        for name in state.task_managers:
            yield Say(task_manager_scope(name), _registered(state))


def _registered(state: State) -> TaskManagerRegistered:
    return TaskManagerRegistered(heartbeat_interval_ms=state.interval_ms, lost_after_ms=state.lost_after_ms)


def _fence(name: str, incarnation: int) -> Do:
    """Deletes its key in etcd: its process may live on with no connection to Kafka, while etcd answers it."""
    return Do(task_manager_key(name), FenceTaskManager(task_manager=name, incarnation=incarnation))


def _report_loss(state: State, name: str, incarnation: int, reason: str) -> Outputs:
    for shard in range(state.shards):
        yield Say(shard_scope(shard), TaskManagerLost(task_manager=name, incarnation=incarnation, reason=reason))


def _note_lost(state: State, name: str, incarnation: int) -> None:
    state.parted[name] = max(incarnation, state.parted.pop(name, 0))
    for longest in list(state.parted)[: max(0, len(state.parted) - LOST_KEPT)]:
        del state.parted[longest]  # its key in etcd is deleted: it ends by itself
