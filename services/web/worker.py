"""The Faust worker: brings the facts to the view, and keeps its rows in tables whose changelogs outlive the process."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Mapping
from typing import Any

import faust
import structlog
from confluent_kafka import Consumer, KafkaException, TopicPartition

from millrace.core.topics import Topology
from millrace.io.interfaces import Unavailable

from .core.cluster import TOPIC as CLUSTER_EVENTS
from .core.facts import Fact
from .core.jobs import TOPIC as JOB_EVENTS
from .settings import WebSettings
from .view import View

logging.getLogger("faust").setLevel(logging.WARNING)  # at "info" they tell each step of their own
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # a line for each of many tries while Kafka is away
log = structlog.get_logger("web")
CHANGELOGS = {JOB_EVENTS: "web.jobs", CLUSTER_EVENTS: "web.cluster"}
TOPICS = (*CHANGELOGS, *CHANGELOGS.values())
GROUP = "web"
ASKED_MOST_S = 10.0
SESSION_S = 6.0  # Kafka takes no less; one that is started again under its name waits for nothing


class _Table(faust.Table):  # type: ignore[misc]
    """Rows by key. What changes a row goes to the changelog's partition of its subject, which is that of its facts: whichever row's
    fact it was that made another one forgotten."""

    subjects: Topology
    facts: str

    def _changelog_topic_name(self) -> str:
        return str(self.name)  # as the topics' file has it; its own would be another one

    def partition_for_key(self, key: str) -> int:
        return self.subjects.partition(self.facts, key.partition("/")[0])


def places(topology: Topology) -> list[tuple[str, int]]:
    """The partitions that are read."""
    return [(JOB_EVENTS, n) for n in range(topology.job_event_partitions)] + [(CLUSTER_EVENTS, 0)]


def read_before(bootstrap: str, topology: Topology) -> dict[str, dict[int, int]]:
    """topic -> partition -> the offset at which an earlier process left off. Raises Unavailable."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False, "log_level": 0})
    try:
        committed = consumer.committed([TopicPartition(*place) for place in places(topology)], timeout=ASKED_MOST_S)
        for each in committed:  # a coordinator that has just moved refuses single partitions
            if each.error is not None:
                raise KafkaException(each.error)
    except KafkaException as failure:
        raise Unavailable(f"Kafka at {bootstrap} does not say up to where was read: {failure.args[0].str()}") from None
    finally:
        consumer.close()
    found: dict[str, dict[int, int]] = {JOB_EVENTS: {}, CLUSTER_EVENTS: {}}
    for each in committed:
        if each.offset > 0:
            found[each.topic][each.partition] = each.offset
    return found


def make(
    settings: WebSettings, topology: Topology, before: Mapping[str, Mapping[int, int]]
) -> tuple[faust.App, View]:
    """The worker, to be started, and the view that it fills. `before`: see `read_before`."""
    app = faust.App(
        GROUP,
        broker=[f"kafka://{host}" for host in settings.kafka_bootstrap.split(",")],
        broker_client_id=settings.instance,
        broker_session_timeout=SESSION_S,
        broker_heartbeat_interval=2.0,
        # One process shows one cluster. It is known by a name that stays: started again, it has its partitions at once; started
        # twice, the older one is shut out.
        consumer_group_instance_id="web",
        consumer_auto_offset_reset="earliest",
        store="memory://",
        datadir=os.path.join(tempfile.gettempdir(), "millrace-web"),  # nothing comes there; it is made all the same
        topic_allow_declare=False,  # topics are made by the provisioning alone
        topic_disable_leader=True,
        stream_wait_empty=False,
        web_enabled=False,
        origin="services.web",
    )
    topics = {
        JOB_EVENTS: (topology.job_event_partitions, app.topic(JOB_EVENTS, value_type=bytes, value_serializer="raw")),
        CLUSTER_EVENTS: (1, app.topic(CLUSTER_EVENTS, value_type=bytes, value_serializer="raw")),
    }
    tables = {name: _table(app, name, topology, partitions) for name, (partitions, _) in topics.items()}
    view = View(tables[JOB_EVENTS], tables[CLUSTER_EVENTS], settings.retained_jobs, before)
    for name, (_, topic) in topics.items():
        app.agent(topic, name=f"web.{name}")(_agent(view))
    recovered: set[str] = set()

    def recover(name: str) -> Any:
        async def done() -> None:
            recovered.add(name)
            if len(recovered) == len(tables):
                view.load()
                await rewind(app.consumer)

        return done

    for name, table in tables.items():
        table.on_recover(recover(name))
    return app, view


async def rewind(consumer: Any) -> None:
    """Goes to the start of what is read; Faust goes on to where a commit says, directly after.

    It does so when it has joined its group, but leaves a partition without a commit where it is. Without this: 1. it joins, and a new
    partition's first facts are fetched; 2. it joins again (an older process of this name was just killed), and drops what was fetched and
    not folded; 3. it reads on behind these facts, commits that, and they are never seen.
    """
    await consumer.seek_to_beginning(*(place for place in consumer.assignment() if place.topic in CHANGELOGS))


def _table(app: faust.App, facts: str, topology: Topology, partitions: int) -> Any:
    table = _Table(app, name=CHANGELOGS[facts], key_type=str, partitions=partitions)
    table.facts, table.subjects = facts, topology
    return app.tables.add(table)


def _agent(view: View) -> Any:
    async def fold(stream: Any) -> None:
        async for event in stream.events():
            try:
                view.fold(fact_of(event.message))
            except (KeyError, TypeError, ValueError) as failure:
                message = event.message
                view.pass_over(message.topic, message.partition, message.offset, int(message.timestamp * 1000))
                where = {"topic": message.topic, "partition": message.partition, "offset": message.offset}
                log.warning("a record that is no fact known here", reason=repr(failure), **where)

    return fold


def fact_of(message: Any) -> Fact:
    """The fact that a record holds. Raises KeyError, TypeError, ValueError for one that holds none."""
    headers = message.headers or {}
    id = dict(headers.items() if hasattr(headers, "items") else headers).get("ce_id", b"").decode()
    life = int(id.rsplit("/", 2)[1]) if id.count("/") >= 2 else 0
    body = json.loads(message.value)
    if not isinstance(body, dict):
        raise ValueError("it is no JSON object")
    return Fact(message.topic, message.partition, message.offset, int(message.timestamp * 1000), life, body)
