"""What has changed lately, for those who follow: a ring of the last changes, and whom to wake."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from enum import IntEnum

KEPT = 20_000
GATHER_S = 0.02
"""Who follows is woken not much oftener than so, and then for all that has changed meanwhile."""


class Level(IntEnum):
    """How far a change is seen. Most facts tell how far an attempt is: whoever follows all jobs, or the cluster, is not woken by those."""

    PROGRESS = 0
    """In the job alone."""
    ATTEMPT = 1
    """In the job, and in the slots."""
    LINE = 2
    """In the job's line of the list, too; or something of the cluster is other than before."""


Subject = str | Level
"""A job; or whatever changes at this level, or above."""


class Changes:
    """Numbers each change of a job, or of the cluster (""). Its caller sees to it that nobody else is in here."""

    def __init__(self, kept: int = KEPT) -> None:
        self.number = 0
        self.wake: list[Callable[[str, Level], None]] = []
        """Called at each change, from any thread."""
        self._subjects: deque[tuple[str, Level]] = deque(maxlen=kept)
        self._kept, self._floor = kept, 0
        self._last: dict[str, int] = {}
        self._last_of = dict.fromkeys(Level, 0)

    def note(self, subject: str, level: Level = Level.LINE) -> None:
        """Something about this job, or the cluster, is other than before."""
        self.number += 1
        self._subjects.append((subject, level))
        self._last.pop(subject, None)
        self._last[subject] = self.number
        if len(self._last) > self._kept:
            oldest = next(iter(self._last))
            self._floor = self._last.pop(oldest)
        for each in Level:
            if each <= level:
                self._last_of[each] = self.number
        for wake in self.wake:
            wake(subject, level)

    def note_all(self) -> None:
        """Anything may be other than before."""
        self.note("")
        self._last.clear()
        self._subjects.clear()
        self._floor = self.number

    def last(self, subject: Subject) -> int:
        """The number of its last change, or a later one where that is not known any more."""
        return self._last_of[subject] if isinstance(subject, Level) else self._last.get(subject, self._floor)

    def since(self, number: int, subject: Subject = Level.PROGRESS) -> Iterable[str] | None:
        """Whatever has changed behind this number, each once: the job, or what has at this level or above. None: that lies too far back."""
        if self.last(subject) <= number:
            return ()
        if not isinstance(subject, Level):
            return (subject,)
        behind = self.number - number
        if behind > len(self._subjects):
            return None
        places = range(len(self._subjects) - behind, len(self._subjects))
        return dict.fromkeys(name for name, level in (self._subjects[n] for n in places) if level >= subject)


class Waker:
    """Wakes those who wait in one event loop."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[Subject, set[asyncio.Future[None]]] = {}
        self._asked = False
        self._noted: deque[tuple[str, Level]] = deque()
        changes.wake.append(self._ask)

    async def wait(self, subject: Subject, number: int, timeout_s: float, gather_s: float = GATHER_S) -> None:
        """Returns when there is a change of the subject behind this number, or after the time-out. One that came while the last were sent
        waits for others, up to the same moment for all who wait so long: what is made for one is made for them all. Who gathers for
        longer than others waits so for one that comes soon, too: its answer takes long to make."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        if self._loop is not loop:
            self._loop, self._waiting, self._asked = loop, {}, False
            self._noted.clear()
        if self._changes.last(subject) > number:
            await asyncio.sleep(gather_s - loop.time() % gather_s)
            return
        woken = loop.create_future()
        waiting = self._waiting.setdefault(subject, set())
        waiting.add(woken)
        if self._changes.last(subject) > number:  # it came before somebody was there to be woken
            woken.set_result(None)
        try:
            await asyncio.wait_for(woken, timeout_s)
        except asyncio.TimeoutError:
            return
        finally:
            waiting.discard(woken)
            if not waiting and self._waiting.get(subject) is waiting:
                del self._waiting[subject]
        if gather_s > GATHER_S and loop.time() - began_s < gather_s:
            await asyncio.sleep(gather_s - loop.time() % gather_s)

    def _ask(self, subject: str, level: Level) -> None:
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        self._noted.append((subject, level))
        if not self._asked:
            self._asked = True
            loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._asked = False
        while self._noted:
            subject, level = self._noted.popleft()
            wakes: list[Subject] = [subject, *(each for each in Level if each <= level)]
            for each in wakes:
                for woken in self._waiting.pop(each, ()):
                    if not woken.done():
                        woken.set_result(None)
