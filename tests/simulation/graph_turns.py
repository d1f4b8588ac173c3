"""The part of a simulated Dispatcher that notices what others do to graphs in etcd."""

from __future__ import annotations

from millrace.core.jobgraph.model import DEFAULT_LIMITS
from millrace.runtime.hosting import Term
from millrace.runtime.performer import Refused
from services.dispatcher.graphs import LOOK_S, Listening
from services.dispatcher.intake import Intake
from tests.simulation.bus import MemoryBus
from tests.simulation.store import MemoryStore
from tests.simulation.world import World


class GraphTurns:
    """What others do to graphs in etcd is noticed, in turns: where nobody does anything, nobody looks."""

    def __init__(self, world: World, store: MemoryStore, bus: MemoryBus) -> None:
        self._world, self._store, self._bus = world, store, bus
        self._intake = Intake(world.storage, DEFAULT_LIMITS)
        self._term: Term | None = None
        self._due_ms = 0

    def lead(self, term: Term) -> None:
        self._term, self._due_ms = term, self._world.clock.now_ms()
        self._listening = Listening(self._store, self._intake, term)

    @property
    def is_due(self) -> bool:
        return self._term is not None and self._due_ms <= self._world.clock.now_ms() and self._world.strangers

    def turn(self) -> bool:
        now_ms = self._world.clock.now_ms()
        self._due_ms = now_ms + int(1000 * LOOK_S)
        appended = self._bus.appended
        if self._term is None or self._term.ended.is_set():
            self._end()
            return False
        try:
            self._listening.look(now_ms)
        except Refused:
            self._end()
        return self._bus.appended > appended

    def _end(self) -> None:
        self._term = None
        self._listening.close()
