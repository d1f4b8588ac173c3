"""Who speaks for a scope: following, suspecting, campaigning, leading, stepping down. Pure; safety never depends on it.

The epoch of a scope is the mod_revision of its leader key in etcd. A leader proves itself by ticks in the log; a standby that misses
them asks the log itself (probes) before it takes the key away, so that a paused broker or a slow reader makes no new leader.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from .fold import TICK_MS

SUSPECT_TICKS = 1.5  # intervals without a tick: probe. It costs a record; silence is judged between probes alone
PROBE_MS = TICK_MS // 2  # between probes while suspecting: a verdict that is short by a millisecond waits no whole tick
SILENCE_TICKS = 5  # missed between two own probes: silence
PAUSE_TICKS = 10  # without any record at all: the log itself was silent, for a standby that suspects writes to it
RETURN_MS = 3_000  # after such a pause: the leader may find its way to the broker later than who suspects it
QUIET_TICK_MS = 20 * TICK_MS  # between ticks while there is nothing to do and nobody watches
WAKING_MS = TICK_MS // 2  # from what wakes a leader at rest to its tick: the one goes its way before the other
ATTEND_MS = 20_000  # between two words of a standby that it watches
ATTENDED_MS = 3 * ATTEND_MS  # after which a leader that heard none takes itself to be alone
STUCK_TICKS = 50  # ticks over which the mark stands below the last output: the leader cannot speak
READ_BACK_MS = 90_000  # a leader that does not read its own tick for so long cannot write its log: it resigns [6]. A broker that is
# paused for a minute replaces nobody; a standby that can read takes the key of a silent leader long before
ELECTED_BACK_MS = 15_000  # the same for its own election, behind which no standby knows that it leads
CAMPAIGN_MS = 1_000  # between two tries
GIVEN_MS = 500  # in which a standby takes what is given away, before its giver asks for it again
IDLE_MS = 50  # a follower's longest wait for a record
SILENT_LOOK_MS = 5  # the same once the leader is known to be silent


class Role(Enum):
    FOLLOWING = "following"
    CAMPAIGNING = "campaigning"  # asked etcd for the key
    ELECT = "elect"  # has the key, its Elected is not folded yet
    LEADING = "leading"


@dataclass(frozen=True)
class View:
    """The leader key as etcd last showed it: its mod_revision, 0 when it is absent; None: etcd has not answered yet. mine: it holds
    this process's name and lease. foreign: it has no lease, so no leader wrote it, and it never ends by itself [31]."""

    epoch: int | None
    mine: bool = False
    foreign: bool = False


@dataclass
class Election:
    """One replica's part in the election. Times are the shell's monotonic milliseconds, stamps the broker's."""

    role: Role = Role.FOLLOWING
    epoch: int = 0  # while ELECT or LEADING: the one won
    last_won: int = 0
    elect_ms: int = 0  # the first look at the time since it won; 0: none yet
    heard_ms: int = 0  # when the last taken tick (or Elected) was folded
    probe_stamp_ms: int = 0  # stamp of the first own probe folded since; 0: none
    read_stamp_ms: int = 0  # stamp of the last record folded
    returned_stamp_ms: int = 0  # probes before this stamp prove nothing
    probed_ms: int = 0  # when the last probe was sent
    asking: bool = False  # the last probe was not read back yet
    probes: int = 0
    silent: bool = False
    stuck: int = 0  # ticks since the mark stands still below the last output
    asked_ms: int = -CAMPAIGN_MS
    attendants: dict[str, int] = field(default_factory=dict)  # other replica -> when its last probe was folded
    ticked_ms: int = 0  # leader: when the last tick was sent
    ticks: int = 0  # leader: number of the last tick sent

    def heard(self, now_ms: int, published_through: int, before: int, said: int) -> None:
        """A tick was taken, or a leader's Elected folded."""
        self.heard_ms, self.probe_stamp_ms = now_ms, 0
        self.stuck = self.stuck + 1 if published_through == before < said else 0
        self.silent = self.stuck >= STUCK_TICKS

    def read(self, stamp_ms: int, next_ms: int) -> None:
        """Any record was folded. After a pause of the log, which a broker or a network makes, all have time to come back."""
        if self.read_stamp_ms and stamp_ms - self.read_stamp_ms > PAUSE_TICKS * next_ms:
            self.probe_stamp_ms, self.returned_stamp_ms = 0, stamp_ms + RETURN_MS
        self.read_stamp_ms = stamp_ms

    def probed(self, stamp_ms: int, next_ms: int) -> None:
        """An own probe was folded. Without a tick since the one before, over five of the promised intervals, there is silence."""
        if stamp_ms < self.returned_stamp_ms:
            return
        if not self.probe_stamp_ms:
            self.probe_stamp_ms = stamp_ms
        elif stamp_ms - self.probe_stamp_ms >= SILENCE_TICKS * next_ms:
            self.silent = True

    def attended(self, who: str, now_ms: int) -> None:
        """Another replica's probe was folded."""
        late = [name for name, at_ms in self.attendants.items() if now_ms - at_ms >= ATTENDED_MS]
        for name in late:
            del self.attendants[name]
        self.attendants[who] = now_ms

    def attended_by(self, now_ms: int, within_ms: int) -> list[str]:
        """The other replicas that probed within this time. Any thread."""
        return [name for name, at_ms in list(self.attendants.items()) if now_ms - at_ms < within_ms]

    def give_away(self, now_ms: int) -> None:
        """A leader lets others lead: it follows, and does not ask for the key at once."""
        self.follow(now_ms)
        self.asked_ms = now_ms - CAMPAIGN_MS + GIVEN_MS

    def won(self, epoch: int) -> None:
        self.role, self.epoch, self.last_won, self.elect_ms = Role.ELECT, epoch, epoch, 0
        self.silent = False

    def lead(self, now_ms: int) -> None:
        """The own Elected was folded."""
        self.role, self.ticks, self.ticked_ms, self.heard_ms = Role.LEADING, 0, now_ms, now_ms

    def follow(self, now_ms: int) -> None:
        """The term is over, or the campaign was lost; the process goes on."""
        self.role, self.epoch = Role.FOLLOWING, 0
        self.heard_ms, self.probe_stamp_ms, self.silent, self.stuck = now_ms, 0, False, 0

    def suspects(self, now_ms: int, next_ms: int) -> bool:
        return self.role is Role.FOLLOWING and now_ms - self.heard_ms >= SUSPECT_TICKS * next_ms

    def next_look_ms(self, now_ms: int, next_ms: int) -> int:
        """When a follower must look at the time again, if nothing is read until then."""
        if self.role is not Role.FOLLOWING:
            return now_ms + IDLE_MS
        if self.silent:
            return now_ms + SILENT_LOOK_MS
        suspected_ms = self.heard_ms + int(SUSPECT_TICKS * next_ms)
        due_ms = self.probed_ms + PROBE_MS if now_ms >= suspected_ms else suspected_ms
        return due_ms if now_ms < due_ms < now_ms + IDLE_MS else now_ms + IDLE_MS

    def campaigns(self, now_ms: int, view: View, folded_epoch: int, caught_up: bool, heir: bool) -> int | None:
        """The mod_revision of the key that is to be replaced (0: absent), or None: this is not the time.

        A key whose epoch has no record in the log yet is left alone until its lease ends: its holder may be about to write. heir: the
        leader of that epoch bore this process's name, so it is the life before this one, and nobody waits for the dead. A
        key that is our own and was used (the answer to a resignation was lost) is taken anew: our lease would keep it for ever. So would
        a foreign one stand for ever: it is replaced, and the epoch rises all the same.
        """
        if (
            self.role is not Role.FOLLOWING
            or not caught_up
            or view.epoch is None
            or now_ms - self.asked_ms < CAMPAIGN_MS
        ):
            return None
        if view.epoch == 0 or view.mine or view.foreign or ((self.silent or heir) and view.epoch == folded_epoch):
            self.role, self.asked_ms = Role.CAMPAIGNING, now_ms
            return view.epoch
        return None
