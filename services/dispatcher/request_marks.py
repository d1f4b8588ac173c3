"""What outlives the Dispatcher's log about client.commands: one key in etcd, which the port of the leader writes.

Under which name the log is read: the topic's id, with ":1" behind it once it has lost its end, then ":2". Each name has a chain
of its own.
How far requests are decided: a Dispatcher that is born anew reads all of them again, and must not carry out what was refused. And
where a port begins to read: what ends a process before it can say anything is known by that another one began there in vain [R30].
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from millrace.core.fold import ScopeState
from millrace.core.messages.effects import FindJob, PutJobGraph
from millrace.core.topics import DISPATCHER
from millrace.io.interfaces import Compare, Entry, Put, Store, Txn, Unavailable
from millrace.runtime import troubles
from millrace.runtime.performer import Fence, Refused

KEY, WHERE = "clients/commands", "client.commands"
NOTED_S = 1.0  # between two writes of the mark
LOST_S = 5.0  # so long a log ends below what was read of it, before that is believed: a broker that begins to lead may name an old end
DECIDING = tuple(f'{{"type":"{each.__name__}",' for each in (PutJobGraph, FindJob))

log = structlog.get_logger("client port")


Offset = Annotated[int, Field(ge=-1, lt=1 << 63)]
Log = Annotated[str, Field(pattern=r"^[^:]*(:[1-9][0-9]{0,8})?$")]  # Kafka writes a topic's id in base64, which has "/"


class Kept(BaseModel):
    """Of the log `log`: all requests up to `mark` are decided; ports of `times` processes have begun at `began`, and are not known to
    have come further. `stamp_ms`: the latest of the stamps of what was folded when `mark` was; 0: unknown."""

    model_config = ConfigDict(frozen=True, strict=True)

    log: Log = ""
    mark: Offset = -1
    began: Offset = -1
    times: Annotated[int, Field(ge=0, lt=1 << 31)] = 0
    stamp_ms: Annotated[int, Field(ge=0, lt=1 << 53)] = 0


@dataclass(frozen=True)
class Place:
    """A port goes on behind the offset `behind`, under the name `log`. `known`: the last offset of that log that anybody is known to have
    read. `stamp_ms`: no request that was folded has a later stamp; 0: unknown."""

    log: str
    behind: int = -1
    known: int = -1
    stamp_ms: int = 0


@dataclass(frozen=True)
class Begun:
    """All requests up to `decided` are; so many other processes have begun at this offset, and are not known to have come further."""

    decided: int
    in_vain: int


class RequestMarks:  # [R30]
    """The key, as one process sees it. The calls are those of one thread."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._clock = store, clock
        self._kept = Kept()
        self._counted = ("", -1)  # the log and the offset at which this process is one of those that have begun
        self._read = ("", -1)  # the log and the last offset in it that this process has read
        self._noted_s = -NOTED_S
        self._folded: tuple[int, int, int] | None = None  # (mark, latest stamp, offset in the inbox behind), not known to be decided yet
        self._short: tuple[float, float] | None = None  # when the log was first and last seen to end below what was read of it

    def place(self, log_id: str, folded: ScopeState) -> Place:  # [R2]
        """Where a port goes on in the topic of this id. Raises Unavailable."""
        kept = _kept(self._store.get(KEY))
        of_folded, of_kept = _losses(folded.client_log, log_id), _losses(kept.log, log_id)
        if of_folded >= max(of_kept, 0):
            mark = folded.client_mark
            return Place(folded.client_log, mark, mark, folded.client_stamp[2])
        if of_kept >= 0:  # a new name of which nothing is folded yet; or all is read again
            return Place(kept.log, kept.mark if of_folded >= 0 else -1, kept.mark, kept.stamp_ms)
        return Place(log_id)

    def is_short(self, place: Place, end: int) -> bool:
        """Whether the log, which ends there, has lost what was read of it. Raises Unavailable until that is certain."""
        if place.known < end:
            self._short = None
            return False
        now_s = self._clock()
        since_s, seen_s = self._short or (now_s, now_s)
        if now_s - seen_s > LOST_S:
            since_s = now_s  # another one led meanwhile
        self._short = (since_s, now_s)
        if now_s - since_s < LOST_S:
            raise Unavailable(f"{WHERE} ends at {end}, and was read up to {place.known}: it is asked again for {LOST_S:g} s")
        return True

    def rename(self, place: Place, behind: int, epoch: int) -> None:
        """The log has lost its end: ports go on behind this offset, under another name. Raises Unavailable."""
        log_id, _, losses = place.log.partition(":")
        name = f"{log_id}:{int(losses or 0) + 1}"
        if not self._write(Kept(log=name, mark=behind, stamp_ms=place.stamp_ms), epoch):
            raise Unavailable("another Dispatcher leads")
        self._short = None

    def begin(self, log_id: str, epoch: int, offset: int, *, waits: bool) -> Begun:
        """A port begins at this offset, and a record `waits` there or not. Raises Unavailable."""
        self._folded = None
        kept = _kept(self._store.get(KEY))
        self._kept = kept = kept if kept.log == log_id else Kept(log=log_id)
        times = kept.times if kept.began == offset else 0
        counted = times > 0 and self._counted == (log_id, offset)
        if waits and not counted and self._write(kept.model_copy(update={"began": offset, "times": times + 1}), epoch):
            self._counted = (log_id, offset)
        return Begun(kept.mark, times - counted)

    def is_first(self, offset: int) -> bool:
        """Whether this offset is read for the first time, as far as this process knows: here nobody came so far, and it is not decided."""
        before = self._read[1] if self._read[0] == self._kept.log else -1
        if offset <= max(before, self._kept.mark):
            return False
        self._read = (self._kept.log, offset)
        return True

    def note(self, folded: ScopeState, epoch: int) -> None:
        """Moves the mark on, now and then. What is folded is decided once nothing is pending that decides it and was asked for until
        then. Other effects do not count: an end whose archive cannot be written may stay for hours."""
        now_s = self._clock()
        if folded.client_log != self._kept.log or now_s - self._noted_s < NOTED_S:
            return
        self._noted_s = now_s
        mark, stamp_ms, behind = self._folded or (folded.client_mark, folded.client_stamp[2], folded.next_offset)
        self._folded = (mark, stamp_ms, behind)
        try:
            oldest = next((effect for effect, pending in folded.effects.items() if pending.effect.startswith(DECIDING)), None)
        except RuntimeError:  # the loop has changed it just now
            return
        if oldest is not None and int(oldest.split(".")[1]) < behind:
            return
        self._folded = None
        if mark > self._kept.mark:
            try:
                self._write(self._kept.model_copy(update={"mark": mark, "stamp_ms": stamp_ms}), epoch)
            except Unavailable as failure:
                log.warning("how far requests are decided is not noted yet", reason=str(failure))

    def stands(self, offset: int, reason: str, epoch: int) -> None:
        """Requests wait, and nobody knows for how long: `millrace doctor` tells it."""
        with contextlib.suppress(Unavailable, Refused):
            troubles.note(self._store, Fence(DISPATCHER, epoch), "requests", WHERE, troubles.Facts(reason=reason, offset=offset))

    def goes_on(self, epoch: int) -> None:
        with contextlib.suppress(Unavailable, Refused):
            if self._store.get(troubles.key_of("requests", WHERE)) is not None:
                troubles.over(self._store, Fence(DISPATCHER, epoch), "requests", WHERE)

    def _write(self, kept: Kept, epoch: int) -> bool:
        """Whether this process still leads. Raises Unavailable."""
        put = Put(KEY, kept.model_dump_json().encode())
        leads = self._store.txn(Txn([Compare(f"leaders/{DISPATCHER}", epoch)], [put])).succeeded
        if leads:
            self._kept = kept
        return leads


def _losses(log: str, log_id: str) -> int:
    """How often the log of this name had lost its end; -1: it is another topic's."""
    of, _, losses = log.partition(":")
    return int(losses or 0) if of == log_id else -1


def _kept(entry: Entry | None) -> Kept:
    try:
        return Kept.model_validate_json(entry.value) if entry is not None else Kept()
    except ValidationError as foreign:
        log.error("a foreign value is replaced", key=KEY, reason=str(foreign.errors(include_input=False, include_url=False)[:1]))
        return Kept()
