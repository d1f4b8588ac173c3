"""What strangers can write to client.commands: bytes are bounded as they read, and what cannot be read is found."""

from __future__ import annotations

from collections import Counter

import pytest
from confluent_kafka import Producer

from millrace.core.topics import TOPICS
from millrace.io.kafka_admin import KafkaAdmin
from services.dispatcher import trial
from tests.conftest import RealKafka

CONFIG = next(topic for topic in TOPICS if topic.name == "client.commands").config()


def write(kafka: RealKafka, topic: str, values: list[bytes]) -> Counter[str]:
    """All in one batch of gzip, as far as it takes them; what became of each."""
    became: Counter[str] = Counter()
    producer = Producer({
        "bootstrap.servers": kafka.bootstrap, "compression.type": "gzip", "linger.ms": 10_000, "message.max.bytes": 900_000_000,
        "batch.num.messages": 1_000_000, "batch.size": 900_000_000, "queue.buffering.max.messages": 1_000_000,
    })  # fmt: skip
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: became.update([error.name() if error else "taken"]))
    producer.flush(60)
    return became


def test_what_is_small_only_while_it_is_packed_is_refused_by_the_broker(real_kafka: RealKafka) -> None:
    """A gigabyte of zeros is a megabyte on its way: it ended each Dispatcher that unpacked it."""
    topic = real_kafka.topic("bounded")
    KafkaAdmin(real_kafka.bootstrap).ensure_topics([(topic, 1, CONFIG)])
    assert write(real_kafka, topic, [b"{}" * 1_000] * 10) == {"taken": 10}
    assert write(real_kafka, topic, [bytes(30 << 20)]) == {"MSG_SIZE_TOO_LARGE": 1}
    assert write(real_kafka, topic, [b"{}"] * 300_000) == {"MSG_SIZE_TOO_LARGE": 300_000}, "nor a batch of very many"


def test_a_record_that_ends_who_reads_it_is_found_by_processes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands where a topic was provisioned without the bound. The broker is librdkafka's own in memory, which takes anything."""
    producer = Producer({
        "test.mock.num.brokers": 1, "bootstrap.servers": "none", "compression.type": "gzip", "message.max.bytes": 900_000_000,
        "log_level": 0,
    })  # fmt: skip
    [broker] = producer.list_topics("t", timeout=60).brokers.values()
    for value in (b"before", bytes(150 << 20), b"behind"):
        producer.produce("t", value, partition=0)
        assert producer.flush(60) == 0
    monkeypatch.setattr(trial, "TOPIC", "t")
    found = [trial.tried(f"{broker.host}:{broker.port}", offset, 3) for offset in range(3)]
    assert [[(each.offset, each.value) for each in one.good] for one in found] == [[(0, b"before")], [], [(2, b"behind")]]
    assert [(one.bad, one.beyond) for one in found] == [(1, 1), (1, 2), (3, 3)]
