"""What many TaskManagers cost the ResourceManager between their heartbeats. Counted, not timed."""

from __future__ import annotations

from millrace.core.messages.slots import ReportedSlot, SlotReport
from services.resource_manager.core import queue
from tests.core.of_costs import lines
from tests.core.of_resource_manager import JM0, Driver


def registered(number: int) -> Driver:
    driver = Driver()
    driver.declared(JM0)
    driver.checks = False
    for each in range(number):
        driver.register(f"task-manager/t{each}", memory_mb=(1024,) * 4)
    driver.check()
    return driver


def test_whether_all_slots_are_free_is_counted_and_not_searched_for() -> None:
    """A leader asks that each time its loop turns, which is with each heartbeat."""
    few, many = registered(5), registered(50)
    assert lines(lambda: few.machine.is_idle(few.state)) == lines(lambda: many.machine.is_idle(many.state))
    assert many.machine.is_idle(many.state)


def test_it_is_not_idle_while_a_slot_has_an_allocation_though_its_job_is_gone() -> None:
    """The slot is being released: its job is forgotten, and it has its allocation until it is free."""
    driver = registered(1)
    driver.ask("j")
    allocation = driver.allocation("task-manager/t0")
    driver.ask("j", 0)
    driver.say("task-manager/t0", SlotReport(states=[ReportedSlot(slot=0, state="RELEASING", allocation=allocation)]))
    driver.check()
    assert not driver.state.jobs and not driver.machine.is_idle(driver.state)
    driver.free("task-manager/t0")
    driver.check()
    assert driver.machine.is_idle(driver.state)


def test_a_tick_looks_once_at_a_task_manager_that_is_heard() -> None:
    few, many = registered(5), registered(55)
    assert (lines(many.tick) - lines(few.tick)) / 50 < 3


def test_a_place_in_the_queue_costs_few_lines_however_many_wait() -> None:
    """All places of ten thousand jobs are counted in one go, and nothing is granted meanwhile."""

    def waiting(number: int) -> Driver:
        driver = registered(1)
        for each in range(number):
            driver.ask(f"j{each}", tenant=f"t{each % 3}", memory_mb=1024 // (1 + each % 2), priority=each % 4)
        return driver

    few, many = waiting(20), waiting(220)
    assert (counted(many) - counted(few)) / 200 < 25


def counted(driver: Driver) -> int:
    return lines(lambda: list(queue.in_order(driver.state, lambda wanted, tenant: True)))
