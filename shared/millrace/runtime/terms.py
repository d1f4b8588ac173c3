"""What runs while a replica leads: its term, from the first turn in which it does to its end."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from millrace.core.replica import Replica

from .hosting import AppendRecord, Hosted, Term
from .metrics import TERMS, TERMS_LOST

log = structlog.get_logger("loop")


class Terms:
    """`append`: for the term's other threads. `ended(epoch)`: called with each term that is over."""

    def __init__(self, hosted: Hosted, append: AppendRecord, ended: Callable[[int], None], build: str) -> None:
        self._hosted, self._append, self._ended, self._build = hosted, append, ended, build
        self.now: Term | None = None
        self.log = log.bind(scope=hosted.machine.scope)

    def update(self, replica: Replica) -> None:
        """Begins or ends a term as the replica does."""
        if replica.leads and (self.now is None or self.now.epoch != replica.epoch):
            self.lose()
            self.now = Term(replica.epoch, replica.folded, self._append)
            self.log = self.log.bind(epoch=replica.epoch)
            TERMS.add(self._hosted.machine.scope)
            self.log.info("leads", generation=replica.folded.generation, build=self._build)
            if self._hosted.on_lead is not None:
                self._hosted.on_lead(self.now)
        elif not replica.leads:
            self.lose()

    def lose(self) -> None:
        """The term, if there is one, ends otherwise than by a stop or a handover."""
        if self.now is not None:
            self.log.warning("leads no more")
            TERMS_LOST.add(self._hosted.machine.scope)
            self.end()

    def end(self) -> None:
        if self.now is not None:
            self.now.ended.set()
            self._ended(self.now.epoch)
            self.now = None

    def is_current(self, epoch: int) -> bool:
        """Any thread."""
        term = self.now  # it may be gone between two looks
        return term is not None and term.epoch == epoch
