"""Sends what a leader says. Kafka keeps order within a partition alone; where another scope goes on with a job's events after a
message, that message waits here until the events said before it are in Kafka."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from millrace.core.messages.jobs import AFTER_EVENTS
from millrace.core.replica import Speak

EVENTS = "job.events"


class Sending:
    """What a term sends, by `send`. A message that waits holds back what is for the same partition behind it: each partition
    gets a prefix, in order, at any time [12]. A new term says the outbox again, so it begins with nothing."""

    def __init__(self, send: Callable[[Speak], None]) -> None:
        self._send = send
        self._epoch = 0
        self._events: dict[int, None] = {}  # numbers of events that are not acknowledged, in order
        self._held: dict[
            tuple[str, int], deque[tuple[int, Speak]]
        ] = {}  # (goes after this event, what), by destination

    @property
    def holds(self) -> bool:
        """Something waits: acknowledgements are worth looking for."""
        return bool(self._held)

    def say(self, action: Speak) -> None:
        if action.epoch != self._epoch:
            self.end(self._epoch)
            self._epoch = action.epoch
        said = action.spoken
        destination = (said.topic, said.partition)
        after = next(reversed(self._events), 0) if said.type in AFTER_EVENTS else 0
        if after or destination in self._held:
            self._held.setdefault(destination, deque()).append((after, action))
            return
        if said.topic == EVENTS:
            self._events[said.seq] = None
        self._send(action)

    def end(self, epoch: int) -> None:
        """This term is over: the next leader says what waits here."""
        if epoch == self._epoch:
            self._events.clear()
            self._held.clear()

    def acked(self, epoch: int, seq: int) -> None:
        """This output of this term is in Kafka."""
        if epoch == self._epoch and seq in self._events:
            del self._events[seq]
            oldest = next(iter(self._events), None)
            for destination, waiting in list(self._held.items()):
                while waiting and (oldest is None or waiting[0][0] < oldest):
                    self._send(waiting.popleft()[1])
                if not waiting:
                    del self._held[destination]
