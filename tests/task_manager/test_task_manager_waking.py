"""A TaskManager that was stopped and wakes, or that Kafka alone does not hear: its tasks may be somebody else's by now."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.core.messages.slots import ReleaseTaskManager
from millrace.core.topics import task_manager_key
from millrace.io.interfaces import Delete, Txn
from services.task_manager.shell import AGAIN, Over
from tests.simulation.store import MemoryStore
from tests.task_manager.of_shell import PREFIX, World, with_attempt, with_task_on_its_way


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_process_that_wakes_launches_nothing_before_it_has_read_what_became_of_it(world: World) -> None:
    shell, rm, jm = with_task_on_its_way(world)
    shell.read()  # it is stopped with a task in its queue, and declared lost meanwhile
    world.clock.advance(60_000)
    rm.say(ReleaseTaskManager(incarnation=shell.incarnation, reason="silent"))
    rm.turn()
    while shell.turn(0):
        pass
    assert shell.over is None and world.made[0].attempt is None
    world.go(shell)
    assert shell.over is not None and world.made[0].attempt is None


def test_one_that_was_cut_off_launches_nothing_before_it_has_read_what_became_of_it(world: World) -> None:
    """It is no orphan of a pause: it looks around all the time, and a task was sent to it just before."""
    shell, rm, jm = with_task_on_its_way(world)
    world.broker.pause()
    world.etcd.pause()
    world.go(shell, times=20)
    assert shell.over is None, "nothing runs there"
    world.broker.resume()
    rm.say(ReleaseTaskManager(incarnation=shell.incarnation, reason="silent"))
    rm.turn()
    reader = shell._reader
    assert reader is not None
    poll = reader.poll
    reader.poll = lambda timeout_ms, most=500: poll(timeout_ms, 1)  # type: ignore[method-assign]  # one record comes before the other
    world.go(shell)
    assert shell.over is None and world.made[0].attempt is None
    world.go(shell, times=3)
    assert shell.over is not None and world.made[0].attempt is None


def test_one_that_was_cut_off_and_not_missed_goes_on(world: World) -> None:
    shell, rm, jm = with_task_on_its_way(world)
    world.broker.pause()
    world.go(shell, times=20)
    world.broker.resume()
    world.go(shell, times=2)
    assert world.made[0].attempt == "j/t/0/1" and shell.over is None and not shell.behind


def test_a_process_that_wakes_and_was_not_missed_goes_on(world: World) -> None:
    shell, rm, jm = with_task_on_its_way(world)
    shell.read()
    world.clock.advance(60_000)
    shell.turn(0)
    assert world.made[0].attempt is None
    world.go(shell, times=2)
    assert world.made[0].attempt == "j/t/0/1" and shell.over is None


def test_when_kafka_alone_is_silent_and_etcd_says_that_it_was_declared_lost_it_ends(world: World) -> None:
    shell, _, _ = with_attempt(world)
    world.broker.pause()
    world.go(shell, times=20)
    assert shell.over is None
    MemoryStore(world.etcd, PREFIX).txn(Txn([], [Delete(task_manager_key("a"))]))
    world.go(shell, times=2)
    assert shell.over == Over("Kafka does not answer it, and etcd says that it was declared lost", AGAIN)
