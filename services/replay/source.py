"""Where recorded logs are read from: a live cluster, an exported file, a TaskManager's journal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from millrace.core.fold import ScopeState

from .core.recorded import BadLog, Facts, Log, Recorded, Scope, Shortened
from .machines import fold_of


class Source(Protocol):
    """Recorded logs. All that reads them may raise BadLog."""

    facts: Facts

    def logs(self) -> list[Log]:
        """All partitions there are, inboxes and public topics."""
        ...

    def read(self, log: Log, first: int, ids: bool = True) -> Iterator[Recorded]:
        """The records of a log from offset `first` on. `ids`: with the ids of what scopes said, which costs time."""
        ...

    def scan(self, logs: Sequence[Log], words: Callable[[], Sequence[bytes]]) -> Iterator[Recorded]:
        """The records of the logs, one log after the other, in whose bytes one of the words stands; they are asked for again after each."""
        ...

    def offset_at(self, log: Log, stamp_ms: int) -> int:
        """The first offset whose record is stamped at this time or later; the log's end if there is none."""
        ...

    def newest_ms(self) -> int:
        """The latest moment that can be asked for: of the last record; now, where records still come."""
        ...

    def snapshots(self, scope: Scope) -> Sequence[int]:
        """The offsets from which snapshots of this generation go on, in order."""
        ...

    def snapshot(self, scope: Scope, offset: int) -> ScopeState:
        """The one that goes on from this offset."""
        ...

    def close(self) -> None: ...


TRIES = 3
T = TypeVar("T")


def steadily(do: Callable[[], T]) -> T:
    """What `do` gives, which reads a source; from the beginning again where a living log was shortened meanwhile."""
    for _ in range(TRIES - 1):
        try:
            return do()
        except Shortened as shortened:
            shortened.look_again()
    return do()


def log_of(source: Source, scope: Scope) -> Log:
    """A scope's inbox. Raises BadLog where it is not here, or is another log than the generation's."""
    for log in source.logs():
        if (log.topic, log.partition) == (scope.topic, scope.partition):
            if log.log_id != scope.log_id:
                raise BadLog(
                    f"{log.name} is the log {log.log_id}, and generation {scope.generation} of {scope.name} is the log {scope.log_id}: "
                    "these are another cluster's records, or the topic was made anew; replay show shows them"
                )
            return log
    raise BadLog(f"the inbox of {scope.name}, {scope.topic}[{scope.partition}], is not here")


def start_of(source: Source, scope: Scope, log: Log, at: int | None = None) -> ScopeState:
    """Where a fold begins that is to show the state after offset `at` (the nearest place below), or everything (None: the earliest).
    That is the generation's first record, or a snapshot. Raises BadLog: `at` is of an earlier generation, the log starts too late."""
    if at is not None and at < scope.first_offset - 1:
        raise BadLog(
            f"offset {at} of {log.name} is of an earlier generation: generation {scope.generation} of {scope.name} begins at "
            f"{scope.first_offset}; replay show shows what lies below"
        )
    snapshots = [offset for offset in source.snapshots(scope) if offset >= log.first]
    usable = [offset for offset in snapshots if at is None or offset <= at + 1]
    from_first = log.first <= scope.first_offset
    if from_first and (at is None or not usable):
        return fold_of(scope.name, source.facts.topology).blank(scope.generation, scope.first_offset)
    if usable:
        return source.snapshot(scope, usable[-1] if at is not None else usable[0])
    known = f"the earliest snapshot goes on from {snapshots[0]}" if snapshots else "there is no snapshot"
    shown = f", and replay state --at {snapshots[0]} or later the state" if snapshots else ""
    raise BadLog(
        f"{log.name} starts too late: its records begin at offset {log.first}, generation {scope.generation} of {scope.name} "
        f"begins at {scope.first_offset}, and {known}; replay show shows the records from {log.first} on{shown}"
    )
