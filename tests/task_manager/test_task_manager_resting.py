"""A TaskManager that nobody needs: its ticks come as slowly as its heartbeats, and nobody notices."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.core.fold import TICK_MS
from millrace.core.messages.slots import AllocateSlot
from millrace.core.timing import QUIET_BEATS
from tests.task_manager.of_shell import World, connected

REST_MS = QUIET_BEATS * TICK_MS  # heartbeats come as often as ticks where nobody says otherwise


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_at_rest_it_ticks_when_it_beats(world: World) -> None:
    shell, rm, jm = connected(world)
    world.go(shell, rm, jm, times=30)
    assert shell.state.slots[0].ready and shell.folded.next_ms == REST_MS
    ticks, beats = shell.folded.ticks, len(rm.heard("TaskManagerHeartbeat"))
    world.go(shell, rm, jm, times=50)
    assert shell.folded.ticks - ticks == 50 * TICK_MS // REST_MS
    assert len(rm.heard("TaskManagerHeartbeat")) - beats == 50 * TICK_MS // REST_MS
    assert shell.folded.now_ms + REST_MS > world.clock.now_ms() >= shell.folded.now_ms, "[R4]: its time goes on as the clock does"


def test_a_slot_that_is_given_at_rest_is_timed_from_then(world: World) -> None:
    shell, rm, jm = connected(world)
    world.go(shell, rm, jm, times=30)
    while world.clock.now_ms() - shell.replica.ticked_ms < REST_MS - 2 * TICK_MS:
        world.go(shell, rm, jm)
    rm.say(AllocateSlot(slot=0, allocation="al", job="j", shard=0))
    world.go(rm, shell)
    assert shell.state.slots[0].due_ms == world.clock.now_ms() + shell.state.allocation_timeout_ms
    assert shell.due_ms == world.clock.now_ms() + TICK_MS and not shell.presence.behind


def test_while_somebody_has_not_heard_it_it_does_not_rest(world: World) -> None:
    shell = world.shell()
    shell.begin()
    world.go(shell, times=10)
    ticks = shell.folded.ticks
    world.go(shell, times=10)
    assert shell.folded.ticks - ticks == 10


def test_its_rest_is_no_absence_and_what_comes_after_it_is(world: World) -> None:
    shell, rm, jm = connected(world)
    world.go(shell, rm, jm, times=30)
    world.clock.advance(shell.due_ms - world.clock.now_ms())
    shell.turn(0)
    assert not shell.presence.behind
    world.clock.advance(REST_MS + shell.state.lost_after_ms)
    shell.turn(0)
    assert shell.presence.behind


def test_it_can_be_woken(world: World) -> None:
    shell, rm, jm = connected(world)
    world.go(shell, rm, jm, times=30)
    shell.inputs.wake()
    assert shell.turn(60_000), "it slept on"
