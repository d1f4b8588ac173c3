"""Whether others may have this TaskManager's tasks already, as a state machine: rule [R28].

A process that was stopped or starved, that Kafka did not answer, or that read nothing for a while may have been declared lost
meanwhile. Its tasks may run elsewhere, and a command that it still holds may be one of them. So it falls behind: it launches nothing.
It comes back when four conditions hold. It has read its inbox to the end since (`has_read_since`), and Kafka answers it (`kafka_answers`).
etcd has its incarnation: two answers, because the first may have been on its way before. And it was never absent again (`was_here`).

TRANSITIONS is the whole of it. What the process sees is noted by methods; times are its own clock's, monotonic milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from millrace.core.clocks import OwnMs
from millrace.core.fold import TICK_MS
from millrace.core.states import PresenceState

from . import fencing


class Event(str, Enum):
    LOOKED = "it looks around"  # once a turn, and before all that could launch an attempt
    COUNTED_SILENCE = "it counts Kafka's silence"  # once a turn
    INBOX_READ = "it has read its inbox to the end"
    IN_ETCD = "etcd has its incarnation"
    NOT_IN_ETCD = "etcd has another incarnation, or none"


class Sight(NamedTuple):
    """What a condition looks at, besides what was noted before."""

    own_ms: OwnMs
    lost_after_ms: int
    """Without a heartbeat for so long, the ResourceManager declares it lost."""
    asked_ms: OwnMs = OwnMs(0)
    """INBOX_READ: when it asked where its inbox ends."""


@dataclass
class Presence:
    """Changed by the thread that folds; `behind`, `holds` and `read_ms` are read by the one that reads the inbox."""

    looked_ms: OwnMs
    """It was at work then, or rests as planned until then."""
    state: PresenceState = PresenceState.PRESENT
    behind_ms: OwnMs = OwnMs(0)
    """When it was last seen to be absent."""
    read_ms: OwnMs = OwnMs(0)
    """All that stood in the inbox at this moment has been folded, or nobody held a slot."""
    holds: bool = False
    """Somebody held a slot at the last look."""
    awaits: bool = False
    """It waited for an answer of Kafka at the last look."""
    silence: fencing.Silence = field(init=False)

    def __post_init__(self) -> None:
        self.silence = fencing.Silence(self.looked_ms)

    @property
    def behind(self) -> bool:
        """Whether others may have its tasks: it launches nothing."""
        return self.state is not PresenceState.PRESENT

    def look(self, sight: Sight) -> None:
        """A process that was away wakes with commands that it read before."""
        self._on(Event.LOOKED, sight)

    def rest(self, own_ms: OwnMs, due_ms: OwnMs) -> None:
        """The turn is over; the next one comes at `due_ms` at the latest."""
        self.looked_ms = max(own_ms, OwnMs(due_ms - TICK_MS))

    def count_silence(self, sight: Sight, *, holds: bool, unacked: bool) -> None:
        """Counts silence. Where nobody holds a slot and nothing is unacknowledged, it awaits no answer and silence does not count. Else
        it counts from the last answer, as the ResourceManager counts from the last heartbeat that Kafka has."""
        self.silence.turn(sight.own_ms)
        if not self.awaits:
            self.silence.kafka_answered()
        if not (holds and self.holds):
            self.read_ms = sight.own_ms
        self.holds, self.awaits = holds, unacked or holds
        self._on(Event.COUNTED_SILENCE, sight)

    def inbox_read(self, sight: Sight) -> None:
        """All that stood in the inbox at `asked_ms` has been folded."""
        self.read_ms = sight.asked_ms
        self._on(Event.INBOX_READ, sight)

    def etcd_answered(self, sight: Sight, *, has_it: bool) -> None:
        self.silence.etcd_answered()
        self._on(Event.IN_ETCD if has_it else Event.NOT_IN_ETCD, sight)

    def is_isolated(self, lost_after_ms: int) -> bool:
        """Neither Kafka nor etcd has answered for so long that it must end what runs here."""
        return fencing.is_over(self.silence.both_ms, lost_after_ms)

    def suspects(self, lost_after_ms: int) -> bool:
        """Kafka has been silent long enough for etcd to be asked."""
        return fencing.asks_etcd(self.silence.kafka_ms, lost_after_ms)

    def _on(self, event: Event, sight: Sight) -> None:
        for row in TRANSITIONS:
            if row.event is event and self.state in row.sources and all(holds(self, sight) for holds in row.conditions):
                self.state = row.target
                if row.target is PresenceState.BEHIND:
                    self.behind_ms = sight.own_ms
                return


# conditions


def was_absent(presence: Presence, sight: Sight) -> bool:
    """It was stopped or starved, or its reading stood still, for so long that others may have its tasks."""
    away = sight.own_ms - presence.looked_ms >= fencing.patience_ms(sight.lost_after_ms)
    return away or presence.holds and sight.own_ms - presence.read_ms >= fencing.UNREAD_MS


def was_here(presence: Presence, sight: Sight) -> bool:
    return not was_absent(presence, sight)


def is_cut_off(presence: Presence, sight: Sight) -> bool:
    """Kafka does not answer: what is in its inbox when it answers again may be somebody else's by now."""
    return fencing.is_over(presence.silence.kafka_ms, sight.lost_after_ms)


def kafka_answers(presence: Presence, sight: Sight) -> bool:
    """Kafka answers; one that reads all and is not heard may be declared lost the moment after."""
    return not is_cut_off(presence, sight)


def has_read_since(presence: Presence, sight: Sight) -> bool:
    """It asked where its inbox ends after it fell behind. That it had read all before proves nothing."""
    return sight.asked_ms >= presence.behind_ms


Condition = Callable[[Presence, Sight], bool]


class Transition(NamedTuple):
    sources: tuple[PresenceState, ...]
    event: Event
    conditions: tuple[Condition, ...]
    target: PresenceState


_LIVING = (PresenceState.PRESENT, PresenceState.BEHIND, PresenceState.READ, PresenceState.CONFIRMED)

TRANSITIONS = (  # [R28]
    Transition(_LIVING, Event.LOOKED, (was_absent,), PresenceState.BEHIND),
    Transition(_LIVING, Event.COUNTED_SILENCE, (is_cut_off,), PresenceState.BEHIND),
    Transition((PresenceState.BEHIND,), Event.INBOX_READ, (has_read_since, kafka_answers), PresenceState.READ),
    Transition((PresenceState.READ,), Event.IN_ETCD, (), PresenceState.CONFIRMED),
    Transition((PresenceState.CONFIRMED,), Event.IN_ETCD, (was_here,), PresenceState.PRESENT),
    Transition((PresenceState.CONFIRMED,), Event.IN_ETCD, (was_absent,), PresenceState.BEHIND),
    Transition(_LIVING, Event.NOT_IN_ETCD, (), PresenceState.LOST),
)
"""The first row that fits is taken; where none fits, the state stays. BEHIND is entered anew by each absence."""


@dataclass
class Reading:  # [R28]
    """How far the inbox is read, and where it ended when that was last asked: of the thread that reads."""

    next: int
    """The offset that is read next."""
    asked_ms: OwnMs = OwnMs(0)
    end: int | None = None
    """Where the inbox ended at `asked_ms`; None: it has been read so far."""

    def asks_ms(self, presence: Presence) -> float:
        """When to ask where the inbox ends: often enough for reading that stands still to be noticed. Not while nobody holds a slot, for
        nothing can be deployed then."""
        if self.end is not None or not (presence.behind or presence.holds):
            return math.inf
        if presence.behind:
            return self.asked_ms + TICK_MS
        return max(self.asked_ms, presence.read_ms) + fencing.UNREAD_MS // 2

    def asked(self, own_ms: OwnMs, end: int) -> None:
        self.asked_ms, self.end = own_ms, end

    @property
    def at_end(self) -> bool:
        return self.end is not None and self.next >= self.end
