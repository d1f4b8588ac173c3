"""What has changed lately, for those who follow: a ring of the last changes, and whom to wake."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

KEPT = 20_000
GATHER_S = 0.02
"""Who follows is woken not much oftener than so, and then for all that has changed meanwhile."""


class Changes:
    """Numbers each change of a job, or of the cluster (""). Its caller sees to it that nobody else is in here."""

    def __init__(self, kept: int = KEPT) -> None:
        self.number = 0
        self.wake: list[Callable[[], None]] = []
        """Called at each change, from any thread."""
        self._subjects: deque[str] = deque(maxlen=kept)

    def note(self, subject: str) -> None:
        """Something about this job, or the cluster, is other than before."""
        self.number += 1
        self._subjects.append(subject)
        for wake in self.wake:
            wake()

    def since(self, number: int) -> Iterable[str] | None:
        """Whatever has changed behind this number, each once; None: that lies too far back."""
        behind = self.number - number
        if behind > len(self._subjects):
            return None
        return dict.fromkeys(self._subjects[n] for n in range(len(self._subjects) - behind, len(self._subjects)))


class Waker:
    """Wakes those who wait in one event loop."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed: asyncio.Event | None = None
        self._asked = False
        changes.wake.append(self._ask)

    async def wait(self, number: int, timeout_s: float, gather_s: float = GATHER_S) -> None:
        """Returns when there is a change behind this number, or after the time-out. One that came while the last were sent waits for
        others."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._changed, self._asked = loop, asyncio.Event(), False
        assert self._changed is not None
        changed = self._changed
        if self._changes.number > number:
            await asyncio.sleep(gather_s)
            return
        try:
            await asyncio.wait_for(changed.wait(), timeout_s)
        except asyncio.TimeoutError:
            return

    def _ask(self) -> None:
        loop = self._loop
        if loop is not None and not self._asked and not loop.is_closed():
            self._asked = True
            loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        assert self._changed is not None
        self._asked = False
        woken, self._changed = self._changed, asyncio.Event()
        woken.set()
