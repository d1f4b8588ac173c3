"""What is shown: the tables, and up to where they have been told. One thread folds, others ask."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from .changes import Changes, Level, Subject
from .core.cluster import TOPIC as CLUSTER_EVENTS
from .core.cluster import Cluster
from .core.facts import Fact, Row, Rows
from .core.jobs import TOPIC as JOB_EVENTS
from .core.jobs import Jobs

T = TypeVar("T")


class View:
    """The two tables over the rows that are given."""

    def __init__(self, jobs: Rows, cluster: Rows, retained_jobs: int, past: str = "") -> None:
        self.jobs, self.cluster = Jobs(jobs, retained_jobs), Cluster(cluster)
        self.past = past
        """Of a history: the storage whose archives are shown, in place of a cluster; else empty."""
        self.ready = False
        self.to_reach: dict[tuple[str, int], int] | None = {}
        """Where partitions ended when this process began, of those that are not read up to there; None: that is not known yet."""
        self.folded = {"news": 0, "known": 0, "unreadable": 0}
        self.folded_at_s = time.monotonic()
        self.firsts: dict[tuple[str, int], int] = {}
        """The first offset of a partition that can come, where it is known."""
        self.holes: dict[tuple[str, int], int] = {}
        """The lowest offset of a partition that came too early: before the one that is next."""
        self.changes = Changes()
        """Of the tables, since this process began."""
        self._rows = {JOB_EVENTS: jobs, CLUSTER_EVENTS: cluster}
        self._as_of: dict[str, dict[int, list[int]]] = {JOB_EVENTS: {}, CLUSTER_EVENTS: {}}
        self.behind_s: Callable[[], int] = lambda: 0
        """For so many seconds what has happened may be missing; 0: the tables follow. Who feeds them says so."""
        self._as_of_json = (-1, b"")  # how far they were behind, and as of when the tables are, as JSON; -1: it is to be made
        if past:  # its facts have no offsets of Kafka; those that it gives grow from process to process, for streams that are resumed
            self._as_of[JOB_EVENTS][0] = [time.time_ns() // 1000, 0]
        self._lock = threading.Lock()

    def load(self, committed: Mapping[str, Mapping[int, int]]) -> None:
        """The rows were brought back: looks through them. `committed`: topic -> partition -> the offset that is read next; rows alone do
        not tell it, for the newest may be forgotten. Faust does so at the start, and anew when it joins its group again: what was taken
        in between stays in `as_of`."""
        with self._lock:
            self.jobs.load()
            for topic, rows in self._rows.items():
                for key in list(rows):  # not all rows at once: most are packed
                    self._reached(topic, *(rows[key].get("as_of") or (0, -1, 0)))
                for partition, offset in committed.get(topic, {}).items():
                    if (topic, partition) not in self.holes:  # else it is our own, of what came too early
                        self._reached(topic, partition, offset - 1, 0)
            self.folded_at_s = time.monotonic()
            self.changes.note_all()
            self.ready = True

    @property
    def caught_up(self) -> bool:
        """Whether it has all that an earlier process may have shown: what was answered then is not contradicted now."""
        if self.ready and self.to_reach:
            self.to_reach = {place: end for place, end in self.to_reach.items() if self.next_offset(*place) < end}
        return self.ready and self.to_reach == {}

    def pass_over(self, topic: str, partition: int, offset: int, stamp_ms: int) -> None:
        """A record that holds no fact."""
        with self._lock:
            if self._comes_too_early(topic, partition, offset):
                return
            self._reached(topic, partition, offset, stamp_ms)
            self.folded["unreadable"] += 1

    def next_offset(self, topic: str, partition: int) -> int:
        """The first offset that is not taken in yet."""
        return self._as_of[topic].get(partition, [-1])[0] + 1

    def fold(self, fact: Fact) -> None:
        """Takes a fact in, unless one before it is missing. Raises KeyError, TypeError, ValueError for one that is none, which is to be
        passed over."""
        with self._lock:
            if not self._comes_too_early(fact.topic, fact.partition, fact.offset):
                self._fold(fact)

    def replace(self, job: str, facts: Callable[[int], Iterable[Fact]]) -> None:
        """All that is known of an ended job is what these tell, from one moment to the next; none: it is forgotten. `facts`: given the
        offset of the first. For one thread, where nothing else is folded: they are folded beside the table, while others ask it."""
        first = self.next_offset(JOB_EVENTS, 0)
        offset, stamp_ms, rows = first, 0, dict[str, Row]()
        beside = Jobs(rows, 1)
        for fact in facts(first):
            beside.fold(fact)
            offset, stamp_ms = fact.offset, max(stamp_ms, fact.stamp_ms)
        with self._lock:
            self.jobs.forget(job)
            self.jobs.take(rows)
            self.folded_at_s = time.monotonic()
            self.folded["news"] += offset - first + bool(rows)
            self._reached(JOB_EVENTS, 0, offset, stamp_ms)  # what is shown has changed, if only that it is gone
            self.changes.note(job)

    def _fold(self, fact: Fact) -> None:
        self.folded_at_s = time.monotonic()
        self._reached(fact.topic, fact.partition, fact.offset, fact.stamp_ms)
        if fact.topic != JOB_EVENTS:
            job, news, level = "", self.cluster.fold(fact), Level.LINE
        else:
            job = str(fact.body["job"])
            before = self.jobs.row(job)
            news = self.jobs.fold(fact)
            level = Level.PROGRESS if fact.kind == "AttemptsProgressing" else Level.ATTEMPT
            level = level if before is not None and self.jobs.row(job) is before else Level.LINE
        self.folded["news" if news else "known"] += 1
        if news:
            self.changes.note(job, level)

    def ask(self, question: Callable[[View], T]) -> tuple[T, dict[str, Any]]:
        """An answer, and as of when it is: the last offset of each partition, the newest stamp among them, and how far it is behind."""
        with self._lock:
            return question(self), self._now()

    def unchanged(self, subject: Subject, number: int) -> bytes | None:
        """As of when the tables are, as JSON, if the subject has not changed behind this number of a change; None: it has, or it is not
        known any more."""
        with self._lock:
            if self.changes.last(subject) > number or (not isinstance(subject, Level) and not self.jobs.has(subject)):
                return None
            if self._as_of_json[0] != self.behind_s():
                now = self._now()
                self._as_of_json = now["behind_s"], json.dumps(now).encode()
            return self._as_of_json[1]

    def _now(self) -> dict[str, Any]:
        offsets = {
            topic: {str(partition): place[0] for partition, place in sorted(places.items()) if place[0] >= 0}
            for topic, places in self._as_of.items()
        }
        stamps = [place[1] for places in self._as_of.values() for place in places.values()]
        return {"offsets": offsets, "time_ms": max(stamps, default=0), "behind_s": self.behind_s()}

    def _comes_too_early(self, topic: str, partition: int, offset: int) -> bool:
        """Whether records before this one have not come. Were it taken in, they would be known from then on, and nobody would read them."""
        place, next_offset = (topic, partition), self.next_offset(topic, partition)
        known = self.ready and (next_offset > 0 or place in self.firsts)
        if known and offset > max(next_offset, self.firsts.get(place, 0)):
            self.holes[place] = min(offset, self.holes.get(place, offset))
            return True
        if offset >= next_offset:
            self.holes.pop(place, None)
        return False

    def _reached(self, topic: str, partition: int, offset: int, stamp_ms: int) -> None:
        self._as_of_json = (-1, b"")
        known = self._as_of[topic].get(partition, [-1, 0])
        if offset > known[0]:
            self._as_of[topic][partition] = [offset, max(stamp_ms, known[1])]
