"""A live cluster as a source: its logs in Kafka, its generations in etcd, its snapshots in storage. Reads, and nothing else."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence

from confluent_kafka import Message

from millrace.core.cluster import short
from millrace.core.fold import ScopeState
from millrace.core.topics import TOPICS
from millrace.io.interfaces import OffsetGone, Store, Unavailable
from millrace.io.kafka.bus import headers_of, offset_of
from millrace.io.kafka.logs import KafkaLogs, LogReader
from millrace.io.storage.store import Storage
from millrace.runtime.identity import of_store
from millrace.runtime.parked import ParkedRecords
from millrace.runtime.service import read_topology
from millrace.runtime.snapshots import named, thaw

from .core.recorded import BadLog, Facts, Log, Recorded, Scope, Shortened
from .machines import fold_of

BATCH = 10_000
WAIT_MS = 1_000
SILENT_S = 15.0  # a log that should have more records and gives none


class Live:
    """See `Source`. Each log ends where it ended when it was first asked for. `storage` None: no snapshot is used."""

    def __init__(self, kafka: KafkaLogs, store: Store, storage: Storage | None, cluster: str) -> None:
        self._kafka, self._store, self._storage = kafka, store, storage
        self._logs: list[Log] = []
        self.facts = self._read_facts(cluster)

    def _read_facts(self, cluster: str) -> Facts:
        topology, scopes = read_topology(self._store), {}
        for name in topology.scopes():
            entry = self._store.get(f"generations/{name}")
            if entry is None:
                continue  # nobody has folded it yet
            value, (topic, partition) = json.loads(entry.value), topology.inbox(name)
            parked = ParkedRecords(self._store, name, "")
            parked.load(value["generation"])
            scopes[name] = Scope(
                name, topic, partition, value["generation"], value["log_id"], value["first_offset"], parked.offsets()
            )
        return Facts(cluster, topology, scopes)

    def logs(self) -> list[Log]:
        for topic in () if self._logs else TOPICS:
            log_id = self._kafka.log_id(topic.name)
            for partition in range(topic.count(self.facts.topology)):
                self._logs.append(Log(topic.name, partition, log_id, *self._kafka.offsets(topic.name, partition)))
        return list(self._logs)

    def read(self, log: Log, first: int, ids: bool = True) -> Iterator[Recorded]:
        return (_recorded(log, message, ids) for messages in self._batches(log, first) for message in messages)

    def scan(self, logs: Sequence[Log], words: Callable[[], Sequence[bytes]]) -> Iterator[Recorded]:
        """All of them are fetched at once, and searched one after the other. Each batch is searched as a whole first: one long search takes
        half the time of many short ones, and most batches have nothing."""
        sought = words()
        read = [(log, self._batches(log, log.first)) for log in logs]
        for log, batches in read:
            for messages in batches:
                values = [message.value() or b"" for message in messages]
                together = b"\n".join(values)
                if not any(word in together for word in sought):
                    continue
                for message, value in zip(messages, values, strict=True):
                    if any(word in value for word in sought):
                        yield _recorded(log, message, True)
                        sought = words()

    def follow(self) -> Iterator[Recorded]:
        """What is written from now on, to any log."""
        readers = [(log, self._kafka.reader(log.topic, log.partition, log.end)) for log in self.logs()]
        while True:
            found = [(log, message) for log, reader in readers for message in reader.scan(0, BATCH)]
            yield from sorted((_recorded(log, message, True) for log, message in found), key=lambda each: each.stamp_ms)
            if not found:
                time.sleep(0.05)

    def _batches(self, log: Log, first: int) -> Iterator[list[Message]]:
        """The library's own messages; they are fetched from now on."""
        return self._read(log, first, self._kafka.reader(log.topic, log.partition, first)) if first < log.end else iter(())

    def _read(self, log: Log, first: int, reader: LogReader) -> Iterator[list[Message]]:
        received_s = time.monotonic()
        try:
            while first < log.end:
                messages = reader.scan(WAIT_MS, min(BATCH, log.end - first))
                if messages:
                    first, received_s = offset_of(messages[-1]) + 1, time.monotonic()
                    yield messages if first <= log.end else [each for each in messages if offset_of(each) < log.end]
                elif time.monotonic() - received_s > SILENT_S:
                    raise Unavailable(f"Kafka gives no record of {log.name} from offset {first} on, and it ends at {log.end}")
        except OffsetGone as gone:
            reason = f"{log.name} has lost offset {gone.offset} while it was read: it has {gone.first} to {gone.end}"
            raise Shortened(reason, self._logs.clear) from None
        finally:
            reader.close()

    def offset_at(self, log: Log, stamp_ms: int) -> int:
        return self._kafka.offset_at(log.topic, log.partition, stamp_ms)

    def newest_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def snapshots(self, scope: Scope) -> Sequence[int]:
        return sorted(self._snapshots(scope))

    def snapshot(self, scope: Scope, offset: int) -> ScopeState:
        assert self._storage is not None
        path = self._snapshots(scope)[offset]
        try:
            return thaw(fold_of(scope.name, self.facts.topology).machine, self._storage.get(path))
        except ValueError as failure:
            raise BadLog(f"the snapshot {path} is damaged, or another build wrote it: {failure}; its own build reads it") from None

    def _snapshots(self, scope: Scope) -> dict[int, str]:
        """Offset -> path of the snapshots of the scope's generation that are kept."""
        found = {}
        for each in named(self._storage, scope.name) if self._storage is not None else ():
            if each.generation == scope.generation and each.cluster in ("", short(of_store(self._store))):
                found[each.offset] = each.path
        return found

    def close(self) -> None:
        self._store.close()


def _recorded(log: Log, message: Message, ids: bool) -> Recorded:
    key, id = message.key(), ""
    for name, value in headers_of(message) if ids else ():
        if name == "ce_id" and value is not None:
            id = value.decode(errors="replace")
    return Recorded(
        log.topic, log.partition, offset_of(message), message.timestamp()[1],
        key.decode(errors="replace") if key else "", message.value() or b"", id,
    )  # fmt: skip
