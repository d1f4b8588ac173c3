"""Kafka: settings that would lose records, and the topics against the topics' file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType

from millrace.core.topics import TOPICS, Topic, Topology
from millrace.io.kafka.client import AdminClient

from . import kafka_version
from .findings import Finding, Unreachable, note, ok, problem

TIMEOUT_S = 5.0
OLDEST = "3.3"
"""The first version with KRaft fit for use; with topic ids, by which a log is told from another one of its name [R22]."""
PROVISION = "run `python -m deploy.provision` with the cluster's addresses and its --shards; a local stack does so at each `millrace up`"
INBOX = "dispatcher.commands"


@dataclass(frozen=True)
class Partition:
    """A partition as the broker describes it; leader -1: there is none."""

    leader: int
    replicas: int
    in_sync: int


@dataclass(frozen=True)
class Version:
    """What a broker is, such as "3.9", and of which version the cluster's metadata are; "": of none that it tells. `failure`: why it
    could not be asked."""

    software: str = ""
    metadata: str = ""
    failure: str = ""


@dataclass(frozen=True)
class Cluster:
    """What Kafka says of itself. Config values are Kafka's texts."""

    brokers: Mapping[int, Mapping[str, str]]
    topics: Mapping[str, Mapping[int, Partition]]
    configs: Mapping[str, Mapping[str, str]]
    """Of those of our topics that are there."""
    versions: Mapping[int, Version] = field(default_factory=dict)


def read(bootstrap: str) -> Cluster:
    """Asks Kafka. Raises Unreachable."""
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "socket.connection.setup.timeout.ms": 3000})
    try:
        found = client.list_topics(timeout=TIMEOUT_S)
        topics = {
            name: {n: Partition(p.leader, len(p.replicas), len(p.isrs)) for n, p in topic.partitions.items()}
            for name, topic in found.topics.items()
        }
        ours = [topic.name for topic in TOPICS if topic.name in topics]
        brokers = {id: _config(client, ResourceType.BROKER, str(id)) for id in sorted(found.brokers)}
        versions = {id: _version(str(broker.host), int(broker.port)) for id, broker in sorted(found.brokers.items())}
        return Cluster(brokers, topics, {name: _config(client, ResourceType.TOPIC, name) for name in ours}, versions)
    except KafkaException as failure:
        raise Unreachable(f"Kafka at {bootstrap} does not answer ({failure.args[0].str()})") from None


def _version(host: str, port: int) -> Version:
    try:
        return Version(*kafka_version.ask(host, port))
    except (OSError, ValueError) as failure:
        return Version(failure=str(failure) or type(failure).__name__)


def _config(client: AdminClient, kind: ResourceType, name: str) -> dict[str, str]:
    resource = ConfigResource(kind, name)
    answered = client.describe_configs([resource], request_timeout=TIMEOUT_S)[resource].result()
    return {key: str(entry.value) for key, entry in answered.items() if not entry.is_sensitive}


def versions(cluster: Cluster) -> Iterator[Finding]:
    """What the brokers are, and whether that is enough."""
    bad = False
    for id, version in cluster.versions.items():
        if version.failure:
            bad = True
            yield note(
                "kafka version", f"broker {id} does not tell its version ({version.failure})",
                f"see on its machine that it is {OLDEST} or newer",
            )  # fmt: skip
        elif _number(version.software) < _number(OLDEST):
            bad = True
            yield problem(
                "kafka version", f"broker {id} runs {version.software or 'a version before 3.0, or with ZooKeeper'}: a log that was "
                "deleted and made anew may pass for the old one, and nothing was tried with it",
                f"upgrade all brokers to {OLDEST} or newer, with KRaft",
            )  # fmt: skip
        elif _number(version.metadata) < _number(version.software):
            bad = True
            yield note(
                "kafka version", f"broker {id} runs {version.software}, and the cluster's metadata are still those of "
                f"{version.metadata or 'a version before 3.0'}",
                "when all brokers run the new version: kafka-features.sh upgrade --release-version " + version.software,
            )  # fmt: skip
    if cluster.versions and not bad:
        yield ok("kafka version", f"{', '.join(dict.fromkeys(each.software for each in cluster.versions.values()))}")


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.partition(" ")[0].split(".")) if version else (0,)


def settings(cluster: Cluster) -> Iterator[Finding]:
    """Settings of the brokers with which acknowledged records can be lost."""
    found = False
    for id, config in cluster.brokers.items():
        if config.get("unclean.leader.election.enable") == "true":
            found = True
            yield problem(
                "kafka settings", f"broker {id} lets a replica lead that lacks acknowledged records",
                "set unclean.leader.election.enable=false on every broker",
            )  # fmt: skip
        if config.get("auto.create.topics.enable") == "true":
            found = True
            yield note(
                "kafka settings", f"broker {id} makes any topic that a client names, with settings that are not ours",
                "set auto.create.topics.enable=false on every broker",
            )  # fmt: skip
    if len(cluster.brokers) == 1:
        yield note(
            "kafka settings", "one broker: what it acknowledged survives a killed process, not a lost disk or a power cut",
            "for more than a try, run three brokers and replicate the topics three times",
        )  # fmt: skip
    elif not found:
        yield ok("kafka settings", f"{len(cluster.brokers)} brokers; none lets a replica lead that lacks records")


def topics(cluster: Cluster, topology: Topology) -> Iterator[Finding]:
    """Each topic as the file has it, with leaders and replicas."""
    bad = 0
    for topic in TOPICS:
        for finding in _topic(cluster, topic, topology):
            bad += finding.level == "problem"
            yield finding
    if not bad:
        yield ok("topics", f"all {len(TOPICS)} are there, with the partitions and settings of the topics' file")


def _topic(cluster: Cluster, topic: Topic, topology: Topology) -> Iterator[Finding]:
    partitions = cluster.topics.get(topic.name)
    if not partitions:
        yield problem("topics", f"{topic.name} is not there", PROVISION)
        return
    wanted = topic.count(topology)
    if len(partitions) != wanted:
        yield problem(
            "topics", f"{topic.name} has {len(partitions)} partitions and not {wanted}: keys lie where nobody looks for them",
            "counts are fixed for a cluster's life: use the ones that it was made with, or make a new cluster",
        )  # fmt: skip
    leaderless = [n for n, partition in sorted(partitions.items()) if partition.leader < 0]
    if leaderless:
        yield problem("topics", f"{topic.name} has no leader for {_listed(leaderless)}", "start the brokers that hold it")
    behind = [n for n, p in sorted(partitions.items()) if p.leader >= 0 and p.in_sync < p.replicas]
    if behind:
        yield problem(
            "topics", f"{topic.name} has replicas that are not in sync, of {_listed(behind)}",
            "see whether all brokers run and have room; until then the loss of one more broker may lose records",
        )  # fmt: skip
    yield from _config_of(topic, cluster, partitions)


def _config_of(topic: Topic, cluster: Cluster, partitions: Mapping[int, Partition]) -> Iterator[Finding]:
    now, wanted = cluster.configs.get(topic.name, {}), topic.config()
    replicas = min(partition.replicas for partition in partitions.values())
    for key, value in wanted.items():
        if key in now and now[key] != value:
            yield problem("topics", f"{topic.name} has {key}={now[key]} and not {value}", PROVISION)
    if replicas > 1 and int(now.get("min.insync.replicas", 1)) < 2:
        yield problem(
            "topics", f"{topic.name} has {replicas} replicas and min.insync.replicas=1: one that is alone may acknowledge",
            f"set min.insync.replicas={replicas - 1 if replicas > 2 else 2} for it",
        )  # fmt: skip
    elif replicas == 1 and len(cluster.brokers) > 1:
        yield problem(
            "topics", f"{topic.name} has one replica, though there are {len(cluster.brokers)} brokers",
            "raise its replicas to three with kafka-reassign-partitions",
        )  # fmt: skip


def _listed(partitions: list[int]) -> str:
    return f"partition{'s' * (len(partitions) > 1)} {', '.join(map(str, partitions))}"


def facts(cluster: Cluster) -> dict[str, Any]:
    """For the bundle: brokers with the settings that were changed are too many to show; topics with their partitions."""
    return {
        "brokers": {str(id): {key: config.get(key) for key in SHOWN_SETTINGS} for id, config in cluster.brokers.items()},
        "versions": {str(id): version.__dict__ for id, version in cluster.versions.items()},
        "topics": {
            name: {
                "config": dict(cluster.configs.get(name, {})),
                "partitions": {str(n): partition.__dict__ for n, partition in sorted(partitions.items())},
            }
            for name, partitions in sorted(cluster.topics.items())
        },
    }


SHOWN_SETTINGS = (
    "unclean.leader.election.enable", "auto.create.topics.enable", "default.replication.factor", "min.insync.replicas",
    "log.retention.hours", "message.max.bytes", "process.roles",
)  # fmt: skip
