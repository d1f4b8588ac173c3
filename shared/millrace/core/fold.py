"""The fold: one record of an inbox into the state of a scope, and what the scope says and does because of it.

Pure: every replica that folds the same inbox has the same state and would say the same. The shell never looks inside; it gives
records and carries out what comes back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .chain import Offer, Peer, offer, take
from .clocks import NowMs, after
from .machine import Born, Configured, Do, Envelope, Forget, Machine, Output, PassedOver, PeerBorn, Publish, Say, Ticked
from .messages.base import Body
from .messages.events import LeaderElected
from .messages.records import (
    Client,
    Elected,
    Fact,
    Forked,
    Hello,
    Message,
    Outcome,
    Probe,
    Record,
    Tick,
    encode,
    message_json,
)
from .topics import OUTPUT_BYTES_MAX, TASK_MANAGER, Scope, Topology

TICK_MS = 100
HELLO_TICKS = 10  # [R9]
OUTBOX_QUIET = 10_000  # while so much waits for Kafka, nobody is greeted besides: it would wait behind the rest
PARTED_KEPT = 5_000  # peers whose life is over [R32]: more come and go for as long as a cluster lives


class Diverged(Exception):
    """This replica's outputs differ from the leader's: it must not lead, and ends itself."""


class Oversized(AssertionError):
    """A machine said something that Kafka would not take: a bug, for what can be large goes by reference [R15]."""


@dataclass(slots=True)
class OutboxRecord:
    """One output that goes to Kafka, in the outbox until it is known to be there."""

    seq: int
    topic: str
    partition: int
    key: str
    type: str
    value: str  # the record's JSON
    after: str = ""  # topic or type: sent once all of that before this one are in Kafka (`Say.after`, `Publish.after`)
    trace: str = ""  # `Publish.trace`


@dataclass(slots=True)
class PendingEffect:
    """An effect without an outcome."""

    key: str
    effect: str  # its JSON
    after: int = 0  # performed once all outputs up to this one are in Kafka


@dataclass
class ScopeState:
    """All that a scope knows: the machine's state and what the core keeps around it. Snapshots hold this and nothing else [R13]."""

    generation: int
    next_offset: int
    epoch: int = 0  # of the last valid Elected; 0: none in this generation yet
    revision: int = 0  # etcd's highest that this log knows of [R24]
    build: str = ""
    who: str = ""
    tick: int = 0  # the last taken tick of this epoch
    tick_stamp_ms: int = 0  # broker's stamp of the last taken tick; 0: none yet
    next_ms: int = TICK_MS  # within which the leader promised its next tick
    stamp_ms: int = 0  # broker's stamp of the last record
    now_ms: NowMs = NowMs(0)
    ticks: int = 0  # ticks taken in this generation
    digest: str = ""  # of all outputs so far
    ticked_digest: str = ""  # of all outputs up to the last taken tick
    said: int = 0  # sequence number of the last output
    published_through: int = 0  # all outputs up to this one are in Kafka
    outbox: dict[int, OutboxRecord] = field(default_factory=dict)  # seq -> output, seqs published_through + 1 .. said
    effects: dict[str, PendingEffect] = field(default_factory=dict)  # effect id -> effect without an outcome, in order
    peers: dict[str, Peer] = field(default_factory=dict)  # scope -> chains with it; of those that parted the last PARTED_KEPT
    parted_through: int = 0  # the latest life of those that parted before these
    client_log: str = ""  # Dispatcher: identity of client.commands
    client_mark: int = -1  # Dispatcher: offset of the last request taken
    client_stamp: tuple[int, int, int] = (-1, 0, 0)  # Dispatcher: that offset, the request's stamp (0: unknown), the latest of all stamps
    state: Any = None


@dataclass(slots=True)
class FoldResult:
    """What one record led to. `taken`: it changed something. `damage`: why this log, or a part of it, is not whole [R8]."""

    taken: bool = False
    said: list[OutboxRecord] = field(default_factory=list)
    done: list[str] = field(default_factory=list)  # ids of new effects
    outcome: str | None = None  # the effect that has its outcome now
    outcome_key: str | None = None
    damage: str | None = None
    unreadable: bool = False  # the damage is in what is read, and not in what a peer says: no replica can fold on
    superseded: bool = False  # a peer has heard this scope in a later life than this replica folds [R28]


@dataclass(frozen=True, slots=True)
class Parked:
    """A record that ended processes, and is passed over [R26]. `error`: what it did, for the machine; None: being told of that ended a
    process as well, so the machine is told nothing."""

    error: str | None


class _HandlerBypass:
    """Wraps a machine while a parked record is folded: the machine gets PassedOver instead of the record's body. Born and PeerBorn are
    still delivered, for they occur once, and what is done then would be owed for ever. Without an error the machine gets nothing."""

    def __init__(self, machine: Machine, parked: Parked) -> None:
        self._machine, self._error = machine, parked.error
        self.scope, self.peers, self.state_type, self.blank = (
            machine.scope,
            machine.peers,
            machine.state_type,
            machine.blank,
        )
        self.is_idle = machine.is_idle

    def handle(self, state: Any, envelope: Envelope) -> Iterator[Output]:
        if self._error is not None and isinstance(envelope.body, (Born, PeerBorn)):
            return self._machine.handle(state, envelope)
        if self._error is None or not isinstance(envelope.body, (Body, Client)):
            return iter(())
        return self._machine.handle(state, envelope._replace(body=PassedOver(envelope.body, self._error)))


class Fold:
    """Folds the inbox of one machine. `life` of the scope is the generation of what it folds."""

    def __init__(self, machine: Machine, topology: Topology) -> None:
        self.machine, self.topology = machine, topology

    def blank(self, generation: int, offset: int) -> ScopeState:
        """The state at the start of a generation [R22]."""
        return ScopeState(generation, offset, state=self.machine.blank())

    def fold(self, folded: ScopeState, offset: int, stamp_ms: int, record: Record) -> FoldResult:  # [R1]
        """Folds one record at `offset` with the broker's `stamp_ms`. Raises Diverged; any other exception is a bug."""
        hole = self._go_on(folded, offset)
        if hole is not None:
            return hole
        folded.stamp_ms = stamp_ms
        if isinstance(record, Elected):
            return self._elected(folded, offset, stamp_ms, record)
        if folded.epoch == 0:
            return FoldResult()  # nothing counts before the first Elected of the generation [R22]
        if isinstance(record, Message):
            return self._message(folded, offset, record)
        if isinstance(record, Tick):
            return self._tick(folded, offset, stamp_ms, record)
        if isinstance(record, Outcome):
            return self._outcome(folded, offset, record)
        if isinstance(record, Client):
            return self._client(folded, offset, record)
        if isinstance(record, Fact):
            return self._run(folded, offset, FoldResult(taken=True), [(record.body, "", 0)])
        assert isinstance(record, Probe), f"a record of an unknown kind: {record!r}"
        return FoldResult()

    def pass_over(self, folded: ScopeState, offset: int, stamp_ms: int, record: Record | None, parked: Parked) -> FoldResult:
        """Folds a parked record without its handler [R26]: marks, effects and time go on, so that nothing behind it is taken for damage
        or waits for ever. What it asked for is not done, and the machine is told so with the error. record None: bytes that are none."""
        if record is None:
            return self._go_on(folded, offset) or FoldResult()
        return Fold(_HandlerBypass(self.machine, parked), self.topology).fold(folded, offset, stamp_ms, record)

    def _go_on(self, folded: ScopeState, offset: int) -> FoldResult | None:
        """To the next record. No transaction writes here and nothing is compacted, so each offset has its record: where some are missing,
        outcomes may be among them that nobody says again [R8]. Nothing is folded then."""
        assert offset >= folded.next_offset, f"offset {offset} after {folded.next_offset}: the log was read twice"
        if offset > folded.next_offset:
            return FoldResult(damage=f"the records from offset {folded.next_offset} to {offset - 1} are missing", unreadable=True)
        folded.next_offset = offset + 1
        return None

    def _elected(self, folded: ScopeState, offset: int, stamp_ms: int, record: Elected) -> FoldResult:  # [R22]
        if record.generation != folded.generation or record.epoch <= folded.epoch:
            return FoldResult()  # another generation's, or a zombie's: void
        first = folded.epoch == 0
        folded.epoch, folded.build, folded.who, folded.tick = record.epoch, record.build, record.who, 0
        folded.next_ms = TICK_MS
        folded.revision = max(folded.revision, record.epoch)
        if first:
            folded.now_ms, folded.tick_stamp_ms = NowMs(stamp_ms), stamp_ms  # machine time begins with the broker's
        result = FoldResult(taken=True)
        bodies: list[tuple[Any, str, int]] = [(Configured(record.settings), "", 0)]
        outputs: list[Output] = []
        if first:
            outputs += [Say(peer, Hello()) for peer in self.machine.peers]
            bodies.append((Born(), "", 0))
        if not self.machine.scope.startswith(TASK_MANAGER):  # it has no leader: its incarnation is told by the ResourceManager
            fact = LeaderElected(
                scope=self.machine.scope, leader=record.who, epoch=record.epoch, generation=record.generation,
                at_ms=stamp_ms,
            )  # fmt: skip
            outputs.append(Publish("cluster.events", self.machine.scope, fact))
        return self._run(folded, offset, result, bodies, outputs)

    def _tick(self, folded: ScopeState, offset: int, stamp_ms: int, record: Tick) -> FoldResult:  # [R9], [R14], [R24]
        if record.epoch != folded.epoch or record.n != folded.tick + 1:
            return FoldResult()  # of an older leader, or twice, or after a hole [R3]
        if record.digest != folded.ticked_digest:
            raise Diverged(
                f"{self.machine.scope}: at offset {offset} the leader {folded.who} has sent {record.digest[:12]},"
                f" this replica {folded.ticked_digest[:12]}"
            )
        folded.tick = record.n
        folded.ticks += 1
        folded.now_ms = after(folded.now_ms, min(max(stamp_ms - folded.tick_stamp_ms, 0), 2 * folded.next_ms))  # [R4]
        folded.tick_stamp_ms, folded.next_ms = stamp_ms, record.next_ms
        folded.revision = max(folded.revision, record.revision)
        for seq in range(folded.published_through + 1, min(record.published_through, folded.said) + 1):
            del folded.outbox[seq]
        folded.published_through = max(folded.published_through, min(record.published_through, folded.said))
        hellos: list[Output] = []
        if folded.ticks % HELLO_TICKS == 0 and len(folded.outbox) < OUTBOX_QUIET:
            hellos = [Say(name, Hello()) for name, peer in folded.peers.items() if not peer.parted]
        result = self._run(folded, offset, FoldResult(taken=True), [(Ticked(), "", 0)], hellos)
        folded.ticked_digest = folded.digest
        return result

    def _outcome(self, folded: ScopeState, offset: int, record: Outcome) -> FoldResult:  # [R17]
        pending = folded.effects.pop(record.effect, None)
        if pending is None:
            return FoldResult()  # known already: a zombie's port and its successor's both posted the fact
        result = FoldResult(taken=True, outcome=record.effect, outcome_key=pending.key)
        return self._run(folded, offset, result, [(record.result, "", 0)])

    def _client(self, folded: ScopeState, offset: int, record: Client) -> FoldResult:
        if record.log != folded.client_log:
            if record.prev != -1:
                return FoldResult()  # a port begins a new log, or one that lost its end and has a new name, so
            folded.client_log, folded.client_mark = record.log, -1
        if record.prev != folded.client_mark or record.offset <= folded.client_mark:
            return FoldResult()  # copied by an older leader's port as well [R2]
        if record.prev_stamp_ms and folded.client_stamp[1] not in (0, record.prev_stamp_ms):
            return FoldResult()  # what was copied before it has been lost since, and another one stands there
        folded.client_stamp = (record.offset, record.stamp_ms, max(record.stamp_ms, folded.client_stamp[2]))
        folded.client_mark = record.offset
        return self._run(folded, offset, FoldResult(taken=True), [(record, "", 0)])

    def _message(self, folded: ScopeState, offset: int, record: Message) -> FoldResult:  # [R8], [R28]
        if record.to != self.machine.scope:
            return FoldResult()  # partitions of TaskManagers are shared
        peer = folded.peers.get(record.sender)
        verdict = offer(peer, folded.generation, record)
        if verdict in (Offer.DUPLICATE, Offer.OTHER_LIFE):
            if record.to_life > folded.generation:
                return FoldResult(superseded=True)
            if peer is None or (record.to_life and record.life > peer.life > 0):
                # It sends to an earlier life of ours, and must learn of this one. Either it is not among those that are greeted at
                # birth, or all that was received of it is a late message of an earlier life, to which we would send for ever.
                if peer is not None:
                    folded.peers[record.sender] = Peer(life=record.life - 1, parted=True)
                return self._run(folded, offset, FoldResult(taken=True), [], [Say(record.sender, Hello())])
            return FoldResult()
        if verdict is Offer.GAP and (peer is None or peer.parted) and record.life <= folded.parted_through:
            # A zombie that parted so long ago that nobody knows it, and this log has lost nothing; or one that lives, and whose birth was
            # lost with a cut log. Only that one answers a greeting, with the words that this log has lost.
            result = self._forked(folded, record)
            if result.damage is not None:
                return result
            folded.peers.pop(record.sender, None)
            folded.peers[record.sender] = Peer(life=record.life - 1, parted=True)
            self._drop_parted(folded)
            return self._run(folded, offset, result, [], [Say(record.sender, Hello())])
        if verdict is Offer.GAP:
            return FoldResult(damage=f"{record.sender} has sent {record.prev}, which is not in this log")
        if verdict is Offer.FORK:
            assert peer is not None and peer.mark is not None
            peer.forked = True
            result = self._forked(folded, record)
            if result.damage is not None:
                return result  # both logs were cut
            answer = Forked(life=record.life, mark=peer.mark)
            return self._run(folded, offset, result, [], [Say(record.sender, answer)])
        take(folded.peers, folded.generation, record)
        result = self._forked(folded, record)
        if isinstance(record.body, Forked):
            return result
        bodies: list[tuple[Any, str, int]] = []
        hellos: list[Output] = []
        if verdict is Offer.BORN:
            hellos = [Say(record.sender, Hello())]
            bodies.append((PeerBorn(Scope(record.sender), record.life), record.sender, record.life))
        if not isinstance(record.body, Hello):
            bodies.append((record.body, record.sender, record.life))
        return self._run(folded, offset, result, bodies, hellos)

    def _forked(self, folded: ScopeState, record: Message) -> FoldResult:
        """With the damage that a peer tells of [R8]."""
        result = FoldResult(taken=True)
        if isinstance(record.body, Forked) and record.body.life == folded.generation:
            result.damage = f"{record.sender} has heard this scope say {record.body.mark}, which is not in this log"
        return result

    def _run(
        self,
        folded: ScopeState,
        offset: int,
        result: FoldResult,
        bodies: list[tuple[Any, str, int]],
        first: list[Output] | None = None,
    ) -> FoldResult:
        """Gives bodies to the machine and takes its outputs in, in order. `first`: what the core says before."""
        name = f"{folded.generation}.{offset}"
        index = 0
        for output in first or ():
            index = self._take_in(folded, (offset, index), result, output)
        for body, sender, life in bodies:
            envelope = Envelope(Scope(sender), life, folded.now_ms, name, body, folded.stamp_ms)
            for output in self.machine.handle(folded.state, envelope):
                index = self._take_in(folded, (offset, index), result, output)
        return result

    def _take_in(self, folded: ScopeState, key: tuple[int, int], result: FoldResult, output: Output) -> int:
        """One output of the machine into the outbox or the effects; returns the index of the next."""
        if isinstance(output, Say):
            spoken = self._say(folded, key, output)
            if spoken is None:
                return key[1]
        elif isinstance(output, Publish):
            partition = self.topology.partition(output.topic, output.key)
            spoken = self._publish(folded, output.topic, partition, output.key, output.body, output.after, output.trace)
        elif isinstance(output, Do):
            effect = f"{folded.generation}.{key[0]}.{key[1]}"
            value = encode(output.effect).decode()
            folded.effects[effect] = PendingEffect(output.key, value, folded.said if output.after_said else 0)
            self._mix(folded, f"{output.key} {value}")
            result.done.append(effect)
            return key[1] + 1
        else:
            assert isinstance(output, Forget), f"no output: {output!r}"
            peer = folded.peers.get(output.peer)
            if peer is None or peer.life <= output.life:
                folded.peers.pop(output.peer, None)
                folded.peers[output.peer] = Peer(life=output.life, parted=True)  # behind those that parted before
                self._drop_parted(folded)
            return key[1]
        result.said.append(spoken)
        return key[1] + 1

    def _drop_parted(self, folded: ScopeState) -> None:
        parted = [name for name, peer in folded.peers.items() if peer.parted]
        for name in parted[: max(0, len(parted) - PARTED_KEPT)]:
            folded.parted_through = max(folded.parted_through, folded.peers.pop(name).life)

    def _say(self, folded: ScopeState, key: tuple[int, int], output: Say) -> OutboxRecord | None:
        """The next link of the chain to a peer; None where the peer is not to be spoken to."""
        peer = folded.peers.get(output.to)
        if peer is None:
            if not isinstance(output.body, Hello):
                return None  # not heard yet: declared to when it is [R10]
            peer = folded.peers[output.to] = Peer()
        life = 0 if peer.parted else peer.life
        if life == 0 and not isinstance(output.body, Hello):
            return None
        if peer.said_to != life or life == 0:
            # Its new life knows nothing of our chain: start anew. To an unheard peer each Hello is a start: what it folds may begin
            # between two of them (records before its first Elected do not count), and prev would then look like a hole.
            peer.said, peer.said_to = None, life
        topic, partition = self.topology.inbox(output.to)
        value = message_json(output.to, life, self.machine.scope, folded.generation, key, peer.said, output.body)
        peer.said = key
        return self._put(folded, topic, partition, output.to, output.body.type, value, output.after)

    def _publish(
        self, folded: ScopeState, topic: str, partition: int, key: str, body: Body, after: str = "", trace: str = ""
    ) -> OutboxRecord:
        return self._put(folded, topic, partition, key, body.type, encode(body).decode(), after, trace)

    def _put(
        self, folded: ScopeState, topic: str, partition: int, key: str, kind: str, value: str, after: str = "", trace: str = ""
    ) -> OutboxRecord:  # [R13], [R15]
        # A character has at most four bytes.
        size = len(value) if len(value) * 4 <= OUTPUT_BYTES_MAX else len(value.encode())
        if size > OUTPUT_BYTES_MAX:
            raise Oversized(f"{self.machine.scope} says a {kind} of {size} bytes; the limit is {OUTPUT_BYTES_MAX}")
        folded.said += 1
        spoken = OutboxRecord(folded.said, topic, partition, key, kind, value, after, trace)
        folded.outbox[folded.said] = spoken
        self._mix(folded, value)
        return spoken

    def _mix(self, folded: ScopeState, text: str) -> None:
        folded.digest = hashlib.blake2b(text.encode(), digest_size=16, key=folded.digest.encode()).hexdigest()
