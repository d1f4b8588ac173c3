"""Quotas, shares and gangs [R35]: what must hold of each grant, computed anew from the jobs alone; and trials with tenants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from typing import Any

from millrace.core.machine import Output
from millrace.core.messages.slots import AllocateSlot
from millrace.core.profile import Profile
from millrace.core.topics import RESOURCE_MANAGER, Scope
from services.resource_manager.core.state import State
from tests.simulation import workload
from tests.simulation.placing import grants_in

PASSED_MOST = 9
TENANTS = {"a": {"slots": 2, "weight": 1}, "b": {"weight": 3}, "c": {"slots": 1, "weight": 1}, "*": {"slots": 4, "weight": 1}}
KINDS = (workload.single, workload.roots, workload.wide)
SHARED: dict[str, Any] = {
    "task_managers": 2,
    "slots": 2,
    "deciding": {RESOURCE_MANAGER: {"tenants": TENANTS, "ageing_ms": 2_000}},
    "graphs": (
        *(partial(kind, tenant=tenant) for kind in KINDS for tenant in ("a", "b", "c", "")),
        *(partial(workload.wide, parallelism=2, tenant=tenant, together=True) for tenant in ("b", "", "b", "")),
    ),
}
"""The shape of a trial whose jobs have tenants, and of which some want two slots at once."""

GANGS: dict[str, Any] = {
    "task_managers": 1,
    "slots": 2,
    "graphs": (partial(workload.wide, parallelism=2, together=True), workload.single),
}
"""Jobs that want both slots at once, among others."""


class Sharing:
    """Looks at what a ResourceManager grants."""

    def __init__(self) -> None:
        self._passed: dict[Profile, int] = {}  # slots granted since the last that went to who is first in one queue of all

    def watched(self, state: State, outputs: Iterable[Output]) -> Iterator[Output]:
        """What a handler yields, once all of it is known."""
        said = list(outputs)
        self._look(state, grants_in(said))
        if not any(state.queues_for(job) for job in state.jobs.values()):
            self._passed = {}
        self._passed = {size: passed for size, passed in self._passed.items() if size in _sizes(state)}
        yield from said

    def _look(self, state: State, grants: list[tuple[Scope, AllocateSlot]]) -> None:
        held: dict[str, int] = {}
        jobs = {name: job.held for name, job in state.jobs.items()}
        for job in state.jobs.values():
            held[job.tenant] = held.get(job.tenant, 0) + job.held
        for _, body in grants:  # as it was before the first of them
            held[state.jobs[body.job].tenant] -= 1
            jobs[body.job] -= 1
        for name, group in groupby(grants, key=lambda each: each[1].job if state.jobs[each[1].job].together else each[1].allocation):
            its = list(group)
            job = state.jobs[its[0][1].job]
            sizes = [state.task_managers[to.partition("/")[2]].slots[body.slot].profile for to, body in its]
            assert not job.together or len(its) == job.wanted - jobs[its[0][1].job], f"[R35]: of the gang {name} a part is given slots"
            assert not job.ending, f"[R35]: the gang {its[0][1].job} is given slots before what it gave back is over"
            for size in dict.fromkeys(sizes):
                self._look_at(state, held, jobs, its[0][1].job, size)
            held[job.tenant] = held.get(job.tenant, 0) + len(its)
            jobs[its[0][1].job] += len(its)
            quota = _limits(state, job.tenant).get("slots")
            assert quota is None or held[job.tenant] <= quota, f"[R35]: tenant {job.tenant} is given {held[job.tenant]} slots"

    def _look_at(self, state: State, held: dict[str, int], jobs: dict[str, int], name: str, size: Profile) -> None:
        """A slot of this profile goes to a job."""
        waits = {
            other: job
            for other, job in state.jobs.items()
            if other == name or (state.queues_for(job) and _can_use(state, other, size) and _may(state, other, held, jobs[other]))
        }
        eldest = min(waits, key=lambda each: (waits[each].rank, each))
        before = self._passed.get(size, 0)
        self._passed[size] = 0 if eldest == name else before + 1
        kept = waits[eldest].together  # slots were kept for it for long enough, perhaps
        assert kept or self._passed[size] <= PASSED_MOST, f"[R35]: {before + 1} slots go past {eldest}, which is first of all"
        share = _share(state, held, waits[name].tenant)
        singles = [job for job in waits.values() if not job.together]
        least = min([_share(state, held, job.tenant) for job in singles], default=share)
        turn = eldest == name and before >= PASSED_MOST
        assert turn or share <= least, f"[R35]: {name} of a tenant that has {share} goes before one that has {least}"


def _can_use(state: State, name: str, profile: Profile) -> bool:
    return any(profile.satisfies(wanted.profile) for wanted in state.lacks(name))


def _sizes(state: State) -> dict[Profile, None]:
    slots = [slot for each in state.task_managers.values() for slot in each.slots.values()]
    return {slot.profile: None for slot in slots if slot.state.value != "BROKEN"}


def _may(state: State, name: str, held: dict[str, int], its: int) -> bool:
    job = state.jobs[name]
    [wanted, *_] = state.lacks(name)
    need = job.wanted - its if job.together else 1
    quota = _limits(state, job.tenant).get("slots")
    there = [slot for each in state.task_managers.values() for slot in each.slots.values() if slot.state.value != "BROKEN"]
    enough = need == 1 or sum(slot.profile.satisfies(wanted.profile) for slot in there) >= need
    return enough and (quota is None or held.get(job.tenant, 0) + need <= quota)


def _share(state: State, held: dict[str, int], tenant: str) -> int:
    return held.get(tenant, 0) * 1_000_000 // _limits(state, tenant).get("weight", 1)


def _limits(state: State, tenant: str) -> dict[str, int]:
    return state.limits.tenants.get(tenant, state.limits.tenants.get("*", {}))
