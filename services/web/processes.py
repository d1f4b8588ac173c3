"""TaskManagers and services as the web service asks them: each question by Kafka, what is large by storage."""

from __future__ import annotations

import asyncio
import functools
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response, StreamingResponse

from millrace.client import Millrace, NotFound
from millrace.client.processes import Process
from millrace.core.messages.processes import (
    LOG_PIECE_MOST,
    LogFile,
    LogPiece,
    ProcessDescribed,
    Setting,
    TaskManagerDescribed,
    ThreadDump,
)
from millrace.io.http.ranges import byte_range
from millrace.io.storage.store import Storage
from millrace.runtime import own_logs

from .commands import WAIT_S, Commands, NotAnswered
from .problems import Refusal

TEXT = "text/plain; charset=utf-8"
SEEN_S = 3.0
"""What was answered so long ago is told again, also that there was no answer: several look at once, and a page again and again."""
SEEN_MOST = 1_000


@dataclass(frozen=True)
class Of:
    """Whom a question is for."""

    name: str
    is_service: bool

    def __call__(self, client: Millrace) -> Process:
        return client.service(self.name) if self.is_service else client.task_manager(self.name)


@dataclass
class _Seen:
    """An answer, or the one that is waited for."""

    answer: asyncio.Future[Any]
    answered_s: float | None = None


class Processes:
    """For one event loop. Whoever does not answer is a MillraceError, what is not there a Refusal."""

    def __init__(self, commands: Commands, storage: Storage, own: str = "", now_s: Callable[[], float] = time.monotonic) -> None:
        """`own`: the name of this process, which may not write to the storage."""
        self._commands, self.storage, self._own, self._now_s = commands, storage, own, now_s
        self._seen: OrderedDict[Hashable, _Seen] = OrderedDict()

    async def task_manager(self, name: str, wait_s: float = WAIT_S) -> TaskManagerDescribed:
        """As it was in the last moment."""
        found: TaskManagerDescribed = await self._once(name, lambda client: client.task_manager(name).describe(), wait_s)
        return found

    async def services(self, wait_s: float = WAIT_S) -> list[ProcessDescribed]:
        """Those that answer, as they were in the last moment."""
        found: list[ProcessDescribed] = await self._once(None, lambda client: client.services(), wait_s)
        return found

    async def _once(self, key: Hashable, ask: Callable[[Millrace], Any], wait_s: float) -> Any:
        """Who asks the same while it is being asked waits for the same answer."""
        seen = self._seen.pop(key, None)
        if seen is None or seen.answered_s is not None and self._now_s() - seen.answered_s > SEEN_S:
            seen = _Seen(asyncio.ensure_future(self._commands.call(ask)))
            seen.answer.add_done_callback(functools.partial(self._answered, seen))
        self._seen[key] = seen
        while len(self._seen) > SEEN_MOST:
            self._seen.popitem(last=False)
        if seen.answered_s is None:
            await asyncio.wait({seen.answer}, timeout=wait_s)
        if seen.answered_s is None:
            raise NotAnswered(f"no answer within {wait_s:g} s; ask again")
        return seen.answer.result()

    def _answered(self, seen: _Seen, answer: asyncio.Future[Any]) -> None:
        seen.answered_s = self._now_s()
        if not answer.cancelled():
            answer.exception()  # it is raised to whoever waits; it may be that nobody does any more

    async def threads(self, who: Of, slot: int | None = None, wait_s: float = WAIT_S) -> list[ThreadDump]:
        return await self._commands.call(lambda client: who(client).threads(slot), wait_s)

    async def logs(self, who: Of, wait_s: float = WAIT_S) -> list[LogFile]:
        return await self._commands.call(lambda client: who(client).logs(), wait_s)

    async def settings(self, who: Of, wait_s: float = WAIT_S) -> list[Setting]:
        return await self._commands.call(lambda client: who(client).settings(), wait_s)

    async def end(self, who: Of, log: str, most: int) -> tuple[int, bytes, int]:
        """(where they begin, the last bytes of a log, how many it has)."""
        piece, data = await self._piece(who, log, -most, most)
        return piece.start, data, piece.size

    async def answer(self, who: Of, log: str, range_header: str) -> Response:
        """A log, or the part of it that is asked for, piece by piece: as long as it was when it was asked for."""
        row = next((each for each in await self.logs(who) if each.log == log), None)
        if row is None:
            raise Refusal(404, f"there is no log {log[:200]!r}; the list of logs has all that there are")
        start, end, partial = byte_range(range_header, row.bytes)
        partial = partial and (start, end) != (0, 0)  # of what is empty it is the whole
        headers = {"Accept-Ranges": "bytes"}
        if partial and start >= end:
            raise Refusal(416, f"{log} has {row.bytes} bytes", headers={**headers, "Content-Range": f"bytes */{row.bytes}"})
        piece, data = await self._piece(who, log, start, min(end - start, LOG_PIECE_MOST)) if start < end else (None, b"")
        start = piece.start if piece is not None else start  # of a log in memory the first lines are gone
        if partial:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{row.bytes}"
        headers["Content-Length"] = str(max(0, end - start))
        return StreamingResponse(self._rest(who, log, start, end, data), 206 if partial else 200, headers, TEXT)

    async def _rest(self, who: Of, log: str, start: int, end: int, data: bytes) -> AsyncIterator[bytes]:
        """A log that is cut meanwhile ends early, which who reads notices by its length."""
        while data and start < end:
            yield data[: end - start]
            start += len(data)
            if start < end:
                _, data = await self._piece(who, log, start, min(end - start, LOG_PIECE_MOST))

    async def _piece(self, who: Of, log: str, start: int, length: int) -> tuple[LogPiece, bytes]:
        def got(client: Millrace) -> tuple[LogPiece, bytes]:
            if start < 0:
                piece = who(client).upload(log, start, length)
                return piece, self.storage.get(piece.path) if piece.path else b""
            # Else each reader's ranges would be files of their own in storage, and there is no end of ranges.
            piece = who(client).upload(log, start - start % LOG_PIECE_MOST, LOG_PIECE_MOST)
            begin, data = max(start, piece.start), self.storage.get(piece.path) if piece.path else b""
            data = data[begin - piece.start :][:length]
            return piece.model_copy(update={"start": begin, "bytes": len(data)}), data

        def of_this_process() -> tuple[LogPiece, bytes]:
            try:
                begin, data, whole = own_logs.piece(own_logs.own_logs()[log], start, length)
            except (KeyError, OSError):
                raise NotFound(f"there is no log {log[:200]!r}") from None
            return LogPiece(log=log, path="", start=begin, bytes=len(data), size=whole.size), data

        if who == Of(self._own, True):
            return await self._commands.load(of_this_process)
        return await self._commands.call(got)
