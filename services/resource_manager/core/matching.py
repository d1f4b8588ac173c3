"""Which waiting job gets which free slots. A policy over plain values.

Of a tenant's jobs the highest priority goes first, then the job that waits longest, then the smaller job id. Waiting counts towards
priority: `ageing_ms` of it outweigh one step, so no job starves. As all age alike, the order of two jobs never changes while they wait: a
queue stays sorted.

Among tenants the one goes first that holds least for its weight; among equals the job that would go first in one queue. After
`PASSED_MAX` slots of a profile that others got, the next one goes to the job that is first in one queue of all. If that wants several at
once, slots are kept until there are enough: so neither a tenant nor a gang starves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sized
from dataclasses import dataclass, field

from millrace.core.profile import Profile, by_size

from .waiting import Line, Waiting, Wanted

PASSED_MAX = 9


def rank(priority: int, since_ms: int, ageing_ms: int) -> int:
    """The place of a job among others: the smaller goes first."""
    return since_ms - priority * ageing_ms


@dataclass
class Match:
    """What is granted next. `job`: None where no waiting job can use what is free. `profiles`: of the slots that it gets. `passed`: those
    of which another job was first in one queue of all. `kept`: profile -> the job for which its free slots are kept."""

    job: str | None = None
    profiles: list[Profile] = field(default_factory=list)
    passed: list[Profile] = field(default_factory=list)
    kept: dict[Profile, str] = field(default_factory=dict)


def match_slots(waiting: Waiting, free: Mapping[Profile, Sized], due: Collection[Profile] = ()) -> Match:  # [R35]
    """The next grant.

    free: profile -> free slots, no group is empty. due: profiles whose next slot goes to the job that is first in one queue of all.
    A job gets the tightest slots that satisfy it.
    """
    found = Match()
    eldest = {profile: _eldest(waiting, profile) for profile in sorted(free, key=by_size)}
    chosen = _elder(eldest, free, due, found.kept) or _best(waiting, free, found.kept)
    if chosen is not None:
        found.job, found.profiles = chosen
        elders = {profile: first[0] for profile, first in eldest.items() if first is not None}
        found.passed = [profile for profile in dict.fromkeys(found.profiles) if elders.get(profile, found.job) != found.job]
    return found


def _elder(
    eldest: Mapping[Profile, tuple[str, Wanted] | None], free: Mapping[Profile, Sized], due: Collection[Profile], kept: dict[Profile, str]
) -> tuple[str, list[Profile]] | None:
    """Whose turn it is by `due`, and the profiles that it gets. Notes what is kept for others whose turn it is."""
    for profile, first in eldest.items():
        if profile in due and first is not None:
            job, wanted = first
            profiles = _profiles(free, wanted, kept, job)
            if len(profiles) == wanted.need:
                return job, profiles
            kept[profile] = job
    return None


def _best(waiting: Waiting, free: Mapping[Profile, Sized], kept: Mapping[Profile, str]) -> tuple[str, list[Profile]] | None:
    """The first job of the tenant that holds least for its weight, among those whose wants are free, and the profiles that it gets."""
    heads = [(line.by_share[0], wanted) for wanted, line in waiting.lines.items() if _fits(line, wanted, free, kept)]
    if not heads:
        return None
    (_, _, job), wanted = min(heads)
    return job, _profiles(free, wanted, kept)


def _fits(line: Line, wanted: Wanted, free: Mapping[Profile, Sized], kept: Collection[Profile]) -> bool:
    if not line.by_share:
        return False
    left = wanted.need
    for profile, slots in free.items():
        if profile.satisfies(wanted.profile) and profile not in kept:
            left -= len(slots)
            if left <= 0:
                return True
    return False


def _eldest(waiting: Waiting, profile: Profile) -> tuple[str, Wanted] | None:
    """Who is first in one queue of all that can use a slot of this profile, within the quota of its tenant. One that wants more slots than
    there are is passed over: nothing is kept for it."""
    heads = [
        (*line.by_rank[0], wanted)
        for wanted, line in waiting.lines.items()
        if profile.satisfies(wanted.profile) and line.by_rank and (wanted.need == 1 or wanted.need <= waiting.registered(wanted.profile))
    ]
    if not heads:
        return None
    _, job, wanted = min(heads)
    return job, wanted


def _profiles(free: Mapping[Profile, Sized], wanted: Wanted, kept: Mapping[Profile, str], job: str | None = None) -> list[Profile]:
    """The tightest ones that satisfy it, one for each slot that is wanted; fewer where fewer are free and not kept for another job."""
    return list(_first(free, wanted, kept, job))[: wanted.need]


def _first(free: Mapping[Profile, Sized], wanted: Wanted, kept: Mapping[Profile, str], job: str | None) -> Iterator[Profile]:
    for profile in sorted(free, key=by_size):
        if profile.satisfies(wanted.profile) and kept.get(profile, job) == job:
            yield from [profile] * min(len(free[profile]), wanted.need)
