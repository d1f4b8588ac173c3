"""The TaskManager's loop over Kafka and etcd in memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millrace.core.fold import TICK_MS
from millrace.core.messages.records import Elected, encode
from millrace.core.messages.slots import (
    AllocateSlot,
    AttemptRunning,
    FreeSlots,
    ReleaseTaskManager,
    StopAsked,
)
from millrace.core.states import SlotState
from millrace.core.topics import task_manager_key
from millrace.io.interfaces import Put, Txn
from services.task_manager.incarnation import EtcdProbe
from services.task_manager.inputs import AGAIN, FAILED, STOPPED, Ending
from services.task_manager.running import health, run
from services.task_manager.shell import Shell
from tests.simulation.store import MemoryStore
from tests.task_manager.of_shell import INBOX, PREFIX, RM, SCOPE, World, connected, deploy, with_attempt


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_the_way_of_a_task(world: World) -> None:
    shell, rm, jm = connected(world)
    (registered,) = rm.heard("RegisterTaskManager")
    assert (registered.host, [each.memory_mb for each in registered.slots]) == ("h", [1024])
    rm.say(AllocateSlot(slot=0, allocation="al", job="j", shard=0))
    world.go(rm, shell, jm)
    (offered,) = jm.heard("OfferSlots")
    assert [each.allocation for each in offered.offers] == ["al"]
    jm.say(deploy())
    world.go(jm, shell)
    world.go(jm)
    assert [each.state for each in jm.heard("TaskStateChanged")] == ["RUNNING", "FINISHED"]
    jm.say(FreeSlots(allocations=["al"]))
    world.go(jm, shell, rm)
    assert [(each.allocation, each.state) for each in rm.heard("SlotFreed")] == [("al", "FREE")]
    assert shell.over is None and health(shell)["ready"] and health(shell)["slots"] == {"0": "FREE"}


def test_it_beats_and_its_outbox_is_trimmed(world: World) -> None:
    shell, rm, jm = connected(world)
    rm.say(AllocateSlot(slot=0, allocation="al", job="j", shard=0))
    world.go(rm, shell, rm)
    before = len(rm.heard("TaskManagerHeartbeat"))
    world.go(shell, rm, jm, times=20)
    assert len(rm.heard("TaskManagerHeartbeat")) - before == 20
    assert health(shell)["outbox"] <= 4


def test_what_stood_in_its_inbox_before_is_not_for_it(world: World) -> None:
    first, rm, _ = connected(world)
    rm.say(AllocateSlot(slot=0, allocation="old", job="j", shard=0))
    world.go(rm)
    second = world.shell()
    second.begin()
    world.go(second)
    assert second.state.slots[0].state is SlotState.FREE
    assert second.incarnation > first.incarnation == MemoryStore(world.etcd, PREFIX).get(task_manager_key("a")).mod_revision - 1


def test_an_older_process_of_the_same_name_ends(world: World) -> None:
    first, rm, jm = connected(world)
    second = world.shell()
    second.begin()
    world.go(second, rm, jm, times=2)
    world.go(first)
    assert first.over == Ending("another process is now the TaskManager a: its incarnation is later", FAILED)
    world.go(second, rm, jm)
    assert second.over is None and health(second)["registered"]


def test_a_task_manager_declared_lost_ends_and_may_come_again(world: World) -> None:
    shell, rm, _ = connected(world)
    rm.say(ReleaseTaskManager(incarnation=shell.incarnation, reason="silent"))
    world.go(rm, shell)
    assert shell.over == Ending("the ResourceManager has released this TaskManager: silent", AGAIN)


def test_others_messages_and_records_that_are_no_messages_count_nothing(world: World) -> None:
    shell, rm, jm = connected(world)
    digest = shell.folded.digest
    other = world.written()[0]
    world.bus.append(INBOX, 0, b"garbage", key=b"task-manager/b")
    stranger = Elected(generation=shell.incarnation, epoch=shell.incarnation + 1, build="", who="stranger")
    world.bus.append(INBOX, 0, encode(stranger), key=SCOPE.encode())
    shell.inbox.read()
    shell.turn(0)
    assert (shell.over, shell.folded.epoch, shell.folded.digest) == (None, shell.incarnation, digest), other


def test_a_message_that_this_build_does_not_know_ends_it(world: World) -> None:
    shell, _, _ = connected(world)
    world.bus.append(INBOX, 0, b'{"record": "Message", "body": {"type": "New"}}', key=SCOPE.encode())
    world.go(shell)
    assert shell.over is not None and shell.over.code == FAILED
    assert shell.over.reason.startswith("task-manager.commands[0] offset ")


def test_a_lost_message_ends_this_incarnation(world: World) -> None:
    shell, rm, _ = connected(world)
    rm.say(AllocateSlot(slot=0, allocation="al", job="j", shard=0))
    rm.turn()
    end = world.broker.log(INBOX, 0).end
    world.broker.truncate(INBOX, 0, end - 1)
    world.bus.append(INBOX, 0, b"{}", key=b"task-manager/b")  # another's, in its place
    rm.say(AllocateSlot(slot=0, allocation="al", job="j", shard=0))
    world.go(rm, shell)
    assert shell.over is not None and shell.over.code == AGAIN
    assert shell.over.reason.startswith("its inbox is not whole: resource-manager has sent ")


# fencing


def test_a_paused_broker_alone_ends_nothing(world: World) -> None:
    shell, _, _ = with_attempt(world)
    world.broker.pause()
    world.go(shell, times=100)
    assert shell.over is None


def test_when_neither_kafka_nor_etcd_answers_it_ends_before_it_is_declared_lost(world: World) -> None:
    shell, _, _ = with_attempt(world)
    world.broker.pause()
    world.etcd.pause()
    turns = 0
    while shell.over is None:
        world.go(shell)
        turns += 1
    assert shell.over.code == AGAIN and shell.over.reason.startswith("neither Kafka nor etcd has answered for 400 ms")
    assert turns * TICK_MS <= 500


def test_a_task_manager_where_nothing_runs_waits_for_kafka_and_etcd(world: World) -> None:
    shell, rm, jm = connected(world)
    world.broker.pause()
    world.etcd.pause()
    world.go(shell, times=50)
    world.broker.resume()
    world.etcd.resume()
    world.go(shell, rm, jm, times=2)
    assert shell.over is None


def test_a_process_that_was_stopped_and_wakes_first_reads_what_became_of_it(world: World) -> None:
    shell, rm, jm = with_attempt(world)
    world.clock.advance(60_000)
    world.go(shell, rm, jm)
    assert shell.over is None


# the end


def test_it_says_that_it_goes_after_its_attempts_have_ended(world: World) -> None:
    shell, rm, jm = with_attempt(world)
    shell.inputs.post(StopAsked())
    world.go(shell)
    assert world.made[0].kills == [("j/t/0/1", "its TaskManager was stopped")]
    assert "DisconnectTaskManager" not in [body.type for body in world.written(RM)]
    world.made[0].killed()
    world.go(shell)
    assert shell.over == Ending("it was stopped", STOPPED)
    assert world.written(RM)[-1].type == "DisconnectTaskManager"
    assert [each.state for each in jm.heard("TaskStateChanged")] == ["RUNNING"]


class Running:
    """A shell on threads of its own, in real time."""

    def __init__(self, shell: Shell) -> None:
        self.shell, self.stopping = shell, threading.Event()
        self.failure: str | None = None
        self.code: int | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self.code = run(self.shell, self.stopping, lambda: self.failure)

    def await_(self, what: Callable[[], bool]) -> None:
        end = time.monotonic() + 120
        while not what():
            assert time.monotonic() < end, "it did not come"
            time.sleep(0.005)

    def end(self) -> int | None:
        self.stopping.set()
        self._thread.join(120)
        return self.code


def real(world: World, **more: Any) -> Running:
    from millrace.runtime.hosting import monotonic_ms

    return Running(world.shell(clock=monotonic_ms, **more))


def test_a_process_that_is_asked_to_stop_leaves_nothing(world: World) -> None:
    running = real(world)
    running.await_(lambda: running.shell.state is not None and health(running.shell)["slots"] == {"0": "FREE"})
    assert running.end() == STOPPED
    assert world.made[0].closed
    assert MemoryStore(world.etcd, PREFIX).get(task_manager_key("a")) is None


def test_a_process_that_waits_for_kafka_can_be_stopped(world: World) -> None:
    world.broker.pause()
    running = real(world)
    running.await_(lambda: running.shell.turned_ms > 0)
    assert running.end() == STOPPED
    assert world.made[0].closed


def test_a_process_that_failed_says_so(world: World) -> None:
    running = real(world)
    running.await_(lambda: running.shell.state is not None)
    running.failure = "a record can never be delivered"
    assert running.end() == FAILED
    assert running.shell.over == Ending("a record can never be delivered", FAILED)
    assert MemoryStore(world.etcd, PREFIX).get(task_manager_key("a")) is not None


def test_an_inbox_that_was_cut_ends_this_incarnation(world: World) -> None:
    for _ in range(3):
        world.bus.append(INBOX, 0, b"{}", key=b"task-manager/b")
    running = real(world)
    running.await_(lambda: running.shell.state is not None)
    world.broker.truncate(INBOX, 0, 1)
    running.await_(lambda: running.shell.over is not None)
    assert running.end() == AGAIN
    assert world.made[0].closed


def test_local_events_wake_it(world: World) -> None:
    running = real(world, prompt=False)
    running.await_(lambda: running.shell.state is not None)
    world.made[0].ready()
    running.await_(lambda: health(running.shell)["slots"] == {"0": "FREE"})
    running.shell.inputs.post(AttemptRunning(slot=0, attempt="none"))
    assert running.end() == STOPPED


def test_etcd_is_asked_on_a_thread_of_its_own(world: World) -> None:
    store = MemoryStore(world.etcd, PREFIX)
    probe = EtcdProbe(store, "a")
    revision = store.txn(Txn([], [Put(task_manager_key("a"), b"")])).revision
    assert probe.answered() is None
    probe.ask()
    end = time.monotonic() + 120
    while (answered := probe.answered()) is None:
        assert time.monotonic() < end
        time.sleep(0.005)
    assert (answered, probe.answered()) == (revision, None)


# the journal
