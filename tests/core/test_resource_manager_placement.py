"""Which of the free slots of a size a job gets: exact outputs of each placement."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.core.machine import Configured
from millrace.core.messages.slots import ReportedSlot, SlotReport
from millrace.core.profile import Profile
from services.resource_manager.core.placement import PLACEMENTS, place
from services.resource_manager.core.state import slot_key
from services.resource_manager.settings import ResourceManagerSettings
from tests.core.of_resource_manager import TM_A, TM_B, Driver
from tests.core.of_workers import W1, W2, Provided, grants

TM_C = "task-manager/c"
FREE = {"a#0": ("a", 0), "a#1": ("a", 1), "b#0": ("b", 0), "c#0": ("c", 0)}


@pytest.mark.parametrize(("placement", "uses", "chosen"), [
    ("warmest", {}, "a"), ("longest_free", {"a": (1, 3), "b": (0, 2), "c": (3, 4)}, "a"),
    ("packed", {"a": (1, 3), "b": (0, 2), "c": (3, 4)}, "c"),
    ("spread", {"a": (1, 3), "b": (0, 2), "c": (3, 4)}, "b"), ("packed", {"a": (1, 2), "b": (2, 4), "c": (1, 8)}, "a"),
    ("spread", {"a": (1, 2), "b": (1, 4), "c": (2, 8)}, "b"),
])  # fmt: skip
def test_one_of_the_task_manager_of_which_most_or_least_is_in_use(placement: str, uses: dict[str, Any], chosen: str) -> None:
    assert place(FREE, {}, placement, uses.__getitem__) == (chosen, 0), "among equals the one that is free for longest"


def cluster(placement: str, slots: int = 3) -> Driver:
    driver = Driver().declared()
    driver.core(Configured({"slots_placement": placement}))
    for each in (TM_A, TM_B, TM_C):
        driver.register(each, memory_mb=(1024,) * slots)
    return driver


@pytest.mark.parametrize(("placement", "given"), [
    ("warmest", "aaabbb"), ("longest_free", "aaabbb"), ("packed", "aaabbb"), ("spread", "aabbcc"),
])  # fmt: skip
def test_a_job_gets_its_slots_as_the_setting_says(placement: str, given: str) -> None:
    assert "".join(name for _, name in grants(cluster(placement).ask("j", 6))) == given
    assert "".join(name for _, name in grants(cluster(placement).ask("j", 6, together=True))) == given


@pytest.mark.parametrize(("placement", "next_one"), [("warmest", "b"), ("longest_free", "b"), ("packed", "c"), ("spread", "a")])
def test_what_was_freed_counts(placement: str, next_one: str) -> None:
    """Of a one slot is in use, of b two, of c three less one."""
    driver = cluster("spread", 4)
    driver.ask("j", 9)
    for scope, slot in ((TM_A, 1), (TM_A, 2), (TM_B, 2)):
        driver.ask("j", driver.state.jobs["j"].wanted - 1)
        driver.free(scope, slot)
    driver.core(Configured({"slots_placement": placement}))
    free = driver.state.free[Profile(1024)]
    driver.state.free[Profile(1024)] = {key: free[key] for key in sorted(free, key=lambda key: key[0] != "b")}
    assert [name for _, name in grants(driver.ask("k"))] == [next_one]


def test_one_job_after_the_other_gets_the_slot_whose_jvm_has_finished_most() -> None:
    driver = cluster("warmest", 1)
    driver.ask("j", 3)
    driver.ask("j", 0)
    for scope, warm in ((TM_A, 2), (TM_C, 1), (TM_B, 0)):
        driver.free(scope, warm=warm)
    for finished in (3, 4):
        assert grants(driver.ask("k")) == [("k", "a")], "though c was freed later"
        driver.ask("k", 0)
        driver.free(TM_A, warm=finished)
    assert grants(driver.ask("l", 3)) == [("l", "a"), ("l", "c"), ("l", "b")]
    assert driver.state.warm == {}


def test_of_slots_that_are_equally_warm_the_one_freed_last_goes_first() -> None:
    driver = cluster("warmest", 1)
    driver.ask("j", 3)
    driver.ask("j", 0)
    for scope in (TM_C, TM_A, TM_B):
        driver.free(scope, warm=16)
    assert grants(driver.ask("k", 2)) == [("k", "b"), ("k", "a")]


def test_a_slot_whose_attempt_failed_or_whose_jvm_is_new_has_its_turn() -> None:
    driver = cluster("warmest", 1)
    assert grants(driver.ask("j")) == [("j", "a")]
    driver.ask("j", 0)
    driver.free(TM_A)
    assert grants(driver.ask("k")) == [("k", "b")], "a failed: were it taken again and again, a broken machine would fail all"
    driver.ask("k", 0)
    driver.free(TM_B, warm=1)
    assert driver.state.warm == {Profile(1024): {1: {slot_key("b", 0): ("b", 0)}}}
    for state in ("STARTING", "FREE"):
        driver.say(TM_B, SlotReport(states=[ReportedSlot(slot=0, state=state)]))
    assert driver.state.warm == {}, "its JVM was replaced"
    assert grants(driver.ask("l")) == [("l", "c")]


def test_the_smallest_size_that_fits_goes_before_the_placement() -> None:
    driver = cluster("packed")
    driver.register("task-manager/d", memory_mb=(512, 512))
    driver.ask("large", memory_mb=1024)
    assert [name for _, name in grants(driver.ask("j", memory_mb=256))] == ["d"]


def test_of_equals_those_that_a_provider_may_stop_come_last() -> None:
    for placement in PLACEMENTS:
        driver = Provided(task_managers_min=2, slots_placement=placement)
        driver.ask("j", 4)
        driver.tick()
        driver.runs(W1).runs(W2)
        driver.ask("j", 0)
        for worker in (W1, W2):
            for slot in (0, 1):
                driver.free(f"task-manager/{worker}", slot)
        driver.tick()
        assert grants(driver.ask("k")) == [("k", W1)], placement


def test_the_setting_has_these_values() -> None:
    for placement in PLACEMENTS:
        assert ResourceManagerSettings(slots_placement=placement).deciding()["slots_placement"] == placement
    assert ResourceManagerSettings().deciding()["slots_placement"] == "warmest"
