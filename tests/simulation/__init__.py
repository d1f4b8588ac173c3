"""Kafka and etcd in memory: deterministic, single-threaded, the faults of the real ones as methods."""

from __future__ import annotations


class Clock:
    """The time of a simulated world, in ms. Moves only when told; may be set back, as a broker's clock can be."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        self._now_ms += ms
