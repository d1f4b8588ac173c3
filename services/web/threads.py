"""Threads on which the web service does what blocks, of each kind of work so many: one kind that hangs takes none of another's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from millrace.client import MillraceError

T = TypeVar("T")


class TooMany(MillraceError):
    """Too many requests wait for an answer. Nothing was begun."""


class Overdue(Exception):
    """It was not done in the time that its sender waits, and goes on without."""


class Threads:
    """For one event loop, which none of them blocks."""

    def __init__(self, most: int, name: str) -> None:
        """`most`: how many there are, and how many senders wait at once."""
        self._most, self._pool, self._waiting = most, ThreadPoolExecutor(most, thread_name_prefix=name), 0

    def close(self) -> None:
        """Who waits for an answer gets none."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def run(self, what: Callable[[], T], wait_s: float) -> T:
        """What a request waits for. Raises TooMany, Overdue, and what the call raises."""
        if self._waiting >= self._most:
            raise TooMany(f"{self._most} requests wait for an answer already; try again")
        self._waiting += 1
        under_way = asyncio.get_running_loop().run_in_executor(self._pool, what)
        under_way.add_done_callback(self._done)
        done, _ = await asyncio.wait({under_way}, timeout=wait_s)
        if not done:
            raise Overdue
        return under_way.result()

    async def queued(self, what: Callable[[], T]) -> T:
        """A piece of something longer, which waits for its turn: a body or a stream that has begun is not refused."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, what)

    def _done(self, under_way: asyncio.Future[Any]) -> None:
        self._waiting -= 1
        if not under_way.cancelled():
            under_way.exception()  # else asyncio complains about one that nobody waits for
