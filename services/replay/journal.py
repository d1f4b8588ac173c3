"""A part of a TaskManager's journal as a source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from millrace.core.fold import ScopeState
from millrace.core.topics import TASK_MANAGER
from services.task_manager.journal import read

from .core.recorded import BadLog, Facts, Log, Recorded, Scope
from .core.trees import planted, tree
from .machines import fold_of

JOURNAL = "journal"


class JournalPart:
    """See `Source`. One scope, one log; nothing of what it said."""

    def __init__(self, path: Path) -> None:
        """Raises BadLog."""
        try:
            part = read(path)
        except OSError as failure:
            raise BadLog(f"{path} cannot be read: {failure.strerror}") from None
        except ValueError as failure:
            raise BadLog(str(failure)) from None
        scope, id = f"{TASK_MANAGER}/{part.name}", str(part.incarnation)
        self._folded, first = part.folded, part.folded.next_offset
        self.facts = Facts("", part.topology, {scope: Scope(scope, JOURNAL, 0, part.incarnation, id, 0)})
        self._log = Log(JOURNAL, 0, id, first, part.records[-1][0] + 1 if part.records else first)
        self._records = [Recorded(JOURNAL, 0, n, stamp_ms, scope, value) for n, stamp_ms, value in part.records]

    def logs(self) -> list[Log]:
        return [self._log]

    def read(self, log: Log, first: int, ids: bool = True) -> Iterator[Recorded]:
        return (each for each in self._records if each.offset >= first)

    def scan(self, logs: Sequence[Log], words: Callable[[], Sequence[bytes]]) -> Iterator[Recorded]:
        return (each for each in self._records if any(word in each.value for word in words()))

    def offset_at(self, log: Log, stamp_ms: int) -> int:
        return next((each.offset for each in self._records if each.stamp_ms >= stamp_ms), log.end)

    def newest_ms(self) -> int:
        return self._records[-1].stamp_ms if self._records else 0

    def snapshots(self, scope: Scope) -> Sequence[int]:
        return [self._log.first] if self._log.first else []

    def snapshot(self, scope: Scope, offset: int) -> ScopeState:
        machine = fold_of(scope.name, self.facts.topology).machine
        return planted(machine, tree(machine, self._folded))  # a fold changes it

    def close(self) -> None:
        pass
