"""Whether the tables follow: Kafka answers, and what it has is read. A table that follows nothing looks like a cluster at rest."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import structlog

from millrace.io.interfaces import Unavailable

from .view import View

ASKED_EVERY_S = 1.0
LATE_S = 5.0
"""For so long Kafka may be silent, or a record unread, and nothing is said of it."""
TRIES = 3
"""So often is read again from an offset before Kafka is taken to have no record there: what is read again may be dropped again."""
Place = tuple[str, int]
Ends = Callable[[Sequence[Place]], Mapping[Place, tuple[int, int]]]
"""The first offset and the end of each partition. Raises Unavailable."""

log = structlog.get_logger("web")


@dataclass(frozen=True)
class Follows:
    """`trouble`: why the tables do not follow; empty: they do. `folded_s`: seconds since the last record was taken in, or, if there
    was none yet, since the tables were brought back."""

    trouble: str
    folded_s: float
    kafka_away: str = ""
    """The trouble, if it is that Kafka does not answer."""


class Following:
    """Asks Kafka again and again where its partitions end, in a thread of its own."""

    def __init__(self, view: View, places: Sequence[Place], ends: Ends, now_s: Callable[[], float] = time.monotonic) -> None:
        self._view, self._places, self._ends, self._now_s = view, places, ends, now_s
        self._answered_s = now_s()
        self._unread: dict[Place, tuple[int, float]] = {}  # the end that is to be read, and since when it is known
        self._stands: dict[Place, tuple[int, float]] = {}  # where there is more: the offset to be read next, and since when it is that
        self._named_s: dict[Place, float] = {}  # when it was last said that it is to be read again
        self._back: dict[Place, tuple[int, int]] = {}  # the offset from which it was last read again, and how often it was
        self._warned = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="following", daemon=True)
        view.behind_s = self.behind_s

    def start(self) -> None:
        self._view.to_reach = None
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(2 * LATE_S)

    def _run(self) -> None:
        self.ask()
        while not self._stopping.wait(ASKED_EVERY_S):
            self.ask()

    def ask(self) -> None:
        """One question to Kafka; without an answer all stays as it is."""
        try:
            ends = self._ends(self._places)
        except Exception as failure:  # whatever it is, the next question may be answered, and nobody else asks it
            if not self._warned:
                self._warned = True
                reason = str(failure) if isinstance(failure, Unavailable) else repr(failure)
                log.warning("Kafka does not say where its topics end", reason=reason)
            return
        self._warned = False
        now_s = self._now_s()
        self._answered_s = now_s
        if self._view.to_reach is None:
            self._view.to_reach = {place: end for place, (first, end) in ends.items() if end > first}
        for place, (first, end) in ends.items():
            self._view.firsts[place] = max(first, self._view.firsts.get(place, 0))
            known, _ = self._unread.get(place, (-1, 0.0))
            reads = self._view.next_offset(*place)
            if end <= max(first, reads):
                self._unread.pop(place, None)
                self._stands.pop(place, None)
                continue
            if known <= reads:  # what was to be read then is read; this is new
                self._unread[place] = (end, now_s)
            if self._stands.get(place, (-1, 0.0))[0] != max(first, reads):
                self._stands[place] = (max(first, reads), now_s)
        for place, (_, since_s) in self._stands.items():
            if self._view.ready and now_s - since_s > 2 * LATE_S:  # perhaps there is nothing more to be read
                self._view.to_reach = {each: end for each, end in self._view.to_reach.items() if each != place}  # others read it

    def passed_over(self) -> dict[Place, int]:
        """Partitions of which a record came too early, or nothing was taken in for LATE_S though there is more, and the offset to read
        them from again. Each is named once in LATE_S."""
        if not self._view.ready:
            return {}
        now_s, late = self._now_s(), {}
        for place in self._places:
            reads, hole = self._view.next_offset(*place), self._view.holes.get(place)
            stands, since_s = self._stands.get(place, (-1, now_s))
            stuck = stands >= reads and now_s - since_s > LATE_S
            if (hole is None and not stuck) or now_s - self._named_s.get(place, -math.inf) <= LATE_S:
                continue
            where = max(reads, self._view.firsts.get(place, 0))
            if hole is not None and self._back.get(place) == (where, TRIES):
                where = self._view.firsts[place] = hole
            self._named_s[place] = now_s
            late[place] = where
        return late

    def went_back(self, places: Mapping[Place, int]) -> None:
        """These are read again, from these offsets on."""
        for place, offset in places.items():
            at, times = self._back.get(place, (offset, 0))
            self._back[place] = (offset, min(times + 1, TRIES) if at == offset else 1)

    def state(self) -> Follows:
        """As of now."""
        now_s = self._now_s()
        silent_s = now_s - self._answered_s
        away = f"Kafka has not answered for {silent_s:.0f} s" if silent_s > LATE_S else ""
        return Follows(away or self._unread_for(now_s), now_s - self._view.folded_at_s, away)

    def behind_s(self) -> int:
        """For so many seconds what Kafka has may be missing; 0: it is all read."""
        now_s = self._now_s()
        since_s = min([self._answered_s, *(since_s for _, _, since_s in self._late(now_s))]) if self._unread else self._answered_s
        return round(now_s - since_s) if now_s - since_s > LATE_S else 0

    def _unread_for(self, now_s: float) -> str:
        for (topic, partition), end, since_s in self._late(now_s):
            return f"{topic}[{partition}] has had records up to offset {end - 1} for {now_s - since_s:.0f} s that are not read"
        return ""

    def _late(self, now_s: float) -> Iterator[tuple[Place, int, float]]:
        """What is not read for too long: where, up to which end, and since when that is known."""
        for place, (end, since_s) in list(self._unread.items()):
            if now_s - since_s > LATE_S and self._view.next_offset(*place) < end:
                yield place, end, since_s
