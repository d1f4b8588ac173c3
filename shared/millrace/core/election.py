"""Who speaks for a scope: following, suspecting, campaigning, leading, stepping down. Pure; safety never depends on it.

The epoch of a scope is the mod_revision of its leader key in etcd. A leader proves itself by ticks in the log. A standby that misses
them asks the log itself (probes) before it takes the key away. So a paused broker or a slow reader makes no new leader.
"""

from __future__ import annotations

from dataclasses import dataclass

from .clocks import OwnMs
from .fold import TICK_MS
from .states import Role, check_role
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


class Election:
    """One replica's part in the election. Times are the shell's monotonic milliseconds, stamps the broker's. How its role changes is in
    `core/states.py:ROLE_TRANSITIONS`; any other change is a broken assertion."""

    def __init__(self) -> None:
        self._role = Role.FOLLOWING
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
        # elect
        self._elect_ms = OwnMs(0)  # the first look at the time since it won; 0: none yet
        # leading
        self._attendants: dict[str, OwnMs] = {}  # other replica -> when its last probe was folded
        self._ticked_ms = OwnMs(0)  # when the last tick was sent
        self._ticks = 0  # number of the last tick sent

    @property
    def role(self) -> Role:
        return self._role

    @property
    def epoch(self) -> int:
        """The epoch won, while ELECT or LEADING; else 0."""
        return self._epoch

    @property
    def last_won(self) -> int:
        return self._last_won

    @property
    def has_key(self) -> bool:
        return self._role in (Role.ELECT, Role.LEADING)

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
        if self._role is Role.LEADING or stamp_ms < self._returned_stamp_ms:
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

    # roles

    def _become(self, role: Role) -> None:
        check_role(self._role, role)
        self._role = role

    def won(self, epoch: int) -> None:
        """etcd gave this process the key."""
        self._become(Role.ELECT)
        self._epoch, self._last_won, self._elect_ms = epoch, epoch, OwnMs(0)
        self._silent = False

    def lead(self, own_ms: OwnMs) -> None:
        """The own Elected was folded."""
        self._become(Role.LEADING)
        self._ticks, self._ticked_ms, self._leader_seen_ms = 0, own_ms, own_ms

    def follow(self, own_ms: OwnMs) -> None:
        """The term is over, or the campaign was lost; the process goes on."""
        self._become(Role.FOLLOWING)
        self._epoch = 0
        self._leader_seen_ms, self._probe_stamp_ms, self._silent, self._stuck = own_ms, 0, False, 0

    def give_away(self, own_ms: OwnMs) -> None:
        """A leader lets others lead: it follows, and does not ask for the key at once."""
        self.follow(own_ms)
        self._asked_ms = OwnMs(own_ms - CAMPAIGN_MS + GIVEN_MS)

    def give_up(self, own_ms: OwnMs) -> int:
        """What this leader wrote was not read back: it follows, and others go first, for who cannot write would only win again. The epoch
        that has ended."""
        epoch = self._epoch
        self.follow(own_ms)
        self._asked_ms = OwnMs(own_ms + ELECTED_BACK_MS)
        return epoch

    # the time

    def elected_is_late(self, own_ms: OwnMs) -> bool:
        """Whether its own Elected was not read back for too long. It counts from the first look and not from when it asked: a new
        generation is won without asking."""
        self._elect_ms = self._elect_ms or own_ms
        return own_ms - self._elect_ms >= ELECTED_BACK_MS

    def suspects(self, own_ms: OwnMs, next_ms: int) -> bool:
        return self._role is Role.FOLLOWING and own_ms - self._leader_seen_ms >= SUSPECT_TICKS * next_ms

    def probe(self, own_ms: OwnMs, next_ms: int) -> int | None:
        """The number of the probe that is to be sent now; None: none is due, or the last one was not read back yet."""
        every_ms = PROBE_MS if self.suspects(own_ms, next_ms) else ATTEND_MS
        if self._asking or own_ms - self._probed_ms < every_ms:
            return None
        self._probed_ms, self._probes, self._asking = own_ms, self._probes + 1, True
        return self._probes

    def next_look_ms(self, own_ms: OwnMs, next_ms: int) -> OwnMs:
        """When a follower must look at the time again, if nothing is read until then."""
        if self._role is not Role.FOLLOWING:
            return OwnMs(own_ms + IDLE_MS)
        if self._silent:
            return OwnMs(own_ms + SILENT_LOOK_MS)
        suspected_ms = self._leader_seen_ms + int(SUSPECT_TICKS * next_ms)
        due_ms = self._probed_ms + PROBE_MS if own_ms >= suspected_ms else suspected_ms
        return OwnMs(due_ms if own_ms < due_ms < own_ms + IDLE_MS else own_ms + IDLE_MS)

    def campaigns(self, own_ms: OwnMs, view: View, folded_epoch: int, caught_up: bool, heir: bool) -> int | None:  # [R31]
        """The mod_revision of the key that is to be replaced (0: absent), or None: this is not the time.

        A key whose epoch has no record in the log yet is left alone until its lease ends: its holder may be about to write. heir: the
        leader of that epoch bore this process's name, so it is the life before this one, and nobody waits for the dead. A
        key that is our own and was used (the answer to a resignation was lost) is taken anew: our lease would keep it for ever. So would
        a foreign one stand for ever: it is replaced, and the epoch rises all the same.
        """
        if (
            self._role is not Role.FOLLOWING
            or not caught_up
            or view.epoch is None
            or own_ms - self._asked_ms < CAMPAIGN_MS
        ):
            return None
        if view.epoch == 0 or view.mine or view.foreign or ((self._silent or heir) and view.epoch == folded_epoch):
            self._become(Role.CAMPAIGNING)
            self._asked_ms = own_ms
            return view.epoch
        return None

    # the leader's ticks

    def awaits_tick(self, folded_tick: int) -> bool:
        """Whether the last tick sent was not read back yet: the next one is made only after that."""
        return self._ticks > folded_tick

    def tick_is_late(self, own_ms: OwnMs) -> bool:
        return own_ms - self._ticked_ms >= READ_BACK_MS

    def ticked(self, own_ms: OwnMs, number: int) -> None:
        """A tick is sent."""
        self._ticks, self._ticked_ms = number, own_ms

    @property
    def ticked_ms(self) -> OwnMs | None:
        """When the last tick of this term was sent; None: there was none yet."""
        return self._ticked_ms if self._ticks else None
