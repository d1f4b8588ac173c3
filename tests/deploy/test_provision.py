"""Provisioning, where etcd and Kafka do not know the same."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from deploy.provision import OtherTopology, provision
from millrace.core.messages.client import ShutDown
from millrace.core.topics import TOPICS, Topology
from millrace.io.interfaces import Delete, Put, Txn
from millrace.io.kafka.admin import KafkaAdmin
from millrace.runtime import shut_down
from millrace.runtime.identity import StillRuns, of_store
from millrace.runtime.snapshots import Pointer
from tests.simulation import Clock
from tests.simulation.bus import MemoryBroker, MemoryBus
from tests.simulation.store import MemoryEtcd, MemoryStore


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> tuple[KafkaAdmin, MemoryStore]:
    """Kafka and etcd of a cluster that 0.1.0 has made: topics and a topology, and no identity."""
    there = {topic.name: topic.count(Topology()) for topic in TOPICS}
    clock = Clock()
    admin, store, broker = KafkaAdmin("127.0.0.1:1"), MemoryStore(MemoryEtcd(clock), "/millrace/default/"), MemoryBroker(clock)
    broker.ensure_topics((name, count, {}) for name, count in there.items())
    monkeypatch.setattr("deploy.provision.bus_of", lambda admin: MemoryBus(broker, client_id="p", on_fatal=pytest.fail))
    monkeypatch.setattr(admin, "_partitions", lambda: there)
    monkeypatch.setattr(admin, "_alter", lambda configs: [])
    store.txn(Txn([], [Put("topology", json.dumps(asdict(Topology())).encode())]))
    return admin, store


def test_a_cluster_of_0_1_0_gets_its_identity_only_when_nobody_leads_it(cluster: tuple[KafkaAdmin, MemoryStore]) -> None:
    """New services led beside the old ones, which ended at each word that they did not know."""
    admin, store = cluster
    store.txn(Txn([], [Put("leaders/dispatcher", b"d1"), Put("leaders/job-master/0", b"j1")]))
    with pytest.raises(StillRuns, match="0.1.0, and dispatcher, job-master/0 are led still: end all its control services by SIGTERM, run"):
        provision(admin, store, Topology())
    assert of_store(store) == "", "new services wait for it"
    store.txn(Txn([], [Delete("leaders/dispatcher"), Delete("leaders/job-master/0")]))
    ended, killed = (Pointer(1, 20, "ab" * 32, "0.1.0", final=final).value() for final in (True, False))
    store.txn(Txn([], [Put("snapshots/dispatcher", ended), *(Put(f"generations/{each}", b"1") for each in ("dispatcher", "job-master/0"))]))
    for put in ([], [Put("snapshots/job-master/0", killed)]):  # before its first snapshot, and later
        store.txn(Txn([], put))
        with pytest.raises(StillRuns, match="the leader of job-master/0 was killed: start 0.1.0 once more, end it by SIGTERM, and run"):
            provision(admin, store, Topology())
    assert of_store(store) == ""
    store.txn(Txn([], [Put("snapshots/job-master/0", ended)]))
    provision(admin, store, Topology())
    assert len(of_store(store)) == 32
    store.txn(Txn([], [Put("leaders/dispatcher", b"d2"), Put("snapshots/job-master/0", killed)]))
    assert provision(admin, store, Topology()) == [], "a cluster that has an identity is provisioned while it runs"


def test_an_etcd_that_lost_its_data_is_not_told_other_counts_than_the_logs_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are fixed for the cluster's life: whoever forgot `--shards` could not take it back."""
    there = {topic.name: topic.count(Topology(shards=2)) for topic in TOPICS}
    clock = Clock()
    admin, store, broker = KafkaAdmin("127.0.0.1:1"), MemoryStore(MemoryEtcd(clock), "/millrace/default/"), MemoryBroker(clock)
    broker.ensure_topics((name, count, {}) for name, count in there.items())
    monkeypatch.setattr("deploy.provision.bus_of", lambda admin: MemoryBus(broker, client_id="p", on_fatal=pytest.fail))
    monkeypatch.setattr(admin, "_partitions", lambda: there)
    monkeypatch.setattr(admin, "_alter", lambda configs: [])
    with pytest.raises(ValueError, match="job-master.commands has 2 partitions and not 1"):
        provision(admin, store, Topology())
    assert store.get("topology") is None
    assert len(provision(admin, store, Topology(shards=2))) == 1
    with pytest.raises(OtherTopology, match="the cluster has .*'shards': 2"):
        provision(admin, store, Topology())


def test_a_cluster_that_is_shut_down_is_opened_again(cluster: tuple[KafkaAdmin, MemoryStore]) -> None:
    admin, store = cluster
    provision(admin, store, Topology())
    seen = ShutDown(step="ENDING", since_ms=1, live=1, suspended=1, workers=0)
    store.txn(Txn([], [Put(shut_down.KEY, shut_down.Ended(name="1.7", shut_down=seen).value())]))
    assert provision(admin, store, Topology()) == ["opened again; the cluster was shut down: 1 job kept, 1 suspended"]
    assert (store.get(shut_down.KEY), shut_down.name_of_last(store)) == (None, "1.7")
    assert provision(admin, store, Topology()) == []
