"""What is asked of the ratios."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .turns import Figure
from .works import QUERIES


@dataclass(frozen=True)
class Target:
    figure: str
    ours: str
    peer: str
    most: float
    times: float = 1.0
    """How many times the peer's work ours is."""


@dataclass(frozen=True)
class Ratio:
    """A target beside what was measured. `reached` is None if one of the two was not."""

    figure: str
    ours: str
    peer: str
    most: float
    ratio: float | None = None

    @property
    def reached(self) -> bool | None:
        return None if self.ratio is None else self.ratio <= self.most

    @property
    def verdict(self) -> str:
        return {True: "reached", False: "missed", None: "not measured"}[self.reached]


TARGETS = (
    Target("flights", "millrace-1", "session", 1.1),
    Target("flights", "millrace-2", "session", 1.3),
    *(Target(query, "millrace-1", "session", 1.1) for query in QUERIES),
    *(Target(query, "millrace-2", "session", 1.4) for query in QUERIES),
    *(Target(query, "millrace-1", "submit", 0.25) for query in QUERIES),
    *(Target(query, "millrace-2", "submit", 0.33) for query in QUERIES),
    *(Target(query, "millrace-script", "session-script", 1.05) for query in QUERIES),
    Target("first", "millrace-first", "millrace-fifth", 1.5),
    Target("first", "millrace-idled", "millrace-fifth", 1.5),
    Target("small", "millrace-2", "session", 0.8),
    Target("small", "millrace-1", "session", 1.3),
    Target("tenfold", "millrace-tenfold", "millrace-once", 1.0, times=10),
    Target("two", "millrace-at-once", "millrace-in-turn", 1.1),
)


def ratios(figures: Sequence[Figure]) -> list[Ratio]:
    """Of the figures that were asked for."""
    known = {figure.name: figure for figure in figures}
    found = []
    for target in TARGETS:
        if target.figure not in known:
            continue
        ours, peer = (known[target.figure].bar(name) for name in (target.ours, target.peer))
        ratio = ours.median / (peer.median * target.times) if ours and peer else None
        names = (ours.label if ours else target.ours, peer.label if peer else target.peer)
        times = f"{target.times:.0f} x " if target.times != 1 else ""
        found.append(Ratio(target.figure, names[0], times + names[1], target.most, ratio))
    return found
