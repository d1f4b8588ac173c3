"""Birth, time, and who is new: settings, heartbeats, and what a new life of a peer must know."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.clocks import after
from millrace.core.machine import Born, Configured, Envelope, Output, PeerBorn, Say, Ticked
from millrace.core.messages.jobs import SlotSpec
from millrace.core.messages.profiles import parts_of
from millrace.core.messages.slots import RegisterTaskManager, ReportedSlot, TaskManagerHeartbeat
from millrace.core.profile import Profile
from millrace.core.timing import QUIET_BEATS
from millrace.core.topics import RESOURCE_MANAGER, shard_number

from . import slot_table
from .leaving import leave
from .state import Slot, State

EARLY_MS = 50  # a heartbeat goes at the tick that is nearest to when it is due
FULL_REPORT_BEATS = 10  # every so many heartbeats carry all slots, changed or not


def on_born(state: State, body: Born, envelope: Envelope) -> Iterator[Output]:
    """There is nothing to ask: its state is its own process."""
    yield from ()


def on_configured(state: State, body: Configured, envelope: Envelope) -> Iterator[Output]:
    settings = body.settings
    state.incarnation, state.host, state.build = settings["incarnation"], settings["host"], settings.get("build", "")
    state.allocation_timeout_ms = settings["allocation_timeout_ms"]
    each = settings.get("slot_cores", 0), settings.get("slot_extras", {})
    state.slots = {number: Slot(Profile.of(memory_mb, *each)) for number, memory_mb in enumerate(settings["slots_memory_mb"])}
    yield from ()


def on_ticked(state: State, body: Ticked, envelope: Envelope) -> Iterator[Output]:
    now_ms = envelope.now_ms
    yield from slot_table.overdue(state, now_ms)
    rests = not slot_table.any_allocated(state) and not state.changed
    interval_ms = QUIET_BEATS * state.interval_ms if rests else state.interval_ms
    if now_ms + EARLY_MS >= after(state.beat_ms, interval_ms):
        full = state.changed or state.beats % FULL_REPORT_BEATS == 0
        state.beat_ms, state.beats = now_ms, state.beats + 1
        yield Say(RESOURCE_MANAGER, TaskManagerHeartbeat(states=_states(state) if full else None))
    if state.stop_due_ms is not None and now_ms >= state.stop_due_ms:
        yield from leave(state)


def on_peer_born(state: State, body: PeerBorn, envelope: Envelope) -> Iterator[Output]:
    """A new life knows nothing of us [R10]."""
    if body.peer == RESOURCE_MANAGER:
        specs = [SlotSpec(slot=number, **parts_of(slot.profile)) for number, slot in state.slots.items()]
        state.beat_ms = envelope.now_ms
        yield Say(body.peer, RegisterTaskManager(host=state.host, slots=specs, states=_states(state), build=state.build))
    else:
        shard = shard_number(body.peer)
        slot_table.give_up_waiting(state, shard)
        for offers in slot_table.offers(state, shard):
            yield Say(body.peer, offers)


def _states(state: State) -> list[ReportedSlot]:
    state.changed = False
    return [slot_table.reported(number, slot) for number, slot in state.slots.items()]
