"""Questions about Kafka's topics, and changes to them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ListOffsetsResultInfo,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_exponential

from millrace.io.interfaces import Unavailable

from .client import AdminClient, end_left
from .config import COMMON, log

_ANOTHER_LEADER = (
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
)
_ANEW = wait_exponential(0.02, max=0.5)
_REMEMBERS_MS = 1_000
"""How long a client may ask the leader that it knows. Left alone it does for a quarter of an hour. It looks again at once when a broker's
connection ends. But Kafka needs a second or two to see that this broker is dead, and answers until then that it leads. Refused at its
address, the library would notice; where the address has gone with its container or its machine, every question is put to nobody."""
T = TypeVar("T")


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
        self.bootstrap = self._bootstrap = bootstrap
        self._timeout_s = timeout_s
        self._patience = {"request_timeout": timeout_s}
        basics = {"bootstrap.servers": bootstrap, "client.id": client_id, "logger": log, "metadata.max.age.ms": _REMEMBERS_MS}
        self._config = {**COMMON, **basics, **(options or {})}
        self._made: AdminClient | None = None
        self._connected: AdminClient | None = None
        self._making = threading.Lock()

    @property
    def _client(self) -> AdminClient:
        end_left()
        with self._making:
            if self._made is None:  # three threads and a connection: only for who asks
                self._made = AdminClient(self._config)
            return self._made

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        first, end = self._offsets(topic, partition, OffsetSpec.earliest(), OffsetSpec.latest())
        return first, end

    def end(self, topic: str, partition: int) -> int:
        return self._offsets(topic, partition, OffsetSpec.latest())[0]

    def first_stamp_ms(self, topic: str, partition: int) -> int | None:
        [first] = self._listed(topic, partition, OffsetSpec.for_timestamp(0))
        return first.timestamp if first.offset >= 0 else None

    def offset_after(self, topic: str, partition: int, stamp_ms: int) -> int:
        end = self.end(topic, partition)  # asked first: what comes meanwhile is behind it
        [found] = self._listed(topic, partition, OffsetSpec.for_timestamp(stamp_ms + 1))
        return found.offset if found.offset >= 0 else end

    def _offsets(self, topic: str, partition: int, *specs: OffsetSpec) -> list[int]:
        return [one.offset for one in self._listed(topic, partition, *specs)]

    def _listed(self, topic: str, partition: int, *specs: OffsetSpec) -> list[ListOffsetsResultInfo]:
        where = TopicPartition(topic, partition)

        def ask(client: AdminClient) -> list[ListOffsetsResultInfo]:
            asked = [client.list_offsets({where: spec}, **self._patience)[where] for spec in specs]
            return [self._place(one, f"the offsets of {topic}[{partition}]") for one in asked]

        return self._of_leader(ask)

    def log_id(self, topic: str) -> str:
        client, asked = self.description(topic)
        found = str(self._answer(asked, f"the topic {topic}").topic_id)
        del client  # held until here
        return found

    def description(self, topic: str) -> tuple[AdminClient, Future[TopicDescription]]:
        """Asks what a topic is, without waiting: a future, and the client that was
        asked. Whoever waits must hold the client: one that nobody holds is destroyed, and its futures never end."""
        client = self._client
        return client, client.describe_topics(TopicCollection([topic]), **self._patience)[topic]

    def delete_below(self, topic: str, partition: int, offset: int) -> None:
        where = TopicPartition(topic, partition, offset)

        def ask(client: AdminClient) -> None:
            asked = client.delete_records([where], **self._patience)
            self._answer(asked[where], f"the records of {topic}[{partition}] below {offset}")

        self._of_leader(ask)

    def _of_leader(self, ask: Callable[[AdminClient], T]) -> T:
        """Asks a partition's leader, and again for `timeout_s` while another leads it or none: a broker that was busy is without its
        partitions for an instant. The library remembers for a while who leads and since which epoch, and does not look again when
        it is refused for that; a new client does. The old one lives as long as another thread waits for its answer."""

        def anew() -> T:
            client = self._client
            self._connect(client)
            try:
                return ask(client)
            except _Outdated:
                with self._making:
                    if self._made is client:
                        self._made = None
                raise

        refused = retry_if_exception_type(_AnotherLeader)
        return Retrying(retry=refused, stop=stop_after_delay(self._timeout_s), wait=_ANEW, reraise=True)(anew)

    def _connect(self, client: AdminClient) -> None:
        """Waits until a new client has a broker. Asked for a leader as its connection comes up, librdkafka may miss that, and looks again
        after three seconds: of a hundred new clients one waited for so long. This question waits for the connection itself."""
        if self._connected is not client:
            self._answer(client.describe_cluster(**self._patience), "the cluster")
            self._connected = client

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
        there = self.check_partitions({name: partitions for name, (partitions, _) in wanted.items()})
        missing = {name: wanted[name] for name in wanted if name not in there}
        self._create(missing)
        present = {name: config for name, (_, config) in wanted.items() if name not in missing and config}
        created = [f"created {name} ({n} partition{'s' * (n != 1)})" for name, (n, _) in missing.items()]
        return created + self._alter(present)

    def check_partitions(self, wanted: Mapping[str, int]) -> dict[str, int]:
        """The number of partitions of each topic that is there. Raises ValueError for one that has another number than is wanted, which
        changes nothing; Unavailable."""
        there = self._partitions()
        wrong = [
            f"{name} has {there[name]} partitions and not {partitions}"
            for name, partitions in wanted.items()
            if there.get(name, partitions) != partitions
        ]
        if wrong:
            raise ValueError(
                f"topics at {self._bootstrap} do not fit: {'; '.join(wrong)}. Partition counts are fixed for a "
                "cluster's life: use the counts that it was made with, or make a new cluster"
            )
        return there

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

    def _answer(self, asked: Future[T], what: str) -> T:
        try:
            return asked.result()  # the library ends it by the request's own time-out
        except KafkaException as failure:
            if failure.args[0].code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError.INVALID_CONFIG):
                raise ValueError(f"Kafka refused {what}: {failure.args[0].str()}") from None
            if failure.args[0].code() in _ANOTHER_LEADER:
                raise _AnotherLeader(str(self._unavailable(what, failure))) from None
            if failure.args[0].code() == KafkaError._NOENT:
                raise _Outdated(str(self._unavailable(what, failure))) from None
            raise self._unavailable(what, failure) from None

    def _offset(self, asked: Future[ListOffsetsResultInfo], what: str) -> int:
        return self._place(asked, what).offset

    def _place(self, asked: Future[ListOffsetsResultInfo], what: str) -> ListOffsetsResultInfo:
        """Its offset is -1 where no record is of the time asked for. Where a broker hangs, the library gives no error, and no offset."""
        found = self._answer(asked, what)
        if found.offset == OFFSET_INVALID:
            raise Unavailable(f"Kafka at {self._bootstrap} could not answer for {what}: no answer within {self._timeout_s:.0f} s")
        return found

    def _unavailable(self, what: str, failure: KafkaException) -> Unavailable:
        return Unavailable(f"Kafka at {self._bootstrap} could not answer for {what}: {failure.args[0].str()}")


class _Outdated(Unavailable):
    """What the client remembers of the topics is of no use: it knows no leader, and does not look again. Or there is no such partition,
    so that this is not asked again at once."""


class _AnotherLeader(_Outdated):
    """Whoever was asked does not lead the partition, or not in the epoch that was named."""


def _text(value: Any) -> str:
    """A config value as Kafka writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
