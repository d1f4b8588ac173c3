"""What a JobMaster shard holds, by its heartbeats, against what the ResourceManager counts [R31]."""

from __future__ import annotations

from millrace.core.clocks import NowMs
from millrace.core.machine import PeerBorn, Say
from millrace.core.messages.jobs import STARTED_ANEW, HeldSlots, JobMasterHeartbeat, ReconcileSlots
from millrace.core.messages.slots import ReportedSlot, TaskManagerHeartbeat
from services.resource_manager.core import reconciling
from services.resource_manager.core.reconciling import DOUBT_MS, NOT_REGISTERED
from services.resource_manager.core.state import Expected
from tests.core.of_resource_manager import JM0, JM1, TM_A, Driver, lost


def holds(*allocations: str, name: str = "a", life: int = 7) -> HeldSlots:
    return HeldSlots(task_manager=name, incarnation=life, allocations=list(allocations))


def beat(driver: Driver, *held: HeldSlots, part: int = 0, parts: int = 1, shard: str = JM0) -> list:
    return driver.say(shard, JobMasterHeartbeat(part=part, parts=parts, held=list(held)))


def later(driver: Driver, ms: int) -> None:
    for _ in range(0, ms, 100):
        driver.say(TM_A, TaskManagerHeartbeat())
        driver.tick()


def allocated(shards: int = 1) -> Driver:
    """Two jobs of two slots; the TaskManager has reported that the slots are given."""
    driver = Driver(shards).declared(*(JM0, JM1)[:shards])
    driver.register(memory_mb=(1024, 1024))
    driver.ask("j", 2)
    reported = [ReportedSlot(slot=n, state="ACTIVE", allocation=driver.allocation(slot=n), job="j") for n in range(2)]
    driver.say(TM_A, TaskManagerHeartbeat(states=reported))
    return driver


def test_where_both_count_the_same_nothing_is_sent_and_nothing_is_kept() -> None:
    driver = allocated()
    first, second = driver.allocation(), driver.allocation(slot=1)
    for _ in range(12):
        assert beat(driver, holds(first, second)) == []
        later(driver, 1_000)
    assert driver.state.doubts == {}


def test_a_slot_that_the_shard_does_not_hold_is_named_after_ten_seconds_and_then_once_in_ten() -> None:
    driver = allocated()
    first, second = driver.allocation(), driver.allocation(slot=1)
    assert beat(driver, holds(first)) == []
    assert list(driver.state.doubts[0]) == [second]
    later(driver, DOUBT_MS - 100)
    assert beat(driver, holds(first)) == []
    later(driver, 100)
    assert beat(driver, holds(first)) == [Say(JM0, ReconcileSlots(unclaimed=[holds(second)], gone=[]))]
    later(driver, DOUBT_MS - 100)
    assert beat(driver, holds(first)) == []
    assert beat(driver, holds(first, second)) == [] and driver.state.doubts == {}, "it holds it after all"


def test_a_slot_that_was_granted_and_not_offered_is_in_no_doubt() -> None:
    driver = Driver().declared()
    driver.register()
    driver.ask("j")
    assert beat(driver) == [] and driver.state.doubts == {}


def test_an_allocation_that_its_task_manager_does_not_have_is_named() -> None:
    driver = allocated()
    first, second = driver.allocation(), driver.allocation(slot=1)
    driver.free(slot=1)  # the message to the shard was passed over
    driver.ask("other", since_ms=1, shard=JM0)
    for _ in range(2):
        told = beat(driver, holds(first, second))
        later(driver, DOUBT_MS)
    assert told == [Say(JM0, ReconcileSlots(unclaimed=[], gone=[second]))]


def test_slots_on_a_task_manager_that_is_not_there_any_more_are_lost_with_it() -> None:
    driver = allocated()
    for _ in range(2):
        there = holds(driver.allocation(), driver.allocation(slot=1))
        told = beat(driver, there, holds("1.2.3", "1.2.4", name="b"), holds("1.2.5", life=6))
        later(driver, DOUBT_MS)
    assert told == [lost("b", 7, NOT_REGISTERED), lost("a", 6, STARTED_ANEW)]


def test_one_that_is_expected_to_register_or_is_in_a_later_incarnation_than_is_known_is_in_no_doubt() -> None:
    driver = allocated()
    driver.state.expected["b"] = Expected(7, NowMs(driver.now_ms + 1_000_000))
    beat(driver, holds(driver.allocation(), driver.allocation(slot=1)), holds("1.2.3", name="b"), holds("1.2.5", life=8))
    assert driver.state.doubts == {}


def test_what_another_shard_holds_and_other_parts_are_left_alone(monkeypatch) -> None:
    driver = allocated(shards=2)
    first, second = driver.allocation(), driver.allocation(slot=1)
    monkeypatch.setattr(reconciling, "part_of", lambda allocation, parts: [first, second].index(allocation) % parts)
    beat(driver, part=1, parts=2)
    beat(driver, shard=JM1)
    assert {shard: list(its) for shard, its in driver.state.doubts.items()} == {0: [second]}
    beat(driver, holds(first), part=0, parts=2)
    assert list(driver.state.doubts[0]) == [second], "the other part is not looked at"
    driver.say(JM0, PeerBorn(JM0, 2))
    assert driver.state.doubts == {}, "a new life holds nothing of that"


def test_what_is_named_at_once_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr(reconciling, "RECONCILED_MOST", 1)
    driver = allocated()
    first, second = driver.allocation(), driver.allocation(slot=1)
    beat(driver)
    later(driver, DOUBT_MS)
    told = [each.body.unclaimed for _ in range(3) for each in beat(driver)]
    assert told == [[holds(first)], [holds(second)]]
