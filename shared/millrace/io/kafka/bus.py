"""Kafka by confluent-kafka: `KafkaBus`, the real `Bus`."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import TopicDescription

from millrace.io.interfaces import Damaged, OffsetGone, Received, Unavailable

from .admin import KafkaAdmin
from .client import AdminClient
from .config import ASKED_S, COMMON, CONSUMER, PRODUCER, STATISTICS, log

_QUEUE_FULL_STEP_S = 0.005
_SILENT_S = 2.0
DAMAGED = (KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION)


class KafkaBus:
    """One process's producers, readers and questions to a Kafka cluster; see `Bus` for the meaning of each call.

    `bootstrap`: "host:port[,host:port...]". `on_fatal(reason)`: called at most once, on the thread that appends or
    serves, when a record can never be delivered; the process must end then, for what was appended later is lost too.
    `aside`: topics that have a producer of their own, so that they are in nobody's way (`core/topics.py:Topic`).
    `options`: further librdkafka options (security), which win over the defaults here.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str,
        on_fatal: Callable[[str], None],
        aside: Collection[str] = (),
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._on_fatal, self._aside = on_fatal, aside
        self._shared = {**COMMON, "bootstrap.servers": bootstrap, "client.id": client_id, "logger": log}
        self._options = dict(options or {})
        self.statistics = ["", ""]
        """What the library last said about each producer, as its JSON: how long brokers take, and what is queued."""
        self._producers = (self._new_producer(0), self._new_producer(1))  # the second for what is aside
        self._admin = KafkaAdmin(bootstrap, client_id=client_id, options=options, timeout_s=ASKED_S)
        self._acked: deque[Callable[[], None]] = deque()
        self._serving = threading.Lock()
        self._ended = False  # closed, or fatal: nothing more is reported

    def append(
        self,
        topic: str,
        partition: int,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
        on_ack: Callable[[], None] | None = None,
    ) -> None:
        """See `Bus.append`. Raises ValueError for a record above `MESSAGE_MAX_BYTES`.

        If the local queue is full (500,000 records or 256 MiB that no broker has taken), it waits for room, in small
        steps. Callbacks do not run meanwhile: one that appends would get in front of this record. So the order of
        one thread's records in a partition is the order of its calls, always; between partitions there is none.
        """
        producer = self._producers[topic in self._aside]
        shown: list[tuple[str, str | bytes | None]] = list(headers)
        on_delivery = partial(self._delivered, on_ack)
        while not self._ended:
            try:
                producer.produce(topic, value, key, partition, on_delivery=on_delivery, headers=shown or None)
                return
            except BufferError:
                self._collect()
                time.sleep(_QUEUE_FULL_STEP_S)
            except KafkaException as failure:
                error = failure.args[0]
                if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    raise ValueError(f"a record of {len(value)} bytes is too large for {topic}[{partition}]") from None
                self._die(f"cannot append to {topic}[{partition}]: {error.str()}")

    def serve(self, patience_ms: int = 0, topic: str = "") -> None:
        self._collect(patience_ms / 1000, topic)
        while self._acked:
            try:
                on_ack = self._acked.popleft()
            except IndexError:  # another thread serves as well and took it
                return
            on_ack()

    def flush(self, timeout_ms: int) -> int:
        """See `Bus.flush`. Runs the callbacks too."""
        if self._ended:
            return 0
        end = time.monotonic() + timeout_ms / 1000
        left = sum(producer.flush(max(0.0, end - time.monotonic())) for producer in self._producers)
        self.serve()
        return left

    def reader(self, topic: str, partition: int, offset: int) -> KafkaReader:
        config = {**self._shared, **CONSUMER, **self._options}
        return KafkaReader(config, self._admin, topic, partition, offset)

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        return self._admin.offsets(topic, partition)

    def end(self, topic: str, partition: int) -> int:
        return self._admin.end(topic, partition)

    def first_stamp_ms(self, topic: str, partition: int) -> int | None:
        return self._admin.first_stamp_ms(topic, partition)

    def offset_after(self, topic: str, partition: int, stamp_ms: int) -> int:
        return self._admin.offset_after(topic, partition, stamp_ms)

    def log_id(self, topic: str) -> str:
        return self._admin.log_id(topic)

    def delete_below(self, topic: str, partition: int, offset: int) -> None:
        """See `Bus.delete_below`. Raises ValueError for an offset above the end of the log, Unavailable."""
        self._admin.delete_below(topic, partition, offset)

    def close(self) -> None:
        """Ends at once. What is not acknowledged yet may be lost (`flush` first); what is asked of it later does nothing."""
        with self._serving:
            self._ended = True
        for producer in self._producers:
            producer.purge()
            with contextlib.suppress(KafkaException):  # what was in flight is a gap now, and nothing follows it
                producer.close()

    def _new_producer(self, number: int) -> Producer:
        keep = partial(self.statistics.__setitem__, number)
        return Producer({**self._shared, **PRODUCER, "error_cb": self._failed, **STATISTICS, "stats_cb": keep, **self._options})

    def _collect(self, patience_s: float = 0, topic: str = "") -> None:
        """Takes the delivery reports that wait (`_delivered` runs in it), in each producer's order, from any thread. A producer that has
        nothing is not asked: each poll gives up the interpreter to other threads."""
        with self._serving:
            for aside in (False, True):
                producer = self._producers[aside]
                if not self._ended and len(producer):
                    producer.poll(patience_s if aside is (topic in self._aside) else 0)

    def _delivered(self, on_ack: Callable[[], None] | None, error: KafkaError | None, record: Message) -> None:
        if error is not None:
            self._die(f"a record for {record.topic()}[{record.partition()}] cannot be delivered: {error.str()}")
        elif on_ack is not None:
            self._acked.append(on_ack)

    def _failed(self, error: KafkaError) -> None:
        if error.fatal():
            self._die(f"the producer ended: {error.str()}")

    def _die(self, reason: str) -> None:
        if not self._ended:
            self._ended = True
            self._on_fatal(reason)


def offset_of(message: Message) -> int:
    """Of a record that was read; only what was never sent has none."""
    offset = message.offset()
    assert offset is not None
    return offset


def headers_of(message: Message) -> Sequence[tuple[str, bytes | None]]:
    """Of a record that was read: pairs, though the library's hints allow all that can be sent."""
    return cast("Sequence[tuple[str, bytes | None]]", message.headers() or ())


class KafkaReader:
    """Reads one partition; see `Reader`. Made by `KafkaBus.reader`; used by one thread."""

    def __init__(self, config: Mapping[str, Any], admin: KafkaAdmin, topic: str, partition: int, offset: int) -> None:
        self._admin, self._topic, self._partition, self._next = admin, topic, partition, offset
        self._failure: KafkaError | None = None
        self._asked: tuple[AdminClient, Future[TopicDescription]] | None = None
        self._ask_s = 0.0
        self._consumer = Consumer(dict(config))
        self._consumer.assign([TopicPartition(topic, partition, offset)])

    def poll(self, timeout_ms: int, most: int = 500) -> list[Received]:
        if self._failure is not None:
            self._raise(self._failure)
        first = self._consumer.poll(timeout_ms / 1000)
        if first is None:
            self._check_topic()
            return []
        # `consume` waits for a full batch: it may only fetch what is here already.
        messages = [first, *self._consumer.consume(most - 1, 0)] if most > 1 else [first]
        records: list[Received] = []
        for message in messages:
            error = message.error()
            if error is not None:
                if not records:
                    self._raise(error)
                self._failure = error  # after the records before it
                break
            records.append(self._received(message))
        self._next = records[-1].offset + 1
        self._ask_s = time.monotonic() + _SILENT_S
        return records

    def close(self) -> None:
        self._consumer.close()

    def _received(self, message: Message) -> Received:
        return Received(
            self._topic,
            self._partition,
            offset_of(message),
            message.timestamp()[1],
            message.key(),
            message.value() or b"",
            headers_of(message),
        )

    def _check_topic(self) -> None:
        """The library says nothing about an assigned topic that is not there, so a silent reader asks now and then,
        without waiting for the answer."""
        if self._asked is None:
            if time.monotonic() >= self._ask_s:
                self._asked = self._admin.description(self._topic)
        elif self._asked[1].done():
            (_, asked), self._asked, self._ask_s = self._asked, None, time.monotonic() + _SILENT_S
            failure = asked.exception()
            if isinstance(failure, KafkaException) and failure.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                self._raise(failure.args[0])
            if failure is None and self._partition >= len(asked.result().partitions):
                raise Unavailable(f"cannot read {self._topic}[{self._partition}]: the topic has fewer partitions")

    def _raise(self, error: KafkaError) -> None:
        self._failure = error
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            first, end = self._admin.offsets(self._topic, self._partition)
            raise OffsetGone(self._topic, self._partition, self._next, first, end)
        if error.code() in DAMAGED:
            raise Damaged(self._topic, self._partition, self._next, error.str())
        raise Unavailable(f"cannot read {self._topic}[{self._partition}]: {error.str()}")
