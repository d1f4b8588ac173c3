"""What a leader still has to send and to do: the outbox on its way to Kafka, effects in their order. Rebuilt at each election."""

from __future__ import annotations

import bisect
from collections import deque
from dataclasses import dataclass, field

from .fold import ScopeState


@dataclass
class Speaking:
    """The term of one leader. Sequence numbers are those of the outbox."""

    unacked: dict[int, None] = field(default_factory=dict)  # queued and not acknowledged, in order
    queued: int = 0  # the last queued
    in_flight: dict[str, str] = field(default_factory=dict)  # effect key -> the one effect being performed
    waiting: dict[str, deque[str]] = field(default_factory=dict)  # effect key -> effects behind it
    deferred: deque[tuple[int, str]] = field(default_factory=deque)  # (output, effect that goes once Kafka has all up to it), in order

    def begin(self, folded: ScopeState) -> tuple[list[int], list[str]]:
        """The whole outbox is sent again [R14], and effects without an outcome are performed again [R17]: (seqs, effect ids)."""
        self.queued = folded.published_through
        seqs = list(folded.outbox)
        for seq in seqs:
            self.queue(seq)
        return seqs, [effect for effect, pending in folded.effects.items() if self.may_perform(pending.key, effect)]

    def queue(self, seq: int) -> None:
        self.unacked[seq] = None
        self.queued = seq

    def acked(self, seq: int) -> list[str]:
        """An output is in Kafka: the effects that waited for it."""
        self.unacked.pop(seq, None)
        ready = []
        while self.deferred and self.deferred[0][0] <= self.published_through():
            ready.append(self.deferred.popleft()[1])
        return ready

    def must_wait(self, effect: str, after: int) -> bool:
        """Whether an effect, first on its key, must wait until outputs up to `after` are in Kafka; `acked` returns it when they are."""
        if after <= self.published_through():
            return False
        bisect.insort(self.deferred, (after, effect))
        return True

    def published_through(self) -> int:
        """One below the oldest unacknowledged output [R14]."""
        return next(iter(self.unacked), self.queued + 1) - 1

    def may_perform(self, key: str, effect: str) -> bool:  # [R17]
        """True: perform it now; False: it goes when those before it on its key have their outcomes."""
        if key in self.in_flight:
            self.waiting.setdefault(key, deque()).append(effect)
            return False
        self.in_flight[key] = effect
        return True

    def done(self, effect: str, key: str) -> str | None:
        """The effect has its outcome; the next one on its key."""
        if self.in_flight.get(key) != effect:
            return None
        del self.in_flight[key]
        behind = self.waiting.get(key)
        if not behind:
            return None
        following = behind.popleft()
        if not behind:
            del self.waiting[key]
        self.in_flight[key] = following
        return following
