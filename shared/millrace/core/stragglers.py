"""Subtasks that ended long after the others of their task: few keys of a hash edge have most of the rows, or a machine is slow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .messages.execution import JobDetail, SubtaskDetail

TIMES = 3
AT_LEAST_MS = 2_000
MORE = 2
"""Times as many rows as the others read explain why a subtask took longer."""


@dataclass(frozen=True)
class Straggler:
    """A subtask's last attempt took `took_ms`, those of the task's other subtasks `others_ms` in the median. It read `rows`, the others
    `others_rows` in the median; None: an attempt has not reported its rows."""

    task: str
    subtask: int
    took_ms: int
    others_ms: int
    rows: int | None
    others_rows: int | None

    @property
    def had_more_rows(self) -> bool | None:
        """Whether it had more to do. None: not known."""
        return None if self.rows is None or self.others_rows is None else self.rows >= MORE * max(1, self.others_rows)


def stragglers(detail: JobDetail) -> Iterator[Straggler]:
    """The slowest subtask of each task, if it took TIMES as long as the others and AT_LEAST_MS longer. Only what has ended counts."""
    for task in detail.tasks:
        took_ms = {each.subtask: length for each in task.subtasks if (length := _took_ms(each)) is not None}
        if len(took_ms) < 2:
            continue
        slowest = max(took_ms, key=lambda subtask: took_ms[subtask])
        others_ms = _median(length for subtask, length in took_ms.items() if subtask != slowest)
        if took_ms[slowest] < max(TIMES * others_ms, others_ms + AT_LEAST_MS):
            continue
        rows = {each.subtask: each.progress.rows_read for each in task.subtasks if each.subtask in took_ms and each.progress is not None}
        others_rows = _median(rows[each] for each in rows if each != slowest) if rows.keys() == took_ms.keys() else None
        yield Straggler(task.task, slowest, took_ms[slowest], others_ms, rows.get(slowest), others_rows)


def _median(values: Iterable[int]) -> int:
    found = sorted(values)
    return (found[(len(found) - 1) // 2] + found[len(found) // 2]) // 2


def _took_ms(subtask: SubtaskDetail) -> int | None:
    if subtask.state != "FINISHED" or subtask.running_ms is None or subtask.ended_ms is None:
        return None
    return subtask.ended_ms - subtask.running_ms
