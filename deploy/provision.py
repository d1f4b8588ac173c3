"""Makes a cluster what its services expect: topics in Kafka, the topology in etcd. Run again, it changes nothing.

python -m deploy.provision --kafka-bootstrap HOST:PORT --etcd-endpoint HOST:PORT [--cluster NAME] [--shards N] [--wait-s SECONDS]
"""

from __future__ import annotations

import json
import socket
import time
from dataclasses import asdict
from typing import Annotated

import typer

from millrace.core.topics import TOPICS, Topology
from millrace.io.addresses import parted
from millrace.io.etcd import EtcdStore
from millrace.io.interfaces import Compare, Put, Store, Txn, Unavailable
from millrace.io.kafka_admin import KafkaAdmin

ASK_AGAIN_S = 0.2


class OtherTopology(Exception):
    """The cluster was made with other counts, which are fixed for its life."""


def provision(admin: KafkaAdmin, store: Store, topology: Topology) -> list[str]:
    """Topology first (it is what is fixed), then topics. Returns a line for each change. Raises OtherTopology, Unavailable,
    ValueError (a topic with another number of partitions; nothing is stored then)."""
    lines = []
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
    return lines + admin.ensure_topics([(topic.name, topic.count(topology), topic.config()) for topic in TOPICS])


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
) -> None:
    """Makes the topics and stores the topology. Safe to run again."""
    give_up_s = time.monotonic() + wait_s
    try:
        for address in (kafka_bootstrap, etcd_endpoint):
            wait_for(address, give_up_s)
        admin, store = KafkaAdmin(kafka_bootstrap), EtcdStore(etcd_endpoint, f"/millrace/{cluster}/")
        while True:
            try:
                lines = provision(admin, store, Topology(shards=shards))
                break
            except Unavailable:  # etcd without a leader yet, fewer brokers than a topic has replicas
                if time.monotonic() > give_up_s:
                    raise
                time.sleep(ASK_AGAIN_S)
    except (Unavailable, OtherTopology, ValueError) as failure:
        typer.echo(f"provision: {failure}", err=True)
        raise typer.Exit(3 if isinstance(failure, Unavailable) else 2) from None
    for line in lines or ["nothing to do: topics and topology are as they should be"]:
        typer.echo(line)


if __name__ == "__main__":
    typer.run(main)
