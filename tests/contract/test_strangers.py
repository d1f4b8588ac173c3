"""What strangers can write to client.commands: bytes are bounded as they read, and what cannot be read is found."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from millrace.core.topics import TOPICS
from millrace.io.interfaces import Received
from millrace.io.kafka.admin import KafkaAdmin
from services.dispatcher import trial
from services.dispatcher.trial import Inconclusive, Read, Unreadable
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


@dataclass
class Mock:
    """librdkafka's own broker in memory, which takes anything: a topic that was provisioned without the bound."""

    producer: Producer
    bootstrap: str

    def batch(self, *values: bytes) -> None:
        for value in values:
            self.producer.produce("t", value, partition=0, timestamp=STAMP_MS)
        assert self.producer.flush(60) == 0

    def tried(self, offset: int, end: int) -> trial.Tried:
        return trial.tried(self.bootstrap, offset, end, threading.Event())


@pytest.fixture
def mock(monkeypatch: pytest.MonkeyPatch) -> Mock:
    producer = Producer({
        "test.mock.num.brokers": 1, "bootstrap.servers": "none", "compression.type": "gzip", "message.max.bytes": 900_000_000,
        "linger.ms": 500, "log_level": 0,
    })  # fmt: skip
    [broker] = producer.list_topics("t", timeout=60).brokers.values()
    monkeypatch.setattr(trial, "TOPIC", "t")
    return Mock(producer, f"{broker.host}:{broker.port}")


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where each process of a trial began."""
    began: list[int] = []
    run = trial._run

    def counted(bootstrap: str, offset: int, *rest: Any) -> Any:
        began.append(offset)
        return run(bootstrap, offset, *rest)

    monkeypatch.setattr(trial, "_run", counted)
    return began


BOMB = bytes(150 << 20)
STAMP_MS = 1_700_000_000_000


def test_a_record_that_ends_who_reads_it_is_found_by_processes_of_their_own(mock: Mock, processes: list[int]) -> None:
    for value in (b"before", BOMB, b"behind"):
        mock.batch(value)
    before, between, behind = (mock.tried(offset, 3) for offset in range(3))
    assert isinstance(before, Read) and isinstance(behind, Read)
    found = before.records + behind.records
    assert [(each.offset, each.value, each.stamp_ms) for each in found] == [(0, b"before", STAMP_MS), (2, b"behind", STAMP_MS)]
    assert (before.behind, between, behind.behind) == (1, Unreadable(1, 2), 3)
    assert processes == [0, 1, 1, 2, 2], "it ends two, and the one behind it is read before that counts"


def test_a_record_at_the_end_that_ends_who_reads_it_counts_once_the_end_can_be_read(mock: Mock, processes: list[int]) -> None:
    mock.batch(BOMB)
    assert mock.tried(0, 1) == Unreadable(0, 1)
    assert processes == [0, 0, 1]


CANNOT = {
    "it cannot be started": lambda patch: patch.setattr(trial.sys, "executable", "/nowhere/python"),
    "it ends at once": lambda patch: patch.setattr(trial.sys, "executable", "/bin/false"),
    "it is killed while it begins": lambda patch: patch.setattr(trial, "_run", lambda *_: trial._Run(at=0, code=-9)),
    "Kafka is away": lambda patch: None,
}


@pytest.mark.parametrize("why", CANNOT)
def test_a_process_that_fails_for_its_own_reasons_says_nothing_about_a_record(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    """Any end without a record was taken for the record's: one that ended at once passed over all that waited."""
    CANNOT[why](monkeypatch)
    monkeypatch.setattr(trial, "ALL_S", 2.0)
    with pytest.raises(Inconclusive, match="cannot be tried at offset 5"):
        trial.tried("127.0.0.1:9", 5, 12, threading.Event())


def test_what_has_ended_processes_is_not_passed_over_where_nothing_else_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_run", lambda _, offset, *rest: trial._Run(ready=True, at=offset, code=-9))
    with pytest.raises(Inconclusive, match="what is behind cannot be read either"):
        trial.tried("127.0.0.1:9", 5, 7, threading.Event())


def test_a_record_that_was_being_read_when_one_process_was_killed_is_read_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    good = [Received("client.commands", 0, 5, 0, None, b"x")]
    runs = [trial._Run(ready=True, at=5, code=-9), trial._Run(ready=True, at=5, records=good, code=0)]
    monkeypatch.setattr(trial, "_run", lambda *_: runs.pop(0))
    assert trial.tried("127.0.0.1:9", 5, 7, threading.Event()) == Read(good, 6)


def test_large_stacks_of_threads_are_none_of_the_records(mock: Mock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`ulimit -s 65536`: the library's threads did not find room below the bound, and each record counted as unreadable."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nulimit -s 65536\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    mock.batch(b"good")
    monkeypatch.setattr(trial.sys, "executable", str(python))
    found = mock.tried(0, 1)
    assert isinstance(found, Read) and [each.value for each in found.records] == [b"good"]


def test_a_trial_ends_with_its_term(mock: Mock) -> None:
    mock.batch(b"good")
    ended = threading.Event()
    ended.set()
    with pytest.raises(Inconclusive, match="the term has ended"):
        trial.tried(mock.bootstrap, 0, 1, ended)


def test_a_damaged_batch_costs_one_process_however_many_records_it_has(real_kafka: RealKafka, processes: list[int]) -> None:
    """A process for each of its records was an hour for ten thousand."""
    topic = real_kafka.topic("damaged")
    KafkaAdmin(real_kafka.bootstrap).ensure_topics([(topic, 1, CONFIG)])
    write(real_kafka, topic, [b"{}", b"to-be-flipped", *[b"{}"] * 60])
    write(real_kafka, topic, [b"behind"])
    [segment] = real_kafka.broker.data_dir.glob(f"**/{topic}-0/00000000000000000000.log")
    with segment.open("r+b") as file:
        file.seek(segment.read_bytes().index(b"to-be-flipped"))
        file.write(b"T")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial, "TOPIC", topic)
        assert trial.tried(real_kafka.bootstrap, 0, 63, threading.Event()) == Unreadable(0, 62)
    assert processes == [0]


def test_offsets_without_records_are_passed_over_at_once(real_kafka: RealKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """The marker of a transaction is no record: whoever tried it waited for one, twenty seconds each time."""
    topic = real_kafka.topic("markers")
    KafkaAdmin(real_kafka.bootstrap).ensure_topics([(topic, 1, CONFIG)])
    producer = Producer({"bootstrap.servers": real_kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    for value in (b"one", b"two"):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.commit_transaction(60)
    monkeypatch.setattr(trial, "TOPIC", topic)
    patient, polled = trial._output_of, []
    monkeypatch.setattr(trial, "_output_of", lambda *given: polled.append(patient(*given)) or polled[-1])
    first, last = (trial.tried(real_kafka.bootstrap, offset, 4, threading.Event()) for offset in (1, 3))
    assert isinstance(first, Read) and ([each.value for each in first.records], first.behind) == ([b"two"], 4)
    assert last == Read([], 4)
    assert [told.splitlines()[-1] for told in polled] == [b"end 4", b"end 4"], "the library says so, no wait does"
