"""Sends what a leader says. Kafka keeps order within a partition alone; an output that must not overtake others (`Say.after`) waits here
until those are in Kafka."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from millrace.core.fold import OutboxRecord
from millrace.core.replica import Speak


class Sending:
    """What a term sends, by `send`. An output that waits holds back what is for the same partition behind it: each partition
    gets a prefix, in order, at any time [R12]. A new term says the outbox again, so it begins with nothing."""

    def __init__(self, send: Callable[[Speak], None]) -> None:
        self._send = send
        self._epoch = 0
        self._unacked: dict[int, OutboxRecord] = {}  # by number: said in this term, and not acknowledged
        # Topic or type -> the numbers of these that have it, in order, with their topics.
        self._kinds: dict[str, dict[int, str]] = {}
        self._deferred: dict[tuple[str, int], deque[tuple[int, Speak]]] = {}  # (goes after this number, what), by destination

    @property
    def awaits(self) -> str:
        """A topic whose next acknowledgement is worth waiting for; empty: nothing waits."""
        if not self._deferred:
            return ""
        return next((each for waiting in self._deferred.values() for each in self._before(waiting[0][1].spoken).values()), "")

    def send(self, action: Speak) -> None:
        if action.epoch != self._epoch:
            self.end(self._epoch)
            self._epoch = action.epoch
        output = action.spoken
        destination = (output.topic, output.partition)
        after = next(reversed(self._before(output)), 0)
        self._unacked[output.seq] = output
        for kind in (output.topic, output.type):
            self._kinds.setdefault(kind, {})[output.seq] = output.topic
        if after or destination in self._deferred:
            self._deferred.setdefault(destination, deque()).append((after, action))
        else:
            self._send(action)

    def end(self, epoch: int) -> None:
        """This term is over: the next leader says what waits here."""
        if epoch == self._epoch:
            self._unacked.clear()
            self._kinds.clear()
            self._deferred.clear()

    def acked(self, epoch: int, seq: int) -> None:
        """This output of this term is in Kafka."""
        output = self._unacked.pop(seq, None) if epoch == self._epoch else None
        if output is None:
            return
        for kind in (output.topic, output.type):
            del self._kinds[kind][seq]
        for destination, waiting in list(self._deferred.items()):
            while waiting and not self._waits(*waiting[0]):
                following = waiting.popleft()[1]
                if not waiting:
                    del self._deferred[destination]
                self._send(following)

    def _waits(self, after: int, action: Speak) -> bool:
        return next(iter(self._before(action.spoken)), after + 1) <= after

    def _before(self, output: OutboxRecord) -> dict[int, str]:
        """What it must not overtake and is not in Kafka yet."""
        return self._kinds.get(output.after, {})
