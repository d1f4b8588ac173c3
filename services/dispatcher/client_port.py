"""Copies strangers' requests from client.commands into the Dispatcher's inbox, while this replica leads [R2].

A chain like any other: each record names the offset before it, and its stamp, so that what two leaders copied is folded once. At most
IN_FLIGHT are copied and not yet folded: a flood of submissions cannot delay what the services tell each other.

No record of a stranger ends a Dispatcher for good. What cannot be understood is a dead letter, whatever it does to the intake. What cannot
be read is passed over, and its dead letter has its offset alone: its bytes are damaged, or reading it has ended a process that began there.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

import structlog

from millrace.core.messages.records import Client, Refusal
from millrace.io.interfaces import Bus, Damaged, OffsetGone, Reader, Received, Unavailable
from millrace.io.storage.store import StorageError
from millrace.runtime.hosting import Term
from millrace.runtime.metrics import COMMAND_LAG

from .intake import Intake, not_understood
from .request_marks import RequestMarks
from .trial import Inconclusive, Read, Tried, Unreadable

TOPIC = "client.commands"
IN_FLIGHT = 256
TOGETHER_MOST = 16  # are checked before any is copied: one request to Kafka takes them all, and what is there alone waits for nothing
OUTBOX_MOST = 50_000  # while Kafka takes nothing of what is sent about requests, no more are taken on
POLL_MS = 500
STUCK_S = 5.0
AGAIN_S, TRY_AGAIN_S = 0.5, 10.0  # the second where a process of its own could not tell: it takes a second of a core
ALONE_MOST = 100  # records in a row that are no requests have a letter each; those behind them share one for each time that is read

Trial = Callable[[int, int, threading.Event], Tried]
Came = Callable[[int, int], None]
"""Is called with offset and Kafka's stamp of each request that was read. Must not wait, or raise."""

log = structlog.get_logger("client port")


class ClientPort:
    """`lead(term)` starts a thread that ends with the term. `fatal(reason)` ends the process. `trial(offset, end, ended)`
    reads client.commands in a process of its own, for what stands there may end who reads it."""

    def __init__(
        self, bus: Bus, intake: Intake, marks: RequestMarks, trial: Trial, fatal: Callable[[str], None],
        came: Came = lambda offset, stamp_ms: None,
    ) -> None:  # fmt: skip
        self._bus, self._intake, self._marks, self._fatal = bus, intake, marks, fatal
        self._trial, self._came = trial, came
        COMMAND_LAG.begin(TOPIC)
        self._turn = threading.Lock()  # the thread of the term before may still be reading

    def lead(self, term: Term) -> None:
        threading.Thread(target=self._run, args=(term,), name="client-port", daemon=True).start()

    def _run(self, term: Term) -> None:
        try:
            with self._turn:
                while not term.ended.is_set():
                    try:
                        self._copy(term)
                    except (Unavailable, OffsetGone, StorageError) as failure:
                        log.warning("requests wait", reason=str(failure))
                        term.ended.wait(TRY_AGAIN_S if isinstance(failure, Inconclusive) else AGAIN_S)
        except Exception as failure:
            log.exception("the client port ends")
            self._fatal(f"client port: {type(failure).__name__}: {failure}")

    def _copy(self, term: Term) -> None:
        """Copies until the term ends, or the chain must be taken up anew."""
        copier = Copier(self._bus, self._intake, term, self._marks, self._trial, self._came)
        moved, mark = time.monotonic(), -1
        try:
            while not term.ended.is_set():
                if not copier.copy(POLL_MS):
                    term.ended.wait(0.001)
                self._marks.note(term.folded, term.epoch)
                if copier.mark != mark or not copier.flying:
                    moved, mark = time.monotonic(), copier.mark
                elif time.monotonic() - moved > STUCK_S:
                    log.warning("copied requests are not folded; the chain is taken up anew", mark=mark)
                    return
        finally:
            copier.close()


class Copier:  # [R2], [R30]
    """Copies from behind the folded mark on. Raises Unavailable, OffsetGone, StorageError: make another one then."""

    def __init__(
        self, bus: Bus, intake: Intake, term: Term, marks: RequestMarks, trial: Trial, came: Came = lambda offset, stamp_ms: None
    ) -> None:
        self._bus, self._intake, self._term, self._marks, self._trial = bus, intake, term, marks, trial
        self._came = came
        first, end = bus.offsets(TOPIC, 0)
        self._place = place = marks.place(bus.log_id(TOPIC), term.folded)
        self._log = place.log
        if marks.is_short(place, end):
            raise self._lost(f"it ends at {end}, and was read up to {place.known}")
        self._prev = self.mark
        offset, stamp_ms, _ = term.folded.client_stamp
        self._prev_stamp_ms = stamp_ms if offset == self._prev else 0
        self.flying: deque[int] = deque()  # offsets copied and not seen folded
        self._refused = 0  # records in a row that were no requests
        if 0 <= self.mark < first - 1:
            log.error("requests were deleted before they were read", first=self.mark + 1, last=first - 1)
        behind = place.behind
        if place.stamp_ms and behind > self.mark:  # nothing is folded yet under this name: the log may have been cut once more
            behind = min(behind, bus.offset_after(TOPIC, 0, place.stamp_ms) - 1)
        start = max(behind + 1, first)
        begun = marks.begin(self._log, term.epoch, start, waits=start < end)
        self._decided = begun.decided
        self._next = start
        self._last = self._stamp_of(first) if not begun.in_vain else None
        self._why, self._try_to = "", -1  # why, and up to where, it is read in a process of its own
        self._reader: Reader | None = None
        if begun.in_vain and start < end:
            log.error("a process has begun to read here, and came no further", offset=start, processes=begun.in_vain)
            self._why, self._try_to = f"reading it has ended {begun.in_vain + 1} processes", end

    @property
    def mark(self) -> int:
        """The last offset that is folded; -1: none of this log."""
        folded = self._term.folded
        return folded.client_mark if folded.client_log == self._log else -1

    def _stamp_of(self, first: int) -> tuple[int, int] | None:
        """(offset, stamp) of the last request that is folded, if both are known and it is still there: it is read once more."""
        offset, stamp_ms, _ = self._term.folded.client_stamp
        return (offset, stamp_ms) if stamp_ms and first <= offset == self._next - 1 == self.mark else None

    def _is_another(self, mark: int) -> bool:
        """Whether at the offset that was copied last another one was folded than this port has read there."""
        offset, stamp_ms, _ = self._term.folded.client_stamp
        return mark == self._prev == offset and 0 not in (stamp_ms, self._prev_stamp_ms) and stamp_ms != self._prev_stamp_ms

    def copy(self, patience_ms: int) -> bool:
        """Copies what is there and fits; waits `patience_ms` for a first one. False: too many are not folded yet."""
        mark = self.mark
        if mark >= self._next or self._is_another(mark):  # copied by a port before, and the log may have lost its end since
            raise Unavailable(f"requests up to {mark} are folded, and this port has not read them")
        while self.flying and self.flying[0] <= mark:
            self.flying.popleft()
        room = IN_FLIGHT - len(self.flying) if len(self._term.folded.outbox) < OUTBOX_MOST else 0
        if self._reader is None:
            if self.flying:
                return False  # what is behind may end this process: first all in front of it is folded
            if self._next < self._try_to:
                self._try()
                return True
            self._marks.goes_on(self._term.epoch)
            self._reader = self._bus.reader(TOPIC, 0, self._last[0] if self._last else self._next)
        try:
            read = self._reader.poll(patience_ms, min(room, IN_FLIGHT if self._in_flood else TOGETHER_MOST)) if room else []
        except Damaged as damaged:
            self._reader.close()
            self._reader, self._last = None, None
            if damaged.offset < self._next:
                return True
            self._next = damaged.offset
            self._why, self._try_to = str(damaged), self._bus.offsets(TOPIC, 0)[1]
            return True
        self._copy(self._new(read))
        return room > 0

    def _new(self, read: list[Received]) -> list[Received]:
        """Without the last request that is folded, by whose stamp it is seen that the log has lost its end, and has grown again."""
        if not read or self._last is None:
            return read
        (offset, stamp_ms), self._last = self._last, None
        if read[0].offset != offset:
            return read
        if read[0].stamp_ms != stamp_ms:
            raise self._lost(f"what stands at offset {offset} has the stamp {read[0].stamp_ms}, and the request read there had {stamp_ms}")
        return read[1:]

    def _lost(self, reason: str) -> Unavailable:
        """The log has lost its end, and its offsets are given out again. What came since has later stamps than all that was read: the
        next port begins there, under another name. Nothing of before is copied again."""
        place = self._place
        begin = self._bus.offset_after(TOPIC, 0, place.stamp_ms) if place.stamp_ms else self._bus.end(TOPIC, 0)
        log.error("client.commands has lost its end", reason=reason, read_on_from=begin)
        self._marks.rename(place, begin - 1, self._term.epoch)
        return Unavailable(f"{TOPIC} has lost its end; requests are read on from offset {begin}")

    def _copy(self, read: Iterable[Received]) -> None:
        for record in self._records(read):
            self.flying.append(record.offset)
            self._append(record)
            self._next = record.offset + 1

    @property
    def _in_flood(self) -> bool:
        return self._refused > ALONE_MOST

    def _records(self, read: Iterable[Received]) -> list[Client]:
        """All are checked before any is copied. In a flood of what is no request one letter tells of several: its cost to others is that of
        reading it."""
        records: list[Client] = []
        for received in read:
            record = self._record(received).model_copy(update={"prev_stamp_ms": self._prev_stamp_ms})
            self._refused = self._refused + 1 if record.refusal is not None else 0
            before = records[-1] if records else None
            if record.refusal is not None and before is not None and before.refusal is not None and self._in_flood:
                reason = f"{record.refusal.reason}; those from offset {before.prev + 1} on were of no use either"
                record = record.model_copy(
                    update={
                        "prev": before.prev, "prev_stamp_ms": before.prev_stamp_ms,
                        "refusal": record.refusal.model_copy(update={"reason": reason}),
                    }
                )  # fmt: skip
                records.pop()
            self._prev, self._prev_stamp_ms = received.offset, received.stamp_ms
            records.append(record)
        return records

    def _record(self, received: Received) -> Client:
        if self._marks.is_first(received.offset):  # what is read again may be days old
            COMMAND_LAG.observe(time.time() - received.stamp_ms / 1000, TOPIC)
        self._came(received.offset, received.stamp_ms)
        try:
            record = self._intake.record(received, self._log, self._prev)
        except StorageError:
            raise
        except Exception as failure:  # a mistake of ours: it would end every Dispatcher that reads this
            log.exception("a request cannot be understood", offset=received.offset)
            reason = f"a fault of Millrace in understanding it ({type(failure).__name__})"
            return not_understood(received, self._log, self._prev, reason)
        return record.model_copy(update={"decided": True}) if received.offset <= self._decided else record

    def _append(self, record: Client) -> None:
        try:
            self._term.append(record)
        except ValueError as failure:  # too large for the inbox, or cannot be written
            log.error("a request cannot be copied", offset=record.offset, reason=str(failure))
            reason = Refusal(reason=f"it cannot be copied: {failure}"[:500], size_bytes=0, sha256="", head_base64="")
            self._term.append(
                Client(
                    log=record.log, prev=record.prev, prev_stamp_ms=record.prev_stamp_ms, offset=record.offset,
                    stamp_ms=record.stamp_ms, refusal=reason,
                )
            )  # fmt: skip

    def _try(self) -> None:
        """Copies what can be read, or passes over what cannot, with one dead letter that has not a word of what stands there."""
        try:
            found = self._trial(self._next, self._try_to, self._term.ended)
        except Inconclusive as failure:
            self._marks.stands(self._next, str(failure), self._term.epoch)
            raise
        match found:
            case Read(records):
                self._copy(records)
                self._next = found.behind  # perhaps further: nothing stands between
            case Unreadable(first):
                self._pass_over(first, found.behind - 1)
                self._next = found.behind

    def _pass_over(self, first: int, last: int) -> None:
        self._try_to = -1
        log.error("requests are passed over", first=first, last=last, reason=self._why)
        reason = f"it cannot be read: {self._why}" if first == last else f"offsets {first} to {last} cannot be read: {self._why}"
        refusal = Refusal(reason=reason[:500], size_bytes=0, sha256="", head_base64="")
        self._append(Client(log=self._log, prev=self._prev, prev_stamp_ms=self._prev_stamp_ms, offset=last, refusal=refusal))
        self.flying.append(last)
        self._prev, self._prev_stamp_ms = last, 0

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
