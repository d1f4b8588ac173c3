"""The shell of a control service in single steps: what its threads tell each other must not be lost between them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from millrace.core.fold import OutboxRecord
from millrace.io.interfaces import Entry, Put, Txn, TxnResult, Unavailable, UnknownOutcome
from millrace.io.kafka.config import ASKED_S
from millrace.runtime import envelope
from millrace.runtime.beat import LEASE_RENEW_S, LEASE_TTL_S, TURNED_MOST_MS, Beat
from millrace.runtime.loop import ACKED_MS
from tests.simulation import Clock, workload
from tests.simulation.cluster import Cluster
from tests.simulation.control import ControlProcess, NotedLoop
from tests.simulation.store import MemoryEtcd, MemoryStore
from tests.simulation.trial import quiet_logs
from tests.simulation.world import PREFIX


def loop_of(cluster: Cluster, name: str = "dispatcher#1") -> tuple[ControlProcess, NotedLoop]:
    process = cluster.processes[name]
    assert isinstance(process, ControlProcess)
    return process, process.loops[0]


def new_cluster() -> Cluster:
    quiet_logs()
    return Cluster(control=("dispatcher#1",), task_managers=0)


class AwayOnce(MemoryStore):
    """etcd takes one watch, and does not answer for the next one."""

    away = True

    def watch(
        self, key: str, on_change: Callable[[Entry | None], None], on_lost: Callable[[], None]
    ) -> Callable[[], None]:
        if key.startswith("generations/") and self.away:
            self.away = False
            raise Unavailable("etcd is away")
        return super().watch(key, on_change, on_lost)


def test_etcd_away_while_keys_are_being_watched() -> None:
    """The beat goes on until all keys are watched."""
    cluster = new_cluster()
    _, loop = loop_of(cluster)
    store = AwayOnce(cluster.world.etcd, PREFIX)
    beat = Beat(store, lambda: [loop], cluster.world.clock.now_ms)
    assert not beat.turn()
    assert beat.turn()
    store.txn(Txn([], [Put(loop.generations.generation_key, b'{"generation": 9}')]))
    cluster.world.etcd.deliver()
    assert loop.stale


class Absurd(MemoryStore):
    """etcd answers what nobody can have written."""

    def grant(self, ttl_s: int) -> int:
        raise KeyError("ID")


def test_a_beat_that_cannot_go_on_ends_its_process() -> None:
    """Without it the process would live on, healthy to look at, and never lead again."""
    cluster = new_cluster()
    _, loop = loop_of(cluster)
    ended: list[str] = []
    Beat(Absurd(cluster.world.etcd, PREFIX), lambda: [loop], cluster.world.clock.now_ms, ended.append).run()
    assert ended == ["beat: KeyError: 'ID'"]


class QuickWatch(MemoryStore):
    """etcd tells a watcher of a change before the answer of the read that came before it."""

    def get(self, key: str) -> Entry | None:
        read = super().get(key)
        if key.startswith("leaders/"):
            self.txn(Txn([], [Put(key, b"somebody")]))
            self._etcd.deliver()
        return read


def test_a_read_that_is_older_than_what_the_watch_told() -> None:
    cluster = new_cluster()
    _, loop = loop_of(cluster)
    store = QuickWatch(cluster.world.etcd, PREFIX)
    assert Beat(store, lambda: [loop], cluster.world.clock.now_ms).turn()
    entry = MemoryStore(cluster.world.etcd, PREFIX).get(loop.generations.leader_key)
    assert entry is not None and loop.key.view.epoch == entry.mod_revision


def test_a_generation_raised_before_the_first_is_read_is_looked_at() -> None:
    cluster = new_cluster()
    _, loop = loop_of(cluster)
    value = json.dumps({"generation": 2, "log_id": "log-6", "first_offset": 0}).encode()
    loop.raised(Entry(loop.generations.generation_key, value, 5, 5))
    assert loop.stale
    loop.turn()
    assert not loop.stale


@pytest.mark.parametrize("value", [b"junk", b"[]", b'{"generation":"1"}'])
def test_a_generation_that_no_build_wrote_is_waited_for_while_the_scope_runs(value: bytes) -> None:
    """It raised in the watch, and in the thread that keeps the lease: every process that hosts the scope ended."""
    cluster = new_cluster()
    process, loop = loop_of(cluster)
    cluster.run(lambda: loop.replica is not None and loop.replica.leads)
    key = loop.generations.generation_key
    entry = process.store.get(key)
    assert entry is not None
    process.store.txn(Txn([], [Put(key, value)]))
    assert Beat(process.store, lambda: [loop], cluster.world.clock.now_ms).turn(), "its process lives, with its other scopes"
    assert loop.stale
    loop.turn()
    assert loop.terms.now is None, "nothing is folded"
    process.store.txn(Txn([], [Put(key, entry.value)]))
    cluster.run(lambda: loop.replica is not None and loop.replica.leads)
    assert loop.replica is not None and loop.replica.leads, "it goes on once the key is mended"


def test_the_watch_does_not_call_off_a_rebirth() -> None:
    """The generation is being raised by this loop; the watch still tells the old one."""
    cluster = new_cluster()
    process, loop = loop_of(cluster)
    cluster.run(lambda: loop.replica is not None and loop.replica.leads)
    loop.stale = True
    loop.raised(process.store.get(loop.generations.generation_key))
    assert loop.stale


def test_ids_of_outputs_differ_between_lives() -> None:
    def id_of(life: int) -> bytes:
        headers = dict(envelope.of_output("dispatcher", life, OutboxRecord(7, "job.events", 0, "one", "JobAccepted", "{}")))
        return headers["ce_id"]

    assert (id_of(1), id_of(2)) == (b"dispatcher/1/7", b"dispatcher/2/7")


def test_a_leader_asks_kafka_nothing_while_it_leads() -> None:
    """A broker that is paused does not answer: each question would keep the loop from turning, and cost the whole process its lease."""
    cluster = new_cluster()
    process, loop = loop_of(cluster)
    cluster.run(lambda: loop.replica is not None and loop.replica.leads)
    asked: list[str] = []
    process.bus.offsets = lambda topic, partition: asked.append(topic) or (0, 0)
    cluster.run(most_ms=2_000)
    assert loop.replica is not None and loop.replica.leads and loop.replica.folded.ticks >= 2
    assert loop.topic not in asked, "but by the port of clients, which has its own thread"


def test_questions_to_kafka_leave_time_to_renew_the_lease() -> None:
    """A loop asks for a topic and then for its offsets, which may be two questions, before it turns again."""
    assert 2 * ASKED_S * 1000 < TURNED_MOST_MS < (LEASE_TTL_S - LEASE_RENEW_S) * 1000


def test_a_memory_etcd_is_what_the_beat_needs() -> None:
    """Leases end by the clock, and the beat takes another one."""
    clock = Clock()
    store = MemoryStore(MemoryEtcd(clock), PREFIX)
    loops: Callable[[], list[NotedLoop]] = list
    beat = Beat(store, loops, clock.now_ms)
    assert beat.turn()
    first = beat.lease()
    clock.advance(4_000)
    assert beat.turn()
    assert beat.lease() == first
    clock.advance(6_000)
    assert beat.turn()
    assert beat.lease() != first


def test_a_beat_that_finds_a_loop_late_looks_again_soon() -> None:
    """The process was stopped and has just been woken: its loops turn in a moment, and its lease is near its end."""
    cluster = new_cluster()
    process, loop = loop_of(cluster)
    clock = cluster.world.clock
    cluster.run(lambda: process.leads("dispatcher"))
    lease = process.beat.lease()
    clock.advance(loop.turned_ms + TURNED_MOST_MS + 1 - clock.now_ms())
    assert not process.beat.turn()
    loop.turn()
    assert process.beat.turn()
    assert process.beat.lease() == lease


class AnswerLost(MemoryStore):
    """The answer to the first write of a leader key is lost, though it was carried out; then etcd is away for one call."""

    lost = 0

    def txn(self, txn: Txn) -> TxnResult:
        result = super().txn(txn)
        if self.lost == 0 and any(isinstance(one, Put) and one.key.startswith("leaders/") for one in txn.then):
            self.lost += 1
            self.faults.append("unavailable")
            raise UnknownOutcome("the answer was lost")
        return result


def with_lost_answer(cluster: Cluster) -> NotedLoop:
    process, loop = loop_of(cluster)
    store = AnswerLost(cluster.world.etcd, PREFIX)
    process.store.txn = store.txn
    return loop


def test_a_campaign_that_was_won_without_an_answer() -> None:
    """The lease behind the key is this process's own and lives as long as it: nobody else would ever lead."""
    cluster = new_cluster()
    loop = with_lost_answer(cluster)
    cluster.run(lambda: loop.replica is not None and loop.replica.leads, most_ms=20_000)


def test_a_generation_that_was_raised_without_an_answer() -> None:
    cluster = new_cluster()
    _, loop = loop_of(cluster)
    cluster.run(lambda: loop.replica is not None and loop.replica.leads)
    cluster.run(most_ms=1_000)
    with_lost_answer(cluster)
    end = cluster.world.broker.log("dispatcher.commands", 0).end
    cluster.world.broker.truncate("dispatcher.commands", 0, end - 2)
    cluster.world.book.cut("dispatcher", end - 2)
    cluster.run(lambda: (folded := cluster.leader("dispatcher")) is not None and folded.generation == 2, most_ms=20_000)


def test_a_replica_that_hears_of_a_later_generation_follows_it() -> None:
    """A standby that was stopped while the generation was raised reads what others say to it before etcd's watch tells."""
    quiet_logs()
    cluster = Cluster(control=("dispatcher#1", "dispatcher#2", "job-master#1"), task_managers=0)
    cluster.run(lambda: all(cluster.leader(scope) is not None for scope in ("dispatcher", "job-master/0")))
    cluster.run(most_ms=3_000)
    leading = next(name for name in ("dispatcher#1", "dispatcher#2") if cluster.processes[name].leads("dispatcher"))
    standby = "dispatcher#2" if leading == "dispatcher#1" else "dispatcher#1"
    cluster.paused[standby] = None
    end = cluster.world.broker.log("dispatcher.commands", 0).end
    cluster.world.broker.truncate("dispatcher.commands", 0, end - 1)
    cluster.world.book.cut("dispatcher", end - 1)
    cluster.run(lambda: (folded := cluster.leader("dispatcher")) is not None and folded.generation == 2, most_ms=20_000)
    cluster.run(most_ms=3_000)
    _, loop = loop_of(cluster, standby)
    assert loop.replica is not None and loop.replica.folded.generation == 1
    while loop.replica.folded.generation == 1:  # its loop goes on before its watch
        assert loop.replica.folded.next_offset < cluster.world.broker.log("dispatcher.commands", 0).end or loop.stale
        loop.turn()
        assert loop.replica is not None


def test_a_damaged_log_is_given_up_also_by_who_does_not_lead_any_more() -> None:
    """The leader reads that its log was cut, and has lost its key just before: it must not lead what is left of the log."""
    cluster = new_cluster()
    _, loop = loop_of(cluster)
    cluster.run(lambda: loop.replica is not None and loop.replica.leads)
    cluster.run(most_ms=2_000)
    end = cluster.world.broker.log("dispatcher.commands", 0).end
    cluster.world.broker.truncate("dispatcher.commands", 0, end - 2)
    cluster.world.book.cut("dispatcher", end - 2)
    lease = cluster.world.etcd.entries(f"{PREFIX}leaders/")[0].lease
    cluster.world.etcd.end_lease(lease)
    epoch = loop.replica.folded.epoch if loop.replica is not None else 0
    cluster.run(lambda: (folded := cluster.leader("dispatcher")) is not None and folded.epoch > epoch, most_ms=20_000)
    folded = cluster.leader("dispatcher")
    assert folded is not None and folded.generation == 2


def test_a_leader_looks_often_for_the_acknowledgement_that_an_effect_waits_for() -> None:
    """Else an ended job is cleaned up at the next tick, beside the next submission."""
    quiet_logs()
    cluster = Cluster()
    cluster.run(cluster.ready, most_ms=20_000)
    _, loop = loop_of(cluster)
    replica, waits_ms = loop.replica, []
    assert replica is not None
    for job in ("a", "b", "c"):
        cluster.client.submit(job, workload.single(job))
        cluster.run(lambda: replica.awaits)
        waits_ms.append(loop.wakes_ms - cluster.world.clock.now_ms())
        cluster.run(lambda job=job: cluster.ended(job))
    assert max(waits_ms) <= ACKED_MS
    assert not replica.awaits
