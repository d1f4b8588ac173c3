"""The process of one attempt: where its time goes, by the steady clock of this process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from ..attempt_wire import OwnTime

Phase = Literal["start", "plan", "compute", "exchange"]


class Clock:
    """Each moment since `begin` belongs to one phase: the innermost `at` that it is in, else "start"."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """The attempt is there: what was before, as a spare process, is not its time."""
        self._s: dict[Phase, float] = dict.fromkeys(("start", "plan", "compute", "exchange"), 0.0)
        self._phase: Phase = "start"
        self._since_s = time.monotonic()

    def _enter(self, phase: Phase) -> Phase:
        now_s = time.monotonic()
        self._s[self._phase] += now_s - self._since_s
        before, self._phase, self._since_s = self._phase, phase, now_s
        return before

    @contextmanager
    def at(self, phase: Phase) -> Iterator[None]:
        before = self._enter(phase)
        try:
            yield
        finally:
            self._enter(before)

    @contextmanager
    def handing_on(self, session: Any) -> Iterator[None]:
        """Rows of an edge are computed by the Spark jobs that write them: while these ran is "compute", what is around them "exchange"."""
        began_ms, before_s = int(time.time() * 1000), self._s["exchange"]
        with self.at("exchange"):
            yield
        whole_s = self._s["exchange"] - before_s
        computing_s = min(whole_s, _jobs_s(session, began_ms))
        self._s["exchange"] -= computing_s
        self._s["compute"] += computing_s

    def report(self) -> OwnTime:
        self._enter(self._phase)
        ms = {phase: int(seconds * 1000) for phase, seconds in self._s.items()}
        return {"start_ms": ms["start"], "plan_ms": ms["plan"], "compute_ms": ms["compute"], "exchange_ms": ms["exchange"]}


def _jobs_s(session: Any, since_ms: int) -> float:
    """For how long Spark jobs ran that were submitted since then, overlapping ones once. Its listeners have seen their ends."""
    jobs = session.sparkContext._jsc.sc().statusStore().jobsList(None)  # the newest first
    spans = []
    for at in range(jobs.size()):
        job = jobs.apply(at)
        submitted, completed = job.submissionTime(), job.completionTime()
        if not submitted.isDefined() or submitted.get().getTime() < since_ms:
            break
        if completed.isDefined():
            spans.append((submitted.get().getTime(), completed.get().getTime()))
    total_ms = until_ms = 0
    for first_ms, last_ms in sorted(spans):
        total_ms += max(0, last_ms - max(first_ms, until_ms))
        until_ms = max(until_ms, last_ms)
    return total_ms / 1000


SPENT = Clock()  # one attempt per process
