"""What strangers write to client.commands that is no request: parked in dead-letters with all that is needed to find out
who wrote it, and the service goes on."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from tests.end_to_end.running import RunningStack, Topic

GOOD = {"type": "SubmitJob", "version": 1, "job": "x", "graph": {"name": "x", "vertices": {"a": {"sql": "SELECT 1"}}}}
BAD = {
    "no text": (b"\xff\xfe\x00\x01", "not UTF-8 at byte 0"),
    "no JSON": (b"hello", "not JSON: Expecting value at line 1, column 1"),
    "nothing": (b"", "not JSON"),
    "no object": (b"[1, 2]", 'no message: a request is an object with "type" and "version"'),
    "no type": (b'{"version": 1}', 'no message: a request is an object with "type" and "version"'),
    "unknown type": (b'{"type": "SubmitJobs", "version": 1}', "unknown type 'SubmitJobs'; known are SubmitJob, "),
    "no version": (b'{"type": "SubmitJob"}', 'SubmitJob has no "version"'),
    "a newer version": (
        json.dumps({**GOOD, "version": 2}).encode(),
        "SubmitJob has a newer version, 2; this Dispatcher knows version 1",
    ),
    "an unknown field": (json.dumps({**GOOD, "extra": 1}).encode(), "no SubmitJob: extra: Extra inputs"),
    "a bad id": (json.dumps({**GOOD, "job": "../etc"}).encode(), "no SubmitJob: job: String should match pattern"),
    "deep": (b'{"type": "SubmitJob", "graph": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested more than 32 deep"),
    "deep, without an end": (b"[" * 1_000_000, "nested more than 32 deep"),
    "huge": (json.dumps({**GOOD, "reply_to": "x" * 1_040_000}).encode(), "no SubmitJob: reply_to: "),
    "a huge number": (b'{"type": "SubmitJob", "version": ' + b"9" * 500_000 + b"}", "a whole number of 500000 digits"),
    "a number that is none": (b'{"type": "SubmitJob", "version": NaN}', "NaN is no JSON number"),
    "a key twice": (b'{"type": "SubmitJob", "type": "CancelJob"}', "the key 'type' stands twice in one object"),
}


@pytest.fixture
def letters(running: RunningStack) -> Iterator[Topic]:
    topic = Topic(running.facts["kafka_bootstrap"], "dead-letters")
    yield topic
    topic.close()


def test_every_kind_of_rubbish_is_parked_and_the_service_goes_on(running: RunningStack, letters: Topic) -> None:
    written: dict[int, bytes] = {}
    producer = Producer({"bootstrap.servers": running.facts["kafka_bootstrap"], "message.max.bytes": 2_000_000})
    for value, _ in BAD.values():
        producer.produce("client.commands", value, on_delivery=lambda error, m: written.update({m.offset(): m.value()}))
    assert producer.flush(60) == 0
    assert len(written) == len(BAD)

    for (name, (value, reason)), offset in zip(BAD.items(), sorted(written), strict=True):
        message = letters.next(f"the dead letter of {name}")
        letter = json.loads(message.value())
        assert letter["reason"].startswith(reason), (name, letter["reason"])
        assert (message.key(), letter["type"], letter["topic"]) == (b"client.commands", "DeadLetter", "client.commands")
        assert (letter["partition"], letter["offset"], letter["size_bytes"]) == (0, offset, len(value))
        assert letter["sha256"] == hashlib.sha256(value).hexdigest()
        assert base64.b64decode(letter["head_base64"]) == value[:4096]
        assert len(letter["reason"]) <= 510
    assert running.sql("SELECT 1 AS a").rows == [[1]]


def test_a_record_without_a_value_is_parked(running: RunningStack, letters: Topic) -> None:
    """A tombstone, as a log compactor's user would write it."""
    producer = Producer({"bootstrap.servers": running.facts["kafka_bootstrap"]})
    producer.produce("client.commands", None, key=b"k")
    producer.flush(60)
    assert json.loads(letters.next("a dead letter").value())["size_bytes"] == 0
    assert running.sql("SELECT 1 AS a").rows == [[1]]
