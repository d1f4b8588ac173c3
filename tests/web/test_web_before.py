"""Up to where an earlier process of the web service read; without a Kafka, whose coordinator would have to move in the right instant."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from millrace.core.topics import Topology
from millrace.io.interfaces import Unavailable
from services.web import worker

TOPOLOGY = Topology(job_event_partitions=2)


class Answer:
    def __init__(self, topic: str, partition: int, offset: int, error: KafkaError | None = None) -> None:
        self.topic, self.partition, self.offset, self.error = topic, partition, offset, error


def answering(monkeypatch: pytest.MonkeyPatch, *answers: Answer) -> None:
    class Asked:
        def __init__(self, config: dict[str, Any]) -> None: ...

        def committed(self, places: list[Any], timeout: float) -> list[Answer]:
            assert [(each.topic, each.partition) for each in places] == worker.places(TOPOLOGY)
            return list(answers)

        def close(self) -> None: ...

    monkeypatch.setattr(worker, "Consumer", Asked)


def test_what_was_never_read_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, Answer("job.events", 0, 7), Answer("job.events", 1, -1001), Answer("cluster.events", 0, 3))
    assert worker.read_before("k:1", TOPOLOGY) == {"job.events": {0: 7}, "cluster.events": {0: 3}}


def test_a_partition_that_is_refused_is_not_taken_for_one_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
    answering(monkeypatch, Answer("job.events", 0, 7), Answer("job.events", 1, -1001, refused), Answer("cluster.events", 0, 3))
    with pytest.raises(Unavailable, match="does not say up to where was read"):
        worker.read_before("k:1", TOPOLOGY)
