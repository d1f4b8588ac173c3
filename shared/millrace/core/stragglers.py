"""Subtasks that ended long after the others of their task: few keys of a hash edge have most of the rows, or a machine is slow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .messages.execution import JobDetail, SubtaskDetail

TIMES = 3
AT_LEAST_MS = 2_000


@dataclass(frozen=True)
class Straggler:
    """A subtask's last attempt took `took_ms`, those of the task's other subtasks `others_ms` in the median."""

    task: str
    subtask: int
    took_ms: int
    others_ms: int


def stragglers(detail: JobDetail) -> Iterator[Straggler]:
    """The slowest subtask of each task, if it took TIMES as long as the others and AT_LEAST_MS longer. Only what has ended counts."""
    for task in detail.tasks:
        took_ms = {each.subtask: length for each in task.subtasks if (length := _took_ms(each)) is not None}
        if len(took_ms) < 2:
            continue
        slowest = max(took_ms, key=lambda subtask: took_ms[subtask])
        others = sorted(length for subtask, length in took_ms.items() if subtask != slowest)
        others_ms = (others[(len(others) - 1) // 2] + others[len(others) // 2]) // 2  # their median
        if took_ms[slowest] >= max(TIMES * others_ms, others_ms + AT_LEAST_MS):
            yield Straggler(task.task, slowest, took_ms[slowest], others_ms)


def _took_ms(subtask: SubtaskDetail) -> int | None:
    if subtask.state != "FINISHED" or subtask.running_ms is None or subtask.ended_ms is None:
        return None
    return subtask.ended_ms - subtask.running_ms
