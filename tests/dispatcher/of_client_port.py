"""A client port with a broker, etcd and the Dispatcher's fold in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable

from millrace.core.fold import Fold
from millrace.core.jobgraph.model import DEFAULT_LIMITS
from millrace.core.messages.records import Elected
from millrace.core.topics import Topology
from millrace.io.interfaces import Put, Txn
from millrace.io.storage.store import Storage
from millrace.runtime.hosting import Term
from services.dispatcher.client_port import ClientPort, Copier
from services.dispatcher.core.machine import Dispatcher
from services.dispatcher.intake import Intake
from services.dispatcher.request_marks import RequestMarks
from services.dispatcher.trial import Inconclusive, Tried
from tests.core.of_requests import of
from tests.simulation import Clock
from tests.simulation.bus import MemoryBroker, MemoryBus
from tests.simulation.control import tried_in_memory
from tests.simulation.store import MemoryEtcd, MemoryStore


class World:
    """A broker, the Dispatcher's fold, and a term; what the port appends is folded when asked for."""

    def __init__(self, storage: Storage) -> None:
        self.broker = MemoryBroker(Clock())
        self.broker.ensure_topics([("client.commands", 1, {})])
        self.bus = MemoryBus(self.broker, client_id="d", on_fatal=lambda reason: None)
        self.fold = Fold(Dispatcher(Topology()), Topology())
        self.folded = self.fold.blank(1, 0)
        self.log: list = []
        self.append(Elected(generation=1, epoch=1, build="b", who="w"))
        self.intake = Intake(storage, DEFAULT_LIMITS)
        self.store = MemoryStore(MemoryEtcd(Clock()), "/m/")
        self.store.txn(Txn([], [Put("leaders/dispatcher", b"w")]))
        self.tried: list[int] = []
        self.untold = ""

    def append(self, record: object) -> None:
        self.log.append(record)

    def fold_all(self) -> None:
        for offset in range(self.folded.next_offset, len(self.log)):
            self.fold.fold(self.folded, offset, 0, self.log[offset])

    def term(self) -> Term:
        return Term(self.store.get("leaders/dispatcher").mod_revision, self.folded, self.append)

    def port(self, fatal: Callable[[str], None]) -> ClientPort:
        return ClientPort(self.bus, self.intake, RequestMarks(self.store), self.try_it, fatal)

    def copier(self) -> Copier:
        return Copier(self.bus, self.intake, self.term(), RequestMarks(self.store), self.try_it)

    def try_it(self, offset: int, end: int, ended: threading.Event) -> Tried:
        self.tried.append(offset)
        if self.untold:
            raise Inconclusive(self.untold)
        return tried_in_memory(self.broker.log("client.commands", 0), offset, end)

    def letters(self) -> list[tuple[int, str]]:
        """(offset, reason) of what was parked."""
        return [(each.offset, each.refusal.reason) for each in self.log[1:] if each.refusal is not None]

    def ask(self, count: int) -> None:
        for _ in range(count):
            self.bus.append("client.commands", 0, of({"type": "ListJobs", "version": 1}))

    def taken(self) -> int:
        return self.folded.client_mark + 1
