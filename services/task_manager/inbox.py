"""A TaskManager's inbox: the messages to it, read from its partition by a thread of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from millrace.core.clocks import OwnMs
from millrace.core.topics import Topology
from millrace.io.interfaces import Bus, Unavailable

from .core.presence import Presence, Reading
from .inputs import InboxRead, Inputs


class Inbox:
    """Reads from `offset` on, and puts into `inputs` what is for this scope."""

    def __init__(
        self,
        bus: Bus,
        topology: Topology,
        scope: str,
        offset: int,
        presence: Presence,
        inputs: Inputs,
        clock: Callable[[], OwnMs],
    ) -> None:
        self._bus, self._where, self._key = bus, topology.inbox(scope), scope.encode()
        self._presence, self._inputs, self._clock = presence, inputs, clock
        self.reader = bus.reader(*self._where, offset)
        self._reading = Reading(offset)

    @property
    def asks_ms(self) -> float:
        """When it asks where its inbox ends."""
        return self._reading.asks_ms(self._presence)

    def read(self, timeout_ms: int = 0) -> bool:  # [R28]
        """Puts what Kafka has for us; False: there was nothing. Raises OffsetGone, Unavailable."""
        reading = self._reading
        if self.asks_ms <= self._clock():
            asked_ms = self._clock()
            with contextlib.suppress(Unavailable):
                reading.asked(asked_ms, self._bus.end(*self._where))
        received = self.reader.poll(0 if reading.at_end else timeout_ms)  # the loop may wait to know that all is read
        for each in received:
            reading.next = each.offset + 1
            if each.key == self._key:  # other TaskManagers share the partition
                self._inputs.put(each)
        if reading.at_end:
            reading.end = None
            self._inputs.put(InboxRead(reading.asked_ms))
        return bool(received)
