"""The shell around a TaskManager's machine: one ordered input, folded by one thread.

Commands (read from its Kafka partition by a thread of their own) and local events (told by the slots' threads) go into one queue; the
loop takes them in the order taken, writes them to the journal, folds them and carries out what follows. There is no standby: it speaks
from its first record on, and what it has said but not yet got into Kafka lies in folded state, as with every other machine.
"""

from __future__ import annotations

import contextlib
import json
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import structlog
from pydantic import Field, TypeAdapter, ValidationError

from millrace.core.election import QUIET_TICK_MS
from millrace.core.fold import TICK_MS, Fold, Folded, Told
from millrace.core.messages.base import Body
from millrace.core.messages.effects import AttemptKillSent, AttemptLaunched, EndProcess, KillAttempt, LaunchAttempt
from millrace.core.messages.records import Elected, Fact, Message, Outcome, Part, Tick, UnknownRecord, decode, encode
from millrace.core.messages.slots import QUIET_BEATS, CaughtUp, DeployTasks, FellBehind, SlotReady, StopAsked, Unheard
from millrace.core.speaking import Speaking
from millrace.core.topics import RESOURCE_MANAGER, Topology, task_manager_key
from millrace.io.interfaces import Bus, Compare, Delete, OffsetGone, Put, Reader, Received, Store, Txn, Unavailable
from millrace.runtime import envelope
from millrace.runtime.hosting import monotonic_ms

from .core import fencing, slot_table
from .core.machine import TaskManager
from .journal import Journal

STOPPED, FAILED, AGAIN = 0, 1, 75  # exit codes: asked to, broken, start it again (as a new incarnation)
BATCH_MOST = 200
FLUSH_MS = 1_000
CLOSE_S = 1.5
MAY_LAUNCH = (DeployTasks, SlotReady)

Effect = Annotated[LaunchAttempt | KillAttempt | EndProcess, Field(discriminator="type")]
_EFFECT: TypeAdapter[LaunchAttempt | KillAttempt | EndProcess] = TypeAdapter(Effect)

log = structlog.get_logger("task-manager")


class SlotsPort(Protocol):
    """What carries out the machine's effects on slots; see `ports.Slots`."""

    def launch(self, effect: LaunchAttempt) -> None: ...

    def kill(self, effect: KillAttempt) -> None: ...

    def beat(self, patience_ms: int) -> None: ...

    def close(self, timeout_s: float) -> None: ...


class Probe(Protocol):
    """Finds out whether etcd is there, and what it has of this TaskManager, without waiting for it; see `probe.EtcdProbe`."""

    def ask(self) -> None:
        """Asks, unless an answer is awaited already."""
        ...

    def answered(self) -> int | None:
        """The incarnation that etcd has (0: none), if an answer has come since this was last called; None: it has not."""
        ...


@dataclass(frozen=True)
class Over:
    """Why the TaskManager ends, and its exit code."""

    reason: str
    code: int


@dataclass(frozen=True)
class Read:
    """All that stood in the inbox at this moment, when its end was asked for, is in the queue before this."""

    asked_ms: int


class Wake:
    """Somebody wants the loop to look around."""


Item = Received | Part | Over | Read | Wake


class Shell:
    """One TaskManager's loop. `run` is a thread's work; a simulator calls `begin`, `read` and `turn` itself."""

    def __init__(
        self,
        name: str,
        topology: Topology,
        bus: Bus,
        store: Store,
        deciding: dict[str, Any],
        journal: Journal,
        probe: Probe,
        *,
        build: str,
        clock: Callable[[], int] = monotonic_ms,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """`deciding`: settings of the machine, but its incarnation. `probe` is asked when Kafka is silent."""
        self.name, self.topology, self.bus, self.store, self.deciding = name, topology, bus, store, deciding
        self.journal, self.build, self.clock, self._probe = journal, build, clock, probe
        self.slots: SlotsPort | None = None
        self.machine = TaskManager(name, topology.shards)
        self.key, self._heard_at = task_manager_key(name), topology.inbox(RESOURCE_MANAGER)
        self.over: Over | None = None
        self.incarnation = 0
        self.turned_ms = self._looks_ms = clock()
        self._wall_ms = (
            wall_ms() - clock()
        )  # machine time is wall-clock time at the start, then goes on with the monotonic one
        self._fold = Fold(self.machine, topology)
        self._folded: Folded | None = None
        self._inbox: queue.SimpleQueue[Item] = queue.SimpleQueue()
        # When it last noticed that it was away, cut off or did not read for so long that others may have its tasks: it must first read what
        # became of it. None: it has.
        self._behind_ms: int | None = None
        self._unproved = 0  # answers of etcd that it waits for when it has read its inbox
        self._next = 0  # what is read next of the inbox
        self._asked_ms = 0  # when it last asked where the inbox ends
        self._asked_end: int | None = None  # where that was; None: it has been read so far
        self._read_ms = 0  # all that stood in the inbox then has been folded, or nobody held a slot
        self._holds = False  # somebody held one at the last look
        self._speaking = Speaking()
        self._acks: deque[tuple[int, bool]] = deque()  # which output Kafka has, and whether it was the ResourceManager's
        self._silence = fencing.Silence(clock())
        self._awaits = False  # an answer of Kafka, at the last look
        self._reader: Reader | None = None
        self._ticked_ms = 0

    @property
    def state(self) -> Any:
        """The machine's state, for who looks on."""
        return self._folded.state if self._folded is not None else None

    @property
    def behind(self) -> bool:
        """Whether others may have its tasks: it launches nothing."""
        return self._behind_ms is not None

    def post(self, body: Body) -> None:
        """A local event. Callable from any thread, before `begin` too."""
        self._inbox.put(Fact(body=body))

    def wake(self) -> None:
        """Ends the loop's wait. Callable from any thread."""
        self._inbox.put(Wake())

    # the life of an incarnation

    def begin(self) -> None:
        """Reads the end of the inbox, takes an incarnation, and begins it [28]. Raises Unavailable: nothing has begun."""
        topic, partition = self.topology.inbox(self.machine.scope)
        end = self.bus.offsets(topic, partition)[1]
        put = Put(self.key, json.dumps({"host": self.deciding["host"], "build": self.build}).encode())
        entry = self.store.txn(Txn(compares=(), then=(put,), reads=(self.key,))).reads[self.key]
        assert entry is not None, "etcd does not show what it was just given"
        self.incarnation = entry.mod_revision
        self._reader, self._next = self.bus.reader(topic, partition, end), end
        self._folded = folded = self._fold.blank(self.incarnation, 0)
        self.journal.begin(self.machine, folded)
        self._silence = fencing.Silence(self.clock())
        self._ticked_ms = self.turned_ms = self._looks_ms = self.clock()
        log.info("begins", incarnation=self.incarnation, topic=topic, partition=partition, offset=end)
        settings = {**self.deciding, "incarnation": self.incarnation}
        self._take(Elected(
            generation=self.incarnation, epoch=self.incarnation, build=self.build, who=self.name, settings=settings
        ))  # fmt: skip

    def run(self, stopping: threading.Event, failure: Callable[[], str | None]) -> int:
        """Lives until it is over; returns the exit code. `failure`: why `stopping` was set, None if somebody asked for it."""
        self._await_begin(stopping)
        if self._reader is not None:
            threading.Thread(target=self._read_on, name="inbox", daemon=True).start()
            asked = False
            while self.over is None:
                if stopping.is_set() and not asked:
                    asked = True
                    reason = failure()
                    if reason is not None:
                        self.over = Over(reason, FAILED)
                        break
                    self.post(StopAsked())
                self.turn(max(0, self.due_ms - self.clock()))
        return self._finish()

    def _await_begin(self, stopping: threading.Event) -> None:
        said = 0
        while not stopping.is_set():
            try:
                self.begin()
                return
            except Unavailable as missing:
                if self.clock() - said > 5_000:
                    said = self.clock()
                    log.warning("waiting", reason=str(missing))
                self.turned_ms = self.clock()
                stopping.wait(0.2)

    def _finish(self) -> int:
        """The last words, then the slots with all that runs in them: in this order only where nobody else has the tasks yet."""
        over = self.over or Over("it was stopped", STOPPED)
        (log.info if over.code == STOPPED else log.error)("ends", reason=over.reason, code=over.code)
        if over.code == STOPPED:
            self.bus.flush(FLUSH_MS)
        if self.slots is not None:
            self.slots.close(CLOSE_S)
        if self.incarnation and over.code == STOPPED:
            try:
                mine = (Compare(self.key, self.incarnation),)
                self.store.txn(Txn(compares=mine, then=(Delete(self.key),)))
            except Unavailable:
                pass  # it says where a TaskManager was last; no more depends on it
        self.journal.close()
        return over.code

    # the input

    def read(self, timeout_ms: int = 0) -> bool:
        """Puts what Kafka has for us into the queue; False: there was nothing."""
        assert self._reader is not None
        own = self.machine.scope.encode()
        if self.asks_ms <= self.clock():
            asked_ms = self.clock()
            with contextlib.suppress(Unavailable):
                self._asked_end = self.bus.end(*self.topology.inbox(self.machine.scope))
                self._asked_ms = asked_ms
        has_read = self._asked_end is not None and self._next >= self._asked_end
        received = self._reader.poll(0 if has_read else timeout_ms)  # the loop may wait to know that all is read
        for each in received:
            self._next = each.offset + 1
            if each.key == own:  # other TaskManagers share the partition
                self._inbox.put(each)
        if self._asked_end is not None and self._next >= self._asked_end:
            self._asked_end = None
            self._inbox.put(Read(self._asked_ms))
        return bool(received)

    @property
    def asks_ms(self) -> float:
        """When it asks where its inbox ends: often enough for reading that stands still to be noticed; not while nobody holds a slot of it,
        for nothing can be deployed on it then."""
        if self._asked_end is not None or not (self.behind or self._holds):
            return math.inf
        return self._asked_ms + TICK_MS if self.behind else max(self._asked_ms, self._read_ms) + fencing.UNREAD_MS // 2

    def _read_on(self) -> None:
        assert self._reader is not None
        try:
            while self.over is None:
                self.read(200)
            self._reader.close()
        except (OffsetGone, Unavailable) as gone:
            self._inbox.put(Over(f"its inbox cannot be read on: {gone}", AGAIN))
        except Exception as failure:
            log.exception("the reader ends")
            self._inbox.put(Over(f"{type(failure).__name__}: {failure}", FAILED))

    def turn(self, patience_ms: int) -> bool:
        """Folds what is in the queue (waits for it so long), looks at the time. False: there was nothing."""
        items = self._waiting(patience_ms)
        self._notice_absence()
        if self.clock() - self._ticked_ms >= TICK_MS and not all(isinstance(item, Read | Wake) for item in items):
            self._tick(self.clock())  # what they ask for is timed from now, and not from a slow tick before
        for item in items:
            if self.over is not None:
                break
            if isinstance(item, Wake):
                continue
            if isinstance(item, Received):
                self._receive(item)
            elif isinstance(item, Over):
                self.over = item
            elif isinstance(item, Read):
                self._has_read(item)
            else:
                self._fold_in(item)
        self.bus.serve()
        while self._acks:
            seq, beats = self._acks.popleft()
            self._speaking.acked(seq)
            if beats:  # what others have of it, at another partition, keeps nobody from being declared lost
                self._silence.kafka_answered()
        now_ms = self.turned_ms = self.clock()
        if self.over is None:
            self._listen(now_ms)
        if self.over is None and now_ms >= self.due_ms:
            self._tick(now_ms)
        self._looks_ms = max(now_ms, self.due_ms - TICK_MS)
        return bool(items)

    @property
    def due_ms(self) -> int:
        """When the next tick is made, if nothing comes before: never later than the last one promised [4]."""
        folded = self._folded
        assert folded is not None
        return self._ticked_ms + min(folded.next_ms, self._interval_ms(folded))

    def _interval_ms(self, folded: Folded) -> int:
        """Between two ticks: while nobody needs it and all have heard it, a heartbeat's time, for ticks would only warm the room."""
        unheard = any(not peer.life and not peer.parted for peer in folded.peers.values())
        if unheard or self.behind or self._speaking.unacked or not self.machine.is_idle(folded.state):
            return TICK_MS
        return max(TICK_MS, min(QUIET_BEATS * folded.state.interval_ms, QUIET_TICK_MS))

    def _notice_absence(self) -> bool:
        """A process that was stopped, or starved, wakes with commands that it read before: others may have those tasks by now. So they may
        if its reading stood still. Until it has read what became of it, it launches nothing. False: nothing of that is so."""
        now_ms = self.clock()
        away = now_ms - self._looks_ms >= fencing.patience_ms(self.state.lost_after_ms)
        absent = away or self._holds and now_ms - self._read_ms >= fencing.UNREAD_MS
        if absent:
            self._behind_ms, self._unproved = now_ms, 0
        return absent

    def _has_read(self, read: Read) -> None:
        """It has read its inbox, and lives. That proves nothing if it has fallen behind since it asked, or while Kafka does not hear it: it
        may be declared lost the moment after. Then it reads on until it has caught up again."""
        self._read_ms = read.asked_ms
        hears = not fencing.is_over(self._silence.kafka_ms, self.state.lost_after_ms)
        if self._behind_ms is not None and read.asked_ms >= self._behind_ms and hears:
            self._unproved = self._unproved or 2  # the first may have been on its way since before that

    def _go_on(self) -> None:
        """etcd has it still, too: a ResourceManager born anew meanwhile, that never heard it, has no chain to tell it of its loss.
        Unless it was away once more since it began to look."""
        if self._notice_absence():
            return
        self._behind_ms = None
        if self.state.late:
            self._take(Fact(body=CaughtUp()))

    def _fold_in(self, record: Part, text: str | None = None) -> None:
        """A record from outside this thread. The machine is told first that it must launch nothing, if it might."""
        if isinstance(record, Message | Fact) and isinstance(record.body, MAY_LAUNCH):
            self._notice_absence()
            if self.behind and not self.state.late:
                self._take(Fact(body=FellBehind()))
        self._take(record, text)

    def _waiting(self, patience_ms: int) -> list[Item]:
        items: list[Item] = []
        try:
            items.append(self._inbox.get(patience_ms > 0, patience_ms / 1000 if patience_ms > 0 else None))
            while len(items) < BATCH_MOST:
                items.append(self._inbox.get_nowait())
        except queue.Empty:
            pass
        return items

    def _receive(self, received: Received) -> None:
        """A command. Only messages count: who else writes here, writes nothing that decides."""
        try:
            record = decode(received.value)
        except (ValidationError, UnknownRecord) as error:
            reason = (
                f"{received.topic}[{received.partition}] offset {received.offset} is no record of this build: {error}"
            )
            self.over = Over(reason[:2000], FAILED)
            return
        if not isinstance(record, Message):
            log.warning("a record that is no message", offset=received.offset, record=record.record)
            return
        text = received.value.decode()
        self._fold_in(record, text if "\n" not in text else None)

    def _tick(self, now_ms: int) -> None:
        assert self._folded is not None
        self._ticked_ms = now_ms
        if self.slots is not None:
            self.slots.beat(fencing.patience_ms(self.state.lost_after_ms))
        self._take(Tick(
            epoch=self.incarnation,
            n=self._folded.tick + 1,
            published_through=self._speaking.published_through(),
            digest=self._folded.ticked_digest,
            next_ms=self._interval_ms(self._folded),
        ))  # fmt: skip
        self.journal.flush()

    def _listen(self, now_ms: int) -> None:
        """Fencing: the machine is told when nobody has answered for too long. Where nobody holds a slot, who has said nothing waits for no
        answer; else silence counts from the last one, as the ResourceManager counts from the last heartbeat that Kafka has."""
        self._silence.turn(now_ms)
        living = slot_table.living(self.state)
        if not self._awaits:
            self._silence.kafka_answered()
        holds = any(slot.allocation is not None for slot in self.state.slots.values())
        if not (holds and self._holds):
            self._read_ms = now_ms
        self._holds = holds
        self._awaits = bool(self._speaking.unacked) or holds
        lost_after_ms = self.state.lost_after_ms
        if fencing.is_over(self._silence.kafka_ms, lost_after_ms):
            self._behind_ms, self._unproved = now_ms, 0  # cut off: what is in its inbox when it hears again may be somebody else's by now
        silent = fencing.asks_etcd(self._silence.kafka_ms, lost_after_ms)
        if silent or self.behind:  # what runs here may run elsewhere by now, and nothing that is read tells
            self._probe.ask()
        stands = self._probe.answered()
        if stands is not None:
            self._silence.etcd_answered()
        if stands not in (None, self.incarnation):
            why = "Kafka does not answer it" if silent else "it was away, or could not read its inbox"
            self.over = Over(f"{why}, and etcd says that it was declared lost", AGAIN)
            return
        if stands is not None and self._unproved:
            self._unproved -= 1
            if not self._unproved:
                self._go_on()
        if living and fencing.is_over(self._silence.both_ms, lost_after_ms):
            self._take(Fact(body=Unheard(silent_ms=self._silence.both_ms)))

    # folding, and what follows

    def _take(self, record: Part, text: str | None = None) -> None:
        """The next record of the one input. `text`: its JSON, if it is there already."""
        folded = self._folded
        assert folded is not None
        stamp_ms = self._wall_ms + self.clock()
        self.journal.write(folded, stamp_ms, text or encode(record).decode())
        told = self._fold.fold(folded, folded.next_offset, stamp_ms, record)
        if told.superseded:
            self.over = Over(f"another process is now the TaskManager {self.name}: its incarnation is later", FAILED)
        elif told.damage is not None:
            self.over = Over(f"its inbox is not whole: {told.damage}", AGAIN)
        else:
            self._carry_out(told, folded)

    def _carry_out(self, told: Told, folded: Folded) -> None:
        for said in told.said:
            self._speaking.queue(said.seq)
            self.bus.append(
                said.topic,
                said.partition,
                said.value.encode(),
                key=said.key.encode(),
                headers=envelope.of_spoken(self.machine.scope, self.incarnation, said),
                on_ack=lambda ack=(said.seq, (said.topic, said.partition) == self._heard_at): self._acks.append(ack),  # type: ignore[misc]
            )
        for name in told.done:
            self._perform(name, _EFFECT.validate_json(folded.effects[name].effect))

    def _perform(self, name: str, effect: LaunchAttempt | KillAttempt | EndProcess) -> None:
        """All take no time here: the slots do what they are told on threads of their own."""
        if isinstance(effect, EndProcess):
            self.over = Over(effect.reason, AGAIN if effect.again else STOPPED)
            return
        assert self.slots is not None, "a TaskManager without slots"
        if isinstance(effect, LaunchAttempt):
            self.slots.launch(effect)
            outcome: Any = AttemptLaunched(attempt=effect.attempt)
        else:
            self.slots.kill(effect)
            outcome = AttemptKillSent(attempt=effect.attempt)
        self._take(Outcome(effect=name, result=outcome))

    def health(self) -> dict[str, Any]:
        """For /health. Any thread."""
        folded = self._folded
        peer = folded.peers.get(RESOURCE_MANAGER) if folded is not None else None
        slots = {} if folded is None else {str(n): slot.state.value for n, slot in folded.state.slots.items()}
        turned = self.clock() - self.turned_ms
        return {
            "status": "ok" if turned < 3_000 else "stuck: the loop does not turn",
            "ready": peer is not None and peer.life > 0 and any(each != "STARTING" for each in slots.values()),
            "task_manager": self.name,
            "incarnation": self.incarnation,
            "registered": peer is not None and peer.life > 0,
            "slots": slots,
            "outbox": len(folded.outbox) if folded is not None else 0,
            "turned_ms_ago": turned,
        }
