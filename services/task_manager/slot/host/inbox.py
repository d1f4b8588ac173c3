"""The host: the attempts that were ordered and have not ended."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

from ..attempt_wire import AttemptSpec, Fault
from ..common.config import Dirs
from ..common.faults import fault
from .talk import Talk


@dataclasses.dataclass
class Command:
    """An attempt that was ordered and has not ended."""

    attempt: str
    spec: AttemptSpec
    dirs: Dirs
    killed: asyncio.Future[str]
    started: bool = False
    refused: Fault | None = None
    """Why its process could not begin."""
    talk: Talk | None = None
    """The channel to its process, while it runs."""

    def killed_error(self) -> Fault:
        """The fault of one that was killed."""
        return fault("killed", f"The attempt was ended: {self.killed.result()}.")


class Inbox:
    """The commands by their attempts' names, in the order in which they came."""

    def __init__(self) -> None:
        self._commands: dict[str, Command] = {}
        self._any = asyncio.Event()

    def put(self, command: Command) -> None:
        self._commands[command.attempt] = command
        self._any.set()

    def find(self, attempt: str) -> Command | None:
        return self._commands.get(attempt)

    def remove(self, command: Command) -> None:
        del self._commands[command.attempt]
        if not self._commands:
            self._any.clear()

    @property
    def empty(self) -> bool:
        return not self._commands

    async def some(self) -> None:
        """Waits until there is a command."""
        await self._any.wait()

    async def first(self, *ends: asyncio.Future[Any]) -> Command | None:
        """The first command, as soon as there is one; it stays here until it is removed. None once one of ``ends`` is done."""
        while not any(end.done() for end in ends):
            if self._commands:
                return next(iter(self._commands.values()))
            some = asyncio.ensure_future(self._any.wait())
            try:
                await asyncio.wait({some, *ends}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                some.cancel()
        return None
