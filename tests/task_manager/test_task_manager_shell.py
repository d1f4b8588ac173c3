"""The TaskManager's loop over Kafka and etcd in memory, opposite peers that say what the test tells them to."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from millrace import __version__
from millrace.cli.replay import app
from millrace.core.fold import TICK_MS, Fold, Folded
from millrace.core.machine import Output, Say
from millrace.core.messages.base import Body
from millrace.core.messages.records import Elected, Message, Tick, decode, encode
from millrace.core.messages.slots import (
    AllocateSlot,
    AttemptRunning,
    DeployTask,
    DeployTasks,
    FreeSlots,
    ReleaseTaskManager,
    StopAsked,
    TaskManagerRegistered,
)
from millrace.core.topics import TOPICS, Topology, task_manager_key
from millrace.io.interfaces import Put, Txn, Unavailable
from millrace.io.storage import Storage
from services.replay.replaying import At, Folder, NotTheSame, open_file
from services.task_manager.core.state import SlotState, check
from services.task_manager.journal import Journal
from services.task_manager.ports import Slots
from services.task_manager.shell import AGAIN, FAILED, STOPPED, EtcdProbe, Over, Shell
from tests.simulation import Clock
from tests.simulation.bus import MemoryBroker, MemoryBus
from tests.simulation.store import MemoryEtcd, MemoryStore
from tests.task_manager.simulated_slot import SimulatedSlot

TOPOLOGY = Topology(shards=1, task_manager_partitions=1)
SCOPE, RM, JM = "task-manager/a", "resource-manager", "job-master/0"
INBOX, PREFIX = "task-manager.commands", "/test/"


class Puppet:
    """A machine that hears everything and says, at its next tick, what the test put into `says`."""

    state_type = list
    peers: tuple[str, ...] = ()

    def __init__(self, scope: str) -> None:
        self.scope = scope
        self.heard: list[Any] = []
        self.says: list[Output] = []

    def blank(self) -> list[Any]:
        return []

    def handle(self, state: Any, envelope: Any) -> Iterator[Output]:
        if isinstance(envelope.body, Body):
            self.heard.append(envelope.body)
        elif type(envelope.body).__name__ == "Ticked":
            says, self.says = self.says, []
            yield from says


class Peer:
    """A scope whose machine is a puppet."""

    def __init__(self, world: World, scope: str, life: int = 5) -> None:
        self.world, self.puppet = world, Puppet(scope)
        self.fold = Fold(self.puppet, TOPOLOGY)
        self.folded: Folded = self.fold.blank(life, 0)
        topic, partition = TOPOLOGY.inbox(scope)
        self.reader = world.bus.reader(topic, partition, 0)
        self._take(Elected(generation=life, epoch=1, build="", who=""))

    def turn(self) -> None:
        for received in self.reader.poll(0):
            self._take(decode(received.value))
        folded = self.folded
        tick = Tick(epoch=1, n=folded.tick + 1, published_through=folded.said, digest=folded.ticked_digest)
        self._take(tick)

    def say(self, body: Any) -> None:
        self.puppet.says.append(Say(SCOPE, body))

    def heard(self, kind: str) -> list[Any]:
        return [body for body in self.puppet.heard if body.type == kind]

    def _take(self, record: Any) -> None:
        told = self.fold.fold(self.folded, self.folded.next_offset, self.world.clock.now_ms(), record)
        for said in told.said:
            self.world.bus.append(said.topic, said.partition, said.value.encode(), key=said.key.encode())


class AtOnce:
    """A probe that asks etcd when it is told to, on the same thread."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._heard: int | None = None

    def ask(self) -> None:
        try:
            entry = self._store.get(task_manager_key("a"))
            self._heard = entry.mod_revision if entry is not None else 0
        except Unavailable:
            pass

    def answered(self) -> int | None:
        heard, self._heard = self._heard, None
        return heard


class World:
    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, Clock()
        self.broker, self.etcd = MemoryBroker(self.clock), MemoryEtcd(self.clock)
        self.broker.ensure_topics([(t.name, t.count(TOPOLOGY), t.config()) for t in TOPICS])
        self.bus = MemoryBus(self.broker, client_id="test", on_fatal=pytest.fail)
        self.made: list[SimulatedSlot] = []

    def shell(self, *, prompt: bool = True, part_bytes: int = 1 << 20, **more: Any) -> Shell:
        bus = MemoryBus(self.broker, client_id="tm", on_fatal=pytest.fail)
        store = MemoryStore(self.etcd, PREFIX)
        deciding = {"host": "h", "allocation_timeout_ms": 10_000, "slots_memory_mb": [1024]}
        journal = Journal(self.folder / "journal", "a", TOPOLOGY, part_bytes)
        given = {"clock": self.clock.now_ms, "wall_ms": self.clock.now_ms, "build": __version__, **more}
        shell = Shell("a", TOPOLOGY, bus, store, deciding, journal, AtOnce(store), **given)

        def make(number: int, on_event: Any) -> SimulatedSlot:
            self.made.append(SimulatedSlot(number, on_event, prompt=prompt))
            return self.made[-1]

        storage = Storage(str(self.folder / "storage"))
        slots = Slots(make, 1, self.folder / "tm", storage, shell.post, submit=lambda do: do())
        shell.slots = slots
        slots.start()
        return shell

    def go(self, *parts: Any, times: int = 1) -> None:
        """A tenth of a second for everybody: they read, fold and say."""
        for _ in range(times):
            self.clock.advance(TICK_MS)
            for part in parts:
                if isinstance(part, Peer):
                    part.turn()
                    continue
                if not self.broker.paused:
                    part.read()
                while part.over is None and part.turn(0):
                    pass
                check(part.state)

    def written(self, to: str = SCOPE) -> list[Any]:
        """The bodies in an inbox, from its start."""
        topic, partition = TOPOLOGY.inbox(to)
        records = [decode(each.value) for each in self.broker.log(topic, partition).records]
        return [record.body for record in records if isinstance(record, Message) and record.to == to]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def deploy(attempt: str = "j/t/0/1", allocation: str = "al") -> DeployTasks:
    spec = {"job": "j", "task": "t"}
    return DeployTasks(tasks=[DeployTask(
        allocation=allocation, attempt=attempt, acceptance="ac", folder=f"ac/{attempt}", spec=spec,
        start_timeout_ms=None, run_timeout_ms=None,
    )])  # fmt: skip


def connected(world: World, **more: Any) -> tuple[Shell, Peer, Peer]:
    """A TaskManager that ResourceManager and JobMaster have heard, and that has heard them."""
    shell = world.shell(**more)
    shell.begin()
    rm, jm = Peer(world, RM), Peer(world, JM)
    world.go(shell, rm, jm, times=3)
    rm.say(TaskManagerRegistered(heartbeat_interval_ms=100, lost_after_ms=600))
    world.go(rm, jm, shell)
    return shell, rm, jm


def with_attempt(world: World) -> tuple[Shell, Peer, Peer]:
    """As `connected`, with an attempt that runs until the test ends it."""
    shell, rm, jm = connected(world, prompt=False)
    world.made[0].ready()
    rm.say(AllocateSlot(slot=0, allocation="al", job="j", shard=0))
    world.go(rm, shell, jm)
    jm.say(deploy())
    world.go(jm, shell)
    world.made[0].start()
    world.go(shell, rm, jm)
    assert [each.state for each in jm.heard("TaskStateChanged")] == ["RUNNING"]
    return shell, rm, jm


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
    assert shell.over is None and shell.health()["ready"] and shell.health()["slots"] == {"0": "FREE"}


def test_it_beats_and_its_outbox_is_trimmed(world: World) -> None:
    shell, rm, jm = connected(world)
    rm.say(AllocateSlot(slot=0, allocation="al", job="j", shard=0))
    world.go(rm, shell, rm)
    before = len(rm.heard("TaskManagerHeartbeat"))
    world.go(shell, rm, jm, times=20)
    assert len(rm.heard("TaskManagerHeartbeat")) - before == 20
    assert shell.health()["outbox"] <= 4


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
    assert first.over == Over("another process is now the TaskManager a: its incarnation is later", FAILED)
    world.go(second, rm, jm)
    assert second.over is None and second.health()["registered"]


def test_a_task_manager_declared_lost_ends_and_may_come_again(world: World) -> None:
    shell, rm, _ = connected(world)
    rm.say(ReleaseTaskManager(incarnation=shell.incarnation, reason="silent"))
    world.go(rm, shell)
    assert shell.over == Over("the ResourceManager declared this TaskManager lost: silent", AGAIN)


def test_others_messages_and_records_that_are_no_messages_count_nothing(world: World) -> None:
    shell, rm, jm = connected(world)
    digest = shell._folded.digest
    other = world.written()[0]
    world.bus.append(INBOX, 0, b"garbage", key=b"task-manager/b")
    stranger = Elected(generation=shell.incarnation, epoch=shell.incarnation + 1, build="", who="stranger")
    world.bus.append(INBOX, 0, encode(stranger), key=SCOPE.encode())
    shell.read()
    shell.turn(0)
    assert (shell.over, shell._folded.epoch, shell._folded.digest) == (None, shell.incarnation, digest), other


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
    assert shell.over.reason.startswith("its inbox is not whole: resource-manager has said ")


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
    assert shell.over.code == AGAIN and shell.over.reason.startswith("neither Kafka nor etcd has answered for 500 ms")
    assert turns * TICK_MS <= 600


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
    shell.post(StopAsked())
    world.go(shell)
    assert world.made[0].kills == [("j/t/0/1", "its TaskManager was stopped")]
    assert "DisconnectTaskManager" not in [body.type for body in world.written(RM)]
    world.made[0].killed()
    world.go(shell)
    assert shell.over == Over("it was stopped", STOPPED)
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
        self.code = self.shell.run(self.stopping, lambda: self.failure)

    def await_(self, what: Callable[[], bool]) -> None:
        end = time.monotonic() + 20
        while not what():
            assert time.monotonic() < end, "it did not come"
            time.sleep(0.005)

    def end(self) -> int | None:
        self.stopping.set()
        self._thread.join(20)
        return self.code


def real(world: World, **more: Any) -> Running:
    from millrace.io.hosting import monotonic_ms

    return Running(world.shell(clock=monotonic_ms, **more))


def test_a_process_that_is_asked_to_stop_leaves_nothing(world: World) -> None:
    running = real(world)
    running.await_(lambda: running.shell.state is not None and running.shell.health()["slots"] == {"0": "FREE"})
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
    assert running.shell.over == Over("a record can never be delivered", FAILED)
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
    running.await_(lambda: running.shell.health()["slots"] == {"0": "FREE"})
    running.shell.post(AttemptRunning(slot=0, attempt="none"))
    assert running.end() == STOPPED


def test_etcd_is_asked_on_a_thread_of_its_own(world: World) -> None:
    store = MemoryStore(world.etcd, PREFIX)
    probe = EtcdProbe(store, "a")
    revision = store.txn(Txn([], [Put(task_manager_key("a"), b"")])).revision
    assert probe.answered() is None
    probe.ask()
    end = time.monotonic() + 20
    while (answered := probe.answered()) is None:
        assert time.monotonic() < end
        time.sleep(0.005)
    assert (answered, probe.answered()) == (revision, None)


# the journal


def replay(file: Path) -> Folded:
    """The state at the end of a part."""
    source = open_file(file)
    folder = Folder(source, next(iter(source.facts.scopes)), lambda *_: None)
    folder.to(At())
    return folder.folded


def shown(file: Path) -> Result:
    """What the command says of it."""
    return CliRunner().invoke(app, ["state", SCOPE, "--file", str(file), "--json"])


def test_a_journal_replays_to_the_same_words(world: World) -> None:
    shell, _, _ = with_attempt(world)
    shell.journal.close()
    (file,) = (world.folder / "journal").iterdir()
    assert file.name == f"{shell.incarnation}.0.jsonl" and file.stat().st_mode & 0o777 == 0o600
    folded = replay(file)
    assert (folded.digest, folded.state, folded.peers) == (
        shell._folded.digest, shell._folded.state, shell._folded.peers
    )  # fmt: skip
    told = json.loads(shown(file).stdout)
    assert (told["offset"], told["state"]["digest"]) == (folded.next_offset - 1, folded.digest)


def test_a_long_journal_is_cut_into_parts_that_replay_alone(world: World) -> None:
    shell, rm, jm = connected(world, part_bytes=20_000)
    world.go(shell, rm, jm, times=300)
    shell.journal.close()
    parts = sorted((world.folder / "journal").iterdir(), key=lambda path: int(path.name.split(".")[1]))
    assert len(parts) == 2 and int(parts[0].name.split(".")[1]) >= 1
    assert replay(parts[-1]).digest == shell._folded.digest


def test_old_journals_go(world: World) -> None:
    incarnations = []
    for _ in range(5):
        shell = world.shell()
        shell.begin()
        shell.journal.close()
        incarnations.append(shell.incarnation)
    kept = sorted(int(path.name.split(".")[0]) for path in (world.folder / "journal").iterdir())
    assert kept == incarnations[-3:]


def test_a_journal_that_was_cut_by_a_kill_replays_to_its_last_record(world: World) -> None:
    shell, _, _ = with_attempt(world)
    shell.journal.close()
    (file,) = (world.folder / "journal").iterdir()
    text = file.read_text()
    whole = replay(file).next_offset
    file.write_text(text[:-10])
    assert replay(file).next_offset == whole - 1


def test_a_journal_whose_words_differ_is_told(world: World) -> None:
    shell, _, _ = with_attempt(world)
    shell.journal.close()
    (file,) = (world.folder / "journal").iterdir()
    file.write_text(file.read_text().replace('"host":"h"', '"host":"x"'))
    with pytest.raises(NotTheSame):
        replay(file)
    told = shown(file)
    assert told.exit_code == 1 and "replay verify tells where" in told.stderr
    file.write_text("{}\n")
    assert shown(file).exit_code == 2 and "is no journal of a TaskManager" in shown(file).stderr
    assert shown(file.with_name("none.jsonl")).exit_code == 2


def test_a_journal_that_cannot_be_written_costs_the_journal_alone(world: World) -> None:
    (world.folder / "journal").write_text("a file where a folder is needed")
    shell, rm, jm = connected(world)
    world.go(shell, rm, jm, times=3)
    assert shell.over is None and rm.heard("TaskManagerHeartbeat")
