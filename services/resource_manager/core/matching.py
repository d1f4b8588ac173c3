"""Which waiting job gets which free slot. A policy over plain values.

The highest priority goes first, then the job that waits longest, then the smaller job id. Waiting counts towards priority:
`ageing_ms` of it outweigh one step, so no job starves. As all age alike, the order of two jobs never changes while they
wait: a queue stays sorted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def rank(priority: int, since_ms: int, ageing_ms: int) -> int:
    """The place of a job among others: the smaller goes first."""
    return since_ms - priority * ageing_ms


def match_slots(
    queues: Mapping[int, Sequence[tuple[int, str]]], free: Mapping[int, Mapping[str, tuple[str, int]]]
) -> tuple[str, tuple[str, int]] | None:
    """The next grant: (job, (TaskManager, slot)), or None where no waiting job can use a free slot.

    queues: memory_mb -> the sorted (rank, job) that want a slot of at least so much; free: memory_mb -> free slots,
    longest free first; neither holds an empty group. The job that is first among those that fit anywhere gets the
    smallest slot that fits.
    """
    if not free or not queues:
        return None
    largest = max(free)
    heads = [(queue[0], memory) for memory, queue in queues.items() if memory <= largest]
    if not heads:
        return None
    (_, job), memory = min(heads)
    fitting = min(size for size in free if size >= memory)
    return job, next(iter(free[fitting].values()))
