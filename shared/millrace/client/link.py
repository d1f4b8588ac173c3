"""A client's connection to Kafka: requests out, answers back, each found by its correlation. One thread reads.

The reader stands at the end of its partition from before the first request on, so that no answer is missed and none is
waited for by sleeping.
"""

from __future__ import annotations

import itertools
import json
import logging
import secrets
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from millrace.core.messages import base, client, requests
from millrace.core.messages.processes import AskProcess
from millrace.core.topics import PROCESS_QUESTIONS

from .errors import OutcomeUnknown, Refused, Unavailable

REQUESTS, REPLIES, EVENTS = "client.commands", "client.replies", "job.events"
ASK_S = 1.0
LEADERLESS_S = 9.0  # a cluster of brokers needs some seconds to see that one is dead, longer if that one led their quorum
PUBLISH_TURN_S = 0.01  # the thread that reads may be given the delivery; who waits for it must not wait on for another one
TURN_S = 0.1  # how soon a failed delivery or a close is seen; answers come at once

log = logging.getLogger("millrace.client")
log.addHandler(logging.NullHandler())

_COMMON: dict[str, Any] = {
    "socket.nagle.disable": True,
    "socket.keepalive.enable": True,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "allow.auto.create.topics": False,
    "log_level": 3,
    "logger": log,
}
_READER: dict[str, Any] = {
    "group.id": "millrace-client",  # the library asks for one; nothing joins it
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "fetch.wait.max.ms": 500,
    "fetch.error.backoff.ms": 50,
}
AHEAD_KB, AHEAD_MOST_KB = 2 * 1024, 16 * 1024
_REPLY_TYPES = {body.model_fields["type"].default: body for body in requests.REPLIES}


class PendingReply:
    """A request on its way. awaits: the job whose end it asks for."""

    def __init__(self, link: Link, what: str, correlation: str, awaits: str | None = None) -> None:
        self._link, self.what, self.correlation, self.awaits = link, what, correlation, awaits
        self._done = threading.Event()
        self._reply: dict[str, Any] | None = None
        self._failure: str | None = None

    def result(self, timeout_s: float) -> base.Reply:
        """The answer. Raises OutcomeUnknown when none comes in time: the request may have been carried out."""
        try:
            if not self._done.wait(timeout_s):
                waited = f"no answer to {self.what} within {timeout_s:.0f} s"
                raise OutcomeUnknown(f"{waited}; is a Dispatcher running?")
        finally:
            self._link.forget(self.correlation)
        if self._reply is None:
            raise OutcomeUnknown(f"{self.what} may not have reached Kafka: {self._failure}")
        return _parsed(self._reply)

    def settle(self, reply: dict[str, Any] | None, failure: str | None = None) -> None:
        self._reply, self._failure = reply, failure
        self._done.set()


class Gathering(PendingReply):
    """A question to all, on its way."""

    def __init__(self, link: Link, what: str, correlation: str) -> None:
        super().__init__(link, what, correlation)
        self._replies: list[dict[str, Any]] = []

    def results(self, within_s: float) -> list[base.Reply]:
        """The answers that come within this time. Raises Unavailable if Kafka does not take the question."""
        try:
            self._done.wait(within_s)  # it is set by a failure alone
        finally:
            self._link.forget(self.correlation)
        if self._failure is not None:
            raise Unavailable(f"{self.what} has not reached Kafka: {self._failure}")
        return [_parsed(reply) for reply in list(self._replies)]

    def settle(self, reply: dict[str, Any] | None, failure: str | None = None) -> None:
        if reply is not None:
            self._replies.append(reply)
        else:
            super().settle(None, failure)


def _parsed(reply: dict[str, Any]) -> base.Reply:
    body = _REPLY_TYPES.get(str(reply.get("type")))
    if body is None:
        raise Unavailable(f"the cluster answers with {reply.get('type')}, which this version does not know")
    return body.model_validate_json(json.dumps(reply), extra="ignore")  # a later Dispatcher may say more


class Link:
    """`bootstrap`: host:port[,host:port]. `options`: further librdkafka options (security). Raises Unavailable within
    `connect_s` when there is no Kafka, or no Millrace in it."""

    def __init__(
        self,
        bootstrap: str,
        options: Mapping[str, Any] | None = None,
        *,
        connect_s: float = 5.0,
        delivery_s: float = 10.0,
    ) -> None:
        self.bootstrap, self.options = bootstrap, options
        self.reply_to = f"client-{secrets.token_hex(8)}"
        self._key = self.reply_to.encode()
        self._config = {"bootstrap.servers": bootstrap, "client.id": self.reply_to, **_COMMON, **(options or {})}
        self._producer = Producer(
            {**self._config, "acks": "all", "linger.ms": 0, "message.timeout.ms": int(delivery_s * 1000)}
        )
        self._pending: dict[str, PendingReply] = {}
        self._numbers = itertools.count(1)
        self._closed = threading.Event()
        counts = self._connect(connect_s)
        self.event_partitions = counts[EVENTS]
        partition = zlib.crc32(self._key) % counts[REPLIES]
        self._reader = self.reader_at_end([TopicPartition(REPLIES, partition)])
        self._thread = threading.Thread(target=self._read, name="millrace-replies", daemon=True)
        self._thread.start()

    def _connect(self, timeout_s: float) -> dict[str, int]:
        try:
            topics = self._producer.list_topics(timeout=timeout_s).topics
        except KafkaException as failure:
            reason = failure.args[0].str()
            raise Unavailable(
                f"Kafka at {self.bootstrap} does not answer within {timeout_s:.0f} s ({reason}); "
                "is the stack up (millrace up), and is this its address?"
            ) from None
        missing = [name for name in (REQUESTS, REPLIES, EVENTS) if name not in topics or not topics[name].partitions]
        if missing:
            raise Unavailable(
                f"Kafka at {self.bootstrap} has no topic {missing[0]}: no Millrace cluster was set up in it"
            )
        return {name: len(topics[name].partitions) for name in (REPLIES, EVENTS)}

    def reader_at_end(self, where: list[TopicPartition]) -> Consumer:
        """A consumer that reads from the ends of these partitions, as they are now. Raises Unavailable."""
        reader = self.reader()
        for each, (_, end) in zip(where, self.marks(reader, where), strict=True):
            each.offset = end
        reader.assign(where)
        return reader

    def marks(self, reader: Consumer, where: list[TopicPartition]) -> list[tuple[int, int]]:
        """First offset and end of each partition. Asked again for some time: a partition that was just made, or whose broker died, has
        no leader for a while. Each question is short, and before the next one the brokers are asked who leads. Left alone, the library
        asks the leader that it knows, even a dead one, or denies a partition that was made since. Raises Unavailable, the reader closed."""
        deadline = time.monotonic() + LEADERLESS_S
        found: list[tuple[int, int]] = []
        while len(found) < len(where):
            try:
                found.append(reader.get_watermark_offsets(where[len(found)], timeout=ASK_S))
            except KafkaException as failure:
                if time.monotonic() >= deadline:
                    reader.close()
                    raise Unavailable(f"Kafka at {self.bootstrap} does not answer: {failure.args[0].str()}") from None
                time.sleep(TURN_S)
                with suppress(KafkaException):
                    reader.list_topics(where[len(found)].topic, timeout=ASK_S)
        return found

    def reader(self, partitions: int = 4) -> Consumer:
        """A consumer, to be assigned so many partitions. What it fetches ahead grows with them."""
        ahead = {"queued.max.messages.kbytes": min(partitions * AHEAD_KB, AHEAD_MOST_KB)}
        return Consumer({**self._config, **_READER, **ahead, "auto.offset.reset": "earliest"})

    def ask(self, request: base.Request | AskProcess, headers: Sequence[tuple[str, bytes]] = ()) -> PendingReply:
        """Sends a request; its fields `reply_to` and `correlation` are set here. Never waits."""
        awaits = request.job if isinstance(request, client.AwaitJobResult) else None
        pending = PendingReply(self, request.type, f"{next(self._numbers)}", awaits)
        self._send(request, pending, headers)
        return pending

    def ask_all(self, question: AskProcess) -> Gathering:
        """The same of a question to all processes."""
        gathering = Gathering(self, question.type, f"{next(self._numbers)}")
        self._send(question, gathering)
        return gathering

    def _send(
        self, request: base.Request | AskProcess, pending: PendingReply, headers: Sequence[tuple[str, bytes]] = ()
    ) -> None:
        self._pending[pending.correlation] = pending
        value = request.model_copy(update={"reply_to": self.reply_to, "correlation": pending.correlation}).model_dump_json()
        topic, key = (PROCESS_QUESTIONS, request.process.encode()) if isinstance(request, AskProcess) else (REQUESTS, self._key)
        try:
            self._producer.produce(
                topic, value, key=key, headers=list(headers), on_delivery=lambda error, _: self._delivered(pending, error)
            )
        except (KafkaException, BufferError) as failure:
            self.forget(pending.correlation)
            raise Unavailable(f"the request cannot be sent: {failure}") from None

    def publish(self, topic: str, value: bytes, *, key: bytes | None, headers: Sequence[tuple[str, bytes]] = ()) -> int:
        """Writes one record to partition 0 and waits until Kafka has it; its offset. Raises Refused, Unavailable."""
        done: list[tuple[KafkaError | None, int | None]] = []
        try:
            self._producer.produce(
                topic, value, key=key, headers=list(headers), partition=0,
                on_delivery=lambda error, message: done.append((error, message.offset())),
            )  # fmt: skip
        except (KafkaException, BufferError) as failure:
            raise Refused(f"a record of {len(value)} bytes for {topic} is not taken: {failure}") from None
        while not done:  # ends: what is not delivered in `delivery_s` has failed
            self._producer.poll(PUBLISH_TURN_S)
        error, offset = done[0]
        if error is not None:
            raise Unavailable(f"Kafka at {self.bootstrap} did not take a record for {topic}: {error.str()}")
        return offset or 0

    def send(self, topic: str, value: bytes, key: bytes, failed: Callable[[str], None]) -> None:
        """Writes one record to partition 0, and waits for nothing; `failed` is told if Kafka does not get it."""
        try:
            self._producer.produce(
                topic, value, key=key, partition=0, on_delivery=lambda error, _: failed(error.str()) if error is not None else None
            )
        except (KafkaException, BufferError) as failure:
            failed(str(failure))

    def forget(self, correlation: str) -> None:
        self._pending.pop(correlation, None)

    def close(self) -> None:
        """Ends the connection; requests without an answer stay so."""
        self._closed.set()
        self._thread.join(5)
        self._producer.purge()
        self._producer.flush(0.1)

    @staticmethod
    def _delivered(pending: PendingReply, error: KafkaError | None) -> None:
        if error is not None:
            pending.settle(None, error.str())

    def _read(self) -> None:
        while not self._closed.is_set():
            message = self._reader.poll(TURN_S)
            self._producer.poll(0)
            if message is None or message.error() is not None or message.key() != self._key:
                continue
            try:
                reply = json.loads(message.value() or b"")
                answered = [self._pending.get(reply["correlation"])]
            except (ValueError, KeyError, TypeError, RecursionError):
                continue  # no reply of a Dispatcher
            if reply.get("type") == "JobResult":  # several that wait for one job's end: the newest asking is answered
                answered = [each for each in list(self._pending.values()) if each.awaits == reply.get("job")]
            for pending in answered:
                if pending is not None:
                    pending.settle(reply)
        self._reader.close()


def partition_of(job: str, partitions: int) -> int:
    """The partition of job.events that carries this job."""
    return zlib.crc32(job.encode()) % partitions


def wall_ms() -> int:
    """Unix time."""
    return time.time_ns() // 1_000_000
