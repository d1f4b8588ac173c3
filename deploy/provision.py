"""Makes a cluster what its services expect: its identity and topics in Kafka, identity and topology in etcd. Run again, it changes nothing.

python -m deploy.provision --kafka-bootstrap HOST:PORT --etcd-endpoint HOST:PORT [--cluster NAME] [--shards N] [--wait-s SECONDS]
                           [--take-storage FOLDER_OR_URL]
"""

from __future__ import annotations

import json
import socket
import time
from dataclasses import asdict
from typing import Annotated

import typer

from millrace.core.topics import IDENTITY, TOPICS, Topology
from millrace.io.addresses import parted
from millrace.io.etcd.store import EtcdStore
from millrace.io.interfaces import Bus, Compare, Put, Store, Txn, Unavailable
from millrace.io.kafka.admin import KafkaAdmin
from millrace.io.kafka.bus import KafkaBus
from millrace.io.storage.store import Storage, StorageError
from millrace.runtime import shut_down
from millrace.runtime.identity import OtherCluster, Owner, await_end_of_0_1_0, claim, of_store, take

ASK_AGAIN_S = 0.2


class OtherTopology(Exception):
    """The cluster was made with other counts, which are fixed for its life."""


def provision(admin: KafkaAdmin, store: Store, topology: Topology, name: str = "default") -> list[str]:
    """Whose Kafka it is first [R29], then the topology (it is what is fixed), then topics. Returns a line for each change. Raises
    OtherCluster, OtherTopology, StillRuns, Unavailable, ValueError (a topic with another number of partitions: no topology is stored)."""
    await_end_of_0_1_0(store)
    lines = identify(admin, store, name)
    if store.get("topology") is None:  # or etcd has lost its data, and the logs have not: they tell the counts
        admin.check_partitions({topic.name: topic.count(topology) for topic in TOPICS})
    value = json.dumps(asdict(topology), sort_keys=True).encode()
    if store.txn(Txn([Compare("topology", 0)], [Put("topology", value)])).succeeded:
        lines.append(f"stored the topology {asdict(topology)}")
    entry = store.get("topology")
    standing = json.loads(entry.value) if entry is not None else {}
    if standing != asdict(topology):
        raise OtherTopology(
            f"the cluster has {standing}, and not {asdict(topology)}: counts are fixed for a cluster's life"
        )
    if (ended := shut_down.reopen(store)) is not None:
        lines.append(f"opened again; {ended}".replace("is shut down", "was shut down"))
    return lines + admin.ensure_topics([(topic.name, topic.count(topology), topic.config()) for topic in TOPICS])


def identify(admin: KafkaAdmin, store: Store, name: str) -> list[str]:  # [R29]
    """Gives the cluster its uuid, in etcd and in Kafka. Raises OtherCluster, Unavailable."""
    lines = admin.ensure_topics([(topic.name, 1, topic.config()) for topic in TOPICS if topic.name == IDENTITY])
    bus = bus_of(admin)
    try:
        cluster, wrote = claim(bus, store, name)
    finally:
        bus.close()
    return [*lines, f"stored the cluster's identity {cluster}"] if wrote else lines


def bus_of(admin: KafkaAdmin) -> Bus:
    return KafkaBus(admin.bootstrap, client_id="provision", on_fatal=lambda reason: None)


def wait_for(addresses: str, give_up_s: float) -> None:
    """Returns when one of `host:port[,host:port]` takes connections, or at `give_up_s` (monotonic): Kafka's and etcd's own
    clients tell each refusal."""
    while True:
        for address in addresses.split(","):
            try:
                socket.create_connection(parted(address), timeout=1).close()
                return
            except (OSError, ValueError):
                pass
        if time.monotonic() > give_up_s:
            return
        time.sleep(ASK_AGAIN_S)


def main(
    kafka_bootstrap: Annotated[str, typer.Option(help="Kafka, host:port.", envvar="MILLRACE_KAFKA_BOOTSTRAP")],
    etcd_endpoint: Annotated[str, typer.Option(help="etcd, host:port.", envvar="MILLRACE_ETCD_ENDPOINT")],
    cluster: Annotated[str, typer.Option(help="The cluster's name.", envvar="MILLRACE_CLUSTER")] = "default",
    shards: Annotated[int, typer.Option(help="JobMaster shards; fixed for the cluster's life.", min=1, max=64)] = 1,
    wait_s: Annotated[float, typer.Option(help="Seconds to wait for Kafka and etcd to be there.", min=0)] = 0,
    take_storage: Annotated[str, typer.Option(help="Storage of another cluster, which no longer runs, that this one is to own.")] = "",
) -> None:
    """Makes the topics, stores identity and topology. Safe to run again."""
    give_up_s = time.monotonic() + wait_s
    try:
        for address in (kafka_bootstrap, etcd_endpoint):
            wait_for(address, give_up_s)
        admin, store = KafkaAdmin(kafka_bootstrap), EtcdStore(etcd_endpoint, f"/millrace/{cluster}/")
        while True:
            try:
                lines = provision(admin, store, Topology(shards=shards), cluster)
                break
            except Unavailable:  # etcd without a leader yet, fewer brokers than a topic has replicas
                if time.monotonic() > give_up_s:
                    raise
                time.sleep(ASK_AGAIN_S)
        if take_storage and (before := take(Storage(take_storage), Owner(of_store(store), cluster))) is not None:
            lines.append(f"took {take_storage} from {before}: what that cluster left there goes by age, but its snapshots")
    except (Unavailable, StorageError, OtherCluster, OtherTopology, ValueError) as failure:
        typer.echo(f"provision: {failure}", err=True)
        raise typer.Exit(3 if isinstance(failure, Unavailable | StorageError) else 2) from None
    for line in lines or ["nothing to do: identity, topics and topology are as they should be"]:
        typer.echo(line)


if __name__ == "__main__":
    typer.run(main)
