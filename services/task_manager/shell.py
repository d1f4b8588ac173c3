"""The shell around a TaskManager's machine: one ordered input, folded by one thread.

Commands (read by a thread of their own) and local facts (posted by the slots' threads) go into one queue. The loop takes them in order,
writes them to the journal, folds them and carries out what follows. There is no standby: a `SoloReplica` folds and speaks, and what it
has said but Kafka has not lies in folded state, as with every other machine. Whether others may have its tasks is `core/presence.py`'s.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import structlog
from pydantic import ValidationError

from millrace.core.clocks import OwnMs
from millrace.core.fold import TICK_MS, Fold, ScopeState
from millrace.core.messages.effects import EndProcess, type_of
from millrace.core.messages.records import Fact, Message, Record, UnknownRecord, decode, encode
from millrace.core.messages.slots import CaughtUp, DeployTasks, FellBehind, SlotReady, Unheard
from millrace.core.replica import Action, Append, BeReborn, End, Perform, Speak
from millrace.core.solo import SoloReplica
from millrace.core.states import PresenceState
from millrace.core.topics import RESOURCE_MANAGER, TASK_MANAGER, Topology
from millrace.io.interfaces import Bus, Received, Store
from millrace.runtime import envelope
from millrace.runtime.hosting import monotonic_ms
from millrace.runtime.metrics import COMMAND_LAG
from millrace.runtime.performer import InOrder

from . import incarnation
from .core import fencing, slot_table
from .core.machine import TaskManager
from .core.presence import Presence, Sight
from .inbox import Inbox
from .inputs import AGAIN, FAILED, STOPPED, Ending, InboxRead, Inputs, Item, WakeUp
from .journal import Journal
from .ports.effects import SlotsPort, ports

MAY_LAUNCH = (DeployTasks, SlotReady)

log = structlog.get_logger("task-manager")


class Shell:
    """One TaskManager's loop, for `running.run` or a simulator: they call `begin`, then `inbox.read` and `turn` again and again."""

    def __init__(
        self,
        name: str,
        topology: Topology,
        bus: Bus,
        store: Store,
        deciding: dict[str, Any],
        journal: Journal,
        probe: incarnation.Probe,
        *,
        build: str,
        clock: Callable[[], OwnMs] = monotonic_ms,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """`deciding`: settings of the machine, but its incarnation. `probe` is asked when Kafka is silent."""
        COMMAND_LAG.begin(TASK_MANAGER)
        self.name, self.topology, self.bus, self.store, self.deciding = name, topology, bus, store, deciding
        self.journal, self.build, self.clock, self._probe = journal, build, clock, probe
        self.machine = TaskManager(name, topology.shards)
        self.over: Ending | None = None
        self.incarnation, self.turned_ms = 0, clock()
        self.presence = Presence(clock())
        self.replica: SoloReplica | None = None
        self.inbox: Inbox | None = None
        self.slots: SlotsPort | None = None
        self._performer: InOrder | None = None
        self._wall_less_own_ms = wall_ms() - clock()  # machine time begins with the wall clock's, and goes on with the monotonic one
        self.inputs = Inputs()
        self._beats_to = topology.inbox(RESOURCE_MANAGER)
        self._acks: deque[tuple[int, bool]] = deque()  # which output Kafka has, and whether it was the ResourceManager's

    def use(self, slots: SlotsPort) -> None:
        """The slots that its effects reach: before `begin`."""
        self.slots = slots
        self._performer = InOrder(self.machine.scope, ports(slots, self._end))

    @property
    def folded(self) -> ScopeState | None:
        return self.replica.folded if self.replica is not None else None

    @property
    def state(self) -> Any:
        return self.replica.folded.state if self.replica is not None else None

    def begin(self) -> None:
        """Reads the end of the inbox, takes an incarnation, and begins it [R28]. Raises Unavailable: nothing has begun."""
        topic, partition = self.topology.inbox(self.machine.scope)
        end = self.bus.offsets(topic, partition)[1]
        self.incarnation = incarnation.take(self.store, self.name, {"host": self.deciding["host"], "build": self.build})
        self.turned_ms = own_ms = self.clock()
        self.presence = Presence(own_ms)
        self.inbox = Inbox(self.bus, self.topology, self.machine.scope, end, self.presence, self.inputs, self.clock)
        core = Fold(self.machine, self.topology)
        folded = core.blank(self.incarnation, 0)
        self.journal.begin(self.machine, folded)
        self.replica = SoloReplica(core, folded, who=self.name, build=self.build, own_ms=own_ms)
        log.info("begins", incarnation=self.incarnation, topic=topic, partition=partition, offset=end)
        self._do(self.replica.begin({**self.deciding, "incarnation": self.incarnation, "build": self.build}))

    def turn(self, patience_ms: int) -> bool:
        """Folds what is in the queue (waits for it so long), looks at the time. False: there was nothing."""
        assert self.replica is not None
        items = self.inputs.taken(patience_ms)
        self.presence.look(self._sight())
        asks = not all(isinstance(item, InboxRead | WakeUp) for item in items)
        if asks and self.clock() - self.replica.ticked_ms >= TICK_MS:
            self._tick(self.clock())  # what they ask for is timed from now, and not from a slow tick before
        for item in items:
            if self.over is not None:
                break
            self._take_item(item)
        self._take_acks()
        own_ms = self.turned_ms = self.clock()
        if self.over is None:
            self._check_presence(own_ms)
        if self.over is None and own_ms >= self.due_ms:
            self._tick(own_ms)
        self.presence.rest(own_ms, self.due_ms)
        return bool(items)

    def _take_item(self, item: Item) -> None:
        if isinstance(item, Received):
            self._receive(item)
        elif isinstance(item, Ending):
            self.over = item
        elif isinstance(item, InboxRead):
            self.presence.inbox_read(self._sight()._replace(asked_ms=item.asked_ms))
        elif isinstance(item, Fact):
            self._fold_in(item)

    def _receive(self, received: Received) -> None:
        """A command. Only messages count: who else writes here, writes nothing that decides."""
        COMMAND_LAG.observe(time.time() - received.stamp_ms / 1000, TASK_MANAGER)
        try:
            record = decode(received.value)
        except (ValidationError, UnknownRecord) as error:
            where = f"{received.topic}[{received.partition}] offset {received.offset}"
            self.over = Ending(f"{where} is no record of this build: {error}"[:2000], FAILED)
            return
        if not isinstance(record, Message):
            log.warning("a record that is no message", offset=received.offset, record=record.record)
            return
        text = received.value.decode()
        self._fold_in(record, text if "\n" not in text else None)

    def _fold_in(self, record: Record, text: str | None = None) -> None:
        """A record from outside this thread. If it might launch something, and others may have the tasks, the machine knows that before."""
        if isinstance(record, Message | Fact) and isinstance(record.body, MAY_LAUNCH):
            self.presence.look(self._sight())
            if self.presence.behind and not self.state.behind:
                self._fold(Fact(body=FellBehind()))
        self._fold(record, text)

    def _take_acks(self) -> None:
        assert self.replica is not None
        self.bus.serve()
        while self._acks:
            seq, beats = self._acks.popleft()
            self._do(self.replica.acked(seq))
            if beats:  # what others have of it, at another partition, keeps nobody from being declared lost
                self.presence.silence.kafka_answered()

    # time

    @property
    def due_ms(self) -> OwnMs:
        """When the next tick is made, if nothing comes before."""
        assert self.replica is not None
        return self.replica.next_tick_ms(self._rest_ms())

    def _rest_ms(self) -> int:
        return TICK_MS if self.presence.behind else self.machine.rest_ms(self.state)

    def _sight(self) -> Sight:
        return Sight(self.clock(), self.state.lost_after_ms)

    def _tick(self, own_ms: OwnMs) -> None:
        assert self.replica is not None
        if self.slots is not None:
            self.slots.beat(fencing.patience_ms(self.state.lost_after_ms))
        self._do(self.replica.tick(own_ms, self._rest_ms()))
        self.journal.flush()

    def _check_presence(self, own_ms: OwnMs) -> None:  # [R28]
        """Fencing: counts silence, and asks etcd whether this TaskManager was declared lost."""
        assert self.replica is not None
        presence, state, lost_after_ms = self.presence, self.state, self.state.lost_after_ms
        unacked = bool(self.replica.speaking.unacked)
        presence.count_silence(Sight(own_ms, lost_after_ms), holds=slot_table.any_allocated(state), unacked=unacked)
        silent = presence.suspects(lost_after_ms)
        if silent or presence.behind:  # what runs here may run elsewhere by now, and nothing that is read tells
            self._probe.ask()
        answer = self._probe.answered()
        if answer is not None:
            presence.etcd_answered(self._sight(), has_it=answer == self.incarnation)
        if presence.state is PresenceState.LOST:
            why = "Kafka does not answer it" if silent else "it was away, or could not read its inbox"
            self.over = Ending(f"{why}, and etcd says that it was declared lost", AGAIN)
            return
        if state.behind and not presence.behind:
            self._fold(Fact(body=CaughtUp()))
        if slot_table.living(state) and presence.is_isolated(lost_after_ms):
            self._fold(Fact(body=Unheard(silent_ms=presence.silence.both_ms)))

    # folding, and what follows

    def _fold(self, record: Record, text: str | None = None) -> None:
        """The next record of the one input. `text`: its JSON, if it is there already."""
        assert self.replica is not None
        stamp_ms = self._wall_less_own_ms + self.clock()
        self.journal.write(self.replica.folded, stamp_ms, text or encode(record).decode())
        self._do(self.replica.record(stamp_ms, record))

    def _do(self, actions: list[Action]) -> None:  # [R8]
        for action in actions:
            if isinstance(action, Speak):
                self._send(action)
            elif isinstance(action, Perform):
                self._perform(action)
            elif isinstance(action, Append):
                self._fold(action.record)
            elif isinstance(action, End):
                self.over = Ending(f"another process is now the TaskManager {self.name}: its incarnation is later", FAILED)
            elif isinstance(action, BeReborn):
                self.over = Ending(f"its inbox is not whole: {action.reason}", AGAIN)

    def _send(self, action: Speak) -> None:
        output = action.spoken
        beats = (output.topic, output.partition) == self._beats_to
        self.bus.append(
            output.topic, output.partition, output.value.encode(), key=output.key.encode(),
            headers=envelope.of_output(self.machine.scope, self.incarnation, output),
            on_ack=lambda: self._acks.append((output.seq, beats)),
        )  # fmt: skip

    def _perform(self, action: Perform) -> None:
        assert self._performer is not None and self.replica is not None, "a TaskManager without slots"
        outcome = self._performer.perform(action, type_of(action.value))
        if outcome is not None:
            self._do(self.replica.outcome(action.effect, outcome))

    def _end(self, effect: EndProcess) -> None:
        self.over = Ending(effect.reason, AGAIN if effect.again else STOPPED)
