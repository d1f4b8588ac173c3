"""A simulated TaskManager process: the real machine in its real shell, over slots that are simulated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from millrace import __version__
from millrace.core.fold import ScopeState
from millrace.core.machine import Machine
from millrace.core.messages.base import Body
from millrace.core.messages.slots import StopAsked
from millrace.core.profile import Profile
from millrace.core.topics import RESOURCE_MANAGER, task_manager_key
from millrace.io.interfaces import OffsetGone, Store, Unavailable
from services.task_manager.core.state import State, check
from services.task_manager.inputs import AGAIN, STOPPED, Ending
from services.task_manager.journal import Journal
from services.task_manager.shell import Shell
from tests.simulation.book import HELD_BACK_MS
from tests.simulation.slots import SimulatedSlots
from tests.simulation.store import MemoryStore
from tests.simulation.world import PREFIX, PacedBus, PacedReader, World

WAIT_MS = 200  # until etcd is asked again at the start


class NotedJournal(Journal):
    """The journal in memory: every (stamp, record) as it was folded."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(Path("nowhere"), name, world.topology)
        self._book = world.book
        self.folded: ScopeState | None = None
        self.records: list[tuple[int, str]] = []

    def begin(self, machine: Machine, folded: ScopeState) -> None:
        self.machine, self.folded = machine, folded

    def write(self, folded: ScopeState, stamp_ms: int, record: str) -> None:
        self.records.append((stamp_ms, record))
        self._book.folded += 1

    def flush(self) -> None: ...

    def close(self) -> None: ...


class EtcdProbe:
    """Asks etcd as the TaskManager's own thread does; the answer is there at the next look."""

    def __init__(self, store: Store, name: str) -> None:
        self._store, self._key = store, task_manager_key(name)
        self._answered: int | None = None

    def ask(self) -> None:
        try:
            entry = self._store.get(self._key)
            self._answered = entry.mod_revision if entry is not None else 0
        except Unavailable:
            pass

    def answered(self) -> int | None:
        answered, self._answered = self._answered, None
        return answered


class TaskManagerProcess:
    """`task-manager/<id>`."""

    def __init__(self, world: World, name: str, slots: int, given: Mapping[str, Any] | None = None) -> None:
        """`given`: settings that decide, besides the defaults."""
        self.world, self.name, self.alive = world, name, True
        world.look_whose()
        self.id, self.slot_count = name.partition("/")[2], slots
        self.bus = PacedBus(world, f"{name}.{world.next_start()}", self._fatal)
        self.store = MemoryStore(world.etcd, PREFIX, name)
        self.journal = NotedJournal(world, self.id)
        deciding = {"host": f"host-{self.id}", "allocation_timeout_ms": 10_000, "slots_memory_mb": [1024] * slots, **(given or {})}
        self.shell = Shell(
            self.id,
            world.topology,
            self.bus,
            self.store,
            deciding,
            self.journal,
            EtcdProbe(self.store, self.id),
            build=__version__,
            clock=world.clock.now_ms,
            wall_ms=world.clock.now_ms,
        )
        self.slots = SimulatedSlots(world, f"{self.id}.{world.starts}", slots, self._post)
        each = deciding.get("slot_cores"), deciding.get("slot_extras")
        self.slots.profiles = [Profile.of(memory_mb, *each) for memory_mb in deciding["slots_memory_mb"]]
        self.shell.use(self.slots)
        self._begin_ms = 0
        self._tick_ms = 0  # when the next tick is due; only a turn changes that
        self._asked_to_stop = self._has_news = self._gone = False

    @property
    def state(self) -> State | None:
        return self.shell.state

    @property
    def over(self) -> Ending | None:
        """Why it has ended by itself."""
        return self.shell.over

    @property
    def wants_again(self) -> bool:
        """Whether it has ended by itself and is to be started again."""
        return self.over is not None and self.over.code == AGAIN and not self._asked_to_stop

    def due_ms(self, paused: bool = False) -> int:
        """When something happens here by itself; its slots go on when it is stopped."""
        folded, slots_ms = self.journal.folded, self.slots.due_ms()
        if paused:
            return self.world.clock.now_ms() + 50 if slots_ms is None else slots_ms
        due_ms = self._begin_ms if folded is None else min(self._tick_ms, self.shell.inbox.asks_ms)
        return int(due_ms if slots_ms is None else min(due_ms, slots_ms))

    def ready(self) -> list[Callable[[], bool]]:
        """The steps for which there is something to do."""
        now_ms, folded = self.world.clock.now_ms(), self.journal.folded
        found: list[Callable[[], bool]] = []
        if self.bus.moves:
            found.append(self._send)
        if folded is None:
            if now_ms >= self._begin_ms:
                found.append(self._begin)
        else:
            reader = self.shell.inbox.reader
            if not self._gone and isinstance(reader, PacedReader) and (reader.has_news() or self.shell.inbox.asks_ms <= now_ms):
                found.append(self._read)
            if self._has_news or self._tick_ms <= now_ms:
                found.append(self._turn)
        slots_ms = self.slots.due_ms()
        if slots_ms is not None and slots_ms <= now_ms:
            found.append(self.slots.turn)
        return found

    def _begin(self) -> bool:
        try:
            self.shell.begin()
            self._tick_ms = self.shell.due_ms
        except Unavailable:
            self._begin_ms = self.world.clock.now_ms() + WAIT_MS
        return True

    def _send(self) -> bool:
        """Kafka gets some of what it sends. The book notes when stalls hold its heartbeats back: it may be declared lost."""
        heartbeats, held_ms = self.world.topology.inbox(RESOURCE_MANAGER), self.bus.held_ms
        before_ms = held_ms.get(heartbeats, 0)
        moved = self.bus.some()
        if max(before_ms, held_ms.get(heartbeats, 0)) >= HELD_BACK_MS:
            self.world.book.held_back[self.slots.process] = self.world.clock.now_ms()
        return moved

    def _post(self, body: Body) -> None:
        self._has_news = True
        self.shell.inputs.post(body)

    def _read(self) -> bool:
        """A turn of the thread that reads; records of others in the same partition do not wake the one that folds."""
        try:
            read = self.shell.inbox.read()
        except (OffsetGone, Unavailable) as gone:  # as the thread that reads does
            self._gone = self._has_news = True
            self.shell.inputs.end(f"its inbox cannot be read on: {gone}", AGAIN)
            return True
        self._has_news = read or self._has_news or not self.shell.inputs.empty()
        return read

    def _turn(self) -> bool:
        appended, self._has_news = self.bus.appended, False
        turned = self.shell.turn(0)
        self._tick_ms = self.shell.due_ms
        check(self.shell.state)
        if self.over is not None:
            if self.over.code == STOPPED:
                self.bus.deliver()
            self.kill()
        return turned or self.bus.appended > appended

    def _fatal(self, reason: str) -> None:
        assert self.bus.holed, f"{self.name} ends: {reason}"
        self.shell.over = Ending(reason, AGAIN)

    def stop(self) -> None:
        """SIGTERM: it leaves in order, in its own time."""
        self._asked_to_stop = True
        self._post(StopAsked())

    def kill(self) -> None:
        """kill -9; its JVMs and attempts die with it."""
        self.alive = False
        self.bus.close()
        self.store.close()
        self.world.book.task_manager_died(self.slots.process)
