"""When a leader writes snapshots, and which records of its inbox are deleted after that [R25]."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator

import structlog

from millrace.core.fold import ScopeState
from millrace.core.machine import Machine
from millrace.io.interfaces import Unavailable
from millrace.io.storage.store import StorageError

from .snapshots import Pointer, Snapshots, chunks

SNAPSHOT_RECORDS = 20_000  # folded records between two snapshots: what a start has to fold again at most, in a second or two
SNAPSHOT_BYTES = 64 << 20  # of records, likewise: one may have a megabyte
KEPT_RECORDS = 10_000  # below a snapshot, for replicas that lag and for who looks at what happened

KEPT_BYTES = 32 << 20  # of these at most
MARK_BYTES = 1 << 20

RunForked = Callable[[Callable[[], Iterator[bytes]], Callable[[bytes | None], None]], None]
"""Makes bytes of a state as it is now, and gives them to the second function, without holding up the first's thread."""

log = structlog.get_logger("saving")


class Saving:  # [R32]
    """The snapshots of one leader. `delete_below(offset)` deletes records of its inbox; it may raise Unavailable."""

    def __init__(
        self, snapshots: Snapshots, machine: Machine, beside: RunForked, delete_below: Callable[[int], None]
    ) -> None:
        self._snapshots, self._machine, self._beside, self._delete_below = snapshots, machine, beside, delete_below
        self.due = 0  # the offset at which the next one is written
        self._bytes = 0  # read since the last one
        self._total = 0  # read
        self._marks: deque[tuple[int, int]] = deque()  # (offset, total before it), one each MARK_BYTES, for KEPT_BYTES and two snapshots
        self._idle = threading.Event()
        self._idle.set()

    def read(self, offset: int, size: int) -> None:
        """A record of so many bytes was folded."""
        if not self._marks or self._total - self._marks[-1][1] >= MARK_BYTES:
            self._marks.append((offset, self._total))
            while self._marks[0][1] < self._total - 4 * (SNAPSHOT_BYTES + KEPT_BYTES):
                self._marks.popleft()
        self._bytes += size
        self._total += size

    def is_due(self, folded: ScopeState) -> bool:
        return folded.next_offset >= self.due or self._bytes >= SNAPSHOT_BYTES

    def begin(self, folded: ScopeState) -> None:
        """A replica begins with this state."""
        self.due = folded.next_offset + SNAPSHOT_RECORDS
        self._bytes = self._total = 0
        self._marks.clear()

    def save(self, folded: ScopeState) -> None:
        """Writes a snapshot of the state as it is now, while it goes on."""
        self.due, self._bytes = folded.next_offset + SNAPSHOT_RECORDS, 0
        if not self._idle.is_set():
            return
        generation, offset, build = folded.generation, folded.next_offset, folded.build

        def keep(data: bytes | None) -> None:
            try:
                if data is None:
                    self._failed(offset, "the copy of the process that makes it has ended")
                else:
                    self._clean(self._snapshots.keep(generation, offset, build, data))
            except (Unavailable, StorageError) as failure:
                self._failed(offset, str(failure))
            finally:
                self._idle.set()

        self._idle.clear()
        try:
            self._beside(lambda: chunks(self._machine, folded), keep)
        except OSError as failure:
            self._idle.set()
            self._failed(offset, f"the process cannot be copied: {failure.strerror}")

    def last(self, folded: ScopeState) -> None:
        """Writes the snapshot that ends a leader's term: nothing was said about later records, and nothing will be [R27]."""
        try:
            # None: a newer one stands, or one that was made beside was stored just between the look and the change
            self._clean(self._snapshots.save(folded, final=True) or self._snapshots.save(folded, final=True))
        except (Unavailable, StorageError) as failure:
            self._failed(folded.next_offset, str(failure))

    def _clean(self, pointer: Pointer | None) -> None:  # [R25]
        """What lies below the snapshot, less a margin for whoever reads just now, goes; what lies above the one before it stays, which
        counts when this one is found damaged."""
        if pointer is not None and pointer.before is not None:
            below = min(max(pointer.offset - KEPT_RECORDS, self._kept_from(pointer.offset)), pointer.before.offset)
            if pointer.before.generation == pointer.generation and below > 0:
                self._delete_below(below)

    def _kept_from(self, offset: int) -> int:
        """Where the last KEPT_BYTES before an offset begin; 0: not known. On the thread that saves: the marks are copied first."""
        marks = list(self._marks)
        most = max((total for at, total in marks if at <= offset), default=0) - KEPT_BYTES
        return max((at for at, total in marks if total <= most), default=0)

    def _failed(self, offset: int, reason: str) -> None:
        log.warning("no snapshot", scope=self._machine.scope, reason=reason)
        self.due, self._bytes = offset + SNAPSHOT_RECORDS // 10, SNAPSHOT_BYTES * 9 // 10
