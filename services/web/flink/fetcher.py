"""What processes measure of themselves, for Flink's metrics: asked while somebody looks, each at most once an interval, one poll at a time.

Metrics of jobs, vertices and subtasks need none of it: attempts report theirs, and the view has them.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from millrace.client import MillraceError
from millrace.core.messages.processes import ProcessDescribed, TaskManagerDescribed

from ..processes import Processes

INTERVAL_S = 10.0
AT_ONCE = 20
"""TaskManagers: each asks its slots' JVMs."""
WAIT_S = 3.0
"""A request waits so long for what was not asked for a while; what was asked lately is answered as it was then."""
OLD = 3
"""So many intervals: what is older is not told any more, nor are rates since then."""
KEPT_MOST = 2_000
SERVICES = ""
"""In place of a TaskManager's name: the processes of all services."""

Found = TaskManagerDescribed | list[ProcessDescribed]


@dataclass(frozen=True)
class Sampled:
    """What was answered, and what the time before, for rates."""

    found: Found
    at_s: float
    before: Sampled | None = None


class MetricFetcher:
    """For one event loop. `interval_s` 0: nobody is asked, and there are no values."""

    def __init__(self, processes: Processes, interval_s: float = INTERVAL_S, now_s: Callable[[], float] = time.monotonic) -> None:
        self._processes, self._interval_s, self._now_s = processes, interval_s, now_s
        self._asked_s: OrderedDict[str, float] = OrderedDict()  # whom, and when last
        self._values: dict[str, Sampled] = {}
        self._wanted: dict[str, None] = {}  # who is to be asked, in this order
        self._asking: list[str] = []
        self._poll: asyncio.Task[None] | None = None
        self._answered = asyncio.Event()  # of those that are asked now

    async def task_managers(self, names: Sequence[str]) -> dict[str, Sampled]:
        """Those that have answered when they were asked last."""
        return await self._fetched(names)

    async def task_manager(self, name: str) -> TaskManagerDescribed | None:
        """As it was at most an interval ago; None: it does not answer."""
        seen = (await self._fetched([name])).get(name)
        return seen.found if seen is not None and isinstance(seen.found, TaskManagerDescribed) else None

    async def service(self, name: str) -> tuple[ProcessDescribed | None, ProcessDescribed | None, float]:
        """A process as it was when it was asked last, and the time before; and the seconds between."""
        seen = (await self._fetched([SERVICES])).get(SERVICES)
        if seen is None:
            return None, None, 0.0
        before = seen.before
        return _of(seen, name), _of(before, name) if before is not None else None, seen.at_s - before.at_s if before is not None else 0.0

    async def _fetched(self, names: Sequence[str]) -> dict[str, Sampled]:
        give_up_s = self._now_s() + WAIT_S
        while due := self._due(names):
            self._wanted |= dict.fromkeys(name for name in due if name not in self._asking)
            if self._poll is None or self._poll.done():
                self._asking = []
                self._poll = asyncio.ensure_future(self._ask_all())
            left_s = give_up_s - self._now_s()
            if left_s <= 0 or not any(self._age_s(name) >= OLD * self._interval_s for name in names):
                break  # what is known must do: the poll goes on for who asks next
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._answered.wait(), left_s)
        oldest_s = self._now_s() - (OLD * self._interval_s + WAIT_S)
        return {name: self._values[name] for name in names if name in self._values and self._values[name].at_s > oldest_s}

    def _due(self, names: Sequence[str]) -> list[str]:
        if not self._interval_s:
            return []
        return [name for name in names if self._age_s(name) >= self._interval_s]

    def _age_s(self, name: str) -> float:
        """Since it was asked."""
        return self._now_s() - self._asked_s.get(name, -math.inf)

    async def _ask_all(self) -> None:
        """All that are wanted, also those that come to it meanwhile."""
        while self._wanted:
            self._asking = list(self._wanted)[:AT_ONCE]
            for name in self._asking:
                del self._wanted[name]
            await asyncio.gather(*map(self._ask, self._asking))
            self._asking = []
            while len(self._asked_s) > KEPT_MOST:
                gone, _ = self._asked_s.popitem(last=False)
                self._values.pop(gone, None)
            self._answered.set()
            self._answered = asyncio.Event()

    async def _ask(self, name: str) -> None:
        found: Found | None
        try:
            found = await self._processes.services(WAIT_S) if name == SERVICES else await self._processes.task_manager(name, WAIT_S)
        except MillraceError:
            found = None
        before, now_s = self._values.pop(name, None), self._now_s()
        self._asked_s[name] = now_s
        self._asked_s.move_to_end(name)
        if found is not None:
            lately = before is not None and now_s - before.at_s < OLD * self._interval_s
            last = Sampled(before.found, before.at_s) if before is not None and lately else None
            self._values[name] = Sampled(found, now_s, last)


def _of(seen: Sampled, name: str) -> ProcessDescribed | None:
    assert isinstance(seen.found, list)
    return next((each for each in seen.found if each.process == name), None)


def per_second(now: Mapping[str, int], before: Mapping[str, int], seconds: float) -> dict[str, float]:
    """How much each has grown in a second; nothing of what began anew meanwhile, as with a JVM that was replaced."""
    return {name: (count - before[name]) / seconds for name, count in now.items() if seconds > 0 and count >= before.get(name, count + 1)}
