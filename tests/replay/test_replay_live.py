"""A live cluster as a source, over Kafka, etcd and storage in memory; tests/end_to_end/test_replay.py has the real ones."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deploy.cli.replay_shown import Filter
from millrace.io.interfaces import OffsetGone, Put, Txn
from services.replay.core.recorded import BadLog, Log, title
from services.replay.exporting import export
from services.replay.live import Live
from services.replay.replaying import At, open_file, state_at, story_of, verify
from tests.replay.conftest import silent
from tests.replay.simulated import Simulated
from tests.simulation import workload
from tests.simulation.bus import MemoryBroker
from tests.simulation.cluster import Cluster
from tests.simulation.store import MemoryStore
from tests.simulation.world import PREFIX


class KafkaInMemory:
    """What `Live` asks of `KafkaLogs`."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker, self.log_id = broker, broker.log_id

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        log = self._broker.find(topic, partition)
        return log.first, log.end

    def offset_at(self, topic: str, partition: int, stamp_ms: int) -> int:
        log = self._broker.find(topic, partition)
        return next((each.offset for each in log.records if each.stamp_ms >= stamp_ms), log.end)

    def reader(self, topic: str, partition: int, offset: int) -> Any:
        return SimpleNamespace(scan=self._scanner(topic, partition, offset), close=lambda: None)

    def _scanner(self, topic: str, partition: int, offset: int) -> Any:
        place = offset

        def scan(timeout_ms: int, most: int) -> list[Any]:
            nonlocal place
            log = self._broker.find(topic, partition)
            if place < log.first:
                raise OffsetGone(topic, partition, place, log.first, log.end)
            messages = [_message(each) for each in log.records[place - log.first :][:most]]
            place += len(messages)
            return messages

        return scan


def _message(each: Any) -> Any:
    return SimpleNamespace(
        offset=lambda: each.offset, timestamp=lambda: (1, each.stamp_ms), key=lambda: each.key, value=lambda: each.value,
        headers=lambda: list(each.headers),
    )  # fmt: skip


def source_of(cluster: Cluster, with_storage: bool = True) -> Live:
    world = cluster.world
    store = MemoryStore(world.etcd, PREFIX, "replay")
    store.txn(Txn((), [Put("topology", json.dumps(asdict(world.topology)).encode())]))
    return Live(KafkaInMemory(world.broker), store, world.storage if with_storage else None, "simulated")


@pytest.fixture
def live(cluster: Cluster) -> Live:
    return source_of(cluster)


def test_it_gives_what_the_cluster_has(live: Live, cluster: Cluster) -> None:
    simulated = Simulated(cluster)
    assert live.facts == simulated.facts and live.logs() == simulated.logs()
    for log in live.logs():
        assert list(live.read(log, log.first)) == list(simulated.read(log, log.first))
        assert [each._replace(id="") for each in simulated.read(log, 3)] == list(live.read(log, 3, ids=False))
    events = next(log for log in live.logs() if log.topic == "job.events" and log.end)
    found = list(live.scan([events], lambda: [b"RUNNING"]))
    assert found == [each for each in simulated.read(events, 0) if b"RUNNING" in each.value] and found
    assert live.offset_at(events, found[0].stamp_ms) <= found[0].offset
    assert verify(live, None, silent).difference is None


def test_records_deleted_while_they_are_read_are_told(live: Live) -> None:
    log = live.logs()[-1]
    with pytest.raises(BadLog, match="has lost offset -1 while it was read: it has 0 to"):
        list(live.read(Log(log.topic, log.partition, log.log_id, -1, log.end), -1))


def busy() -> Cluster:
    """With snapshots."""
    cluster = Cluster(task_managers=1, slots=2, seed=3, snapshot_records=20)
    cluster.run(cluster.ready)
    for number in range(6):
        cluster.client.submit(f"job-{number}", workload.single())
    cluster.run(lambda: cluster.ended(*(f"job-{number}" for number in range(6))))
    cluster.run(cluster.at_rest)
    return cluster


def test_a_log_that_is_shortened_while_it_is_read_is_read_again_from_where_it_begins(tmp_path: Path) -> None:
    """Below a new snapshot its leader deletes it, of a living cluster at any moment."""
    cluster = busy()
    cluster = busy()
    whole = state_at(source_of(cluster), "dispatcher", At(), silent)
    log = cluster.world.broker.find("dispatcher.commands", 0)
    records, first = log.records, log.first
    for what, do in {
        "verify": lambda live: verify(live, None, silent).difference is None,
        "state": lambda live: state_at(live, "dispatcher", At(), silent) == whole,
        "story": lambda live: story_of(live, "job-5", silent).status == "FINISHED",
        "export": lambda live: export(live, tmp_path / "export.zip", None, False, silent).unfolded == [],
    }.items():
        log.records, log.first = records, first
        live = source_of(cluster)
        snapshot = live.snapshots(live.facts.scope("dispatcher"))[0]
        assert live.logs() and first < snapshot
        log.records, log.first = records[snapshot - first :], snapshot
        assert do(live), what
    assert verify(open_file(tmp_path / "export.zip"), None, silent).difference is None


def test_what_one_cluster_stores_is_not_anothers(cluster: Cluster) -> None:
    """Both are in this interpreter."""
    stored, none = source_of(busy()), source_of(cluster)
    assert stored.snapshots(stored.facts.scope("dispatcher"))
    assert none.snapshots(none.facts.scope("dispatcher")) == []


def test_snapshots_are_used_and_checked() -> None:
    cluster = busy()
    live, bare = source_of(cluster), source_of(cluster, with_storage=False)
    scope = live.facts.scope("dispatcher")
    assert len(live.snapshots(scope)) == 2 and bare.snapshots(scope) == []
    assert state_at(live, "dispatcher", At(), silent) == state_at(bare, "dispatcher", At(), silent)
    assert verify(live, None, silent).difference is None
    cluster.world.storage.put_new("snapshots/dispatcher/1-30-bad.jsonl.zst", b"torn")
    with pytest.raises(BadLog, match=r"the snapshot snapshots/dispatcher/1-30-bad.jsonl.zst is damaged, or another build wrote it"):
        state_at(live, "dispatcher", At(30), silent)


def test_what_is_written_later_is_followed_in_order() -> None:
    cluster = Cluster(task_managers=1, slots=2, seed=4)
    cluster.run(cluster.ready)
    live = source_of(cluster)
    followed: Iterator[Any] = live.follow()
    before = {(log.topic, log.partition): log.end for log in live.logs()}
    cluster.client.submit("followed", workload.single())
    cluster.run(lambda: cluster.ended("followed"))
    found = list(itertools.islice(followed, 20))
    assert all(each.offset >= before[each.topic, each.partition] for each in found)
    assert "client.commands" in {each.topic for each in found}


def test_of_one_job_all_that_its_story_tells_is_followed_and_nothing_of_others() -> None:
    cluster = Cluster(task_managers=1, slots=2, seed=4)
    cluster.run(cluster.ready)
    followed = iter(Filter(source_of(cluster), None, "followed", None, None, None, everything=False).records(None, follow=True))
    for job in ("other", "followed"):
        cluster.client.submit(job, workload.single())
    cluster.run(lambda: cluster.ended("followed", "other"))
    told = Filter(source_of(cluster), None, "followed", None, None, None, everything=False).records(None, follow=False)
    expected = [each for each in told if title(each).type != "Elected"]  # they were elected before
    assert len(expected) > 20
    assert set(itertools.islice(followed, len(expected))) == set(expected)


def test_of_a_job_that_runs_all_the_rest_of_its_story_is_followed() -> None:
    """Records that name nothing but a slot's allocation, which was given before, among it."""
    cluster = Cluster(task_managers=1, slots=2, seed=4)
    cluster.run(cluster.ready)
    cluster.client.submit("followed", workload.single())
    cluster.run(lambda: bool(cluster.world.book.living))
    shown = iter(Filter(source_of(cluster), None, "followed", None, None, None, everything=False).records(None, follow=True))
    cluster.run(lambda: cluster.ended("followed"))
    cluster.run(most_ms=500)
    told = set(Filter(source_of(cluster), None, "followed", None, None, None, everything=False).records(None, follow=False))
    assert "SlotFreed" in {title(each).type for each in told}
    assert set(itertools.islice(shown, len(told))) == told
