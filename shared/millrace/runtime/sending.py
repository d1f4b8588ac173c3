"""Sends what a leader says. Kafka keeps order within a partition alone; where what a message leads to must not overtake what was said
before it to somebody else, that message waits here until the other is in Kafka."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from millrace.core.fold import Spoken
from millrace.core.replica import Speak

AFTER = {
    "StartJob": "job.events",  # its receiver goes on with the job's events, ...
    "JobEnded": "job.events",  # ... and so does this one's
    "AllocateSlot": "TaskManagerLost",  # a shard that is offered a slot before it knows that it needs one gives it back
}
"""Type of a message -> topic or type of what goes to others, waits for nothing itself, and must stand in Kafka first."""


class Sending:
    """What a term sends, by `send`. A message that waits holds back what is for the same partition behind it: each partition
    gets a prefix, in order, at any time [12]. A new term says the outbox again, so it begins with nothing."""

    def __init__(self, send: Callable[[Speak], None]) -> None:
        self._send = send
        self._epoch = 0
        # Of those that are waited for, the numbers of those that are not acknowledged, in order, with their topics.
        self._flying: dict[str, dict[int, str]] = {kind: {} for kind in AFTER.values()}
        self._held: dict[tuple[str, int], deque[tuple[int, Speak]]] = {}  # (goes after this number, what), by destination

    @property
    def awaits(self) -> str:
        """A topic whose next acknowledgement is worth waiting for; empty: nothing waits."""
        return next((each for held in self._held.values() for each in self._before(held[0][1].spoken).values()), "")

    def say(self, action: Speak) -> None:
        if action.epoch != self._epoch:
            self.end(self._epoch)
            self._epoch = action.epoch
        said = action.spoken
        destination = (said.topic, said.partition)
        after = next(reversed(self._before(said)), 0)
        if after or destination in self._held:
            self._held.setdefault(destination, deque()).append((after, action))
            return
        for kind in (said.topic, said.type):
            if kind in self._flying:
                self._flying[kind][said.seq] = said.topic
        self._send(action)

    def end(self, epoch: int) -> None:
        """This term is over: the next leader says what waits here."""
        if epoch == self._epoch:
            for numbers in self._flying.values():
                numbers.clear()
            self._held.clear()

    def acked(self, epoch: int, seq: int) -> None:
        """This output of this term is in Kafka."""
        numbers = next((each for each in self._flying.values() if seq in each), None)
        if epoch != self._epoch or numbers is None:
            return
        del numbers[seq]
        for destination, waiting in list(self._held.items()):
            while waiting and not self._waits(*waiting[0]):
                following = waiting.popleft()[1]
                if not waiting:
                    del self._held[destination]
                self._send(following)

    def _waits(self, after: int, action: Speak) -> bool:
        return next(iter(self._before(action.spoken)), after + 1) <= after

    def _before(self, said: Spoken) -> dict[int, str]:
        """Those on their way that this one waits for, as far as they were said before it."""
        return self._flying.get(AFTER.get(said.type, ""), {})
