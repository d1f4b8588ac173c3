"""A TaskManager whose loss was forgotten with the ResourceManager's log, and that lives after all."""

from __future__ import annotations

import pytest

from millrace.core.machine import Do, Forget, Publish, Say
from millrace.core.messages.effects import FenceTaskManager
from millrace.core.messages.events import TaskManagerGone
from millrace.core.messages.jobs import JobMasterDeclared, TaskManagersParted
from millrace.core.messages.slots import AllocateSlot, ReleaseTaskManager, TaskManagerRegistered
from services.resource_manager.core import registration
from services.resource_manager.core.registration import LOST_BEFORE
from tests.core.test_resource_manager_machine import JM0, JM1, TM_A, Driver, lost

FENCED = Do("task-managers/a", FenceTaskManager(task_manager="a", incarnation=7))
RELEASED = [Say(TM_A, ReleaseTaskManager(incarnation=7, reason=LOST_BEFORE)), Forget(TM_A, 7)]
LOST = [lost("a", 7, LOST_BEFORE, JM0), lost("a", 7, LOST_BEFORE, JM1)]


def test_one_that_has_registered_is_released_when_a_shard_tells_of_its_loss():
    driver = Driver(shards=2)
    driver.register(life=7)
    driver.ask("j")
    driver.declared(JM0)
    gone = Publish("cluster.events", "a", TaskManagerGone(task_manager="a", incarnation=7, reason=LOST_BEFORE, at_ms=1_000_000))
    assert driver.say(JM1, TaskManagersParted(lost={"a": 7})) == [*LOST, RELEASED[0], FENCED, RELEASED[1], gone]
    driver.declared(JM1)
    assert AllocateSlot in [type(getattr(each, "body", None)) for each in driver.register(life=8)]


def test_one_that_registers_later_is_released_then_and_its_next_incarnation_is_welcome():
    driver = Driver(shards=2).declared(JM0)
    assert driver.say(JM1, TaskManagersParted(lost={"a": 7})) == []
    driver.say(JM1, JobMasterDeclared(task_managers={"a": 7}))
    assert driver.register(life=7) == [*LOST, *RELEASED]
    assert driver.register(life=7) == [*LOST, *RELEASED]
    assert driver.register(life=8)[0] == Say(
        TM_A, TaskManagerRegistered(heartbeat_interval_ms=100, lost_after_ms=600)
    )
    assert not driver.state.parted


def test_one_that_was_missed_and_registers_after_all_is_released():
    driver = Driver(shards=2).declared(JM0)
    driver.say(JM1, JobMasterDeclared(task_managers={"a": 7}))
    while not driver.tick():
        pass
    assert driver.register(life=7) == [*LOST, *RELEASED]


def test_a_loss_of_an_older_incarnation_concerns_nobody():
    driver = Driver(shards=2).declared(JM0)
    driver.register(life=7)
    assert driver.say(JM1, TaskManagersParted(lost={"a": 6})) == []
    assert list(driver.state.task_managers) == ["a"]


def test_one_that_was_lost_stays_so_when_an_earlier_incarnation_of_it_is_missed():
    driver = Driver(shards=2)
    driver.say(JM0, TaskManagersParted(lost={"a": 7}))
    driver.declared(JM0)
    driver.say(JM1, JobMasterDeclared(task_managers={"a": 6}))
    while not driver.tick():
        pass
    assert driver.register(life=7) == [*LOST, *RELEASED]


def test_those_that_came_and_went_are_forgotten_at_last(monkeypatch: pytest.MonkeyPatch):
    """In containers each has an id of its own: a thousand a day are a third of a million a year."""
    monkeypatch.setattr(registration, "LOST_KEPT", 3)
    driver = Driver(shards=2)
    for number in (*range(9), 7):
        driver.say(JM1, TaskManagersParted(lost={f"x{number}": number + 1}))
    assert list(driver.state.parted) == ["x6", "x8", "x7"]
