"""The leader key of a scope, as etcd last showed it to this process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import structlog

from millrace.core.election import View
from millrace.io.interfaces import Entry, Unavailable

log = structlog.get_logger("loop")


class LeaderKey:
    """`who` names this process; `lease` gives its lease, and raises Unavailable while it has none."""

    def __init__(self, scope: str, who: str, lease: Callable[[], int]) -> None:
        self._scope, self._who, self._lease = scope, who, lease
        self.view = View(None)

    def watched(self, entry: Entry | None) -> None:  # [R31]
        """It has changed (the beat thread's watch)."""
        if entry is None:
            self.view = View(0)
            return
        mine = False
        if entry.value == self._who.encode():
            with contextlib.suppress(Unavailable):
                mine = entry.lease == self._lease()
        if not entry.lease:
            log.error(
                "the leader key was written by hand: it is replaced", scope=self._scope, key=entry.key, value=repr(entry.value[:100])
            )
        self.view = View(entry.mod_revision, mine, foreign=not entry.lease)

    def won(self, epoch: int) -> None:
        self.view = View(epoch, True)

    @property
    def is_led(self) -> bool:
        """By another, as far as is known: a key that has ended, is this process's own or has no lease is no leader's."""
        return not (self.view.epoch == 0 or self.view.mine or self.view.foreign)
