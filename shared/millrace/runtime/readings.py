"""What the metrics show of the scopes of a process, and of Kafka and etcd as it meets them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from millrace.io.kafka.bus import KafkaBus

from . import metrics
from .loop import ScopeLoop
from .metrics import Sample


def etcd_answered(operation: str, seconds: float, answered: bool) -> None:
    """For `EtcdStore`."""
    metrics.ETCD_SECONDS.observe(seconds, operation)
    if not answered:
        metrics.ETCD_FAILURES.add(operation)


def of_kafka(bus: KafkaBus) -> Iterator[Sample]:
    """By the library's own clocks: an acknowledgement is taken in by a loop when that wakes, so ours would measure its rest. Any thread."""
    statistics = [json.loads(text) for text in list(bus.statistics) if text]
    if statistics:
        yield metrics.KAFKA_QUEUE.of(sum(each["msg_cnt"] for each in statistics))
    trips = [broker["rtt"] for each in statistics for broker in each["brokers"].values() if broker["rtt"]["cnt"]]
    for measure, quantile in (("p50", "0.5"), ("p99", "0.99")):
        if trips:
            yield metrics.KAFKA_SECONDS.of(max(trip[measure] for trip in trips) / 1e6, quantile)


def of_scopes(loops: Sequence[ScopeLoop]) -> Iterator[Sample]:
    """Of each scope that the process hosts; of what its machine knows, while it leads. Any thread."""
    for loop in loops:
        scope, replica = loop.scope, loop.replica
        yield metrics.LOOP_AGE.of((loop.around.clock() - loop.turned_ms) / 1000, scope)
        yield metrics.LEADS.of(replica is not None and replica.leads, scope)
        if replica is None:
            continue
        folded = replica.folded
        yield metrics.EPOCH.of(folded.epoch, scope)
        yield metrics.GENERATION.of(folded.generation, scope)
        yield metrics.OFFSET.of(folded.next_offset, scope)
        yield metrics.OUTBOX.of(len(folded.outbox), scope)
        yield metrics.EFFECTS.of(len(folded.effects), scope)
        if replica.leads:
            yield from loop.hosted.shows(folded.state)
