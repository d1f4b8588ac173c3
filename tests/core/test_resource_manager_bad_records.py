"""What the ResourceManager makes of a record that was passed over because it ended processes [R26]: no slot and no shard waits for ever."""

from __future__ import annotations

import pytest

from millrace.core.machine import PassedOver
from millrace.core.messages.jobs import JobMasterDeclared, RequestSlots
from millrace.core.messages.slots import ReportedSlot, SlotFreed, TaskManagerHeartbeat
from tests.core.of_resource_manager import JM0, JM1, TM_A, Driver, granted, queued

ERROR = "KeyError: 'x'"


@pytest.mark.parametrize("slots", [0, 1])
def test_a_job_is_granted_nothing_by_what_it_wanted_before_a_bad_request(slots: int) -> None:
    """It asks for less as it ends, and gives back what is granted: it would be granted the same slot again and again."""
    driver = Driver().declared()
    driver.register(memory_mb=(1024, 1024))
    driver.ask("j", 2)
    ask = RequestSlots(job="j", slots=slots, priority=0, since_ms=0)
    reason = f"its request for slots was not taken, by a fault of Millrace: {ERROR}; cancel the job"
    assert driver.say(JM0, PassedOver(ask, ERROR)) == ([queued("j", reason, None)] if slots else [])
    assert [driver.free(slot=0), driver.free(slot=1)] == [[], []]
    assert not driver.state.jobs


def test_a_slot_whose_end_of_a_grant_was_bad_is_free_with_the_next_report() -> None:
    """What is reported of a slot that was just given counts only once its TaskManager has heard of that: it would never."""
    driver = Driver().declared()
    driver.register()
    driver.ask("j")
    freed = SlotFreed(slot=0, allocation=driver.allocation())
    driver.say(TM_A, PassedOver(freed.model_copy(update={"allocation": "another"}), ERROR))
    assert driver.state.task_managers["a"].slots[0].allocation == freed.allocation
    driver.say(TM_A, PassedOver(freed, ERROR))
    beat = TaskManagerHeartbeat(states=[ReportedSlot(slot=0, state="FREE")])
    assert granted("j", "1.8.1") in driver.say(TM_A, beat)


def test_a_shard_whose_declaration_was_bad_has_declared_after_all_had_time_to_register() -> None:
    """It says it once, and without it nobody is ever granted anything [R11]."""
    driver = Driver(shards=2).declared(JM0)
    assert driver.say(JM1, PassedOver(JobMasterDeclared(task_managers={"a": 7}), ERROR)) == []
    driver.register()
    driver.ask("j")
    assert driver.state.task_managers["a"].slots[0].allocation is None, "who holds slots has time to register"
    for _ in range(21):
        driver.tick()
    assert driver.state.task_managers["a"].slots[0].allocation is None
    driver.tick()
    assert driver.state.task_managers["a"].slots[0].allocation is not None
