"""A broker that was paused for longer than its session (a suspended laptop) leads its partitions in a new epoch."""

from __future__ import annotations

import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from deploy.local.kafka import KafkaBroker
from millrace.io.kafka import client
from millrace.io.kafka.admin import KafkaAdmin
from millrace.io.kafka.bus import KafkaBus
from tests.conftest import RealKafka
from tests.contract.conftest import asked, eventually

SESSION_S = 1.5  # see deploy.local.kafka


def test_offsets_are_told_after_a_pause(tmp_path: Path) -> None:
    with KafkaBroker(tmp_path) as broker:
        admin = KafkaAdmin(broker.bootstrap)
        admin.ensure_topics([("inbox", 1, {})])
        bus = KafkaBus(broker.bootstrap, client_id="test", on_fatal=pytest.fail)
        bus.append("inbox", 0, b"1")
        eventually(lambda: bus.flush(100) == 0, "the record in Kafka")
        reader = bus.reader("inbox", 0, 0)
        eventually(lambda: len(reader.poll(100)) == 1, "the record")
        assert asked(lambda: admin.offsets("inbox", 0)) == asked(lambda: bus.offsets("inbox", 0)) == (0, 1)

        process = psutil.Process(broker.child.pid)
        process.suspend()
        time.sleep(SESSION_S * 1.5)  # what is tested, not a wait
        process.resume()

        def led() -> bool:
            try:
                other = AdminClient({"bootstrap.servers": broker.bootstrap})  # one that remembers nothing
                found = other.describe_topics(TopicCollection(["inbox"]), request_timeout=2)["inbox"].result()
            except KafkaException:
                return False
            return found.partitions[0].leader is not None

        eventually(led, "a leader")
        bus.append("inbox", 0, b"2")
        eventually(lambda: bus.flush(100) == 0, "the second record in Kafka")
        eventually(lambda: len(reader.poll(100)) == 1, "the second record")
        assert asked(lambda: bus.offsets("inbox", 0)) == asked(lambda: admin.offsets("inbox", 0)) == (0, 2)
        asked(lambda: bus.delete_below("inbox", 0, 1))
        assert asked(lambda: bus.offsets("inbox", 0)) == asked(lambda: admin.offsets("inbox", 0)) == (1, 2)
        reader.close()
        bus.close()


def test_a_new_client_is_asked_for_offsets_when_it_has_a_broker(real_kafka: RealKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, one of a hundred missed that its connection came up, and answered three seconds later."""
    connected: list[bool] = []

    class Noted(client.AdminClient):
        has_broker: Future[Any]

        def describe_cluster(self, **options: Any) -> Future[Any]:
            self.has_broker = super().describe_cluster(**options)
            return self.has_broker

        def list_offsets(self, *where: Any, **options: Any) -> Any:
            connected.append(self.has_broker.done())
            return super().list_offsets(*where, **options)

    topic = real_kafka.topic("asked")
    KafkaAdmin(real_kafka.bootstrap).ensure_topics([(topic, 1, {})])
    monkeypatch.setattr("millrace.io.kafka.admin.AdminClient", Noted)
    admin = KafkaAdmin(real_kafka.bootstrap)
    assert [admin.end(topic, 0), admin.end(topic, 0)] == [0, 0] and connected == [True, True]
