"""What is granted after a log was lost: nothing that could run beside what a life before had started [R11]."""

from __future__ import annotations

from millrace.core.machine import PeerBorn
from millrace.core.messages.slots import ReportedSlot, TaskManagerHeartbeat
from tests.core.of_resource_manager import JM0, TM_A, TM_B, Driver, granted, queued


def test_a_reborn_shard_is_granted_nothing_for_a_job_before_all_is_over_that_its_life_before_held():
    driver = Driver().declared()
    driver.register(memory_mb=(1024, 1024))
    assert driver.ask("j", 2) == [granted("j", "1.5.0"), granted("j", "1.5.1", 1)]
    driver.register(TM_B)
    driver.say(JM0, PeerBorn(JM0, 2), life=2)
    driver.declared()
    assert driver.ask("j", 2) == [] and driver.ask("other") == [granted("other", "1.10.2/2", 0, TM_B)]
    assert driver.free(slot=1) == []
    assert driver.state.jobs["j"].earlier == 1, "an attempt may run there still, and nobody knows of which subtask"
    assert driver.free() == [granted("j", "1.12.3/2", 1), granted("j", "1.12.4/2", 0)]


def test_a_reborn_resource_manager_knows_by_the_names_of_allocations_to_which_life_they_were_granted():
    driver = Driver(generation=2)
    driver.say(JM0, PeerBorn(JM0, 2), life=2)
    driver.declared()
    driver.register(memory_mb=(1024, 1024), states=[
        ReportedSlot(slot=0, state="ACTIVE", allocation="1.5.0", job="j"), ReportedSlot(slot=1, state="FREE"),
    ])  # fmt: skip
    driver.ask("j", 2)
    assert driver.state.jobs["j"].earlier == 1
    driver.state.open_ms = 0
    assert driver.ask("j", 2) == []
    assert [each for each in driver.free() if each.to == TM_A] == [granted("j", "2.9.0/2", 1), granted("j", "2.9.1/2", 0)]


def test_a_reborn_resource_manager_grants_nothing_before_who_holds_slots_had_time_to_register():
    """A shard that was born anew as well does not know whom to expect."""
    driver = Driver(generation=2).declared()
    driver.register(memory_mb=(1024,))
    driver.ask("j")
    said = []
    for passed in range(100, 2_200, 100):
        driver.say(TM_A, TaskManagerHeartbeat())
        said += driver.tick()
        assert not [each for each in said if each.to == TM_A], passed
    assert said[0] == queued("j", "the ResourceManager has just started and waits to hear from TaskManagers", 1)
    driver.say(TM_A, TaskManagerHeartbeat())
    assert granted("j", f"2.{driver.record + 1}.0") in driver.tick()
