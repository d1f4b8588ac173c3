"""The host: the attempts that were ordered and have not ended."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

from ..attempt_wire import AttemptSpec, Fault
from ..common.config import Dirs
from ..common.faults import fault
from .channel import AttemptChannel


@dataclasses.dataclass
class OrderedAttempt:
    """An attempt that was ordered and has not ended."""

    name: str
    spec: AttemptSpec
    dirs: Dirs
    killed: asyncio.Future[str]
    within_s: float = 0.0
    """So long it has to end by itself once it is killed."""
    at_once: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    """It has no time any more."""
    started: bool = False
    refused: Fault | None = None
    """Why its process could not begin."""
    channel: AttemptChannel | None = None
    """To its process, while it runs."""

    asked: bool = False
    """Whether it was asked to end: it is over then, however it ends."""

    def kill(self, why: str, within_s: float) -> bool:
        """Notes it; False: it was killed before, and this can only hurry."""
        if not within_s:
            self.at_once.set()
        if self.killed.done():
            return False
        self.within_s = within_s
        self.killed.set_result(why)
        return True

    async def ask_to_end(self, *ends: asyncio.Future[Any]) -> None:
        """Interrupts its code, if that has begun, so that its `finally` runs; waits for one of ``ends`` as long as it has time."""
        if self.channel is None or not self.within_s or any(end.done() for end in ends):
            return
        self.asked = True
        self.channel.order({"do": "interrupt"})
        at_once = asyncio.ensure_future(self.at_once.wait())
        try:
            await asyncio.wait({at_once, *ends}, timeout=self.within_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            at_once.cancel()

    def killed_error(self) -> Fault:
        """The fault of one that was killed."""
        return fault("killed", f"The attempt was ended: {self.killed.result()}.")


class Attempts:
    """All of them by their names, in the order in which they came."""

    def __init__(self) -> None:
        self._by_name: dict[str, OrderedAttempt] = {}
        self._any = asyncio.Event()

    def put(self, attempt: OrderedAttempt) -> None:
        self._by_name[attempt.name] = attempt
        self._any.set()

    def find(self, name: str) -> OrderedAttempt | None:
        return self._by_name.get(name)

    def remove(self, attempt: OrderedAttempt) -> None:
        del self._by_name[attempt.name]
        if not self._by_name:
            self._any.clear()

    @property
    def empty(self) -> bool:
        return not self._by_name

    async def some(self) -> None:
        """Waits until there is one."""
        await self._any.wait()

    async def first(self, *ends: asyncio.Future[Any]) -> OrderedAttempt | None:
        """The first attempt, as soon as there is one; it stays here until it is removed. None once one of ``ends`` is done."""
        while not any(end.done() for end in ends):
            if self._by_name:
                return next(iter(self._by_name.values()))
            some = asyncio.ensure_future(self._any.wait())
            try:
                await asyncio.wait({some, *ends}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                some.cancel()
        return None
