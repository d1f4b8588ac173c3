"""Who waits, by what is wanted and by tenant, so that the next one is found without a search among ten thousand.

All of it follows from the jobs, the slots and the settings, so no snapshot holds it: `of` builds it anew. A **line** has the jobs that
want slots of at least the same profile, and as many of them at once. A job that wants slots of several profiles is in several lines.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from millrace.core.profile import Profile

SHARE = 1_000_000
"""Of a slot that a tenant of weight 1 holds."""
OTHERS = "*"
"""Names the tenants that the settings do not name."""
NO_LIMITS: Mapping[str, int] = {}
Key = TypeVar("Key", str, Profile)


class Wanted(NamedTuple):
    """What a job wants: slots that satisfy `profile`, and `need` of them at once or none."""

    profile: Profile
    need: int


@dataclass
class Line:
    """The jobs that want the same. Lists are sorted."""

    jobs: dict[str, list[tuple[int, str]]] = field(default_factory=dict)  # tenant -> (rank, job); none is empty
    # The first job of each tenant whose quota allows what it wants.
    by_share: list[tuple[int, int, str]] = field(default_factory=list)  # (share of its tenant, rank, job)
    by_rank: list[tuple[int, str]] = field(default_factory=list)


@dataclass
class Waiting:
    """`tenants`: tenant -> its limits, from the settings."""

    tenants: Mapping[str, Mapping[str, int]]
    lines: dict[Wanted, Line] = field(default_factory=dict)  # none is empty
    places: dict[str, tuple[tuple[Wanted, ...], str, int]] = field(default_factory=dict)  # job -> its lines, its tenant, its rank
    held: dict[str, int] = field(default_factory=dict)  # tenant -> slots that its jobs hold; no 0
    slots: dict[Profile, int] = field(default_factory=dict)  # slots that are registered and not broken; no 0
    holds: dict[str, dict[Profile, int]] = field(default_factory=dict)  # job -> slots that it holds; no 0, none is empty
    allocated: int = 0  # slots with an allocation, also of TaskManagers on blocked hosts

    def __len__(self) -> int:
        return len(self.places)

    # limits of tenants

    def quota(self, tenant: str) -> int | None:
        """Slots that its jobs may hold together; None: any number."""
        return self._limits(tenant).get("slots")

    def weight(self, tenant: str) -> int:
        return self._limits(tenant).get("weight", 1)

    def share(self, tenant: str) -> int:  # [R35]
        """What it holds, by its weight."""
        return self.held.get(tenant, 0) * SHARE // self.weight(tenant)

    def left(self, tenant: str) -> int | None:
        """So many more its quota allows; None: any number."""
        quota = self.quota(tenant)
        return None if quota is None else quota - self.held.get(tenant, 0)

    def allows(self, tenant: str, more: int) -> bool:  # [R35]
        """Whether its quota allows so many more slots."""
        left = self.left(tenant)
        return left is None or more <= left

    def _limits(self, tenant: str) -> Mapping[str, int]:
        return self.tenants.get(tenant, self.tenants.get(OTHERS, NO_LIMITS))

    # what changes

    def add(self, name: str, lines: tuple[Wanted, ...], tenant: str, rank: int) -> None:
        """Takes a job in, or to other places."""
        if self.places.get(name) == (lines, tenant, rank):
            return
        self.remove(name)
        for wanted in lines:
            line = self.lines.setdefault(wanted, Line())
            self._leave(wanted, tenant)
            insort(line.jobs.setdefault(tenant, []), (rank, name))
            self._enter(wanted, tenant)
        self.places[name] = (lines, tenant, rank)

    def remove(self, name: str) -> None:
        """Takes a job out, if it is there."""
        lines, tenant, rank = self.places.pop(name, ((), "", 0))
        for wanted in lines:
            self._remove(name, wanted, tenant, rank)

    def _remove(self, name: str, wanted: Wanted, tenant: str, rank: int) -> None:
        line = self.lines[wanted]
        self._leave(wanted, tenant)
        queue = line.jobs[tenant]
        del queue[bisect_left(queue, (rank, name))]
        if queue:
            self._enter(wanted, tenant)
            return
        del line.jobs[tenant]
        if not line.jobs:
            del self.lines[wanted]

    def hold(self, tenant: str, by: int) -> None:
        """A tenant's jobs hold more slots, or fewer."""
        its = [wanted for wanted, line in self.lines.items() if tenant in line.jobs]
        for wanted in its:
            self._leave(wanted, tenant)
        _add(self.held, tenant, by)
        for wanted in its:
            self._enter(wanted, tenant)

    def hold_slot(self, job: str, profile: Profile, by: int) -> None:
        """A job holds such a slot more, or one fewer."""
        its = self.holds.setdefault(job, {})
        _add(its, profile, by)
        if not its:
            del self.holds[job]

    def count_slot(self, profile: Profile, by: int) -> None:
        """A slot is registered, or is not any more."""
        _add(self.slots, profile, by)

    def _enter(self, wanted: Wanted, tenant: str) -> None:
        line = self.lines[wanted]
        if self.allows(tenant, wanted.need):
            head = line.jobs[tenant][0]
            insort(line.by_share, (self.share(tenant), *head))
            insort(line.by_rank, head)

    def _leave(self, wanted: Wanted, tenant: str) -> None:
        line = self.lines[wanted]
        if tenant in line.jobs and self.allows(tenant, wanted.need):
            head = line.jobs[tenant][0]
            del line.by_share[bisect_left(line.by_share, (self.share(tenant), *head))]
            del line.by_rank[bisect_left(line.by_rank, head)]

    # what is asked

    def jobs(self) -> Iterator[tuple[Wanted, str, list[tuple[int, str]]]]:
        """(what is wanted, tenant, its jobs in order) of all that wait."""
        for wanted, line in self.lines.items():
            for tenant, queue in line.jobs.items():
                yield wanted, tenant, queue

    def registered(self, wanted: Profile) -> int:
        """Slots that satisfy this, and are not broken."""
        return sum(number for profile, number in self.slots.items() if profile.satisfies(wanted))


def _add(counts: dict[Key, int], key: Key, by: int) -> None:
    now = counts.get(key, 0) + by
    if now:
        counts[key] = now
    else:
        counts.pop(key, None)
