"""Faults by their names in docs/faults.md, each done by hand to a whole cluster in memory with a standby for each service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from millrace.core.topics import TOPICS
from millrace.io.interfaces import Unavailable, UnknownOutcome
from millrace.io.storage.disk_space import DiskSpace
from tests.simulation import workload
from tests.simulation.audit import assert_endings, assert_nothing_left, audit
from tests.simulation.behaviour import Behaviour
from tests.simulation.cluster import Cluster, Process
from tests.simulation.control import ControlProcess
from tests.simulation.damage import INBOXES
from tests.simulation.trial import quiet_logs
from tests.simulation.world import PREFIX

CONTROL = tuple(f"{service}#{n}" for service in ("dispatcher", "resource-manager", "job-master") for n in (1, 2))
LEASE_MS = 5_000
HELD = "held"
"""A job whose one attempt runs until it is canceled."""


def held_hangs(spec: dict[str, Any]) -> Behaviour:
    return Behaviour("hang" if spec["job"] == HELD else "finish")


@pytest.fixture
def cluster() -> Cluster:
    """At rest but for one attempt that runs on."""
    quiet_logs()
    cluster = Cluster(task_managers=2, slots=2, seed=5, control=CONTROL, script=held_hangs)
    workload.upload_module(cluster.world)
    cluster.run(cluster.ready, most_ms=20_000)
    cluster.client.submit(HELD, workload.single(HELD))
    cluster.run(lambda: bool(cluster.world.book.living))
    return cluster


def witness(cluster: Cluster) -> dict[str, object]:
    """What nobody may be blamed for: leaders, TaskManagers, attempts."""
    leaders = {each.key: each.mod_revision for each in cluster.world.etcd.entries(f"{PREFIX}leaders/")}
    gone = [each for each in cluster.world.broker.log("cluster.events", 0).records if b"TaskManagerGone" in each.value]
    return {"leaders": leaders, "lost": len(gone), "held": [each for each in cluster.world.book.launched if HELD in each]}


def elections(cluster: Cluster) -> dict[str, int]:
    """Scope -> how often its leader key was taken so far."""
    found: dict[str, int] = {}
    for _, key, value in cluster.world.etcd.history:
        if key.startswith(f"{PREFIX}leaders/") and value is not None:
            found[key] = found.get(key, 0) + 1
    return found


def all_end(cluster: Cluster, *jobs: str, most_ms: int = 60_000) -> None:
    """The jobs end, then the one that is held, and nothing is left."""
    cluster.run(lambda: cluster.ended(*jobs), most_ms=most_ms)
    cluster.client.cancel(HELD)
    cluster.run(lambda: cluster.ended(HELD), most_ms=most_ms)
    cluster.run(cluster.ready, most_ms=20_000)
    cluster.run(most_ms=3_000)


def submit(cluster: Cluster, *jobs: str) -> None:
    for job in jobs:
        cluster.client.submit(job, workload.single(job))


def leading(cluster: Cluster, scope: str) -> str:
    for name, process in cluster.processes.items():
        if isinstance(process, ControlProcess) and process.leads(scope) and name not in cluster.paused:
            return name
    raise AssertionError(f"nobody leads {scope}")


def test_f1_a_leader_that_was_stopped_for_three_leases_changes_nothing_when_it_wakes(cluster: Cluster) -> None:
    """Stopped with requests taken and not stored; its successor stores them. All that it then tries to write is refused."""
    zombie = leading(cluster, "dispatcher")
    process = cluster.processes[zombie]
    submit(cluster, "one", "two", "three")
    cluster.run(lambda: bool(cluster.leader("dispatcher").effects))
    cluster.paused[zombie] = None
    submit(cluster, *(f"later-{n}" for n in range(5)))
    cluster.run(most_ms=3 * LEASE_MS)
    assert leading(cluster, "dispatcher") != zombie and isinstance(process, ControlProcess) and process.leads("dispatcher")
    written = [writer for writer, _, _ in cluster.world.etcd.writes].count(zombie)
    cluster.paused.pop(zombie)
    cluster.run(most_ms=2_000)
    assert [writer for writer, _, _ in cluster.world.etcd.writes].count(zombie) == written, "a write of it was taken"
    assert process.alive and not process.leads("dispatcher"), "it steps down, and stays as a standby"
    all_end(cluster, "one", "two", "three", *(f"later-{n}" for n in range(5)))
    audit(cluster)


def test_f3_of_records_a_fifth_comes_twice(cluster: Cluster) -> None:
    broker, chance, seen = cluster.world.broker, cluster.world.random, [0]

    def repeat() -> None:
        new = broker.journal[seen[0] :]
        seen[0] = len(broker.journal)
        for each in new:
            if each.topic in INBOXES and chance.random() < 0.2:
                broker.repeat(each.topic, each.partition, each.offset)
        seen[0] = len(broker.journal)

    jobs = [f"job-{n}" for n in range(10)]
    cluster.world.book.asked_again = True
    cluster.between = repeat
    for job in jobs:
        cluster.client.submit(job, workload.wide(job))
    cluster.run(lambda: cluster.ended(*jobs))
    cluster.between = None
    all_end(cluster)
    audit(cluster)
    launched = [name for name in cluster.world.book.launched if HELD not in name]
    assert len(launched) == len(jobs) * (1 + 4 + 2), "a plan, four shares, two sums: each once"


def test_f4_the_whole_of_every_old_topic_played_again_has_no_effect(cluster: Cluster) -> None:
    jobs = [f"job-{n}" for n in range(5)]
    submit(cluster, *jobs)
    all_end(cluster, *jobs)
    world = cluster.world
    launched, etcd = list(world.book.launched), [each for each in world.etcd.history if "/jobs/" in each[1]]
    for topic in TOPICS:
        if topic.name in INBOXES:
            for partition in range(topic.count(world.topology)):
                for offset in range(world.broker.log(topic.name, partition).end):
                    world.broker.repeat(topic.name, partition, offset)
    world.book.asked_again = True
    cluster.run(most_ms=10_000)
    assert list(world.book.launched) == launched
    assert [each for each in world.etcd.history if "/jobs/" in each[1]] == etcd
    audit(cluster)


def test_f6_a_lease_that_is_revoked_every_five_seconds_costs_at_most_one_failover_each(cluster: Cluster) -> None:
    before, jobs, revoked = elections(cluster), [], {}
    for number in range(6):
        scope = ("dispatcher", "resource-manager", "job-master/0")[number % 3]
        entry = cluster.world.etcd.entry(f"{PREFIX}leaders/{scope}")
        assert entry is not None
        cluster.world.etcd.end_lease(entry.lease)
        revoked[f"{PREFIX}leaders/{scope}"] = revoked.get(f"{PREFIX}leaders/{scope}", 0) + 1
        jobs.append(f"job-{number}")
        submit(cluster, jobs[-1])
        cluster.run(most_ms=5_000)
    after = elections(cluster)
    assert all(after[key] - before[key] <= count for key, count in revoked.items()), (before, after)
    all_end(cluster, *jobs)
    audit(cluster)


def test_f7_etcd_away_for_a_minute(cluster: Cluster) -> None:
    """What runs goes on, leaders stay; a submission waits and is accepted when etcd is back."""
    before = witness(cluster)
    cluster.world.etcd.pause()
    submit(cluster, "meanwhile")
    cluster.run(most_ms=60_000)
    assert cluster.stored("meanwhile") is None and cluster.client.events("meanwhile") == []
    cluster.world.etcd.resume()
    cluster.run(lambda: cluster.stored("meanwhile") is not None, most_ms=3_000)
    cluster.run(most_ms=10_000)
    assert witness(cluster) == before
    all_end(cluster, "meanwhile")
    audit(cluster)


def test_f8_watches_lost_every_second_and_one_process_that_is_told_nothing_for_a_minute(cluster: Cluster) -> None:
    deaf, jobs = "dispatcher#2", [f"job-{n}" for n in range(10)]
    for number, job in enumerate(jobs):
        cluster.world.etcd.lose_watches()
        for watch in cluster.world.etcd.watches_of(cluster.processes[deaf].store):
            watch.over = True  # it stays open, and tells nothing
        submit(cluster, job)
        if number == 5:
            cluster.kill(leading(cluster, "resource-manager"))
        cluster.run(most_ms=1_000)
    cluster.run(most_ms=50_000)
    cluster.world.etcd.lose_watches()
    for name, process in list(cluster.processes.items()):
        if not process.alive:
            cluster.start(name)
    all_end(cluster, *jobs)
    audit(cluster)


@pytest.mark.parametrize("hours", [(1, -1), (-1, 1)], ids=["on, then back", "back, then on"])
def test_f9_the_brokers_clock_is_set_by_an_hour(cluster: Cluster, hours: tuple[int, int]) -> None:
    before = witness(cluster)
    for hour in hours:
        cluster.world.broker.skew_ms += hour * 3_600_000
        cluster.run(most_ms=10_000)
    assert witness(cluster) == before
    submit(cluster, "after")
    all_end(cluster, "after")
    audit(cluster)


@pytest.mark.parametrize("percent", [10, -10])
def test_f9_the_brokers_clock_drifts(cluster: Cluster, percent: int) -> None:
    before, start_ms = witness(cluster), cluster.world.clock.now_ms()

    def drift() -> None:
        cluster.world.broker.skew_ms = (cluster.world.clock.now_ms() - start_ms) * percent // 100

    cluster.between = drift
    submit(cluster, "drifting")
    cluster.run(most_ms=30_000)
    assert witness(cluster) == before
    all_end(cluster, "drifting")
    audit(cluster)


def test_f9_the_whole_machine_is_suspended(cluster: Cluster) -> None:
    """A laptop that sleeps: every clock goes on, nobody does. Attempts end when their slots heard nothing for that long, and run again."""
    cluster.world.etcd.pause()
    cluster.world.clock.advance(3_600_000)
    cluster.world.etcd.resume()
    submit(cluster, "after")
    cluster.run(lambda: cluster.ended("after"), most_ms=20_000)
    all_end(cluster, "after")
    audit(cluster)


def test_f10_every_inbox_loses_its_end_at_once(cluster: Cluster) -> None:
    """Each scope begins a new generation; every accepted job still ends once."""
    jobs = [f"job-{n}" for n in range(8)]
    submit(cluster, *jobs)
    cluster.run(lambda: all(cluster.stored(job) is not None for job in jobs))
    world = cluster.world
    for scope in world.topology.scopes():
        topic, partition = world.topology.inbox(scope)
        end = world.broker.log(topic, partition).end - 20
        world.broker.truncate(topic, partition, end)
        world.book.cut(scope, end)
    all_end(cluster, *jobs, most_ms=120_000)
    assert_endings(cluster)
    assert_nothing_left(cluster)
    generations = world.etcd.entries(f"{PREFIX}generations/")
    assert all(b'"generation": 1,' not in each.value and b'"generation":1,' not in each.value for each in generations)


def test_f11_the_broker_paused_for_a_minute_ages_nobody(cluster: Cluster) -> None:
    before = witness(cluster)
    cluster.world.broker.pause()
    cluster.run(most_ms=60_000)
    cluster.world.broker.resume()
    submit(cluster, "after")
    cluster.run(lambda: cluster.stored("after") is not None, most_ms=2_000)
    cluster.run(most_ms=10_000)
    assert witness(cluster) == before
    all_end(cluster, "after")
    audit(cluster)


def test_f12_a_disk_that_is_nearly_full_costs_what_is_new_alone(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> None:
    """Submissions are told to come again, what was accepted goes on to its end, and when there is room all is as before."""
    submit(cluster, "before")
    cluster.run(lambda: cluster.stored("before") is not None, most_ms=2_000)
    before = witness(cluster)
    with monkeypatch.context() as full:
        full.setattr(DiskSpace, "shortage", lambda room: "the disk is nearly full")
        asked = [cluster.client.submit(job, workload.single(job)) for job in ("new", "before")]
        cluster.run(lambda: set(asked) <= set(cluster.client.replies()), most_ms=2_000)
        [refused], [known] = (cluster.client.replies()[each] for each in asked)
        assert (refused.type, refused.kind, refused.reason) == ("JobRejected", "busy", "the disk is nearly full")
        assert known.type == "JobAcceptedReply"
        cluster.run(lambda: cluster.ended("before"), most_ms=20_000)
        assert cluster.stored("new") is None
    submit(cluster, "new")
    cluster.run(lambda: cluster.ended("new"), most_ms=20_000)
    assert witness(cluster) == before
    all_end(cluster, "before", "new")
    audit(cluster)


WAYS = ("Kafka does not hear it", "it does not hear Kafka", "etcd does not hear it", "it does not hear etcd")


PARTIES = ("dispatcher", "resource-manager", "job-master/0", "task-manager/1")
CUT = [
    pytest.param(party, way, marks=[] if (at + which) % 2 else pytest.mark.long)  # each party by half of the ways, each way of half of them
    for at, party in enumerate(PARTIES)
    for which, way in enumerate(WAYS)
]


@pytest.mark.parametrize(("party", "way"), CUT)
def test_f17_whoever_is_cut_off_one_way_heals(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, party: str, way: str
) -> None:
    process = cluster.processes[party if party.startswith("task-manager") else leading(cluster, party)]
    with monkeypatch.context() as patch:
        cut(patch, cluster, process, way)
        submit(cluster, "meanwhile")
        cluster.run(most_ms=4 * LEASE_MS)
    all_end(cluster, "meanwhile")
    audit(cluster)


def test_f17_a_task_manager_that_kafka_alone_hears_lives(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> None:
    before = witness(cluster)
    with monkeypatch.context() as patch:
        cut(patch, cluster, cluster.processes["task-manager/1"], "etcd does not hear it")
        cluster.run(most_ms=4 * LEASE_MS)
    assert witness(cluster) == before


@pytest.mark.parametrize("later_ms", [0, 50])
def test_f17_a_task_manager_that_is_wholly_cut_off_has_ended_when_its_tasks_start_elsewhere(cluster: Cluster, later_ms: int) -> None:
    """Wherever between two heartbeats that begins."""
    cluster.run(most_ms=1_000 + later_ms)
    [living] = cluster.world.book.living.values()
    process = cluster.processes[f"task-manager/{living.task_manager.partition('.')[0]}"]
    process.bus.cut_off = process.store.cut_off = True
    cluster.run(lambda: len(cluster.world.book.launched) == 2, most_ms=2_000)


def cut(patch: pytest.MonkeyPatch, cluster: Cluster, process: Process, way: str) -> None:
    """One way of four between a process and the two that it talks to."""
    if way == "Kafka does not hear it":
        patch.setattr(process.bus, "mute", True)
        cluster.world.book.unheard[process.name.partition("/")[2]] = None
    elif way == "it does not hear Kafka":
        patch.setattr(process.bus, "deaf", True)
    elif way == "etcd does not hear it":
        patch.setattr(process.store, "cut_off", True)
    else:
        patch.setattr(process.store, "_call", answerless(process.store._call))


def answerless(call: Callable[..., Any]) -> Callable[..., Any]:
    """What is asked is carried out, and no answer comes."""

    def ask(asked: Callable[..., Any], *, changes: bool = False) -> Any:
        call(asked, changes=changes)
        raise (UnknownOutcome if changes else Unavailable)("no answer came")

    return ask


def test_f21_a_session_with_a_hole_is_seen_and_loses_nothing(cluster: Cluster) -> None:
    """Kafka refuses one record for ever and takes those behind it: its process ends, and its successor says all again."""
    jobs = [f"job-{n}" for n in range(6)]
    holed: list[str] = []

    def hole() -> None:
        for name, process in cluster.processes.items():
            fit = len(holed) < 3 and name not in holed and process.alive and len(process.bus.queued()) > 1
            if fit and process.bus.lose_one() is not None:
                holed.append(name)

    cluster.between = hole
    submit(cluster, *jobs)
    cluster.run(lambda: len(holed) == 3)
    cluster.between = None
    all_end(cluster, *jobs)
    audit(cluster)


@pytest.mark.parametrize("dispatchers", ["live", "down", "reborn"])
def test_f27_requests_that_come_where_their_log_has_lost_its_end_are_carried_out(cluster: Cluster, dispatchers: str) -> None:
    """They were never read: no answer, no dead letter. `down`: the log is longer again than it was when somebody looks at it. `reborn`: the
    Dispatcher's own log loses its end, too."""
    before = [f"before-{n}" for n in range(6)]
    submit(cluster, *before)
    cluster.run(lambda: cluster.ended(*before))
    cluster.run(most_ms=2_000)
    for _ in range(3):
        cluster.client.cancel("nobody")  # with them the port notes that all before are decided
        cluster.run(most_ms=2_000)
    log, names = cluster.world.broker.log("client.commands", 0), [each for each in CONTROL if each.startswith("dispatcher")]
    if dispatchers == "down":
        for name in names:
            cluster.kill(name)
    if dispatchers == "reborn":
        topic, partition = cluster.world.topology.inbox("dispatcher")
        end = cluster.world.broker.log(topic, partition).end - 20
        cluster.world.broker.truncate(topic, partition, end)
        cluster.world.book.cut("dispatcher", end)
    cluster.world.broker.truncate("client.commands", 0, log.end - 6)
    after = [f"after-{n}" for n in range({"live": 3, "down": 9, "reborn": 2}[dispatchers])]
    asked = {job: cluster.client.submit(job, workload.single(job)) for job in after}
    cluster.run(most_ms=8_000)
    if dispatchers == "down":
        for name in names:
            cluster.start(name)
    cluster.run(lambda: set(asked.values()) <= set(cluster.client.replies()), most_ms=40_000)
    end = log.end
    all_end(cluster, *after)
    assert_endings(cluster)
    accepted = [each for each in cluster.world.broker.journal if b'"JobAccepted"' in each.value and b"before" in each.value]
    assert len(accepted) == len(before), "none is carried out twice"
    folded = [loop.replica.folded for name in names for loop in cluster.processes[name].loops]
    assert len(folded) == 2 and {each.client_log for each in folded} == {f"{cluster.world.broker.log_id('client.commands')}:1"}
    assert {each.client_mark for each in folded} == {end}, "the cancel is the last"
