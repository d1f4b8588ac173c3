"""Distinct submissions as fast as one client can: how many are stored and answered a second."""

from __future__ import annotations

import time

from confluent_kafka import Producer

from millrace.core.messages import client
from millrace.io.etcd.store import EtcdStore
from millrace.io.interfaces import Compare, Put, Txn
from millrace.io.kafka.admin import KafkaAdmin

from .clusters import Cluster, cluster, expect_finished, sql_graph
from .figures import Row, Run, p50

LEAST = 1000.0
BATCH = 40
TOPIC = "bench-burst"


def measure(run: Run) -> None:
    n, rounds = run.count(3000, 500), run.count(3, 1)
    rates, produced, put = [], [], []
    with cluster("burst", run.say, slots=16, simulated=True) as running:
        KafkaAdmin(running.kafka).ensure_topics([(TOPIC, 1, {})])
        _burst(running, "warm", 200)
        for number in range(rounds):
            run.say(f"round {number + 1} of {rounds}")
            rates.append(_burst(running, f"round{number}", n))
            records = _records(f"raw{number}", n)
            produced.append(_produce(running.kafka, records))
            put.append(_put(running.etcd, f"raw{number}", records))
    raw = [n / (a + b) for a, b in zip(produced, put, strict=True)]
    run.samples |= {"a_second": rates, "raw_produce_s": produced, "raw_puts_s": put}
    run.rows.append(Row(
        f"accepted and stored, burst of {n:,}", rounds, f"{p50(rates):,.0f} a second",
        f"least {min(rates):,.0f} a second",
        f"produce {n / p50(produced):,.0f} and puts {n / p50(put):,.0f}: {p50(raw):,.0f} a second",
        f"{p50(rates) / p50(raw):.2f} x", f"{LEAST:,.0f} a second", p50(rates) >= LEAST,
    ))  # fmt: skip


def graph(label: str, number: int) -> dict[str, object]:
    return sql_graph(f"SELECT {number} AS number, '{label}' AS label")


def _burst(running: Cluster, label: str, n: int) -> float:
    """Submissions a second, from the first send to the last answer; returns when all of them have ended."""
    before = running.client.overview().jobs
    started = time.perf_counter()
    sent = [running.client.begin_submit(graph(label, number), watch=False) for number in range(n)]
    for each in sent:
        each.result()
    rate = n / (time.perf_counter() - started)
    running.settle()
    after = running.client.overview().jobs
    ended = {status: count - before.get(status, 0) for status, count in after.items() if count != before.get(status, 0)}
    expect_finished(ended)
    if ended != {"FINISHED": n}:
        raise RuntimeError(f"{n} jobs were accepted, and these have ended: {ended}")
    return rate


def _records(label: str, n: int) -> list[bytes]:
    """The requests as a client sends them."""
    requests = (
        client.SubmitJob(job=f"bench-{label}-{number}", graph=graph(label, number), reply_to="client", correlation="1")
        for number in range(n)
    )
    return [request.model_dump_json().encode() for request in requests]


def _produce(bootstrap: str, records: list[bytes]) -> float:
    """Seconds until Kafka has them all."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    producer.list_topics(TOPIC, timeout=10)
    started = time.perf_counter()
    for record in records:
        producer.produce(TOPIC, record)
    left = producer.flush(60)
    if left:
        raise RuntimeError(f"{left} records were not delivered")
    return time.perf_counter() - started


def _put(endpoint: str, label: str, records: list[bytes]) -> float:
    """Seconds until etcd has them all: one checked transaction after the other."""
    store = EtcdStore(endpoint, f"/bench/{label}/", timeout_s=10)
    started = time.perf_counter()
    for first in range(0, len(records), BATCH):
        values = {f"jobs/{first + index}": value for index, value in enumerate(records[first : first + BATCH])}
        done = store.txn(Txn([Compare(key, 0) for key in values], [Put(key, value) for key, value in values.items()]))
        assert done.succeeded, "somebody else wrote these keys"
    took = time.perf_counter() - started
    store.close()
    return took
