"""Kafka by confluent-kafka: `KafkaBus`, the real `Bus`, and `KafkaAdmin`, which provisioning uses too."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from millrace.core.topics import INBOXES
from millrace.io.interfaces import OffsetGone, Received, Unavailable

log = logging.getLogger("millrace.kafka")


class _Plain(logging.Filter):
    """What librdkafka says of a broker that is away: once in a while, not at each of its many tries. Its word that the gapless
    guarantee is experimental comes at each start, and is known."""

    EVERY_S = 10.0
    _RETRIED = ("Connection refused", "Disconnected", "Failed to acquire idempotence PID", "brokers are down", "new leader-1 not found")

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if "enable.gapless.guarantee is experimental" in text or "Purged in flight" in text:  # by `KafkaBus.close`
            return False
        kind = next((each for each in self._RETRIED if each in text), None)
        if kind is None:
            return True
        now = time.monotonic()
        if now - self._said.get(kind, -self.EVERY_S) < self.EVERY_S:
            return False
        self._said[kind] = now
        return True


log.addFilter(_Plain())

MESSAGE_MAX_BYTES = 1_000_000
"""The largest record, key and headers included; with what a batch adds still below Kafka's `max.message.bytes`."""

ASKED_S = 1.4
"""The longest wait for an answer about a partition. Two of them leave a loop that asks time to renew its lease (`io/service.py`)."""

_QUEUE_FULL_STEP_S = 0.005
_SILENT_S = 2.0

_COMMON: dict[str, Any] = {
    "log_level": 4,  # warnings and worse; librdkafka's own, forwarded to `millrace.kafka`
    "statistics.interval.ms": 0,
    "socket.nagle.disable": True,
    "socket.keepalive.enable": True,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,  # a restarted broker is found again within half a second
    "allow.auto.create.topics": False,
}

_PRODUCER: dict[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,
    "enable.gapless.guarantee": True,
    "max.in.flight.requests.per.connection": 1,  # more can leave a hole behind a fresh producer id (KAFKA-15591)
    "message.timeout.ms": 0,  # for ever: a record is delivered, or the process ends
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 500,
    "linger.ms": 0,
    "compression.type": "none",
    "message.max.bytes": MESSAGE_MAX_BYTES,
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 256 * 1024,
}

_CONSUMER: dict[str, Any] = {
    "group.id": "millrace",  # the library asks for one; nothing ever joins it or commits to it
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_uncommitted",
    "check.crcs": True,
    "fetch.min.bytes": 1,
    "fetch.wait.max.ms": 2_000,  # how long an idle fetch waits at the broker: no latency, only fewer empty answers
    "fetch.error.backoff.ms": 50,
    "fetch.queue.backoff.ms": 5,
    "queued.min.messages": 20_000,
    "queued.max.messages.kbytes": 16 * 1024,
}


_ANOTHER_LEADER = (
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
)
T = TypeVar("T")


class KafkaBus:
    """One process's producers, readers and questions to a Kafka cluster; see `Bus` for the meaning of each call.

    `bootstrap`: "host:port[,host:port...]". `on_fatal(reason)`: called at most once, on the thread that appends or
    serves, when a record can never be delivered; the process must end then, for what was appended later is lost too.
    `options`: further librdkafka options (security), which win over the defaults here.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str,
        on_fatal: Callable[[str], None],
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._on_fatal = on_fatal
        self._shared = {**_COMMON, "bootstrap.servers": bootstrap, "client.id": client_id, "logger": log}
        self._options = dict(options or {})
        # One request is in flight a producer: what the public is told must not be in the way of what services tell each other.
        self._inboxes, self._public = self._producers = (self._new_producer(), self._new_producer())
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
        producer = self._inboxes if topic in INBOXES else self._public
        sent = {"key": key, "headers": list(headers) or None, "on_delivery": partial(self._delivered, on_ack)}
        while not self._ended:
            try:
                producer.produce(topic, value, partition=partition, **sent)
                return
            except BufferError:
                self._collect()
                time.sleep(_QUEUE_FULL_STEP_S)
            except KafkaException as failure:
                error = failure.args[0]
                if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    raise ValueError(f"a record of {len(value)} bytes is too large for {topic}[{partition}]") from None
                self._die(f"cannot append to {topic}[{partition}]: {error.str()}")

    def serve(self, patience_ms: int = 0) -> None:
        self._collect(patience_ms / 1000)
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
        config = {**self._shared, **_CONSUMER, **self._options}
        return KafkaReader(config, self._admin, topic, partition, offset)

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        return self._admin.offsets(topic, partition)

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

    def _new_producer(self) -> Producer:
        return Producer({**self._shared, **_PRODUCER, "error_cb": self._failed, **self._options})

    def _collect(self, patience_s: float = 0) -> None:
        """Takes the delivery reports that wait (`_delivered` runs in it), in the order they came, from any thread."""
        with self._serving:
            if not self._ended:
                self._public.poll(patience_s)
                self._inboxes.poll(0)

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


class KafkaReader:
    """Reads one partition; see `Reader`. Made by `KafkaBus.reader`; used by one thread."""

    def __init__(self, config: Mapping[str, Any], admin: KafkaAdmin, topic: str, partition: int, offset: int) -> None:
        self._admin, self._topic, self._partition, self._next = admin, topic, partition, offset
        self._failure: KafkaError | None = None
        self._asked: tuple[AdminClient, Future] | None = None
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
            message.offset(),
            message.timestamp()[1],
            message.key(),
            message.value() or b"",
            message.headers() or (),
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
        raise Unavailable(f"cannot read {self._topic}[{self._partition}]: {error.str()}")


class KafkaAdmin:
    """Questions about topics and changes to them. Every call raises Unavailable without an answer in `timeout_s`."""

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "millrace-admin",
        options: Mapping[str, Any] | None = None,
        timeout_s: float = 5.0,
    ) -> None:
        self._bootstrap, self._timeout_s = bootstrap, timeout_s
        self._patience = {"request_timeout": timeout_s}
        basics = {"bootstrap.servers": bootstrap, "client.id": client_id, "logger": log}
        self._config = {**_COMMON, **basics, **(options or {})}
        self._made: AdminClient | None = None
        self._making = threading.Lock()

    @property
    def _client(self) -> AdminClient:
        with self._making:
            if self._made is None:  # three threads and a connection: only for who asks
                self._made = AdminClient(self._config)
            return self._made

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        where = TopicPartition(topic, partition)

        def ask(client: AdminClient) -> tuple[int, int]:
            asked = [
                client.list_offsets({where: spec}, **self._patience)[where]
                for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
            ]
            first, end = (self._answer(one, f"the offsets of {topic}[{partition}]").offset for one in asked)
            return first, end

        return self._of_leader(ask)

    def log_id(self, topic: str) -> str:
        client, asked = self.description(topic)
        found = str(self._answer(asked, f"the topic {topic}").topic_id)
        del client  # held until here
        return found

    def description(self, topic: str) -> tuple[AdminClient, Future]:
        """Asks what a topic is, without waiting: a future of confluent-kafka's `TopicDescription`, and the client that was
        asked: who waits must hold it, for one that nobody holds any more is destroyed, and its futures never end."""
        client = self._client
        return client, client.describe_topics(TopicCollection([topic]), **self._patience)[topic]

    def delete_below(self, topic: str, partition: int, offset: int) -> None:
        where = TopicPartition(topic, partition, offset)

        def ask(client: AdminClient) -> None:
            asked = client.delete_records([where], **self._patience)
            self._answer(asked[where], f"the records of {topic}[{partition}] below {offset}")

        self._of_leader(ask)

    def _of_leader(self, ask: Callable[[AdminClient], T]) -> T:
        """Asks a partition's leader. The library remembers for minutes who that is and since which epoch, and does not look again
        when it is refused for that; a new client does. The old one lives as long as another thread waits for its answer."""
        client = self._client
        try:
            return ask(client)
        except _AnotherLeader:
            with self._making:
                if self._made is client:
                    self._made = None
            client = self._client
            return ask(client)

    def delete_topics(self, names: Sequence[str]) -> None:
        """Deletes topics with all their records; returns when they are gone from the broker."""
        if names:
            for name, asked in self._client.delete_topics(list(names), **self._patience).items():
                self._answer(asked, f"the topic {name}")
            self._wait_until(lambda: not self._partitions().keys() & set(names), f"the end of {', '.join(names)}")

    def ensure_topics(self, topics: Iterable[tuple[str, int, Mapping[str, Any]]]) -> list[str]:
        """Makes the cluster's topics what is asked: (name, partitions, config) each, replicas by the broker's default.

        Creates what is missing and sets config values that differ; touches no other topic and no other config key.
        Returns one line for each change, nothing if all was right. Raises ValueError, before any change, when a topic
        exists with another number of partitions; Unavailable.
        """
        wanted = {name: (partitions, {k: _text(v) for k, v in config.items()}) for name, partitions, config in topics}
        there = self._partitions()
        wrong = [
            f"{name} has {there[name]} partitions and not {partitions}"
            for name, (partitions, _) in wanted.items()
            if there.get(name, partitions) != partitions
        ]
        if wrong:
            raise ValueError(
                f"topics at {self._bootstrap} do not fit: {'; '.join(wrong)}. Partition counts are fixed for a "
                "cluster's life: use the counts that it was made with, or make a new cluster"
            )
        missing = {name: wanted[name] for name in wanted if name not in there}
        self._create(missing)
        present = {name: config for name, (_, config) in wanted.items() if name not in missing and config}
        created = [f"created {name} ({n} partition{'s' * (n != 1)})" for name, (n, _) in missing.items()]
        return created + self._alter(present)

    def _partitions(self, *, led: bool = False) -> dict[str, int]:
        """The number of partitions by topic; of those with a leader alone if `led`."""
        try:
            found = self._client.list_topics(timeout=self._timeout_s).topics
        except KafkaException as failure:
            raise self._unavailable("the list of topics", failure) from None
        return {
            name: sum(one.leader >= 0 or not led for one in topic.partitions.values()) for name, topic in found.items()
        }

    def _create(self, topics: Mapping[str, tuple[int, dict[str, str]]]) -> None:
        if not topics:
            return
        new = [NewTopic(name, num_partitions=n, config=config) for name, (n, config) in topics.items()]
        asked = self._client.create_topics(new, **self._patience)
        for name, one in asked.items():
            self._answer(one, f"the new topic {name}")
        wanted = {name: n for name, (n, _) in topics.items()}
        self._wait_until(
            lambda: wanted.items() <= self._partitions(led=True).items(), f"the new topics {', '.join(wanted)}"
        )

    def _wait_until(self, right: Callable[[], bool], what: str) -> None:
        """The controller answers a little before the broker itself knows."""
        give_up_s = time.monotonic() + self._timeout_s
        while not right():
            if time.monotonic() > give_up_s:
                raise Unavailable(f"Kafka at {self._bootstrap} does not show {what} after {self._timeout_s:g} s")
            time.sleep(0.01)

    def _alter(self, topics: Mapping[str, dict[str, str]]) -> list[str]:
        differ = self._differences(topics)
        if not differ:
            return []
        resources = [
            ConfigResource(
                ResourceType.TOPIC,
                name,
                incremental_configs=[
                    ConfigEntry(key, topics[name][key], incremental_operation=AlterConfigOpType.SET) for key in values
                ],
            )
            for name, values in differ.items()
        ]
        for resource, asked in self._client.incremental_alter_configs(resources, **self._patience).items():
            self._answer(asked, f"the config of {resource.name}")
        self._wait_until(lambda: not self._differences(topics), f"the new config of {', '.join(differ)}")
        return [
            f"set {name} {key}={topics[name][key]} (was {was})"
            for name, values in differ.items()
            for key, was in values.items()
        ]

    def _differences(self, topics: Mapping[str, dict[str, str]]) -> dict[str, dict[str, str | None]]:
        """What differs from the config asked for: topic -> key -> the value there is."""
        if not topics:
            return {}
        differ: dict[str, dict[str, str | None]] = {}
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
        for resource, asked in self._client.describe_configs(resources, **self._patience).items():
            found = self._answer(asked, f"the config of {resource.name}")
            now = {key: entry.value for key, entry in found.items()}
            wrong = {key: now.get(key) for key, value in topics[resource.name].items() if now.get(key) != value}
            if wrong:
                differ[resource.name] = wrong
        return differ

    def _answer(self, asked: Future, what: str) -> Any:
        try:
            return asked.result()  # the library ends it by the request's own time-out
        except KafkaException as failure:
            if failure.args[0].code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError.INVALID_CONFIG):
                raise ValueError(f"Kafka refused {what}: {failure.args[0].str()}") from None
            if failure.args[0].code() in _ANOTHER_LEADER:
                raise _AnotherLeader(str(self._unavailable(what, failure))) from None
            raise self._unavailable(what, failure) from None

    def _unavailable(self, what: str, failure: KafkaException) -> Unavailable:
        return Unavailable(f"Kafka at {self._bootstrap} could not answer for {what}: {failure.args[0].str()}")


class _AnotherLeader(Unavailable):
    """Whoever was asked does not lead the partition, or not in the epoch that was named."""


def _text(value: Any) -> str:
    """A config value as Kafka writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
