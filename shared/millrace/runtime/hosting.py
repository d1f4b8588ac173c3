"""What a process hosts, and what its scopes share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from millrace.core.clocks import OwnMs
from millrace.core.fold import OutboxRecord, ScopeState
from millrace.core.machine import Machine
from millrace.core.messages.base import Body, Part
from millrace.core.topics import Topology
from millrace.io.interfaces import Bus, Store
from millrace.io.storage.store import Storage

from .forked import forked
from .metrics import Sample
from .performer import Performer, Port
from .saving import RunForked


def monotonic_ms() -> OwnMs:
    """Milliseconds that also count a suspended machine; a clock that is set decides nothing."""
    return OwnMs(time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1_000_000)


class AppendRecord(Protocol):
    """Appends a record to the scope's inbox; callable from any thread."""

    def __call__(self, record: Part, on_ack: Callable[[], None] | None = None) -> None:
        """`on_ack`: called once Kafka has it, on any thread. It is folded then, if the term's leader key still stands in etcd, for whoever
        leads next writes behind it."""
        ...


@dataclass
class Term:
    """One term of leadership, as the leader's other threads see it (client port, blob server)."""

    epoch: int
    folded: ScopeState
    append: AppendRecord
    ended: threading.Event = field(default_factory=threading.Event)


Count = Callable[[OutboxRecord, Any], None]
"""Counts an output that is sent for the first time in this term, given the machine's state."""


@dataclass
class Hosted:
    """A machine that a process hosts, with its ports and its deciding settings. `on_lead` starts what runs while it leads and
    ends when `term.ended` is set."""

    machine: Machine
    ports: Mapping[type[Body], Port]
    deciding: dict[str, Any]
    on_lead: Callable[[Term], None] | None = None
    counts: Mapping[str, Count] = field(default_factory=dict)
    """Type of an output -> what counts it for the metrics, on the scope's thread."""
    shows: Callable[[Any], Iterable[Sample]] = lambda state: ()
    """What of the machine's state the metrics show while it leads. On another thread than the one that changes it."""

    def settings(self, cluster: str) -> dict[str, Any]:
        """Those that decide, and whose log this is [R29]."""
        return {**self.deciding, "cluster": cluster} if cluster else self.deciding


@dataclass(frozen=True)
class Surroundings:
    """What the scopes of a process share."""

    bus: Bus
    store: Store
    storage: Storage
    topology: Topology
    who: str
    build: str
    lease: Callable[[], int]
    """The process's lease; raises Unavailable while it has none."""
    fatal: Callable[[str], None]
    """Ends the process with a reason."""
    clock: Callable[[], OwnMs] = monotonic_ms
    performer: Callable[..., Any] = Performer
    """Makes what performs effects (the simulator's does so on the same thread)."""
    wait: Callable[[threading.Event, float], object] = threading.Event.wait
    """Waits for the event, at most so many seconds (in the simulator time goes on between turns, not in them)."""
    beside: RunForked = forked
    """Makes snapshots (the simulator's does so on the same thread)."""
    cluster: str = ""
    """The cluster's uuid [R29]."""
