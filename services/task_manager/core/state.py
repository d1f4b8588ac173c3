"""What a TaskManager knows: its slots, which allocation each is given to, which attempt runs in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

from millrace.core.clocks import NowMs
from millrace.core.machine import formerly
from millrace.core.messages.attempts import AttemptReport, AttemptSpec, Fault
from millrace.core.profile import Profile
from millrace.core.states import ENDED_ATTEMPT, WITH_ALLOCATION, AttemptState, SlotState

Spec = Annotated[
    AttemptSpec | None,
    BeforeValidator(lambda spec: spec or None),
    PlainSerializer(lambda spec: {} if spec is None else spec.json_value()),
]
"""None is written as an empty object, as builds before did."""


@dataclass
class Attempt:
    id: str
    acceptance: str
    folder: str
    state: AttemptState = AttemptState.WAITING
    spec: Spec = None  # until it is launched
    run_timeout_ms: int | None = None
    due_ms: NowMs | None = None  # machine time of its start or run time-out, whichever it is in
    kill: AttemptState | None = None  # it is being killed, and ends as this unless it finishes first
    asked: bool = False  # to end by itself, before it is killed
    report: AttemptReport | None = None
    error: Fault | None = None  # why it ended, or is being killed


@dataclass
class Slot:
    profile: Annotated[Profile, formerly("profile", "memory_mb")]
    state: SlotState = SlotState.STARTING
    ready: bool = False  # its JVM takes an attempt now
    allocation: str | None = None  # given exactly in WITH_ALLOCATION, with job and shard
    job: str | None = None
    shard: int = -1
    due_ms: NowMs | None = None  # ALLOCATED and never deployed on: when it is given back
    broken: str = ""  # why it could not be started the last time
    warm: int = 0  # attempts that have finished in the JVM that it has since one did not, at most WARM_MOST
    attempt: Attempt | None = (
        None  # the last of this allocation; its ending is kept until the next, or until it is freed
    )


@dataclass
class State:
    incarnation: int = 0
    host: str = ""
    build: str = ""
    allocation_timeout_ms: int = 10_000  # of an allocation on which nothing was deployed
    slots: dict[int, Slot] = field(default_factory=dict)  # by number, all from the start to the end
    interval_ms: int = 100  # between heartbeats, as the ResourceManager wants them
    lost_after_ms: int = 600  # without a heartbeat the ResourceManager declares us lost
    beat_ms: NowMs = NowMs(0)  # machine time of the last heartbeat
    beats: int = 0
    changed: bool = False  # a slot has changed since all were last reported
    behind: bool = False  # its inbox may hold what became of it: nothing is launched [R28]
    stop_due_ms: NowMs | None = None  # it is being stopped, and leaves then at the latest
    ending: str | None = None  # why it ends: nothing is handled any more


def check(state: State) -> None:
    """Asserts what the parts of a state owe each other."""
    for number, slot in state.slots.items():
        attempt = slot.attempt
        given = slot.state in WITH_ALLOCATION
        assert (slot.allocation is not None) == (slot.job is not None) == (slot.shard >= 0) == given, (number, slot)
        assert attempt is None or given, (number, slot)
        assert slot.due_ms is None or slot.state is SlotState.ALLOCATED, (number, slot)
        assert slot.ready or slot.state is not SlotState.FREE, (number, slot)
        assert not slot.ready or slot.state not in (SlotState.STARTING, SlotState.RELEASING, SlotState.BROKEN), slot
        living = attempt is not None and attempt.state not in ENDED_ATTEMPT
        assert living or slot.state is not SlotState.ACTIVE, (number, slot)
        assert not living or slot.state in (SlotState.ACTIVE, SlotState.RELEASING), (number, slot)
        if attempt is not None:
            assert attempt.state is AttemptState.WAITING or attempt.spec is None, (number, attempt.state)
            assert attempt.due_ms is None or living, (number, attempt)
            assert attempt.kill is None or attempt.state not in (AttemptState.WAITING,), (number, attempt)
            waits = state.behind and attempt.state is AttemptState.WAITING
            assert waits or not (slot.ready and living), (number, slot)
    ids = [slot.allocation for slot in state.slots.values() if slot.allocation is not None]
    assert len(ids) == len(set(ids)), ids
