"""Replaying a live cluster's logs: the state at the end of a long inbox, and one job's story among many."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, Producer, TopicPartition

from deploy.local.downloads import CHECKOUT
from millrace import __version__
from millrace.core.fold import ScopeState
from millrace.core.topics import DISPATCHER, TOPICS, Topology
from millrace.io.etcd.store import EtcdStore
from millrace.io.interfaces import Compare, Put, Txn
from millrace.io.kafka.admin import KafkaAdmin
from millrace.io.storage.store import Storage
from millrace.runtime.saving import SNAPSHOT_RECORDS
from millrace.runtime.snapshots import Snapshots

from .clusters import environment, servers, sql_graph
from .conversation import Conversation, Said
from .figures import Row, Run, p50

RECORDS, JOBS = 1_000_000, 10_000
STATE_MOST_S, STATE_MOST_MB, STORY_MOST_S = 30.0, 500.0, 2.0


def measure(run: Run) -> None:
    records, jobs = run.count(RECORDS, 20_000), run.count(JOBS, 200)
    with servers("replay") as (kafka, etcd):
        kafka.start()
        etcd.start()
        _state(run, kafka.bootstrap, etcd.endpoint, records)
        _story(run, kafka.bootstrap, etcd.endpoint, jobs)


def _state(run: Run, bootstrap: str, endpoint: str, records: int) -> None:
    """A leader leaves a snapshot every SNAPSHOT_RECORDS, from which a state is folded; without any, everything is folded."""
    with tempfile.TemporaryDirectory() as storage:
        with _written(bootstrap, endpoint, "state") as out:
            folded = _talked(run, out, EtcdStore(endpoint, "/millrace/state/"), Storage(storage), records)
        bare = _consume(bootstrap, "dispatcher.commands", folded.next_offset)
        for what, place in (("with a leader's snapshots", storage), ("without a snapshot", "")):
            words = ("state", DISPATCHER, "--path", "digest", "--json")
            _state_row(run, what, bare, folded, _replay(bootstrap, endpoint, *words, storage=place))


def _talked(run: Run, out: Callable[[Said], None], store: EtcdStore, storage: Storage, records: int) -> ScopeState:
    """The state at the end of so many records of the Dispatcher's inbox."""
    talk, due = Conversation(sql_graph("SELECT 1 AS one"), out, __version__, alone=True), SNAPSHOT_RECORDS
    party = talk.parties[DISPATCHER]
    snapshots = Snapshots(store, storage, party.fold.machine)
    while party.folded.next_offset < records:
        talk.submit()
        if party.folded.next_offset >= due:
            snapshots.save(party.folded)
            due = party.folded.next_offset + SNAPSHOT_RECORDS
        if talk.jobs % 20_000 == 0:
            run.say(f"{party.folded.next_offset:,} of {records:,} records are written")
    store.close()
    return party.folded


def _state_row(run: Run, what: str, bare: float, folded: ScopeState, replayed: tuple[float, float, str]) -> None:
    took, memory_mb, text = replayed
    if json.loads(text)["state"] != folded.digest:
        raise RuntimeError("the replay led to another state than the fold that wrote the records")
    run.samples[f"state_{what.replace(' ', '_')}"] = {"seconds": took, "memory_mb": memory_mb, "consume_s": bare}
    run.rows.append(Row(
        f"replay state at the end of {folded.next_offset:,} records, {what}", 1, f"{took:.1f} s", f"{memory_mb:.0f} MB",
        f"consuming them alone {bare:.1f} s", f"{took / bare:.1f} x", f"{STATE_MOST_S:.0f} s, {STATE_MOST_MB:.0f} MB",
        took <= STATE_MOST_S and memory_mb <= STATE_MOST_MB,
    ))  # fmt: skip


def _story(run: Run, bootstrap: str, endpoint: str, jobs: int) -> None:
    KafkaAdmin(bootstrap).delete_topics([topic.name for topic in TOPICS])
    counts: dict[str, int] = {}
    with _written(bootstrap, endpoint, "story", counts) as out:
        talk = Conversation(sql_graph("SELECT 1 AS one"), out, __version__)
        for number in range(jobs):
            talk.submit()
            if (number + 1) % 2_000 == 0:
                run.say(f"{number + 1:,} of {jobs:,} jobs are written")
    took, steps = [], 0
    for job in ("job-000000", f"job-{jobs // 2:06d}", f"job-{jobs - 1:06d}"):
        seconds, _, text = _replay(bootstrap, endpoint, "story", job, "--json", cluster="story")
        told = json.loads(text)
        if told["status"] != "FINISHED":
            raise RuntimeError(f"the story of {job} has no end")
        took.append(seconds)
        steps = len(told["steps"])
    total = sum(counts.values())
    bare = sum(_consume(bootstrap, topic, count) for topic, count in counts.items())
    run.samples |= {"story_s": took, "story_consume_s": bare}
    run.rows.append(Row(
        f"replay story of a job among {jobs:,}", len(took), f"{p50(took):.2f} s",
        f"max {max(took):.2f} s, {steps} steps of {total:,} records",
        f"consuming all of them {bare:.2f} s", f"{p50(took) / bare:.1f} x", f"{STORY_MOST_S:.0f} s", max(took) <= STORY_MOST_S,
    ))  # fmt: skip


@contextmanager
def _written(bootstrap: str, endpoint: str, cluster: str, counts: dict[str, int] | None = None) -> Iterator[Callable[[Said], None]]:
    """A cluster's topics and keys; what is given is written with its own stamps, for the fold that made it went by them."""
    store, topology = EtcdStore(endpoint, f"/millrace/{cluster}/"), Topology()
    admin = KafkaAdmin(bootstrap)
    admin.ensure_topics(
        (topic.name, topic.count(topology), {**topic.config(), "message.timestamp.type": "CreateTime", "retention.ms": "-1"})
        for topic in TOPICS  # the stamps are old ones, and must not make the records go
    )
    store.txn(Txn([Compare("topology", 0)], [Put("topology", json.dumps(topology.__dict__).encode())]))
    for scope in topology.scopes():
        generation = {"generation": 1, "log_id": admin.log_id(topology.inbox(scope)[0]), "first_offset": 0}
        store.txn(Txn((), [Put(f"generations/{scope}", json.dumps(generation).encode())]))
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 2_000_000})

    def out(said: Said) -> None:
        if counts is None and said.topic != "dispatcher.commands":
            return
        if counts is not None:
            counts[said.topic] = counts.get(said.topic, 0) + 1
        producer.produce(
            said.topic, said.value, said.key, said.partition, timestamp=said.stamp_ms, headers=[("ce_id", said.id)]
        )
        producer.poll(0)

    try:
        yield out
        if producer.flush(120):
            raise RuntimeError("records were not delivered")
    finally:
        store.close()


def _replay(
    bootstrap: str, endpoint: str, *words: str, cluster: str = "state", storage: str = ""
) -> tuple[float, float, str]:
    """Seconds, resident MB at most, and what the command printed."""
    env = {**environment(), "MILLRACE_KAFKA_BOOTSTRAP": bootstrap, "MILLRACE_ETCD_ENDPOINT": endpoint, "MILLRACE_CLUSTER": cluster}
    env |= {"MILLRACE_STORAGE_URL": storage} if storage else {}
    program = "import sys; from deploy.cli import main; main()"
    started = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, "-c", program, "replay", *words], cwd=CHECKOUT, env=env, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    text = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    took = time.perf_counter() - started
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"replay {' '.join(words)} ended with {child.returncode}")
    return took, usage.ru_maxrss / 1024, text


def _consume(bootstrap: str, topic: str, count: int) -> float:
    """Seconds to get so many records of a topic, and do nothing with them."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False})
    partitions = next(each.count(Topology()) for each in TOPICS if each.name == topic)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    started, got = time.perf_counter(), 0
    while got < count:
        got += len(consumer.consume(10_000, 1.0))
    took = time.perf_counter() - started
    consumer.close()
    return took
