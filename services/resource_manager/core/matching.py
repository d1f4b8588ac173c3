"""Which waiting job gets which free slots. A policy over plain values.

Of a tenant's jobs the highest priority goes first, then the job that waits longest, then the smaller job id. Waiting counts towards
priority: `ageing_ms` of it outweigh one step, so no job starves. As all age alike, the order of two jobs never changes while they wait: a
queue stays sorted.

Among tenants the one goes first that holds least for its weight; among equals the job that would go first in one queue. After
`PASSED_MAX` slots of a size that others got, the next one goes to the job that is first in one queue of all. If that wants several at
once, slots are kept until there are enough: so neither a tenant nor a gang starves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sized
from dataclasses import dataclass, field

from .waiting import Line, Waiting, Wanted

PASSED_MAX = 9


def rank(priority: int, since_ms: int, ageing_ms: int) -> int:
    """The place of a job among others: the smaller goes first."""
    return since_ms - priority * ageing_ms


@dataclass
class Match:
    """What is granted next. `job`: None where no waiting job can use what is free. `sizes`: of the slots that it gets. `passed`: sizes of
    which another job was first in one queue of all. `kept`: size -> the job for which its free slots are kept."""

    job: str | None = None
    sizes: list[int] = field(default_factory=list)
    passed: list[int] = field(default_factory=list)
    kept: dict[int, str] = field(default_factory=dict)


def match_slots(waiting: Waiting, free: Mapping[int, Sized], due: Collection[int] = ()) -> Match:  # [R35]
    """The next grant.

    free: memory_mb -> free slots, no group is empty. due: sizes whose next slot goes to the job that is first in one queue of all.
    A job gets the smallest slots that fit.
    """
    found = Match()
    eldest = {size: _eldest(waiting, size) for size in sorted(free)}
    chosen = _elder(eldest, free, due, found.kept) or _best(waiting, free, found.kept)
    if chosen is not None:
        found.job, found.sizes = chosen
        elders = {size: first[0] for size, first in eldest.items() if first is not None}
        found.passed = [size for size in dict.fromkeys(found.sizes) if elders.get(size, found.job) != found.job]
    return found


def _elder(
    eldest: Mapping[int, tuple[str, Wanted] | None], free: Mapping[int, Sized], due: Collection[int], kept: dict[int, str]
) -> tuple[str, list[int]] | None:
    """Whose turn it is by `due`, and the sizes that it gets. Notes what is kept for others whose turn it is."""
    for size, first in eldest.items():
        if size in due and first is not None:
            job, wanted = first
            sizes = _sizes(free, wanted, kept, job)
            if len(sizes) == wanted.need:
                return job, sizes
            kept[size] = job
    return None


def _best(waiting: Waiting, free: Mapping[int, Sized], kept: Mapping[int, str]) -> tuple[str, list[int]] | None:
    """The first job of the tenant that holds least for its weight, among those whose wants are free, and the sizes that it gets."""
    heads = [(line.by_share[0], wanted) for wanted, line in waiting.lines.items() if _fits(line, wanted, free, kept)]
    if not heads:
        return None
    (_, _, job), wanted = min(heads)
    return job, _sizes(free, wanted, kept)


def _fits(line: Line, wanted: Wanted, free: Mapping[int, Sized], kept: Collection[int]) -> bool:
    if not line.by_share:
        return False
    left = wanted.need
    for size, slots in free.items():
        if size >= wanted.memory_mb and size not in kept:
            left -= len(slots)
            if left <= 0:
                return True
    return False


def _eldest(waiting: Waiting, size: int) -> tuple[str, Wanted] | None:
    """Who is first in one queue of all that can use a slot of this size, within the quota of its tenant. One that wants more slots than
    there are is passed over: nothing is kept for it."""
    heads = [
        (*line.by_rank[0], wanted)
        for wanted, line in waiting.lines.items()
        if wanted.memory_mb <= size and line.by_rank and (wanted.need == 1 or wanted.need <= waiting.registered(wanted.memory_mb))
    ]
    if not heads:
        return None
    _, job, wanted = min(heads)
    return job, wanted


def _sizes(free: Mapping[int, Sized], wanted: Wanted, kept: Mapping[int, str], job: str | None = None) -> list[int]:
    """The smallest sizes that fit, one for each slot that is wanted; fewer where fewer are free and not kept for another job."""
    return list(_first(free, wanted, kept, job))[: wanted.need]


def _first(free: Mapping[int, Sized], wanted: Wanted, kept: Mapping[int, str], job: str | None) -> Iterator[int]:
    for size in sorted(free):
        if size >= wanted.memory_mb and kept.get(size, job) == job:
            yield from [size] * min(len(free[size]), wanted.need)
