"""Jobs behind the first hundred have a reason, a place and an estimate, too; what that costs is bounded."""

from __future__ import annotations

from millrace.core.machine import Configured, Say
from millrace.core.messages.jobs import JobQueued
from millrace.core.messages.slots import AllocateSlot
from tests.core.of_resource_manager import Driver, queued

REASON = "no TaskManager is registered"


def flood(number: int) -> Driver:
    driver = Driver().declared()
    driver.checks = False
    for n in range(number):
        driver.ask(f"j{n:05}", since_ms=n)
    return driver


def sent(driver: Driver, ticks: int) -> list[list[JobQueued]]:
    """What the shards are sent at each tick."""
    return [[each.body for each in driver.tick() if isinstance(each, Say) and isinstance(each.body, JobQueued)] for _ in range(ticks)]


def test_who_begins_to_wait_behind_many_has_its_place_at_once() -> None:
    driver = flood(300)
    sent(driver, 30)
    driver.ask("late", since_ms=1_000)
    assert driver.tick() == [queued("late", REASON, 301)]


def test_in_a_long_queue_the_reason_comes_first_and_the_place_when_all_are_counted() -> None:
    driver = flood(1_500)
    first = sent(driver, 9)
    assert max(map(len, first)) <= 320, "no burst"
    sent(driver, 400)
    found = {job.sent_position for job in driver.state.jobs.values()}
    assert found == set(range(1, 1_501))
    driver.ask("late", since_ms=5_000)
    [[one]] = sent(driver, 1)
    assert (one.job, one.reason) == ("late", REASON)
    sent(driver, 300)
    assert driver.state.jobs["late"].sent_position == 1_501


def test_in_a_long_queue_few_are_sent_a_second_and_each_has_its_turn() -> None:
    driver = flood(1_500)
    sent(driver, 400)
    driver.ask("urgent", priority=9)
    assert max(sum(map(len, sent(driver, 10))) for _ in range(40)) <= 101 + 2 * 100 + 50
    sent(driver, 600)
    assert {job.sent_position for job in driver.state.jobs.values()} == set(range(1, 1_502))


def test_another_ageing_ms_counts_for_those_that_wait_already() -> None:
    """Else who comes later, with the same priority, goes before them."""
    driver = Driver().declared()
    driver.ask("old", since_ms=0)
    driver.ask("urgent", since_ms=100_000, priority=1)
    driver.core(Configured({"ageing_ms": 200_000}))
    driver.ask("later", since_ms=150_000, priority=1)
    granted = [each.body.job for each in driver.register(memory_mb=(1024,) * 3) if isinstance(each.body, AllocateSlot)]
    assert granted == ["urgent", "later", "old"]


def test_those_that_no_slot_can_serve_have_each_its_reason() -> None:
    driver = Driver().declared()
    driver.checks = False
    driver.register(memory_mb=(1024,))
    for n in range(250):
        driver.ask(f"large-{n:03}", memory_mb=4096)
    assert {each.reason for some in sent(driver, 15) for each in some} == {"needs 4096 MB a slot, the largest has 1024 MB"}
    assert all(job.sent_reason and job.sent_position is None for job in driver.state.jobs.values())
