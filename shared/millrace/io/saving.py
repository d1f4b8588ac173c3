"""When a leader writes snapshots, and which records of its inbox are deleted after that [25]."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import structlog

from millrace.core.fold import Folded
from millrace.core.machine import Machine

from .interfaces import Unavailable
from .snapshots import Pointer, Snapshots, chunks
from .storage import StorageError

SNAPSHOT_RECORDS = 50_000  # folded records between two snapshots
KEPT_RECORDS = 10_000  # below a snapshot, for replicas that lag and for who looks at what happened

Beside = Callable[[Callable[[], Iterator[bytes]], Callable[[bytes | None], None]], None]
"""Makes bytes of a state as it is now, and gives them to the second function, without holding up the first's thread."""

log = structlog.get_logger("saving")


class Saving:
    """The snapshots of one leader. `delete_below(offset)` deletes records of its inbox; it may raise Unavailable."""

    def __init__(
        self, snapshots: Snapshots, machine: Machine, beside: Beside, delete_below: Callable[[int], None]
    ) -> None:
        self._snapshots, self._machine, self._beside, self._delete_below = snapshots, machine, beside, delete_below
        self.due = 0  # the offset at which the next one is written
        self._idle = threading.Event()
        self._idle.set()

    def begin(self, folded: Folded) -> None:
        """A replica begins with this state."""
        self.due = folded.next_offset + SNAPSHOT_RECORDS

    def save(self, folded: Folded) -> None:
        """Writes a snapshot of the state as it is now, while it goes on."""
        self.due = folded.next_offset + SNAPSHOT_RECORDS
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

    def last(self, folded: Folded) -> None:
        """Writes the snapshot that ends a leader's term: nothing was said about later records, and nothing will be [27]."""
        try:
            self._clean(self._snapshots.save(folded, final=True))
        except (Unavailable, StorageError) as failure:
            self._failed(folded.next_offset, str(failure))

    def _clean(self, pointer: Pointer | None) -> None:
        """What lies below the snapshot, less a margin for whoever reads just now, goes; what lies above the one before it stays, which
        counts when this one is found damaged."""
        if pointer is not None and pointer.before is not None:
            below = min(pointer.offset - KEPT_RECORDS, pointer.before.offset)
            if pointer.before.generation == pointer.generation and below > 0:
                self._delete_below(below)

    def _failed(self, offset: int, reason: str) -> None:
        log.warning("no snapshot", scope=self._machine.scope, reason=reason)
        self.due = offset + SNAPSHOT_RECORDS // 10
