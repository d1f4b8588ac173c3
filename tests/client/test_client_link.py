"""What a link does while a partition has no leader; without a Kafka, whose brokers would have to die in the right instant."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from millrace.client import link
from millrace.client.errors import Unavailable
from millrace.client.link import Link

WHERE = [TopicPartition("job.events", 0), TopicPartition("job.events", 1)]


class Reader:
    """A consumer whose second partition was led by a broker that is dead: the first questions about it end unanswered."""

    def __init__(self, unanswered: int) -> None:
        self.unanswered, self.asked, self.refreshed, self.closed = unanswered, [], 0, False

    def get_watermark_offsets(self, where: TopicPartition, timeout: float) -> tuple[int, int]:
        self.asked.append((where.partition, timeout))
        if where.partition == 1 and self.unanswered:
            self.unanswered -= 1
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return 3, 10 + where.partition

    def list_topics(self, topic: str, timeout: float) -> None:
        assert topic == "job.events"
        self.refreshed += 1
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def alone() -> Link:
    found: Any = object.__new__(Link)
    found.bootstrap = "127.0.0.1:9092"
    return found


def test_a_partition_whose_broker_died_is_asked_for_again_shortly(alone, monkeypatch):
    monkeypatch.setattr(link, "TURN_S", 0)
    reader: Any = Reader(unanswered=3)
    assert alone.marks(reader, WHERE) == [(3, 10), (3, 11)]
    assert [partition for partition, _ in reader.asked] == [0, 1, 1, 1, 1]
    assert {timeout for _, timeout in reader.asked} == {link.ASK_S}  # not all the time there is, spent on one dead broker
    assert (reader.refreshed, reader.closed) == (3, False)


def test_a_partition_that_stays_without_a_leader_is_told_of(alone, monkeypatch):
    monkeypatch.setattr(link, "LEADERLESS_S", 0)
    reader: Any = Reader(unanswered=99)
    with pytest.raises(Unavailable, match=r"^Kafka at 127.0.0.1:9092 does not answer: "):
        alone.marks(reader, WHERE)
    assert reader.closed
