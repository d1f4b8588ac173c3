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
    started: bool = False
    refused: Fault | None = None
    """Why its process could not begin."""
    channel: AttemptChannel | None = None
    """To its process, while it runs."""

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
