"""The host: looks at its JVM, each by a process of its own, while nothing is being cleaned there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from .. import wire
from ..look import main as look
from .children import Child, ChildLost, Children

_AT_ONCE = 4
_CLEANED = "its JVM is being started, or made ready for the next attempt; ask again"


class Looked(Protocol):
    """The JVM that is looked at; see `driver.Driver`."""

    port: int
    secret: str
    exited: asyncio.Future[int]


class Looks:
    """``report`` sends an event to the TaskManager. A look that does not end is ended, and harms nothing but itself."""

    def __init__(self, children: Children, report: Callable[[wire.Event], None]) -> None:
        self._children = children
        self._report = report
        self._driver: Looked | None = None
        self._under_way: dict[Child, asyncio.Task[None]] = {}

    @contextlib.asynccontextmanager
    async def at(self, driver: Looked) -> AsyncIterator[None]:
        """Until the end of this the JVM may be looked at. Then no look is left: a connection that comes while an attempt's are being ended
        would be taken for one of these."""
        self._driver = driver
        try:
            yield
        finally:
            self._driver = None
            ended = list(self._under_way.values())
            for child in self._under_way:  # not closed: who is just opening its channel would never hear of that
                child.kill()
            await asyncio.gather(*ended, return_exceptions=True)

    def order(self, order: wire.Look) -> None:
        """Takes one order: an answer follows."""
        if self._driver is None or self._driver.exited.done():
            self._answer(order, {"reason": _CLEANED})
        elif len(self._under_way) >= _AT_ONCE:
            self._answer(order, {"reason": f"its JVM is looked at {_AT_ONCE} times already"})
        else:
            driver = self._driver
            try:
                child = Child(self._children, lambda channel: look.main(channel, driver.port, driver.secret, order["threads"]), [])
            except OSError as error:  # no process or no descriptor is left: the attempt has them, and goes on
                self._answer(order, {"reason": f"its JVM cannot be looked at: {error.strerror}"})
                return
            self._under_way[child] = asyncio.ensure_future(self._look(child, order))

    async def _look(self, child: Child, order: wire.Look) -> None:
        try:
            self._answer(order, await child.answer(wire.LOOK_S))
        except ChildLost as lost:
            late = f"its JVM has not answered for {wire.LOOK_S:g} s, or too much ({lost})"
            self._answer(order, {"reason": late if self._driver is not None else _CLEANED})
        finally:
            self._under_way.pop(child, None)
            child.close()

    def _answer(self, order: wire.Look, answer: wire.LookAnswer) -> None:
        self._report({
            "is": "looked", "question": order["question"], "jvm": answer.get("jvm"), "threads": answer.get("threads"),
            "no_answer": answer.get("reason"),
        })  # fmt: skip
