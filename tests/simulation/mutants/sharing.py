"""Mutants of quotas, shares and turns [R35]."""

from __future__ import annotations

from millrace.core.profile import Profile
from millrace.core.states import SlotState
from services.job_master.core import scheduling
from services.resource_manager.core import matching, placement, slot_manager
from services.resource_manager.core.state import Job
from services.resource_manager.core.waiting import Waiting, Wanted
from tests.simulation.mutants.registry import mutant


@mutant(35, "resource_manager/core/waiting.py:Waiting.allows", "a tenant takes what its quota leaves to others")
def quotas_are_not_looked_at() -> None:
    Waiting.allows = lambda self, tenant, more: True


@mutant(35, "resource_manager/core/waiting.py:Waiting.share", "who has most gets what is freed, for it asked first")
def what_a_tenant_holds_does_not_count() -> None:
    Waiting.share = lambda self, tenant, more=0: 0


@mutant(35, "resource_manager/core/state.py:Job.lacks", "two jobs hold half of what each of them needs, and wait for each other")
def a_gang_is_given_what_is_free() -> None:
    Job.lacks = lambda self, holds: {Wanted(Profile(self.memory_mb), 1): self.wanted - self.held}


@mutant(35, "core/profile.py:Profile.satisfies", "what needs a GPU begins where there is none")
def extras_are_not_looked_at() -> None:
    Profile.satisfies = lambda self, wanted: self.memory_mb >= wanted.memory_mb and self.cores >= wanted.cores


@mutant(35, "job_master/core/scheduling.py:_fitting", "a slot for one vertex of a job is filled with another one, which needs more")
def the_slots_of_a_job_are_alike() -> None:
    scheduling._fitting = lambda plan, job, idle: zip(idle, scheduling.scheduled(job), strict=False)


@mutant(35, "resource_manager/core/matching.py:PASSED_MAX", "who holds its share waits for ever while others come and go")
def nobody_has_a_turn() -> None:
    matching.PASSED_MAX = 1 << 40


@mutant(35, "resource_manager/core/state.py:Job.waits", "a gang gets back one by one what it gave back, and holds a part of what it wants")
def what_a_gang_gave_back_does_not_count() -> None:
    Job.waits = property(lambda self: self.held < self.wanted and not self.earlier)


@mutant(35, "resource_manager/core/placement.py:place", "with `spread` all that runs is on one TaskManager, and the others are idle")
def slots_are_granted_in_turn_whatever_the_setting_says() -> None:
    placement.BY_USE = {}  # not cleared: the check reads the other one


@mutant(35, "resource_manager/core/placement.py:place", "a job meets a cold JVM while a warm one is free")
def how_warm_a_slot_is_does_not_count() -> None:
    placement.WARMEST = ""


@mutant(35, "resource_manager/core/slot_manager.py:_use", "slots that are allocated, and in which nothing runs yet, are taken for free")
def what_was_granted_a_moment_before_does_not_count() -> None:
    slot_manager._use = lambda state, name: (
        sum(slot.state in (SlotState.ACTIVE,) for slot in state.task_managers[name].slots.values()), len(state.task_managers[name].slots)
    )  # fmt: skip
