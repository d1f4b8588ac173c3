"""Every topic of a cluster, in one place: what it carries, its key, partitions, retention, writers and readers."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import NewType

DISPATCHER = "dispatcher"
RESOURCE_MANAGER = "resource-manager"
JOB_MASTER = "job-master"
TASK_MANAGER = "task-manager"
WEB = "web"
OPERATOR = "operator"
PROCESS = "each process"  # of the control services and the web service, whether it leads or not

DAY_MS = 24 * 60 * 60 * 1000
GIB = 1024**3
RECORD_BYTES_MAX = 1_000_000
OUTPUT_BYTES_MAX = 900_000  # what a machine may say; larger goes by reference [R15]
PROCESS_QUESTIONS = "process.questions"
IDENTITY = "cluster.identity"  # whose Kafka this is: its first record counts [R29]


Scope = NewType("Scope", str)
"""Whoever has an inbox, by its whole name. A TaskManager's, `task-manager/<name>`, is not its name."""


def shard_scope(shard: int) -> Scope:
    return Scope(f"{JOB_MASTER}/{shard}")


def shard_number(scope: Scope) -> int:
    """Of a JobMaster's scope. Raises ValueError for another one."""
    kind, _, number = scope.partition("/")
    if kind != JOB_MASTER:
        raise ValueError(f"{scope} is no shard")
    return int(number)


def task_manager_scope(name: str) -> Scope:
    return Scope(f"{TASK_MANAGER}/{name}")


def task_manager_name(scope: Scope) -> str:
    """Of a TaskManager's scope; "" for any other, and for none."""
    kind, _, name = scope.partition("/")
    return name if kind == TASK_MANAGER else ""


def task_manager_key(name: str) -> str:
    """A TaskManager's key in etcd; the revision of its last put is the incarnation. Gone: it was declared lost."""
    return f"task-managers/{name}"


@dataclass(frozen=True)
class Topology:
    """What is fixed for a cluster's life and stands in etcd; a service that finds other counts there refuses to start."""

    shards: int = 1
    """JobMaster shards: partitions of job-master.commands."""
    task_manager_partitions: int = 4
    job_event_partitions: int = 8
    reply_partitions: int = 4

    def shard_of(self, job: str) -> int:
        return zlib.crc32(job.encode()) % self.shards

    def events_partition(self, job: str) -> int:
        return zlib.crc32(job.encode()) % self.job_event_partitions

    def inbox(self, scope: str) -> tuple[str, int]:
        """(topic, partition) of a scope's inbox: from the topology alone, so that every output can be addressed [R15].

        A TaskManager's partition is a stable hash of its id: as good as a stored one, for the counts never change.
        """
        kind, _, name = scope.partition("/")
        if kind == JOB_MASTER:
            return "job-master.commands", int(name)
        if kind == TASK_MANAGER:
            return "task-manager.commands", zlib.crc32(name.encode()) % self.task_manager_partitions
        return f"{kind}.commands", 0

    def partition(self, topic: str, key: str) -> int:
        """Of a public topic, the partition that carries this key."""
        counts = {"job.events": self.job_event_partitions, "client.replies": self.reply_partitions}
        return zlib.crc32(key.encode()) % counts.get(topic, 1)

    def scopes(self) -> tuple[str, ...]:
        """The scopes that every cluster has: the static peers."""
        return (DISPATCHER, RESOURCE_MANAGER, *map(shard_scope, range(self.shards)))


@dataclass(frozen=True)
class Topic:
    """`partitions`: a number, or the Topology field that has it. `retention_ms` -1: for ever (inboxes are cut below snapshots).
    `compacted`: of each key the last record is kept. `retention_bytes`: of a partition whose filling is up to strangers; -1: no bound."""

    name: str
    carries: str
    key: str
    partitions: int | str
    retention_ms: int
    writers: tuple[str, ...]
    readers: tuple[str, ...]
    compacted: bool = False
    retention_bytes: int = -1
    aside: tuple[str, ...] = ()
    """Services that say nothing here that a job waits for between its submission and RUNNING, when a slot is free. They have a second
    producer for such topics: a producer has one request in flight [R12], each for one partition, and takes the partitions in turn and
    not as they were written to. A TaskManager has none: its heartbeats, by which others judge it, go the way of all that it says."""

    def count(self, topology: Topology) -> int:
        return self.partitions if isinstance(self.partitions, int) else getattr(topology, self.partitions)

    def config(self) -> dict[str, str]:
        """Topic settings for the broker. LogAppendTime: machine time is made of the broker's stamps [R4]. How many replicas there
        are and must have a record is the broker's: `default.replication.factor`, `min.insync.replicas`. What strangers write is stored
        as it reads: the broker unpacks a batch then, and refuses one that is above `max.message.bytes` unpacked [R30]."""
        return {
            "cleanup.policy": "compact" if self.compacted else "delete",
            "retention.ms": str(self.retention_ms),
            "retention.bytes": str(self.retention_bytes),
            "segment.bytes": str(16 * 1024 * 1024),  # what is deleted goes by whole segments
            "message.timestamp.type": "LogAppendTime",
            "max.message.bytes": str(RECORD_BYTES_MAX + 48_576),
            "compression.type": "uncompressed" if self.writers == ("anyone",) else "producer",
        }


CONTROL = (DISPATCHER, RESOURCE_MANAGER, JOB_MASTER)
SERVICES = (*CONTROL, TASK_MANAGER)
INBOXES = frozenset(f"{service}.commands" for service in SERVICES)
TOPICS: tuple[Topic, ...] = (
    Topic("client.commands", "requests of clients", "any", 1, 7 * DAY_MS, ("anyone",), (DISPATCHER,), retention_bytes=4 * GIB),
    Topic(
        "client.replies", "answers to requests", "reply_to", "reply_partitions", DAY_MS, (*SERVICES, PROCESS), ("anyone",), aside=CONTROL
    ),
    # Who leads nothing has no inbox that others write to, and is asked here what it is, where its threads are, for its log.
    Topic(PROCESS_QUESTIONS, "questions to processes", "process", 1, DAY_MS, ("anyone",), (PROCESS,), retention_bytes=GIB),
    Topic(
        "job.events", "facts about jobs", "job", "job_event_partitions", 7 * DAY_MS, (DISPATCHER, JOB_MASTER), ("anyone",),
        aside=(JOB_MASTER,),
    ),
    # Few, and what was said long ago still holds: who joined, who leads.
    Topic("cluster.events", "facts about the cluster", "task_manager", 1, 365 * DAY_MS, CONTROL, ("anyone",), aside=CONTROL),
    Topic(IDENTITY, "whose Kafka this is: the first record", "cluster", 1, -1, (OPERATOR,), SERVICES),
    Topic(
        "dead-letters", "records that could not be used or were refused", "topic", 1, 30 * DAY_MS, (DISPATCHER, OPERATOR), ("anyone",),
        retention_bytes=GIB, aside=(DISPATCHER,),
    ),
    Topic("dispatcher.commands", "inbox of the Dispatcher", "to", 1, -1, CONTROL, (DISPATCHER,), aside=(JOB_MASTER,)),
    Topic("resource-manager.commands", "inbox of the ResourceManager", "to", 1, -1, SERVICES, (RESOURCE_MANAGER,)),
    Topic("job-master.commands", "inboxes of the JobMaster shards", "to", "shards", -1, SERVICES, (JOB_MASTER,)),
    Topic(
        "task-manager.commands", "commands to TaskManagers", "to", "task_manager_partitions", DAY_MS, (RESOURCE_MANAGER, JOB_MASTER),
        (TASK_MANAGER,),
    ),
    Topic("audit.events", "who gave which command over HTTP", "command", 1, 90 * DAY_MS, (WEB,), ("anyone",), retention_bytes=GIB),
    Topic("web.jobs", "changelog of the web service's jobs", "row", "job_event_partitions", -1, (WEB,), (WEB,), True),
    Topic("web.cluster", "changelog of its TaskManagers and leaders", "row", 1, -1, (WEB,), (WEB,), True),
)  # fmt: skip


def second_producer_topics(service: str) -> frozenset[str]:
    """The topics to which a service writes by a producer of its own (`Topic.aside`)."""
    return frozenset(topic.name for topic in TOPICS if service in topic.aside)
