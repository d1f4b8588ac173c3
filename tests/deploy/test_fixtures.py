"""The fixtures that the contract and end-to-end tests stand on."""

from __future__ import annotations

import etcd3
from confluent_kafka.admin import AdminClient


def test_real_kafka_answers(real_kafka):
    metadata = AdminClient({"bootstrap.servers": real_kafka.bootstrap}).list_topics(timeout=60)
    assert len(metadata.brokers) == 1
    assert real_kafka.topic("x") not in metadata.topics


def test_real_etcd_answers(real_etcd):
    client = etcd3.client(real_etcd.host, real_etcd.port)
    client.put(real_etcd.prefix + "a", "1")
    assert client.get(real_etcd.prefix + "a")[0] == b"1"
