"""The bare chain: as many Kafka records one after the other as lie between a submission and RUNNING, among as many processes,
with one etcd transaction, through the same Kafka and etcd clients; and nothing else. What the services add is the rest.

`python -m tests.bench.chain ROLE BOOTSTRAP ETCD` is one of its processes.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from deploy.local.processes import spawn
from millrace.io.etcd.store import EtcdStore
from millrace.io.interfaces import Compare, Put, Txn
from millrace.io.kafka.admin import KafkaAdmin
from millrace.io.kafka.bus import KafkaBus

from .clusters import Cluster, environment

ROLES = ("dispatcher", "job-master", "resource-manager", "task-manager")
ROUTE = (
    "dispatcher",  # the request
    "dispatcher",  # copied into the inbox; its fold puts the graph into etcd
    "dispatcher",  # the outcome
    "job-master",  # StartJob
    "resource-manager",  # RequestSlots
    "task-manager",  # AllocateSlot
    "job-master",  # OfferSlots
    "task-manager",  # DeployTasks
    "job-master",  # TaskStateChanged
    "client",  # AttemptStateChanged: RUNNING
)
STORES = 1  # the record after which etcd is asked
RECORD_BYTES = 500
GIVE_UP_S = 30.0


def topic(role: str) -> str:
    return f"bench-{role}"


def pass_on(role: str, bootstrap: str, etcd: str) -> None:
    """Takes records from the role's topic and sends their successors, for ever."""
    bus = KafkaBus(bootstrap, client_id=f"bench-{role}", on_fatal=_die)
    store, numbers = EtcdStore(etcd, "/bench/"), itertools.count()
    reader = bus.reader(topic(role), 0, 0)
    while True:
        for received in reader.poll(500):
            at = received.value[0]
            if at == STORES:
                key = f"jobs/{next(numbers)}"
                put = store.txn(Txn([Compare("leader", 0), Compare(key, 0)], [Put(key, received.value)]))
                assert put.succeeded, "somebody else wrote this key"
            bus.append(topic(ROUTE[at + 1]), 0, bytes([at + 1]) + received.value[1:])
        bus.serve()


def _die(reason: str) -> None:
    print(reason, file=sys.stderr, flush=True)
    os._exit(1)


class Chain:
    """The client's end of it."""

    def __init__(self, bus: KafkaBus) -> None:
        self._bus = bus
        self._reader = bus.reader(topic("client"), 0, 0)

    def turn(self) -> float:
        """Seconds from the first record's start to the last one's arrival."""
        started = time.perf_counter()
        self._bus.append(topic(ROUTE[0]), 0, bytes(RECORD_BYTES))
        while not self._reader.poll(500):
            if time.perf_counter() - started > GIVE_UP_S:
                raise TimeoutError(f"the bare chain did not answer within {GIVE_UP_S:.0f} s")
        took = time.perf_counter() - started
        self._bus.serve()
        return took


@contextmanager
def chain(cluster: Cluster) -> Iterator[Chain]:
    """The chain on the cluster's own Kafka and etcd, in topics and keys of its own."""
    config = {"message.timestamp.type": "LogAppendTime"}
    KafkaAdmin(cluster.kafka).ensure_topics([(topic(role), 1, config) for role in (*ROLES, "client")])
    logs = cluster.stack.folder / "logs"
    children = []
    bus = KafkaBus(cluster.kafka, client_id="bench-client", on_fatal=_die)
    try:
        for role in ROLES:
            command = [sys.executable, "-m", "tests.bench.chain", role, cluster.kafka, cluster.etcd]
            children.append(spawn(command, log=logs / f"bench-{role}.log", env=environment(), cwd=logs))
        yield Chain(bus)
    finally:
        for child in children:
            child.stop(1.0)
        bus.close()


if __name__ == "__main__":
    pass_on(*sys.argv[1:4])
