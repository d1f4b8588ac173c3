"""How a TaskManager ends: it was stopped, declared lost, or heard by nobody [R28]."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.clocks import after
from millrace.core.machine import Do, Envelope, Output, Say
from millrace.core.messages.effects import EndProcess
from millrace.core.messages.slots import (
    DisconnectTaskManager,
    DrainAnswered,
    DrainTaskManager,
    ReleaseTaskManager,
    StopAsked,
    Unheard,
)
from millrace.core.topics import RESOURCE_MANAGER

from . import slot_table
from .state import State

REFUSED_SLOTS = 10  # that are named
STOP_MS = 2_500  # for attempts to end, when the process is asked to stop


def on_release_task_manager(state: State, body: ReleaseTaskManager, envelope: Envelope) -> Iterator[Output]:  # [R28]
    if body.incarnation == state.incarnation:
        yield from _end(state, f"the ResourceManager has released this TaskManager: {body.reason}", again=True)


def on_unheard(state: State, body: Unheard, envelope: Envelope) -> Iterator[Output]:
    reason = f"neither Kafka nor etcd has answered for {body.silent_ms} ms: others must count this TaskManager as lost"
    yield from _end(state, reason, again=True)


def on_drain_task_manager(state: State, body: DrainTaskManager, envelope: Envelope) -> Iterator[Output]:
    """What an attempt leaves is in storage before its slot is given back, so a slot that nobody holds has nothing that is needed."""
    if body.incarnation == state.incarnation:
        held = [f"slot {number} is {slot.job}'s" for number, slot in state.slots.items() if slot.allocation is not None]
        yield Say(RESOURCE_MANAGER, DrainAnswered(refused=", ".join(held[:REFUSED_SLOTS]) or None))


def on_stop_asked(state: State, body: StopAsked, envelope: Envelope) -> Iterator[Output]:
    """Attempts end first: the moment the ResourceManager reads of it, they run elsewhere."""
    if state.stop_due_ms is None:
        state.stop_due_ms = after(envelope.now_ms, STOP_MS)
        yield from slot_table.kill_all(state, "its TaskManager was stopped")
        yield from leave_if_idle(state)


def leave_if_idle(state: State) -> Iterator[Output]:
    """Once nothing runs in a TaskManager that is being stopped, it leaves."""
    if state.stop_due_ms is not None and not slot_table.living(state):
        yield from leave(state)


def leave(state: State) -> Iterator[Output]:
    reason = "it was stopped"
    yield Say(RESOURCE_MANAGER, DisconnectTaskManager(reason=reason))
    yield from _end(state, reason, again=False)


def _end(state: State, reason: str, *, again: bool) -> Iterator[Output]:
    state.ending = reason
    yield Do("process", EndProcess(reason=reason, again=again))
