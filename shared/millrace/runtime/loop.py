"""The shell around one replica: reads its inbox, folds, carries out the actions. One thread a scope runs it.

The replica decides by its log; what etcd has become of the scope is decided here: `_meet_damage`, `_end`, `_be_reborn`,
`_open`. What a leader's other threads know (outcomes, requests of clients) they append to the inbox themselves: the log is the only
way in, and its reader is woken by it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import structlog
from pydantic import ValidationError

from millrace.core.balance import Standing
from millrace.core.clocks import OwnMs
from millrace.core.election import ATTEND_MS
from millrace.core.fold import Fold, OutboxRecord
from millrace.core.messages.base import Body, Part
from millrace.core.messages.effects import type_of
from millrace.core.messages.records import decode, encode
from millrace.core.replica import Action, Append, BeReborn, Campaign, Cede, End, Perform, Reopen, Replica, Resign, Speak
from millrace.core.states import Role
from millrace.io.interfaces import Damaged, Entry, OffsetGone, Reader, Received, Unavailable
from millrace.io.storage.store import StorageError

from . import envelope
from .foreign import Foreign
from .generations import Generation, Generations, LogReplaced, stored
from .health import folded_health
from .hosting import Hosted, Surroundings
from .leader_key import LeaderKey
from .loading import Loading, OtherBuild
from .metrics import COMMAND_LAG, FENCED, GENERATIONS, PASSED_OVER, TERMS, TERMS_LOST
from .outcomes import Outcomes
from .parked import ParkedRecords
from .saving import Saving
from .sending import Sending
from .snapshots import Snapshots, Unreadable
from .terms import Terms

STANDBY_SILENT_MS = ATTEND_MS + 5_000  # a standby that was not heard for so long is not counted on
FLUSH_MS = 2_000  # for a leader's last words
LOOK_MS = 1_000  # a leader's longest wait for a record: its lease is renewed only while the loop turns
ACKED_MS = 5  # a leader's longest wait for a record while an effect waits for an acknowledgement
HELD_MS = 1  # a wait for an acknowledgement, between two looks at the inbox
SHOWN = {Role.LEADING: "leader", Role.FOLLOWING: "standby"}  # the others pass in an instant
WAIT_S = 0.5  # until etcd or Kafka is asked again
CEDED_WAIT_S = 0.1  # until it is looked again whether another build has handed over
ELECT_TURNS = 50  # of a loop that is to end, for what it has won to be folded

log = structlog.get_logger("loop")


class ScopeLoop:
    """Hosts one replica. `run` is a thread's work: turn after turn, until `stop`; the simulator makes the turns itself."""

    def __init__(self, hosted: Hosted, around: Surroundings) -> None:
        self.hosted, self.around, self.scope = hosted, around, hosted.machine.scope
        self._inbox = self.topic, self.partition = around.topology.inbox(self.scope)
        self.generations = Generations(around.store, around.bus, self.scope, self.topic, self.partition, around.who)
        self.snapshots = Snapshots(around.store, around.storage, hosted.machine, around.cluster)
        self.saving = Saving(self.snapshots, hosted.machine, around.beside, lambda offset: around.bus.delete_below(*self._inbox, offset))
        self.loading = Loading(self.snapshots, around.bus, *self._inbox, around.build)
        self.parked = ParkedRecords(around.store, self.scope, around.build)
        self._sending = Sending(self._send)
        self._outcomes = Outcomes()
        self.terms = Terms(hosted, self.append, self._sending.end, around.build)
        self.performer = around.performer(self.scope, hosted.ports, self._on_outcome, self.terms.is_current, around.fatal)
        self.key = LeaderKey(self.scope, around.who, around.lease)
        self.stale = False  # etcd names another generation than the one folded here
        self.turned_ms = around.clock()
        self.replica: Replica | None = None
        self.generation: Generation | None = None
        self._acks: deque[tuple[int, int]] = deque()
        self._uncounted: list[OutboxRecord] = []
        self._stopping = threading.Event()
        self._giving_away = threading.Event()
        self._damage: str | None = None  # why the generation must be raised, until it is
        self._reader: Reader | None = None
        self._caught_up = False
        self._passed_over = (0, -1)  # generation and offset of the last record that was counted
        self.waits_for = ""  # the build that folds the log now, if it is another one
        for metric in (TERMS, TERMS_LOST, GENERATIONS, FENCED, PASSED_OVER):
            metric.begin(self.scope)
        COMMAND_LAG.begin(self.scope)

    @property
    def log(self) -> Any:
        return self.terms.log

    # what other threads call

    def stop(self) -> None:
        self._stopping.set()

    def standing(self) -> Standing | None:
        """Who leads the scope and who could, as far as its log was folded; None: not known yet."""
        replica = self.replica
        if replica is None or self.waits_for:
            return None
        return Standing(self.scope, replica.folded.who, replica.standbys(self.around.clock(), STANDBY_SILENT_MS))

    def give_away(self) -> None:
        """Lets a standby lead, if this replica does."""
        self._giving_away.set()

    def raised(self, entry: Entry | None) -> None:
        """The generation's key has changed. Only the next look at it (`_open`) ends `stale`: the two are different threads. What no build
        wrote counts as a change: `_open` waits until it is mended [R31]."""
        if entry is None:
            return
        try:
            number = stored(entry).generation
        except Foreign:
            self.stale = True
        else:
            self.stale = self.stale or self.generation is None or number != self.generation.number

    def append(self, record: Part, on_ack: Callable[[], None] | None = None) -> None:
        """Appends a record to the own inbox (`hosting.AppendRecord`)."""
        headers = envelope.of_record(self.scope, record)
        self.around.bus.append(*self._inbox, encode(record), key=self.scope.encode(), headers=headers, on_ack=on_ack)

    def _on_outcome(self, action: Perform, outcome: Body) -> None:
        self._append_outcome(action.effect, outcome)

    # the thread

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                self.turn()
            self.close()
        except Exception as failure:
            self.log.exception("the replica ends", offset=self.replica.folded.next_offset if self.replica is not None else None)
            self.around.fatal(f"{self.scope}: {type(failure).__name__}: {failure}")

    def turn(self) -> bool:
        """Reads what there is, folds it, carries out what follows, looks at the time. False: nothing was read."""
        if self.stale or self._reader is None:
            self._leave()
            self._open()
            return False
        replica, reader = self.replica, self._reader
        assert replica is not None
        if self._damage is not None:
            self.around.wait(self._stopping, WAIT_S)
            self._be_reborn(self._damage)
            return False
        try:
            batch = reader.poll(self._patience(replica))
        except OffsetGone as gone:
            if gone.offset >= gone.first:  # the log was cut below what is folded, though it may have grown again [R8]
                self._be_reborn(f"the log was cut and ends at {gone.end}; what lay before offset {gone.offset} was folded")
            else:
                self._leave()
            return False
        except Damaged as damaged:
            self._meet_damage(damaged.offset, str(damaged))
            return False
        now = self.around.clock()
        for received in batch:
            self._fold(replica, received, now)
            if self.stale or self._damage is not None or self._reader is None:
                return True  # a new generation begins, or another build: what follows is not for this replica
        self._take_acks(replica)
        self._caught_up = not batch and (self._caught_up or self._at_end(replica))
        now = self.turned_ms = self.around.clock()
        self._do(replica.beat(now, self.key.view, self._caught_up, self.around.store.revision))
        self._count_sent(replica)
        self.terms.update(replica)
        self._append_lost(replica)
        if self._giving_away.is_set():
            self._giving_away.clear()
            self._give_away(replica)
        elif replica.leads and self.saving.is_due(replica.folded):
            self._save(replica)
        return bool(batch)

    def _meet_damage(self, offset: int, reason: str) -> None:
        """A reader of its own tries once more, for a bit may have been flipped on the way; then the log is as good as cut there [R8]. Where
        another leads it is not: that one has read it, and a follower goes on from a snapshot behind it."""
        assert self.generation is not None
        if self.loading.unread(self.generation.number, offset) and not self.key.is_led:
            self._be_reborn(reason)
            return
        self.log.error("a record cannot be read; another reader tries", reason=reason)
        self._leave()

    def _take_acks(self, replica: Replica) -> None:
        """While a message is held back, waits up to HELD_MS for acknowledgements instead of for the next record."""
        awaited = self._sending.awaits
        self.around.bus.serve(HELD_MS if awaited else 0, awaited)
        while self._acks:
            acked = self._acks.popleft()
            self._do(replica.acked(*acked))
            self._sending.acked(*acked)

    def _append_outcome(self, effect: str, outcome: Body) -> None:
        """Any thread."""
        replica = self.replica
        assert replica is not None
        self._do(replica.outcome(effect, outcome))
        self._outcomes.appended(effect, outcome, replica.folded.tick)

    def _append_lost(self, replica: Replica) -> None:
        if not replica.leads:
            self._outcomes.clear()
            return
        for effect, outcome in self._outcomes.lost(replica.folded):
            self.log.warning("the log has lost an outcome, which is appended again", effect=effect, outcome=type(outcome).__name__)
            self._append_outcome(effect, outcome)

    def _fold(self, replica: Replica, received: Received, now: OwnMs) -> None:  # [R26]
        parked = self.parked.find(received.offset)
        if parked is not None:
            self._count_passed_over(received.offset)
        if replica.leads:  # who follows may read what is days old
            COMMAND_LAG.observe(time.time() - received.stamp_ms / 1000, self.scope)
        try:
            try:
                record = decode(received.value)
            except ValidationError:
                if parked is None:
                    raise
                record = None
            actions = replica.record(received.offset, received.stamp_ms, record, now, parked)
        except Exception as failure:
            self.parked.blame(received.offset, failure)
            raise
        self.saving.read(received.offset, len(received.value))
        self._do(actions)

    def _count_passed_over(self, offset: int) -> None:
        """Once, however often this process folds it. Standbys count as well: whoever leads has mostly folded it before."""
        assert self.generation is not None
        where = self.generation.number, offset
        if where > self._passed_over:
            self._passed_over = where
            PASSED_OVER.add(self.scope)

    def _open(self) -> None:
        """The replica as the newest snapshot has it, and a reader behind it; neither if something does not answer."""
        try:
            before, self.stale = self.generation, False
            self.generation = generation = self.generations.current()
            if before is not None and generation.number > before.number:
                self._damage = None  # of a log that is not folded any more
            loaded = self.loading.state(generation, self.key.is_led)
            self.parked.load(generation.number)
        except (Unavailable, StorageError, Unreadable) as failure:
            self.turned_ms = self.around.clock()
            if isinstance(failure, OtherBuild):
                self._wait_for(failure)
                return
            self.log.warning("waiting", reason=str(failure))
            if isinstance(failure, LogReplaced) and not self.key.is_led:
                self._replace_log(failure)
            self.around.wait(self._stopping, WAIT_S)
            return
        core, around = Fold(self.hosted.machine, self.around.topology), self.around
        folded = loaded or core.blank(generation.number, generation.first_offset)
        self.saving.begin(folded)
        self.waits_for = ""
        self.replica = Replica(core, folded, who=around.who, build=around.build, settings=self.hosted.settings(around.cluster))
        self.replica.follow(around.clock())
        self._caught_up = False
        self._reader = around.bus.reader(self.topic, self.partition, folded.next_offset)
        self.log.info("following", generation=generation.number, offset=folded.next_offset, snapshot=loaded is not None)
        if generation.won:
            self._do(self.replica.won(generation.won))

    def _wait_for(self, other: OtherBuild) -> None:
        """Another build folds the log: a replica of this one waits until its leader has ended its term in order."""
        if self.waits_for != other.build:
            self.waits_for = other.build
            what = "waits for a handover: end the leader of the other build by SIGTERM"
            self.log.warning(what, folded_by=other.build, build=self.around.build)
        self.around.wait(self._stopping, CEDED_WAIT_S)

    def _cede(self, action: Cede) -> None:  # [R27]
        """The log goes on as another build: nothing more is folded here until that one hands over."""
        assert self.replica is not None and self.generation is not None
        if self.replica.epoch:
            self._resign(self.replica.epoch)
        self.replica.follow(self.around.clock())
        self.loading.cede(self.generation.number, action.offset, action.build)
        self._leave()
        self._wait_for(OtherBuild(action.build))

    def _leave(self) -> None:
        """The replica is given up: its term is lost if nobody has ended it before, its reader closes."""
        self.terms.lose()
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def close(self) -> None:  # [R27]
        """The end of this host: a leader's last words, then all is let go. Who has just won leads first, for its Elected stands in the
        log: without last words no other build could go on behind it."""
        for _ in range(ELECT_TURNS):
            if self.replica is None or self.replica.role is not Role.ELECT:
                break
            self.turn()
        if self.replica is not None and self.replica.leads and not self.stale and self._damage is None:
            self._end_in_order(self.replica)
        self._leave()
        self.performer.stop(1.0)

    def _patience(self, replica: Replica) -> int:
        """How long a poll may take: until the next tick is due, and never so long that the loop seems to stand."""
        if self._sending.awaits:
            return 0
        now = self.around.clock()
        return min(max(1, replica.next_look_ms(now) - now), ACKED_MS if replica.awaits else LOOK_MS)

    def _at_end(self, replica: Replica) -> bool:
        """Asks Kafka, which may be slow to answer. A leader does not ask: its ticks, and its lease, must not wait for that."""
        with contextlib.suppress(Unavailable):
            return not replica.leads and self.around.bus.offsets(*self._inbox)[1] <= replica.folded.next_offset
        return False

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            CARRY_OUT[type(action)](self, action)

    def _perform(self, action: Perform) -> None:
        assert self.replica is not None
        self.terms.update(self.replica)
        self.performer.perform(action, type_of(action.value))

    def _retire(self, action: Resign) -> None:
        self.log.warning("resigns", reason=action.reason, epoch=action.epoch)
        self._resign(action.epoch)

    def _end(self, reason: str) -> None:
        """This replica must not go on. If its scope has begun a new generation it follows that one; else the process ends [R28]."""
        assert self.generation is not None
        try:
            self.stale = self.generations.current().number > self.generation.number
        except Unavailable:
            self.stale = True  # what has become of it is found out when etcd answers
        if not self.stale:
            raise RuntimeError(reason)
        self.log.warning("the replica begins anew", reason=reason)

    def _send(self, action: Speak) -> None:
        assert self.generation is not None
        output, mark = action.spoken, (action.epoch, action.spoken.seq)
        self.around.bus.append(
            output.topic, output.partition, output.value.encode(), key=output.key.encode(),
            headers=envelope.of_output(self.scope, self.generation.number, output), on_ack=lambda: self._acks.append(mark),
        )  # fmt: skip
        if output.type in self.hosted.counts:
            self._uncounted.append(output)

    def _count_sent(self, replica: Replica) -> None:
        """For the metrics, once all is sent that a turn has to send."""
        counted, self._uncounted = self._uncounted, []
        for output in counted:
            self._count(output, replica.folded.state)

    def _count(self, output: OutboxRecord, state: Any) -> None:
        """Whatever fails in it, nothing else does."""
        try:
            self.hosted.counts[output.type](output, state)
        except Exception:
            self.log.exception("an output could not be counted", type=output.type)

    def _campaign(self, expected: int) -> None:
        assert self.replica is not None and self.generation is not None
        replica, epoch = self.replica, None
        try:
            epoch = self.generations.campaign(expected, self.around.lease(), self.generation, replica.folded.revision)
        except Unavailable as failure:
            self.log.warning("could not campaign", reason=str(failure))
        if epoch is None:
            replica.lost(self.around.clock())
        else:
            self.key.won(epoch)
            self._do(replica.won(epoch))

    def _be_reborn(self, reason: str) -> None:  # [R8]
        """Raises the generation together with the leader key [R23], then starts anew."""
        assert self.generation is not None and self.replica is not None
        epoch = self.replica.epoch or self.key.view.epoch or 0
        self.log.error("the log is not whole: a new generation begins", reason=reason, generation=self.generation.number + 1)
        try:
            raised = self.generations.raise_(self.generation, epoch, self.around.lease(), reason, self.replica.folded.revision)
            if not raised:
                self.replica.follow(self.around.clock())  # the leader key is another's, or free
            if raised:
                GENERATIONS.add(self.scope)
            over = raised or self.generations.current().number > self.generation.number
        except Unavailable as failure:
            self.log.warning("the generation could not be raised yet", reason=str(failure))
            over = False
        if over:
            self._damage, self.stale = None, True
        else:
            # Nothing is folded from here on: a snapshot and what is left of the log would look whole.
            self._damage, self.turned_ms = reason, self.around.clock()

    def _replace_log(self, replaced: LogReplaced) -> None:
        """Another log stands where this generation's was: a new one begins as soon as nobody else leads the old one."""
        try:
            self.generations.raise_(replaced.generation, self.key.view.epoch or 0, self.around.lease(), str(replaced))
        except Unavailable as failure:
            self.log.warning("the generation could not be raised yet", reason=str(failure))

    def _save(self, replica: Replica) -> None:
        self.saving.save(replica.folded)

    def _end_in_order(self, replica: Replica) -> None:
        """A clean stop: a snapshot, and the key given back, so that the next one takes over at once."""
        self._hand_over(replica, lambda: self.saving.last(replica.folded))

    def _give_away(self, replica: Replica) -> None:
        """A clean end of the term, without a snapshot: who takes over has folded all this."""
        if replica.leads:
            self.log.info("gives the leadership away", epoch=replica.epoch)
            self._hand_over(replica, lambda: replica.give_away(self.around.clock()))

    def _hand_over(self, replica: Replica, last: Callable[[], None]) -> None:
        epoch = replica.epoch
        self.terms.end()
        self.around.bus.flush(FLUSH_MS)
        last()
        self._resign(epoch)

    def _resign(self, epoch: int) -> None:
        """Gives the key back. Without an answer it is tried again while the key is seen to be ours, or its lease ends."""
        try:
            self.generations.resign(epoch)
        except Unavailable as failure:
            self.log.warning("the leader key is not given back yet", reason=str(failure))

    def health(self) -> dict[str, Any]:
        """For /health."""
        role = SHOWN.get(self.replica.role, self.replica.role.value) if self.replica is not None else "starting"
        if self.waits_for:
            role = "waiting" if self.key.view.epoch else "starting"  # without a leader there is none that could hand over
        scope = {"scope": self.scope, "role": role, "build": self.around.build, "waits_for": self.waits_for}
        return {**scope, **folded_health(self.replica), "turned_ms_ago": self.around.clock() - self.turned_ms}


CARRY_OUT: dict[type[Action], Callable[[Any, Any], object]] = {
    Speak: lambda loop, action: loop._sending.send(action),
    Append: lambda loop, action: loop.append(action.record),
    Perform: lambda loop, action: loop._perform(action),
    Campaign: lambda loop, action: loop._campaign(action.expected),
    Resign: lambda loop, action: loop._retire(action),
    BeReborn: lambda loop, action: loop._be_reborn(action.reason),
    Reopen: lambda loop, action: loop._meet_damage(loop.replica.folded.next_offset, action.reason),
    Cede: lambda loop, action: loop._cede(action),
    End: lambda loop, action: loop._end(action.reason),
}
"""What the replica answers -> how it is carried out. By name, so that a subclass may carry it out otherwise."""
