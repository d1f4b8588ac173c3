"""A public topic of one partition, read from some moment to its end as it is now."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import cached_property

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from millrace.io.interfaces import Unavailable as NoAnswer
from millrace.io.kafka.admin import KafkaAdmin

from .errors import Unavailable
from .link import Link

SILENT_S = 10.0


class TopicLog:
    """`topic` of the cluster that `link` is connected to. Every call may raise Unavailable."""

    def __init__(self, link: Link, topic: str) -> None:
        self._link, self._topic = link, topic

    @cached_property
    def _admin(self) -> KafkaAdmin:
        return KafkaAdmin(self._link.bootstrap, client_id=self._link.reply_to, options=self._link.options)

    def _records(self, since_ms: int | None) -> Iterator[Message]:
        first, end = self._marks(self._topic, 0)
        if since_ms is not None:
            with closing(self._link.reader()) as reader:
                first = self._first_since(reader, since_ms, end)
        yield from self._between(first, end)

    def _between(self, first: int, end: int) -> Iterator[Message]:
        """The records from an offset to another, which are both within what is kept."""
        with closing(self._link.reader()) as reader:
            reader.assign([TopicPartition(self._topic, 0, first)])
            while first < end:
                message = _next(reader)
                first = (message.offset() or 0) + 1
                yield message

    def _first_since(self, reader: Consumer, since_ms: int, end: int) -> int:
        try:
            [found] = reader.offsets_for_times([TopicPartition(self._topic, 0, since_ms)], timeout=SILENT_S)
        except KafkaException as failure:
            raise Unavailable(f"Kafka at {self._link.bootstrap} does not answer: {failure.args[0].str()}") from None
        return found.offset if found.offset >= 0 else end

    def _at(self, topic: str, partition: int, offset: int) -> Message | None:
        """The record at an offset; None: it is not there."""
        first, end = self._marks(topic, partition)
        if not first <= offset < end:
            return None
        with closing(self._link.reader()) as reader:
            reader.assign([TopicPartition(topic, partition, offset)])
            message = _next(reader)
        return message if message.offset() == offset else None

    def _marks(self, topic: str, partition: int) -> tuple[int, int]:
        try:
            return self._admin.offsets(topic, partition)
        except NoAnswer as failure:
            raise Unavailable(str(failure)) from None


def _next(reader: Consumer) -> Message:
    message = reader.poll(SILENT_S)
    if message is None:
        raise Unavailable(f"Kafka gives no record within {SILENT_S:.0f} s")
    if (error := message.error()) is not None:
        raise Unavailable(f"Kafka gives no record: {error.str()}")
    return message
