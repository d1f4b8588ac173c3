"""How Millrace's clients of Kafka are set, and what of the library's own log is shown."""

from __future__ import annotations

import logging
import time
from typing import Any

log = logging.getLogger("millrace.kafka")


class _Plain(logging.Filter):
    """What librdkafka says of a broker that is away: once in a while, not at each of its many tries. Its word that the gapless
    guarantee is experimental comes at each start, and is known."""

    EVERY_S = 10.0
    _RETRIED = ("Connection refused", "Disconnected", "Failed to acquire idempotence PID", "brokers are down", "not found in cache")

    def __init__(self) -> None:
        super().__init__()
        self._logged: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if "enable.gapless.guarantee is experimental" in text or "Purged in flight" in text:  # by `KafkaBus.close`
            return False
        kind = next((each for each in self._RETRIED if each in text), None)
        if kind is None:
            return True
        now = time.monotonic()
        if now - self._logged.get(kind, -self.EVERY_S) < self.EVERY_S:
            return False
        self._logged[kind] = now
        return True


log.addFilter(_Plain())

MESSAGE_MAX_BYTES = 1_000_000
"""The largest record, key and headers included; with what a batch adds still below Kafka's `max.message.bytes`."""

ASKED_S = 1.4
"""The longest wait for an answer about a partition. Two of them leave a loop that asks time to renew its lease (`runtime/service.py`)."""

COMMON: dict[str, Any] = {
    "log_level": 4,  # warnings and worse; librdkafka's own, forwarded to `millrace.kafka`
    "statistics.interval.ms": 0,
    "socket.nagle.disable": True,
    "socket.keepalive.enable": True,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,  # a restarted broker is found again within half a second
    "allow.auto.create.topics": False,
}

PRODUCER: dict[str, Any] = {  # [R12]
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

STATISTICS = {"statistics.interval.ms": 10_000}
"""How often a producer says how its brokers do. The library's own threads write it; nobody reads it but for the metrics."""

CONSUMER: dict[str, Any] = {
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
