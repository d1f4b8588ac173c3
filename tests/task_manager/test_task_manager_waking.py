"""A TaskManager that was stopped and wakes, or that Kafka alone does not hear: its tasks may be somebody else's by now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millrace.core.fold import TICK_MS
from millrace.core.messages.slots import AllocateSlot, CancelTasks, ReleaseTaskManager, TaskManagerRegistered
from millrace.core.states import PresenceState
from millrace.core.topics import task_manager_key
from millrace.io.interfaces import Delete, Txn
from services.task_manager.core.fencing import UNREAD_MS
from services.task_manager.inputs import AGAIN, Ending
from services.task_manager.shell import Shell
from tests.simulation.bus import MemoryBus
from tests.simulation.store import MemoryStore
from tests.task_manager.of_shell import PREFIX, World, connected, deploy, with_attempt, with_task_on_its_way

LOST = Ending("it was away, or could not read its inbox, and etcd says that it was declared lost", AGAIN)


def one_by_one(shell: Shell) -> None:
    """It reads one record of its inbox at a time."""
    reader = shell.inbox.reader
    assert reader is not None
    poll = reader.poll
    reader.poll = lambda timeout_ms, most=500: poll(timeout_ms, 1)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_process_that_wakes_launches_nothing_before_it_has_read_what_became_of_it(world: World) -> None:
    shell, rm, jm = with_task_on_its_way(world)
    shell.inbox.read()  # it is stopped with a task in its queue, and declared lost meanwhile
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
    one_by_one(shell)
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
    assert world.made[0].attempt == "j/t/0/1" and shell.over is None and not shell.presence.behind


def test_a_process_that_wakes_and_was_not_missed_goes_on(world: World) -> None:
    shell, rm, jm = with_task_on_its_way(world)
    shell.inbox.read()
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
    assert shell.over == Ending("Kafka does not answer it, and etcd says that it was declared lost", AGAIN)


def test_what_kafka_has_of_it_for_a_job_master_is_no_heartbeat(world: World) -> None:
    """The ResourceManager's log lies on a broker that does not answer, a JobMaster's on another."""
    shell, _, jm = with_attempt(world)
    bus, others = shell.bus, ("job-master.commands", 0)
    assert isinstance(bus, MemoryBus)
    bus.prompt = False
    world.etcd.pause()
    began_ms = world.clock.now_ms()
    while shell.over is None and world.clock.now_ms() - began_ms < 2_000:
        jm.say(CancelTasks(attempts=["unknown"], reason="so that it answers"))
        world.go(jm, shell)
        bus.deliver(only=others)
        bus.acknowledge(only=others)
    assert "TaskStateChanged" in [body.type for body in world.written("job-master/0")][-1:]
    assert shell.over is not None and world.clock.now_ms() - began_ms <= 500, "it may be declared lost from now on"


def test_one_that_holds_a_slot_counts_silence_from_the_last_answer(world: World) -> None:
    """It was starved when it was to beat, then cut off: what counts for others is when they heard it, not when it spoke next."""
    shell, rm, jm = connected(world, prompt=False)
    world.made[0].ready()
    rm.say(AllocateSlot(slot=0, allocation="al", job="j", shard=0))
    world.go(rm, shell, jm)
    world.go(shell, times=2)
    jm.say(deploy())
    jm.turn()
    world.broker.pause()
    world.etcd.pause()
    world.clock.advance(200)
    world.go(shell, times=3)  # half a second: it may be declared lost from now on
    world.broker.resume()
    rm.say(ReleaseTaskManager(incarnation=shell.incarnation, reason="silent"))
    one_by_one(shell)
    world.go(shell)
    assert shell.over is None and world.made[0].attempt is None
    rm.turn()
    world.go(shell, times=3)
    assert shell.over is not None and world.made[0].attempt is None


def test_who_reads_all_and_is_not_heard_launches_nothing_until_it_is(world: World) -> None:
    shell, rm, jm = connected(world, prompt=False)
    world.made[0].ready()
    rm.say(AllocateSlot(slot=0, allocation="al", job="j", shard=0))
    world.go(rm, shell, jm)
    bus = shell.bus
    assert isinstance(bus, MemoryBus)
    bus.prompt = False
    world.go(shell, times=5)
    jm.say(deploy())
    world.go(jm, shell, times=3)
    assert world.made[0].attempt is None and shell.over is None
    bus.prompt = True
    bus.deliver()
    world.go(shell, times=2)
    assert world.made[0].attempt == "j/t/0/1" and not shell.presence.behind


def test_that_it_had_read_all_before_it_was_stopped_again_proves_nothing(world: World) -> None:
    """It waits for its slot to be ready, so nothing is launched in the turn in which it wakes."""
    shell, rm, jm = connected(world, prompt=False)
    rm.say(AllocateSlot(slot=0, allocation="al", job="j", shard=0))
    world.made[0].ready()
    world.go(rm, shell, jm)
    world.made[0].replace()
    jm.say(deploy())
    world.go(jm, shell)
    world.clock.advance(500)
    shell.turn(0)
    assert shell.presence.behind
    shell.inbox.read()
    world.clock.advance(60_000)
    rm.say(ReleaseTaskManager(incarnation=shell.incarnation, reason="silent"))
    rm.turn()
    shell.turn(0)
    world.made[0].ready()
    while shell.turn(0):
        pass
    assert shell.over is None and world.made[0].attempt is None
    world.go(shell)
    assert shell.over is not None and world.made[0].attempt is None


def with_reading_that_stood_still(world: World) -> Shell:
    """A task was sent to it, and for two seconds it reads nothing, though Kafka takes all that it says."""
    shell, rm, jm = connected(world, prompt=False)
    world.made[0].ready()
    rm.say(AllocateSlot(slot=0, allocation="al", job="j", shard=0))
    world.go(rm, shell, jm, times=2)
    reader = shell.inbox.reader
    assert reader is not None
    poll, reader.poll = reader.poll, lambda timeout_ms, most=500: []
    jm.say(deploy())
    beats = len(rm.heard("TaskManagerHeartbeat"))
    world.go(rm, jm, shell, times=20)
    assert len(rm.heard("TaskManagerHeartbeat")) > beats + 1
    reader.poll = poll
    return shell


def test_one_whose_reading_stood_still_launches_nothing_when_etcd_says_that_it_was_declared_lost(world: World) -> None:
    """By a ResourceManager that was born anew meanwhile, heard it all the time, and did not wait for it for ever."""
    shell = with_reading_that_stood_still(world)
    MemoryStore(world.etcd, PREFIX).txn(Txn([], [Delete(task_manager_key("a"))]))
    world.go(shell, times=3)
    assert shell.over == LOST and world.made[0].attempt is None


def test_one_that_reads_nothing_and_was_declared_lost_ends_with_what_runs_in_it(world: World) -> None:
    """It is heard all the time, so nothing but etcd tells it that its tasks run elsewhere."""
    shell, rm, _ = with_attempt(world)
    reader = shell.inbox.reader
    assert reader is not None
    reader.poll = lambda timeout_ms, most=500: []
    world.go(rm, shell, times=20)
    assert shell.over is None
    MemoryStore(world.etcd, PREFIX).txn(Txn([], [Delete(task_manager_key("a"))]))
    world.go(rm, shell, times=2)
    assert shell.over == LOST


def test_one_whose_reading_stood_still_and_that_was_not_missed_goes_on(world: World) -> None:
    shell = with_reading_that_stood_still(world)
    shell.inbox.read()
    shell.turn(0)
    assert world.made[0].attempt is None
    world.go(shell, times=3)
    assert world.made[0].attempt == "j/t/0/1" and shell.over is None and not shell.presence.behind


def test_what_it_reads_after_a_rest_is_launched_at_once(world: World) -> None:
    """It asks nobody while nobody holds a slot of it, and then whether it reads on."""
    shell, rm, jm = connected(world, prompt=False)
    world.made[0].ready()
    world.go(rm, shell, jm, times=2)
    asked, end = [], shell.bus.end
    shell.bus.end = lambda topic, partition: asked.append(topic) or end(topic, partition)
    world.go(rm, jm, shell, times=30)
    assert asked == []
    rm.say(AllocateSlot(slot=0, allocation="al", job="j", shard=0))
    world.go(rm, shell, jm)
    jm.say(deploy())
    world.go(jm, shell)
    assert world.made[0].attempt == "j/t/0/1"
    world.go(rm, jm, shell, times=30)
    assert 30 * TICK_MS // UNREAD_MS < len(asked) <= 2 * 30 * TICK_MS // UNREAD_MS + 1 and not shell.presence.behind


def test_a_kafka_that_takes_its_time_to_tell_where_the_inbox_ends_keeps_nobody_behind(world: World) -> None:
    """All that there is is read, and the thread that reads waits for news: it need not wait for them to know that."""
    shell, rm, _ = with_task_on_its_way(world)
    reader, end = shell.inbox.reader, shell.bus.end
    assert reader is not None
    poll = reader.poll

    def pass_ms(how_long: int) -> None:
        for _ in range(how_long // 50):  # the other thread turns meanwhile
            world.clock.advance(50)
            while shell.turn(0):
                pass

    def slow_end(topic: str, partition: int) -> int:
        found = end(topic, partition)
        pass_ms(300)
        return found

    def waiting_poll(timeout_ms: int, most: int = 500) -> list[Any]:
        found = poll(0, most)
        if not found:
            pass_ms(timeout_ms)
        return found or poll(0, most)

    shell.bus.end, reader.poll = slow_end, waiting_poll
    world.clock.advance(60_000)
    shell.turn(0)
    began_ms = world.clock.now_ms()
    while world.made[0].attempt is None and world.clock.now_ms() - began_ms < 10_000:
        shell.inbox.read(200)
        rm.turn()
    assert world.made[0].attempt == "j/t/0/1" and not shell.presence.behind


def test_who_cannot_go_on_though_all_is_read_asks_no_faster_than_it_looks(world: World) -> None:
    shell, rm, _ = with_task_on_its_way(world)
    world.etcd.pause()
    world.clock.advance(60_000)
    shell.turn(0)
    asked, end = [], shell.bus.end
    shell.bus.end = lambda topic, partition: asked.append(topic) or end(topic, partition)
    for _ in range(100):
        world.clock.advance(TICK_MS // 10)
        shell.inbox.read()
        shell.turn(0)
    assert shell.presence.behind and 1 < len(asked) <= 11


def test_that_it_had_asked_for_the_end_before_it_was_cut_off_proves_nothing(world: World) -> None:
    """All that stood in its inbox then is read; what became of it stands behind that."""
    shell, rm, jm = with_task_on_its_way(world)
    world.clock.advance(UNREAD_MS)
    reader = shell.inbox.reader
    assert reader is not None
    poll, reader.poll = reader.poll, lambda timeout_ms, most=500: []
    shell.inbox.read()
    reader.poll = poll
    world.broker.pause()
    world.go(shell, times=20)
    world.broker.resume()
    one_by_one(shell)
    rm.say(ReleaseTaskManager(incarnation=shell.incarnation, reason="silent"))
    rm.turn()
    world.go(shell)
    assert shell.over is None and world.made[0].attempt is None
    world.go(shell, times=3)
    assert shell.over is not None and world.made[0].attempt is None


def test_that_etcd_had_it_before_it_was_stopped_again_proves_nothing(world: World) -> None:
    """It is stopped between two lines of the loop, with the last answer that it waits for at hand."""
    shell, rm, _ = with_task_on_its_way(world)
    store, answers = MemoryStore(world.etcd, PREFIX), list[int | None]([None])

    class ByTheNextLook:
        def ask(self) -> None:
            entry = store.get(task_manager_key("a"))
            answers.append(entry.mod_revision if entry is not None else 0)

        def answered(self) -> int | None:
            return answers.pop(0)

    shell._probe = ByTheNextLook()
    world.clock.advance(60_000)
    while shell.presence.state is not PresenceState.CONFIRMED:
        shell.turn(0)
        shell.inbox.read()
        world.clock.advance(TICK_MS)
    serve = shell.bus.serve

    def stopped(patience_ms: int = 0) -> None:
        shell.bus.serve = serve
        serve(patience_ms)
        world.clock.advance(60_000)
        store.txn(Txn([], [Delete(task_manager_key("a"))]))

    rm.say(TaskManagerRegistered(heartbeat_interval_ms=100, lost_after_ms=600))
    rm.turn()
    shell.inbox.read()
    shell.bus.serve = stopped
    shell.turn(0)  # and Kafka has answered it just before
    assert world.made[0].attempt is None and shell.over is None
    world.go(shell, times=4)
    assert shell.over == LOST and world.made[0].attempt is None


def test_a_process_that_wakes_launches_nothing_when_etcd_says_that_it_was_declared_lost(world: World) -> None:
    """By a ResourceManager that was born anew meanwhile, and never heard it: nothing in its inbox tells."""
    shell, rm, jm = with_task_on_its_way(world)
    shell.inbox.read()
    world.clock.advance(60_000)
    MemoryStore(world.etcd, PREFIX).txn(Txn([], [Delete(task_manager_key("a"))]))
    world.etcd.pause()
    world.go(shell, times=5)
    assert shell.over is None and world.made[0].attempt is None
    world.etcd.resume()
    world.go(shell, times=2)
    assert shell.over == LOST and world.made[0].attempt is None


def test_a_process_that_wakes_while_etcd_is_away_kills_at_once_and_launches_when_it_is_back(world: World) -> None:
    shell, _, jm = with_attempt(world)
    world.etcd.pause()
    world.clock.advance(60_000)
    jm.say(CancelTasks(attempts=["j/t/0/1"], reason="canceled"))
    world.go(jm, shell, times=3)
    assert [attempt for attempt, _ in world.made[0].kills] == ["j/t/0/1"]
    world.made[0].killed()
    world.made[0].ready()
    jm.say(deploy("j/t/0/2"))
    world.go(jm, shell, times=5)
    assert shell.presence.behind and world.made[0].attempt is None
    world.etcd.resume()
    world.go(shell, times=3)
    assert world.made[0].attempt == "j/t/0/2" and shell.over is None
