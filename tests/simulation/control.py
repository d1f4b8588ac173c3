"""A simulated process of a control service: real machines, real replica core, real shell; only threads are turns."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from millrace import __version__
from millrace.core.fold import Diverged, OutboxRecord, ScopeState
from millrace.core.jobgraph.model import DEFAULT_LIMITS
from millrace.core.replica import Replica
from millrace.core.topics import DISPATCHER, shard_scope
from millrace.io.interfaces import Entry, OffsetGone, Received, Unavailable
from millrace.io.storage.store import StorageError
from millrace.runtime import shut_down
from millrace.runtime.beat import LEASE_RENEW_S, RETRY_S, Beat
from millrace.runtime.hosting import Hosted, Surroundings, Term
from millrace.runtime.loop import HELD_MS, WAIT_S, ScopeLoop
from millrace.runtime.performer import Fence, Refused
from millrace.runtime.service import BALANCE_S, balance
from services.dispatcher import metrics as dispatcher_metrics
from services.dispatcher.client_port import STUCK_S, Copier
from services.dispatcher.core.machine import Dispatcher
from services.dispatcher.core.state import check as check_dispatcher
from services.dispatcher.housekeeping import EVERY_S, FIRST_S, Housekeeping
from services.dispatcher.intake import Intake
from services.dispatcher.ports import JobStore
from services.dispatcher.request_marks import RequestMarks
from services.dispatcher.schedules.firing import LOOK_S, Firing
from services.dispatcher.trial import AT_ONCE, Inconclusive, Read, Tried, Unreadable
from services.job_master import metrics as job_master_metrics
from services.job_master.core.machine import JobMaster
from services.job_master.core.state import check as check_job_master
from services.job_master.ports import ports as job_master_ports
from services.resource_manager import metrics as resource_manager_metrics
from services.resource_manager.core.machine import ResourceManager
from services.resource_manager.core.state import check as check_resource_manager
from services.resource_manager.ports import ports as resource_manager_ports
from tests.simulation.book import Branch, Checked, Poisoned
from tests.simulation.bus import Log
from tests.simulation.graph_turns import GraphTurns
from tests.simulation.performing import StagingAtOnce, SteppedPerformer
from tests.simulation.store import MemoryStore
from tests.simulation.world import PREFIX, STALLED_MS, PacedBus, PacedReader, World


class NotedLoop(ScopeLoop):
    """A loop that notes in the book what it folds, and writes its snapshots as often as its world says."""

    def __init__(self, hosted: Hosted, around: Surroundings, world: World) -> None:
        super().__init__(hosted, around)
        self._world, self._book = world, world.book
        self._opens_ms = 0
        self.unanswered = False  # etcd does not answer when it gives its key back
        self.wakes_ms = 0  # when its thread goes on if there is nothing to read
        self._branch = Branch()

    @property
    def strays(self) -> bool:
        """Whether it has folded records that its log has lost since."""
        folded = self.replica.folded if self.replica is not None else None
        return folded is not None and bool(self._book.branch(self.scope, self._branch, folded.next_offset).strays)

    def turn(self) -> bool:
        try:
            return super().turn()
        finally:
            if self.replica is None or self._reader is None:
                self.wakes_ms = self._opens_ms
            elif self._damage is not None:
                self.wakes_ms = self.turned_ms + int(1000 * WAIT_S)
            elif self._sending.awaits:
                self.wakes_ms = self.turned_ms + HELD_MS
            else:
                self.wakes_ms = self._world.clock.now_ms() + self._patience(self.replica)

    def is_due(self) -> bool:
        """Whether its thread goes on now."""
        if self.wakes_ms <= self._world.clock.now_ms():
            return True
        if self._damage is not None:
            return False
        if self.stale or self._giving_away.is_set() or (self.around.bus.has_answers and self._sending.awaits):
            return True
        return isinstance(self._reader, PacedReader) and self._reader.has_news()

    def _fold(self, replica: Replica, received: Received, now: int) -> None:
        self._branch = self._book.branch(self.scope, self._branch, replica.folded.next_offset)
        before_ms, before_epoch = replica.folded.now_ms, replica.folded.epoch
        super()._fold(replica, received, now)
        self._book.record_folded(self.hosted.machine, replica.folded, self._branch, before_ms, before_epoch)

    def _count(self, output: OutboxRecord, state: Any) -> None:
        """A service would go on; here whoever cannot count an output is found."""
        self.hosted.counts[output.type](output, state)

    def _campaign(self, expected: int) -> None:
        """[R6]: nobody takes away the key of an epoch that it has not read of in the log; its holder may be about to write."""
        assert self.replica is not None
        etcd, key, epoch = self._world.etcd, f"{PREFIX}{self.generations.leader_key}", self.replica.folded.epoch
        etcd.expire()
        before = etcd.entry(key)
        super()._campaign(expected)
        after = etcd.entry(key)
        if before is not None and after is not None and after.mod_revision > before.mod_revision:
            known = before.mod_revision == epoch or before.value == self.around.who.encode() or not before.lease
            assert known, f"[R6]: {self.around.who} takes {key} from {before.value!r}, of whose epoch nothing was folded"

    def _resign(self, epoch: int) -> None:
        if self.unanswered:
            self.unanswered = False
            self.around.store.faults.appendleft("unavailable")
        super()._resign(epoch)

    def _open(self) -> None:
        super()._open()
        self._opens_ms = self._world.clock.now_ms() + int(1000 * WAIT_S)
        if self.replica is not None:
            folded, cuts = self.replica.folded, len(self._book.cuts.get(self.scope, ()))
            blank = Branch((), cuts)
            self._branch = self._book.snapshots.get((self.scope, folded.generation, folded.next_offset), blank)
            self.saving.due = folded.next_offset + self._world.snapshot_records

    def _save(self, replica: Replica) -> None:
        super()._save(replica)
        folded = replica.folded
        branch = self._book.branch(self.scope, self._branch, folded.next_offset)
        self._book.snapshots[self.scope, folded.generation, folded.next_offset] = branch
        self.saving.due = replica.folded.next_offset + self._world.snapshot_records


class ControlProcess:
    """`name` is `<service>#<n>`, or `job-master/<shard>#<n>` for one that hosts a single shard."""

    def __init__(self, world: World, name: str, deciding: dict[str, Any], build: str = __version__) -> None:
        self.world, self.name, self.build, self.alive = world, name, build, True
        world.look_whose()
        self.failure: str | None = None
        self.wants_again = False  # it has ended by itself, and is started again by who watches it
        self.bus = PacedBus(world, f"{name}.{world.next_start()}", self._fatal)
        self.store = MemoryStore(world.etcd, PREFIX, name)
        self._performers: list[SteppedPerformer] = []
        self.ended = False  # it has read that the cluster is shut down, and ends as at SIGTERM
        self.beat = Beat(self.store, lambda: self.loops, world.clock.now_ms, shut_down=self._shut_down)
        self._beat_ms, self._beats_well = 0, True
        self._balance_ms = world.clock.now_ms() + int(1000 * BALANCE_S)
        self._port: ClientPortTurns | None = None
        self._housekeeping: HousekeepingTurns | None = None
        self._schedules: ScheduleTurns | None = None
        self._graphs: GraphTurns | None = None
        self._copies: deque[tuple[int, Callable[[bytes | None], None], bytes]] = deque()
        around = Surroundings(
            self.bus,
            self.store,
            world.storage,
            world.topology,
            name,
            build,
            self.beat.lease,
            self._fatal,
            clock=world.clock.now_ms,
            performer=self._performer,
            wait=lambda event, seconds: None,
            beside=self._beside,
            cluster=world.cluster,
        )
        self.loops: list[NotedLoop] = []
        self.loops += [NotedLoop(each, around, world) for each in self._hosted(deciding)]
        self._turns = [(loop, lambda loop=loop: self._turn(loop)) for loop in self.loops]

    def _hosted(self, deciding: dict[str, Any]) -> list[Hosted]:
        world, topology = self.world, self.world.topology
        service, _, shard = self.name.partition("#")[0].partition("/")
        if service == "dispatcher":
            staging = StagingAtOnce(("memory",))
            jobs = JobStore(self.store, world.storage, world.clock.now_ms, staging)
            self._port = port = ClientPortTurns(world, self.bus, self.store)
            self._housekeeping = housekeeping = HousekeepingTurns(world, self.store, self.bus, staging)
            self._schedules = schedules = ScheduleTurns(world, self.store, self.bus, jobs.schedules_changed)
            self._graphs = graphs = GraphTurns(world, self.store, self.bus)
            machine = Checked(Dispatcher(topology), check_dispatcher)

            def on_lead(term: Term) -> None:
                port.lead(term)
                graphs.lead(term)
                schedules.lead(term)
                housekeeping.lead(term)

            reopened = world.etcd.entry(f"{PREFIX}{shut_down.REOPENED}")  # a process waits for etcd before it begins; here it knows at once
            told = {"retained_jobs": 10_000, "reopened": reopened.value.decode() if reopened is not None else "", **deciding}
            return [Hosted(machine, jobs.ports(), told, on_lead, port.measures.counts, dispatcher_metrics.shows)]
        if service == "resource-manager":
            machine = Checked(ResourceManager(topology.shards), check_resource_manager)
            ports = resource_manager_ports(self.store, world.provider)
            return [Hosted(machine, ports, deciding, counts=resource_manager_metrics.COUNTS, shows=resource_manager_metrics.shows)]
        assert service == "job-master", f"no control service: {self.name}"
        shards = [int(shard)] if shard else range(topology.shards)
        return [
            Hosted(
                Checked(JobMaster(k), check_job_master, world.poison), job_master_ports(self.store),
                {"moves_most": 20, "heartbeat_ms": 2_000, "traced": True, **deciding},
                counts=job_master_metrics.COUNTS, shows=job_master_metrics.shown(shard_scope(k)),
            )  # fmt: skip
            for k in shards
        ]

    def _performer(self, *given: Any) -> SteppedPerformer:
        made = SteppedPerformer(self.world, *given)
        self._performers.append(made)
        return made

    def _shut_down(self, entry: Entry | None) -> None:
        self.ended = self.ended or shut_down.parsed(entry) is not None

    def _end(self) -> bool:
        self.stop()
        return True

    def _fatal(self, reason: str) -> None:
        self.failure = reason

    def _beside(self, make: Callable[[], Iterator[bytes]], then: Callable[[bytes | None], None]) -> None:
        """The copy of the process that makes a snapshot may take its time; what it makes is of now."""
        data = b"".join(make())
        if self.world.stalls and self.world.random.random() < self.world.stalls:
            self._copies.append((self.world.clock.now_ms() + self.world.random.choice(STALLED_MS), then, data))
        else:
            then(data)

    def _copied(self) -> bool:
        _, then, data = self._copies.popleft()
        then(data)
        return True

    # what may happen in it

    def ready(self) -> list[Callable[[], bool]]:
        """The steps for which there is something to do."""
        if self.ended:
            return [self._end]
        now_ms = self.world.clock.now_ms()
        found: list[Callable[[], bool]] = []
        if self.bus.moves:
            found.append(self.bus.some)
        if now_ms >= self._beat_ms or (self._beats_well and self.beat.lost):
            found.append(self._beats)
        if len(self.loops) > 1 and now_ms >= self._balance_ms:
            found.append(self._balances)
        found += [turn for loop, turn in self._turns if loop.is_due()]
        found += [performer.turn for performer in self._performers if performer.waits]
        if self._copies and self._copies[0][0] <= now_ms:
            found.append(self._copied)
        if self._port is not None and self._port.waits:
            found.append(self._port_turn)
        if self._housekeeping is not None and self._housekeeping.is_due:
            found.append(self._housekeeping.turn)
        if self._schedules is not None and self._schedules.is_due:
            found.append(self._schedules.turn)
        if self._graphs is not None and self._graphs.is_due:
            found.append(self._graphs.turn)
        return found

    def due_ms(self, paused: bool = False) -> int:
        """When something happens here by itself."""
        if paused:
            return self.world.clock.now_ms() + 50
        return min(self._beat_ms, *(loop.wakes_ms for loop in self.loops))

    def _turn(self, loop: NotedLoop) -> bool:
        """A turn of the loop; whether it read or said something."""
        appended = self.bus.appended
        try:
            read = loop.turn()
        except Diverged:
            if not self.world.book.cuts:
                raise
            self.wants_again = True  # it knows records that are gone, or the leader does
            self.kill()
            return True
        except Poisoned:
            self.wants_again = True
            self.kill()
            return True
        if self.failure is not None:
            assert self.bus.holed, f"{self.name} ends: {self.failure}"
            self.wants_again = True
            self.kill()
            return True
        return read or self.bus.appended > appended

    def _port_turn(self) -> bool:
        assert self._port is not None
        try:
            return self._port.turn()
        except Poisoned:
            self.wants_again = True
            self.kill()
            return True

    def _beats(self) -> bool:
        self._beats_well = self.beat.turn()
        self._beat_ms = self.world.clock.now_ms() + int(1000 * (LEASE_RENEW_S if self._beats_well else RETRY_S))
        return True

    def _balances(self) -> bool:
        balance(self.name, self.loops)
        self._balance_ms = self.world.clock.now_ms() + int(1000 * BALANCE_S)
        return True

    # its end

    def kill(self) -> None:
        """kill -9: what is queued in it never reaches the broker; its lease ends by itself."""
        self.alive = False
        self.bus.close()
        self.store.close()

    def stop(self) -> None:
        """SIGTERM: as `millrace.runtime.service.Process.run` ends."""
        while self.bus.deliver() + self.bus.acknowledge():
            self.bus.serve()
        for loop in self.loops:
            loop.close()
        self.beat.release()
        self.bus.deliver()
        self.kill()

    # for those who look on

    def leads(self, scope: str) -> bool:
        return any(loop.scope == scope and loop.replica is not None and loop.replica.leads for loop in self.loops)

    def folded(self, scope: str) -> ScopeState | None:
        for loop in self.loops:
            if loop.scope == scope and loop.replica is not None:
                return loop.replica.folded
        return None


class HousekeepingTurns:
    """The Dispatcher's housekeeping, in turns."""

    def __init__(self, world: World, store: MemoryStore, bus: PacedBus, staging: StagingAtOnce) -> None:
        self._world, self._term, self._due_ms = world, None, 0
        self._real = Housekeeping(store, world.storage, bus, staging, world.keep_ms, lambda reason: None)

    def lead(self, term: Term) -> None:
        self._term: Term | None = term
        self._due_ms = self._world.clock.now_ms() + int(1000 * FIRST_S)

    @property
    def is_due(self) -> bool:
        return self._term is not None and self._due_ms <= self._world.clock.now_ms()

    def turn(self) -> bool:
        now_ms = self._world.clock.now_ms()
        if self._term is None or self._term.ended.is_set():
            self._term = None
            return False
        self._due_ms = now_ms + int(1000 * EVERY_S)
        self._real.sweep(now_ms, Fence(DISPATCHER, self._term.epoch), self._term.folded.state)
        return True


class ScheduleTurns:
    """The Dispatcher's schedules, in turns: there are none where no schedule was set."""

    def __init__(self, world: World, store: MemoryStore, bus: PacedBus, changed: threading.Event) -> None:
        self._world, self._store, self._bus, self._changed = world, store, bus, changed
        self._term: Term | None = None
        self._due_ms = 0

    def lead(self, term: Term) -> None:
        self._term, self._due_ms = term, self._world.clock.now_ms()
        self._firing = Firing(self._store, self._bus, self._changed, Fence(DISPATCHER, term.epoch))

    @property
    def is_due(self) -> bool:
        return self._term is not None and self._due_ms <= self._world.clock.now_ms() and self._world.has_schedules

    def turn(self) -> bool:
        now_ms = self._world.clock.now_ms()
        self._due_ms = now_ms + int(1000 * LOOK_S)
        if self._term is None or self._term.ended.is_set():
            self._term = None
            return False
        appended = self._bus.appended
        try:
            self._firing.look(now_ms, self._term.folded.state)
        except Refused:
            self._term = None
        return self._bus.appended > appended


def tried_in_memory(log: Log, offset: int, end: int) -> Tried:
    """As `services.dispatcher.trial.tried` finds it."""
    ends = log.flipped | log.bombs
    last = min([each for each in ends if each >= offset] + [end, offset + AT_ONCE])
    if last == offset:
        return Unreadable(offset, next((each for each in range(offset, end) if each not in ends), end))
    return Read(log.records[offset - log.first : last - log.first], last)


UNTOLD = 0.3  # how often a process that tries what has ended others fails for reasons of its own


class ClientPortTurns:
    """The Dispatcher's client port, in turns: the real Copier, made anew as its thread does."""

    def __init__(self, world: World, bus: PacedBus, store: MemoryStore) -> None:
        self._world, self._bus = world, bus
        self._marks = RequestMarks(store, lambda: world.clock.now_ms() / 1000)
        self._intake = Intake(world.storage, DEFAULT_LIMITS)
        self.measures = dispatcher_metrics.Measures()
        self._term: Term | None = None
        self._copier: Copier | None = None
        self._moved_ms, self._mark = 0, -1

    def lead(self, term: Term) -> None:
        self._close()
        self._term = term

    @property
    def waits(self) -> bool:
        """Whether there is something to copy, or to wait for."""
        return self._term is not None and (self._copier is None or bool(self._copier.flying) or self._reads())

    def _reads(self) -> bool:
        assert self._term is not None and self._copier is not None
        reader = self._copier._reader
        return reader is None or self._term.ended.is_set() or (isinstance(reader, PacedReader) and reader.has_news())

    def turn(self) -> bool:
        now_ms = self._world.clock.now_ms()
        if self._term is None or self._term.ended.is_set():
            self._close()
            return False
        appended = self._bus.appended
        try:
            if self._copier is None:
                self._copier = Copier(self._bus, self._intake, self._term, self._marks, self._tried, self.measures.came)
                self._mark = -1
            if not self._copier.flying:
                self._moved_ms = now_ms
            self._copier.copy(0)
            self._marks.note(self._term.folded, self._term.epoch)
        except (Unavailable, OffsetGone, StorageError):
            self._close()
            return False
        if self._copier.mark != self._mark or not self._copier.flying:
            self._moved_ms, self._mark = now_ms, self._copier.mark
        elif now_ms - self._moved_ms > STUCK_S * 1000:
            self._close()
        return self._bus.appended > appended

    def _tried(self, offset: int, end: int, ended: threading.Event) -> Tried:
        if self._world.random.random() < UNTOLD:
            raise Inconclusive(f"the process that reads at {offset} cannot be started")
        return tried_in_memory(self._world.broker.log("client.commands", 0), offset, end)

    def _close(self) -> None:
        if self._copier is not None:
            self._copier.close()
            self._copier = None
