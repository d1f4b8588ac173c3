"""A replica of a scope, sans-IO: folds every record, and speaks while it leads.

The shell gives it what it reads, what etcd shows, and the time; it answers with actions. Nothing here waits, retries or knows a
thread. Every input method returns the actions to carry out, in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .clocks import OwnMs
from .election import ATTENDED_MS, ELECTED_BACK_MS, QUIET_TICK_MS, READ_BACK_MS, WAKING_MS, Election, View
from .fold import TICK_MS, Fold, FoldResult, OutboxRecord, Parked, ScopeState
from .messages.records import Elected, Outcome, Probe, Record, Tick
from .speaking import Speaking
from .states import Role


@dataclass(frozen=True)
class Append:
    """Write this record to the own inbox."""

    record: Record


@dataclass(frozen=True)
class Speak:
    """Send this output; tell `acked(epoch, seq)` when it is in Kafka."""

    epoch: int
    spoken: OutboxRecord


@dataclass(frozen=True)
class Perform:
    """Carry this effect out, fenced by `epoch`, until its outcome is known; then give `outcome`."""

    epoch: int
    effect: str
    key: str
    value: str


@dataclass(frozen=True)
class Campaign:
    """Take the leader key if its mod_revision is still `expected` (0: absent); then give `won` or `lost`."""

    expected: int


@dataclass(frozen=True)
class Resign:
    """Give the leader key back if it is still that of `epoch`."""

    epoch: int
    reason: str


@dataclass(frozen=True)
class BeReborn:
    """Raise the generation (with the leader key, in one transaction) and start blank: this log is not whole [R8]."""

    reason: str


@dataclass(frozen=True)
class Reopen:
    """What comes next in the log cannot be read here, and its leader has read it: leave, and go on from a snapshot behind it, or, once
    nobody leads, from a new generation [R8]."""

    reason: str


@dataclass(frozen=True)
class Cede:
    """The log goes on as another build from `offset` on: fold nothing more, and give back what was won, until its leader has handed
    over [R27]."""

    build: str
    offset: int


@dataclass(frozen=True)
class End:
    """This replica must not go on: a later life of its scope has been heard [R28]."""

    reason: str


Action = Append | Speak | Perform | Campaign | Resign | BeReborn | Reopen | Cede | End


class BaseReplica:
    """What a scope does with or without election: it sends what it has folded, and performs effects in their order."""

    def __init__(self, fold: Fold, folded: ScopeState, *, who: str, build: str) -> None:
        self.fold, self.folded = fold, folded
        self.who, self.build = who, build
        self.speaking = Speaking()

    @property
    def epoch(self) -> int:
        """The epoch that it speaks with."""
        raise NotImplementedError

    def _speak(self, result: FoldResult) -> list[Action]:
        actions: list[Action] = []
        for record in result.said:
            self.speaking.queue(record.seq)
            actions.append(Speak(self.epoch, record))
        for effect in result.done:
            if self.speaking.may_perform(self.folded.effects[effect].key, effect):
                actions += self._perform(effect)
        if result.outcome is not None and result.outcome_key is not None:
            following = self.speaking.done(result.outcome, result.outcome_key)
            if following is not None:
                actions += self._perform(following)
        return actions

    def _perform(self, *effects: str) -> list[Action]:
        """Those of them that do not wait for what was sent before them."""
        known = self.folded.effects
        ready = [effect for effect in effects if not self.speaking.must_wait(effect, known[effect].after)]
        return [Perform(self.epoch, effect, known[effect].key, known[effect].effect) for effect in ready]

    def outcome(self, effect: str, result: Any) -> list[Action]:
        """A port knows what an effect led to. Posted also after the term has ended: it is a fact [R17]."""
        return [Append(Outcome(effect=effect, result=result))]


class Replica(BaseReplica):
    """`who` names the process, `build` the code; `settings` are the deciding ones that it will lead with."""

    def __init__(self, fold: Fold, folded: ScopeState, *, who: str, build: str, settings: dict[str, Any]) -> None:
        super().__init__(fold, folded, who=who, build=build)
        self.settings = settings
        self.election = Election()
        self._revision = 0
        self._woken_ms: OwnMs | None = None  # leader: the first beat since its last tick at which there was something to do

    @property
    def role(self) -> Role:
        return self.election.role

    @property
    def leads(self) -> bool:
        return self.election.role is Role.LEADING

    @property
    def epoch(self) -> int:
        """The epoch that this replica has won, while it is elect or leads; else 0."""
        return self.election.epoch

    @property
    def awaits(self) -> bool:
        """An effect goes once what was sent before it is in Kafka."""
        return self.leads and bool(self.speaking.deferred)

    def record(
        self, offset: int, stamp_ms: int, record: Record | None, own_ms: OwnMs, parked: Parked | None = None
    ) -> list[Action]:
        """Folds a record of the inbox. parked: it is passed over. A record None stands for bytes that are none."""
        folded, before = self.folded, self.folded.published_through
        if parked is not None:
            result = self.fold.pass_over(folded, offset, stamp_ms, record, parked)
        else:
            assert record is not None
            result = self.fold.fold(folded, offset, stamp_ms, record)
        if result.unreadable:
            assert result.damage is not None
            alone = self.election.has_key or self.election.silent
            return [BeReborn(result.damage) if alone else Reopen(result.damage)]
        self.election.read(stamp_ms, folded.next_ms)
        if isinstance(record, Probe):
            if record.who != self.who:
                self.election.attended(record.who, own_ms)
                return []
            self.election.probed(stamp_ms, folded.next_ms)
            return []
        if not result.taken and not result.damage and not result.superseded:
            return []
        actions: list[Action] = []
        if result.superseded:
            return [End(f"{self.fold.machine.scope} lives in a later life than {folded.generation}")]
        if isinstance(record, Tick):
            self.election.leader_seen(own_ms, folded.published_through, before, folded.said)
        elif isinstance(record, Elected):
            actions += self._elected(record, offset, own_ms)
            if self.leads:
                return actions  # begin() has sent and done what this record led to
        if self.leads:
            actions += self._speak(result)
        if result.damage is not None and self.leads:
            # A standby of a damaged log waits: its leader, which folds the same, raises the generation for all.
            actions.append(BeReborn(result.damage))
        return actions

    def _elected(self, record: Elected, offset: int, own_ms: OwnMs) -> list[Action]:  # [R27]
        election, mine = self.election, self.settings.get("cluster")
        theirs = record.settings.get("cluster")
        if mine and theirs and theirs != mine:  # both would fold this log, each with leaders that its own etcd has chosen [R29]
            whose = f"{self.fold.machine.scope}'s log is also led by {record.who} of cluster {theirs}, and this is cluster {mine}"
            return [End(f"{whose}: give each cluster a Kafka of its own")]
        if record.build != self.build:
            return [Cede(record.build, offset)]
        if election.elected(own_ms, record.epoch, own=record.who == self.who):
            self.speaking = Speaking()
            seqs, effects = self.speaking.begin(self.folded)
            unpublished = [Speak(election.epoch, self.folded.outbox[seq]) for seq in seqs]
            return [*unpublished, *self._perform(*effects), *self._tick(own_ms)]
        election.leader_seen(own_ms, 0, 0, 0)
        return []

    def acked(self, epoch: int, seq: int) -> list[Action]:
        """An output of the term `epoch` is in Kafka. What waited for it may have its outcome already, from an earlier leader."""
        if epoch != self.election.epoch:
            return []
        return self._perform(*(effect for effect in self.speaking.acked(seq) if effect in self.folded.effects))

    def won(self, epoch: int) -> list[Action]:
        """etcd gave this process the key: its mod_revision is the epoch."""
        self.election.won(epoch)
        folded = self.folded
        return [Append(Elected(
            generation=folded.generation, epoch=epoch, build=self.build, who=self.who, settings=self.settings
        ))]  # fmt: skip

    def lost(self, own_ms: OwnMs) -> None:
        """The campaign was lost, or its outcome is not known."""
        self.election.follow(own_ms)

    def follow(self, own_ms: OwnMs) -> None:
        """It begins to follow, or its term is over."""
        self.election.follow(own_ms)

    def give_away(self, own_ms: OwnMs) -> None:
        """Its term is over, and a standby may lead."""
        self.election.give_away(own_ms)

    def standbys(self, own_ms: OwnMs, within_ms: int) -> tuple[str, ...]:
        """The other replicas that were heard within this time. Any thread."""
        return tuple(self.election.attended_by(own_ms, within_ms))

    def beat(self, own_ms: OwnMs, view: View, caught_up: bool, revision: int = 0) -> list[Action]:
        """The shell's turn, several times a tick. revision: the highest of etcd's that it has seen."""
        self._revision = revision
        if self.election.loses_key(own_ms, view):
            return []
        if self.role is Role.LEADING:
            return list(self._tick(own_ms))
        if self.role is Role.ELECT:
            return self._await_elected(own_ms)
        return self._follow(own_ms, view, caught_up)

    def _await_elected(self, own_ms: OwnMs) -> list[Action]:
        ended = self.election.gives_up(own_ms, self.folded.tick)
        return [Resign(ended, f"its own election was not read back for {ELECTED_BACK_MS // 1000} s")] if ended else []

    def _follow(self, own_ms: OwnMs, view: View, caught_up: bool) -> list[Action]:
        election = self.election
        unused = view.mine and (view.epoch or 0) > max(self.folded.epoch, election.last_won)
        if unused and self.role is Role.FOLLOWING:
            return self.won(view.epoch or 0)  # the answer to the campaign was lost
        heir = self.folded.who == self.who and self.folded.epoch != election.last_won
        expected = election.campaigns(own_ms, view, self.folded.epoch, caught_up, heir)
        if expected is not None:
            return [Campaign(expected)]
        number = election.probe(own_ms, self.folded.next_ms) if view.epoch and caught_up else None
        return [Append(Probe(who=self.who, n=number))] if number is not None else []

    def _tick(self, own_ms: OwnMs) -> Iterable[Action]:
        """The next tick is made only after the last was read back."""
        election, folded = self.election, self.folded
        if election.awaits_tick(folded.tick):
            ended = election.gives_up(own_ms, folded.tick)
            if ended:
                yield Resign(ended, f"its own tick was not read back for {READ_BACK_MS // 1000} s")
            return
        quiet = self._is_quiet(own_ms)
        if not quiet and self._woken_ms is None:
            self._woken_ms = own_ms
        if own_ms < self.next_tick_ms(own_ms):
            return
        number, self._woken_ms = folded.tick + 1, None
        election.ticked(own_ms, number)
        yield Append(
            Tick(
                epoch=election.epoch,
                n=number,
                published_through=self.speaking.published_through(),
                digest=folded.ticked_digest,
                next_ms=QUIET_TICK_MS if quiet else TICK_MS,
                revision=self._revision,
            )
        )

    def next_look_ms(self, own_ms: OwnMs) -> OwnMs:
        """When it must look at the time again, if nothing is read until then."""
        if self.leads and not self.election.awaits_tick(self.folded.tick):
            return self.next_tick_ms(own_ms)
        return self.election.next_look_ms(own_ms, self.folded.next_ms)

    def next_tick_ms(self, own_ms: OwnMs) -> OwnMs:
        """When the leader's next tick is due: sooner than promised soon after there is something to do, and never later, for what the
        log has no tick for is no time [R4]."""
        ticked_ms = self.election.ticked_ms
        if ticked_ms is None:
            return own_ms
        due_ms = QUIET_TICK_MS if self._woken_ms is None else max(TICK_MS, self._woken_ms + WAKING_MS - ticked_ms)
        return OwnMs(ticked_ms + min(self.folded.next_ms, due_ms))

    def _is_quiet(self, own_ms: OwnMs) -> bool:
        """Nothing is on its way, no timer runs, nobody watches: ticks would only warm the room."""
        folded = self.folded
        if self.speaking.unacked or folded.effects or self.election.attended_by(own_ms, ATTENDED_MS):
            return False
        return self.fold.machine.is_idle(folded.state)
