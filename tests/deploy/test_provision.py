"""Provisioning, where etcd and Kafka do not know the same."""

from __future__ import annotations

import pytest

from deploy.provision import OtherTopology, provision
from millrace.core.topics import TOPICS, Topology
from millrace.io.kafka_admin import KafkaAdmin
from tests.simulation import Clock
from tests.simulation.bus import MemoryBroker, MemoryBus
from tests.simulation.store import MemoryEtcd, MemoryStore


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
