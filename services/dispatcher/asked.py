"""What outlives the Dispatcher's log about client.commands: one key in etcd, which the port of the leader writes.

How far requests are decided: a Dispatcher that is born anew reads all of them again, and must not carry out what was refused. And
where a port begins to read: what ends a process before it can say anything is known by that another one began there in vain [30].
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from millrace.core.fold import Folded
from millrace.core.topics import DISPATCHER
from millrace.io.interfaces import Compare, Put, Store, Txn, Unavailable

KEY = "clients/commands"
NOTED_S = 1.0  # between two writes of the mark

log = structlog.get_logger("client port")


Offset = Annotated[int, Field(ge=-1, lt=1 << 63)]


class Kept(BaseModel):
    """Of the log `log`: all requests up to `mark` are decided; ports of `times` processes have begun at `began`, and are not known to
    have come further."""

    model_config = ConfigDict(frozen=True, strict=True)

    log: str = ""
    mark: Offset = -1
    began: Offset = -1
    times: Annotated[int, Field(ge=0, lt=1 << 31)] = 0


class Asked:
    """The key, as one process sees it. The calls are those of one thread."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._clock = store, clock
        self._kept = Kept()
        self._own = ("", -1)  # where this process has begun
        self._noted_s = -NOTED_S
        self._folded: tuple[int, int] | None = None  # (mark, offset in the inbox behind it), not known to be decided yet

    def begin(self, log_id: str, epoch: int, offset: int, waits: bool) -> tuple[int, int]:
        """A port begins at this offset, and a record `waits` there: the mark, and how many other processes have begun there before.
        Raises Unavailable."""
        self._folded = None
        entry = self._store.get(KEY)
        try:
            kept = Kept.model_validate_json(entry.value) if entry is not None else Kept()
        except ValidationError:
            log.error("a foreign value is replaced", key=KEY)
            kept = Kept()
        kept = self._kept = kept if kept.log == log_id else Kept(log=log_id)
        others = kept.times if kept.began == offset else 0
        if self._own == (log_id, offset) and others:
            return kept.mark, others - 1
        if waits:
            self._write(kept.model_copy(update={"began": offset, "times": others + 1}), epoch)
            self._own = (log_id, offset)
        return kept.mark, others

    def note(self, folded: Folded, epoch: int) -> None:
        """Moves the mark on, now and then. What is folded is decided once nothing is pending that was asked for until then."""
        now_s = self._clock()
        if folded.client_log != self._kept.log or now_s - self._noted_s < NOTED_S:
            return
        self._noted_s = now_s
        mark, behind = self._folded or (folded.client_mark, folded.next_offset)
        self._folded = (mark, behind)
        try:
            oldest = next(iter(folded.effects), None)
        except RuntimeError:  # the loop has changed it just now
            return
        if oldest is not None and int(oldest.split(".")[1]) < behind:
            return
        self._folded = None
        if mark > self._kept.mark:
            try:
                self._write(self._kept.model_copy(update={"mark": mark}), epoch)
            except Unavailable as failure:
                log.warning("how far requests are decided is not noted yet", reason=str(failure))

    def _write(self, kept: Kept, epoch: int) -> None:
        value = kept.model_dump_json().encode()
        if self._store.txn(Txn([Compare(f"leaders/{DISPATCHER}", epoch)], [Put(KEY, value)])).succeeded:
            self._kept = kept
