"""An inbox folded again, record by record. The same `Fold` as in the services; what it says and does goes nowhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pydantic import ValidationError

from millrace.core.fold import Diverged, Fold, FoldResult, Parked, ScopeState
from millrace.core.messages.records import Elected, Record, Tick, UnknownRecord, decode

from .recorded import BadLog, Recorded, Scope


class Broken(Exception):
    """Folding a record failed: a bug of this build, or what ended the processes of the build that wrote it [R26]."""


class Step(NamedTuple):
    """One record, folded, and what it led to. `record` None: parked bytes that are no record."""

    recorded: Recorded
    record: Record | None
    result: FoldResult


class Folding:
    """Folds the log of one scope. `redacted`: ticks name digests of other words, so none is compared. `builds`: those that led while it
    was written, with the offset from which on."""

    def __init__(self, fold: Fold, folded: ScopeState, scope: Scope, redacted: bool = False) -> None:
        self.fold, self.folded, self.scope, self.redacted = fold, folded, scope, redacted
        self.builds = {folded.build: folded.next_offset} if folded.build else {}

    def steps(self, records: Iterable[Recorded]) -> Iterator[Step]:
        """Folds them one after the other. Raises BadLog, Diverged (a tick names another digest) and Broken."""
        folded = self.folded
        for recorded in records:
            if recorded.offset != folded.next_offset:
                raise BadLog(
                    f"{recorded.place} follows offset {folded.next_offset - 1}: records between them are missing; "
                    f"the state up to offset {folded.next_offset - 1} can be shown, and all records with replay show"
                )
            parked = self.scope.parked.get(recorded.offset)
            record = self._decoded(recorded, parked is not None)
            if isinstance(record, Elected) and record.generation == folded.generation and record.epoch > folded.epoch:
                self.builds.setdefault(record.build, recorded.offset)
            if isinstance(record, Tick) and self.redacted:
                record = record.model_copy(update={"digest": folded.ticked_digest})
            yield Step(recorded, record, self._fold_one(recorded, record, parked))

    def _fold_one(self, recorded: Recorded, record: Record | None, parked: Parked | None) -> FoldResult:
        offset, stamp_ms = recorded.offset, recorded.stamp_ms
        try:
            if parked is not None:
                result = self.fold.pass_over(self.folded, offset, stamp_ms, record, parked)
            else:
                assert record is not None
                result = self.fold.fold(self.folded, offset, stamp_ms, record)
        except Diverged:
            raise
        except Exception as failure:
            raise Broken(
                f"{recorded.place}: folding it ends {self.scope.name} with {type(failure).__name__}: {failure}"
            ) from failure
        if result.damage is not None:
            raise BadLog(f"{recorded.place}: the log is not whole: {result.damage}; the state below that offset can be shown")
        return result

    def _decoded(self, recorded: Recorded, parked: bool) -> Record | None:
        try:
            return decode(recorded.value)
        except UnknownRecord as failure:
            what = str(failure).splitlines()
            raise BadLog(
                f"{recorded.place} is of a kind or version that this build does not know ({' '.join(what[1:3]).strip()}): "
                f"replay it with build {self.folded.build}, which wrote it, or look at it with replay show"
            ) from None
        except ValidationError:
            if parked:
                return None
            raise BadLog(f"{recorded.place} is no record but {len(recorded.value)} other bytes; replay show has them") from None
