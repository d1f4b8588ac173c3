"""Reading a cluster's logs, for who looks at what happened: much at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Message, TopicPartition
from confluent_kafka.admin import OffsetSpec

from .admin import KafkaAdmin
from .bus import KafkaReader, offset_of
from .client import AdminClient
from .config import COMMON, CONSUMER, log

_MUCH = {"queued.min.messages": 100_000, "queued.max.messages.kbytes": 64 * 1024}


class LogReader(KafkaReader):
    """Reads one partition from an offset on."""

    def scan(self, timeout_ms: int, most: int) -> list[Message]:
        """Up to so many of the library's own messages: of millions few are wanted whole. Raises Unavailable, OffsetGone."""
        messages = self._consumer.consume(most, timeout_ms / 1000)
        for message in messages:
            error = message.error()
            if error is not None:
                self._raise(error)
        if messages:
            self._next = offset_of(messages[-1]) + 1
        else:
            self._check_topic()
        return messages


class KafkaLogs(KafkaAdmin):
    """Answers what there is, and reads it; it has no producer. Every question raises Unavailable without an answer."""

    def __init__(self, bootstrap: str, *, client_id: str, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(bootstrap, client_id=client_id, options=options)
        basics = {"bootstrap.servers": bootstrap, "client.id": client_id, "logger": log}
        self._reading = {**COMMON, **basics, **CONSUMER, **_MUCH, **(options or {})}

    def reader(self, topic: str, partition: int, offset: int) -> LogReader:
        return LogReader(self._reading, self, topic, partition, offset)

    def ends(self, places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
        """The first offset and the end of each partition, all asked at once."""

        def ask(client: AdminClient) -> dict[tuple[str, int], tuple[int, int]]:
            asked = [
                client.list_offsets({TopicPartition(*place): spec for place in places}, **self._patience)
                for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
            ]
            return {
                place: (self._offset(first, f"the offsets of {place[0]}"), self._offset(end, f"the offsets of {place[0]}"))
                for place, first, end in zip(places, asked[0].values(), asked[1].values(), strict=True)
            }

        return self._of_leader(ask)

    def offset_at(self, topic: str, partition: int, stamp_ms: int) -> int:
        """The first offset whose record the broker stamped at this time or later; the end of the log if there is none."""
        where = TopicPartition(topic, partition)

        def ask(client: AdminClient) -> int:
            asked = client.list_offsets({where: OffsetSpec.for_timestamp(stamp_ms)}, **self._patience)[where]
            return self._offset(asked, f"the time of {topic}[{partition}]")

        found = self._of_leader(ask)
        return found if found >= 0 else self.offsets(topic, partition)[1]
