"""Who speaks for a scope: following, suspecting, campaigning, leading, stepping down. Pure; safety never depends on it.

The epoch of a scope is the mod_revision of its leader key in etcd. A leader proves itself by ticks in the log. A standby that misses
them asks the log itself (probes) before it takes the key away. So a paused broker or a slow reader makes no new leader.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from .clocks import OwnMs
from .fold import TICK_MS
from .states import Role
from .timing import BROKER_RETURN_MS

SUSPECT_TICKS = 1.5  # intervals without a tick: probe. It costs a record; silence is judged between probes alone
PROBE_MS = TICK_MS // 2  # between probes while suspecting: a verdict that is short by a millisecond waits no whole tick
SILENCE_TICKS = 5  # missed between two own probes: silence
PAUSE_TICKS = 10  # without any record at all: the log itself was silent, for a standby that suspects writes to it
QUIET_TICK_MS = 20 * TICK_MS  # between ticks while there is nothing to do and nobody watches
WAKING_MS = TICK_MS // 2  # from what wakes a leader at rest to its tick: the one goes its way before the other
ATTEND_MS = 20_000  # between two words of a standby that it watches
ATTENDED_MS = 3 * ATTEND_MS  # after which a leader that heard none takes itself to be alone
STUCK_TICKS = 50  # ticks over which the mark stands below the last output: the leader cannot speak
READ_BACK_MS = 90_000  # a leader that does not read its own tick for so long cannot write its log: it resigns [R6]. A broker that is
# paused for a minute replaces nobody; a standby that can read takes the key of a silent leader long before
ELECTED_BACK_MS = 15_000  # the same for its own election, behind which no standby knows that it leads [R6]
CAMPAIGN_MS = 1_000  # between two tries
GIVEN_MS = 500  # in which a standby takes what is given away, before its giver asks for it again
IDLE_MS = 50  # a follower's longest wait for a record
SILENT_LOOK_MS = 5  # the same once the leader is known to be silent


@dataclass(frozen=True)
class View:
    """The leader key as etcd last showed it: its mod_revision, 0 when it is absent; None: etcd has not answered yet. mine: it holds
    this process's name and lease. foreign: it has no lease, so no leader wrote it, and it never ends by itself [R31]."""

    epoch: int | None
    mine: bool = False
    foreign: bool = False


class Event(str, Enum):
    KEY_SEEN = "it sees the key"
    WON = "etcd gives it the key"  # as it asked for; or it came with a new generation, or the answer to what it asked was lost
    ELECTED_FOLDED = "it folds an Elected"
    TIME_SEEN = "it sees the time"
    FOLLOWS = "it is to follow"  # it begins; it did not get the key; it gives it away; its shell goes on with another log


class Sight(NamedTuple):
    """What a guard looks at, besides what was noted before."""

    own_ms: OwnMs
    view: View = View(None)
    """KEY_SEEN. With it: the epoch that was folded last, whether the log was read to its end, and whether this process was named as the
    leader of that epoch, in the life before this one."""
    folded_epoch: int = 0
    caught_up: bool = False
    heir: bool = False
    epoch: int = 0
    """WON: its own. ELECTED_FOLDED: the record's, and whether this process wrote it."""
    own: bool = False
    folded_tick: int = 0
    """TIME_SEEN: the last tick that was read back."""


class Election:
    """One replica's part in the election. Times are the shell's monotonic milliseconds, stamps the broker's. TRANSITIONS has how its role
    changes."""

    def __init__(self) -> None:
        self.role = Role.FOLLOWING  # changed by `_enter` alone
        self._epoch = 0  # while ELECT or LEADING: the one won
        self._last_won = 0
        # following
        self._leader_seen_ms = OwnMs(0)  # when the last taken tick (or Elected) was folded
        self._read_stamp_ms = 0  # stamp of the last record folded
        self._returned_stamp_ms = 0  # probes before this stamp prove nothing
        self._probe_stamp_ms = 0  # stamp of the first own probe folded since the last tick; 0: none
        self._probed_ms = OwnMs(0)  # when the last probe was sent
        self._probes = 0
        self._asking = False  # the last probe was not read back yet
        self._silent = False
        self._stuck = 0  # ticks since the mark stands still below the last output
        self._asked_ms = OwnMs(-CAMPAIGN_MS)  # when it last asked for the key
        # with the key
        self._held: View | None = None  # the last view of the key that was looked at
        # elect
        self._elect_ms = OwnMs(0)  # the first look at the time since it won; 0: none yet
        # leading
        self._attendants: dict[str, OwnMs] = {}  # other replica -> when its last probe was folded
        self._ticked_ms = OwnMs(0)  # when the last tick was sent
        self._ticks = 0  # number of the last tick sent

    @property
    def epoch(self) -> int:
        """The epoch won, while ELECT or LEADING; else 0."""
        return self._epoch

    @property
    def last_won(self) -> int:
        return self._last_won

    @property
    def has_key(self) -> bool:
        return self.role in (Role.ELECT, Role.LEADING)

    @property
    def silent(self) -> bool:
        """The leader of the scope is known to be silent, or not to get on."""
        return self._silent

    # what is read

    def leader_seen(self, own_ms: OwnMs, published_through: int, before: int, last_seq: int) -> None:
        """A tick was taken, or a leader's Elected folded."""
        self._leader_seen_ms, self._probe_stamp_ms = own_ms, 0
        self._stuck = self._stuck + 1 if published_through == before < last_seq else 0
        self._silent = self._stuck >= STUCK_TICKS

    def read(self, stamp_ms: int, next_ms: int) -> None:
        """Any record was folded. After a pause of the log, which a broker or a network makes, all have time to come back."""
        if self._read_stamp_ms and stamp_ms - self._read_stamp_ms > PAUSE_TICKS * next_ms:
            self._probe_stamp_ms, self._returned_stamp_ms = 0, stamp_ms + BROKER_RETURN_MS
        self._read_stamp_ms = stamp_ms

    def probed(self, stamp_ms: int, next_ms: int) -> None:
        """An own probe was folded. Without a tick since the one before, over five of the promised intervals, there is silence."""
        self._asking = False
        if self.role is Role.LEADING or stamp_ms < self._returned_stamp_ms:
            return
        if not self._probe_stamp_ms:
            self._probe_stamp_ms = stamp_ms
        elif stamp_ms - self._probe_stamp_ms >= SILENCE_TICKS * next_ms:
            self._silent = True

    def attended(self, who: str, own_ms: OwnMs) -> None:
        """Another replica's probe was folded."""
        late = [name for name, seen_ms in self._attendants.items() if own_ms - seen_ms >= ATTENDED_MS]
        for name in late:
            del self._attendants[name]
        self._attendants[who] = own_ms

    def attended_by(self, own_ms: OwnMs, within_ms: int) -> list[str]:
        """The other replicas that probed within this time. Any thread."""
        return [name for name, seen_ms in list(self._attendants.items()) if own_ms - seen_ms < within_ms]

    # the role

    def _on(self, event: Event, sight: Sight) -> bool:
        """Whether its role changed, or began anew."""
        for row in _ROWS[self.role, event]:
            if all(holds(self, sight) for holds in row.guards):
                self._enter(row.target, sight)
                return True
        return False

    def _enter(self, role: Role, sight: Sight) -> None:
        self.role, own_ms = role, sight.own_ms
        if role is Role.FOLLOWING:
            self._epoch, self._leader_seen_ms, self._probe_stamp_ms, self._silent, self._stuck = 0, own_ms, 0, False, 0
        elif role is Role.CAMPAIGNING:
            self._asked_ms = own_ms
        elif role is Role.ELECT:
            self._epoch, self._last_won, self._elect_ms, self._silent = sight.epoch, sight.epoch, OwnMs(0), False
            self._held = None
        else:
            self._ticks, self._ticked_ms, self._leader_seen_ms = 0, own_ms, own_ms

    def won(self, epoch: int) -> None:
        """etcd gave this process the key."""
        changed = self._on(Event.WON, Sight(OwnMs(0), epoch=epoch))
        assert changed, f"a replica that is {self.role.value} does not become elect"

    def elected(self, own_ms: OwnMs, epoch: int, own: bool) -> bool:
        """An Elected was folded; whether it leads by that."""
        return self._on(Event.ELECTED_FOLDED, Sight(own_ms, epoch=epoch, own=own)) and self.role is Role.LEADING

    def follow(self, own_ms: OwnMs) -> None:
        """The term is over, or the campaign was lost; the process goes on."""
        self._on(Event.FOLLOWS, Sight(own_ms))

    def give_away(self, own_ms: OwnMs) -> None:
        """A leader lets others lead: it follows, and does not ask for the key at once."""
        self.follow(own_ms)
        self._asked_ms = OwnMs(own_ms - CAMPAIGN_MS + GIVEN_MS)

    def loses_key(self, own_ms: OwnMs, view: View) -> bool:
        """Whether the term is over by what etcd shows. The process goes on [R6]. A view is looked at once: each turn of a loop has it, and
        the epoch of who leads only grows."""
        if view is self._held or not self.has_key:
            return False
        self._held = view
        return self._on(Event.KEY_SEEN, Sight(own_ms, view))

    def campaigns(self, own_ms: OwnMs, view: View, folded_epoch: int, caught_up: bool, heir: bool) -> int | None:
        """The mod_revision of the key that is to be replaced (0: absent), or None: this is not the time."""
        sight = Sight(own_ms, view, folded_epoch, caught_up, heir)
        return view.epoch if not self.has_key and self._on(Event.KEY_SEEN, sight) else None

    def gives_up(self, own_ms: OwnMs, folded_tick: int) -> int:
        """The epoch that has ended, for what its leader wrote was not read back; 0: none has. It follows then, and others go first, for who
        cannot write would only win again."""
        if self.role is Role.ELECT:  # it counts from the first look and not from when it asked: a new generation is won without asking
            self._elect_ms = self._elect_ms or own_ms
        epoch = self._epoch
        if not self._on(Event.TIME_SEEN, Sight(own_ms, folded_tick=folded_tick)):
            return 0
        self._asked_ms = OwnMs(own_ms + ELECTED_BACK_MS)
        return epoch

    # the time

    def suspects(self, own_ms: OwnMs, next_ms: int) -> bool:
        return self.role is Role.FOLLOWING and own_ms - self._leader_seen_ms >= SUSPECT_TICKS * next_ms

    def probe(self, own_ms: OwnMs, next_ms: int) -> int | None:
        """The number of the probe that is to be sent now; None: none is due, or the last one was not read back yet."""
        every_ms = PROBE_MS if self.suspects(own_ms, next_ms) else ATTEND_MS
        if self._asking or own_ms - self._probed_ms < every_ms:
            return None
        self._probed_ms, self._probes, self._asking = own_ms, self._probes + 1, True
        return self._probes

    def next_look_ms(self, own_ms: OwnMs, next_ms: int) -> OwnMs:
        """When a follower must look at the time again, if nothing is read until then."""
        if self.role is not Role.FOLLOWING:
            return OwnMs(own_ms + IDLE_MS)
        if self._silent:
            return OwnMs(own_ms + SILENT_LOOK_MS)
        suspected_ms = self._leader_seen_ms + int(SUSPECT_TICKS * next_ms)
        due_ms = self._probed_ms + PROBE_MS if own_ms >= suspected_ms else suspected_ms
        return OwnMs(due_ms if own_ms < due_ms < own_ms + IDLE_MS else own_ms + IDLE_MS)

    # the leader's ticks

    def awaits_tick(self, folded_tick: int) -> bool:
        """Whether the last tick sent was not read back yet: the next one is made only after that."""
        return self._ticks > folded_tick

    def ticked(self, own_ms: OwnMs, number: int) -> None:
        """A tick is sent."""
        self._ticks, self._ticked_ms = number, own_ms

    @property
    def ticked_ms(self) -> OwnMs | None:
        """When the last tick of this term was sent; None: there was none yet."""
        return self._ticked_ms if self._ticks else None


# guards


def may_ask(election: Election, sight: Sight) -> bool:
    """It has read its log to the end, and has not asked for the key a moment ago."""
    return sight.caught_up and sight.own_ms - election._asked_ms >= CAMPAIGN_MS


def key_can_be_taken(election: Election, sight: Sight) -> bool:  # [R31]
    """A key whose epoch has no record in the log yet is left alone until its lease ends: its holder may be about to write. Nobody waits for
    the dead, whose heir this process is. A key that is its own and was used (the answer to a resignation was lost) is taken anew: its
    lease would keep it for ever. So would a foreign one stand for ever: it is replaced, and the epoch rises all the same."""
    view = sight.view
    if view.epoch is None:
        return False
    return view.epoch == 0 or view.mine or view.foreign or ((election.silent or sight.heir) and view.epoch == sight.folded_epoch)


def key_is_lost(election: Election, sight: Sight) -> bool:  # [R6]
    """It is nobody's, or that of a later epoch."""
    return sight.view.epoch == 0 or (sight.view.epoch or 0) > election.epoch


def it_is_elected(election: Election, sight: Sight) -> bool:
    return sight.own and sight.epoch == election.epoch


def a_later_one_is_elected(election: Election, sight: Sight) -> bool:
    return sight.epoch > election.epoch


def elected_is_late(election: Election, sight: Sight) -> bool:
    """Its own Elected was not read back for too long."""
    return sight.own_ms - election._elect_ms >= ELECTED_BACK_MS


def tick_is_late(election: Election, sight: Sight) -> bool:
    """Its own last tick was not read back for too long."""
    return election.awaits_tick(sight.folded_tick) and sight.own_ms - election._ticked_ms >= READ_BACK_MS


Guard = Callable[[Election, Sight], bool]


class Transition(NamedTuple):
    sources: tuple[Role, ...]
    event: Event
    guards: tuple[Guard, ...]
    target: Role


_WITH_KEY = (Role.ELECT, Role.LEADING)

TRANSITIONS = (
    Transition((Role.FOLLOWING,), Event.KEY_SEEN, (may_ask, key_can_be_taken), Role.CAMPAIGNING),
    Transition((Role.FOLLOWING, Role.CAMPAIGNING), Event.WON, (), Role.ELECT),
    Transition((Role.ELECT,), Event.ELECTED_FOLDED, (it_is_elected,), Role.LEADING),
    Transition(_WITH_KEY, Event.ELECTED_FOLDED, (a_later_one_is_elected,), Role.FOLLOWING),
    Transition(_WITH_KEY, Event.KEY_SEEN, (key_is_lost,), Role.FOLLOWING),
    Transition((Role.ELECT,), Event.TIME_SEEN, (elected_is_late,), Role.FOLLOWING),
    Transition((Role.LEADING,), Event.TIME_SEEN, (tick_is_late,), Role.FOLLOWING),
    Transition(tuple(Role), Event.FOLLOWS, (), Role.FOLLOWING),
)
"""The first row that fits is taken; where none fits, the role stays."""
_ROWS = {
    (role, event): [row for row in TRANSITIONS if row.event is event and role in row.sources] for role in Role for event in Event
}  # looked at in each turn of a loop
