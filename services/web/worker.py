"""The Faust worker: brings the facts to the view, and keeps its rows in tables whose changelogs outlive the process."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import faust
import structlog
from faust.types import TP

from millrace.core.topics import Topology

from .core.cluster import TOPIC as CLUSTER_EVENTS
from .core.facts import Fact, Row
from .core.jobs import TOPIC as JOB_EVENTS
from .core.told import told
from .packed import Packed
from .settings import WebSettings
from .view import View

logging.getLogger("faust").setLevel(logging.WARNING)  # at "info" they tell each step of their own
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # a line for each of many tries while Kafka is away
log = structlog.get_logger("web")
CHANGELOGS = {JOB_EVENTS: "web.jobs", CLUSTER_EVENTS: "web.cluster"}
TOPICS = (*CHANGELOGS, *CHANGELOGS.values())
GROUP = "web"
RETRY_S = 0.5
INTERNED_MOST = 64
"""Characters of a text that is kept once, however many rows have it: the names of jobs, tasks, TaskManagers and states."""
FETCHED_BYTES = 64 << 10
"""Of each partition at once; a larger record comes alone. What is fetched is held as objects, of many times that size: with Faust's 1 MiB
a process that had much to read stayed 25 MB larger."""
SESSION_S = 6.0  # Kafka takes no less; one that is started again under its name waits for nothing


class _Table(faust.Table[str, Any]):
    """Rows by key. What changes a row goes to the changelog's partition of its subject, which is that of its facts: whichever row's
    fact it was that made another one forgotten."""

    subjects: Topology
    facts: str
    packed: Packed

    def _new_store(self) -> Any:
        store = super()._new_store()
        store.data = self.packed
        return store

    def __getitem__(self, key: str) -> Row:
        return self.packed[key]  # Faust's own way tells its sensors first, which takes as long as a whole line of a list

    def __contains__(self, key: object) -> bool:
        return key in self.packed

    def naming(self, text: str) -> Iterator[Row]:
        return self.packed.naming(text)

    def _changelog_topic_name(self) -> str:
        return str(self.name)  # as the topics' file has it; its own would be another one

    def partition_for_key(self, key: str) -> int:
        return self.subjects.partition(self.facts, key.partition("/")[0])


def places(topology: Topology) -> list[tuple[str, int]]:
    """The partitions that are read."""
    return [(JOB_EVENTS, n) for n in range(topology.job_event_partitions)] + [(CLUSTER_EVENTS, 0)]


def make(settings: WebSettings, topology: Topology) -> tuple[faust.App, View]:
    """The worker, to be started, and the view that it fills."""
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
        consumer_max_fetch_size=FETCHED_BYTES,
        web_enabled=False,
        origin="services.web",
    )
    topics = {
        JOB_EVENTS: (topology.job_event_partitions, app.topic(JOB_EVENTS, value_type=bytes, value_serializer="raw")),
        CLUSTER_EVENTS: (1, app.topic(CLUSTER_EVENTS, value_type=bytes, value_serializer="raw")),
    }
    tables = {name: _table(app, name, topology, partitions) for name, (partitions, _) in topics.items()}
    view = View(tables[JOB_EVENTS], tables[CLUSTER_EVENTS], settings.retained_jobs)
    for name, (_, topic) in topics.items():
        app.agent(topic, name=f"web.{name}")(_agent(view))
    recovered: set[str] = set()

    def recover(name: str) -> Any:
        async def done() -> None:
            recovered.add(name)
            generation = app.consumer_generation_id  # another one comes here again by itself
            while len(recovered) == len(tables) and app.consumer_generation_id == generation and not app.should_stop:
                try:
                    view.load(await resume(app.consumer))
                    return
                except Exception as failure:  # Faust would go on without a word, and read from a wrong place
                    log.warning("where to read on is not known yet", reason=repr(failure))
                    await asyncio.sleep(RETRY_S)

        return done

    for name, table in tables.items():
        table.on_recover(recover(name))
    return app, view


async def resume(consumer: Any) -> dict[str, dict[int, int]]:
    """Goes to where the group has committed, which is answered: topic -> partition -> the offset that is read next; and where nothing is
    committed to the start, which Faust leaves out.

    Without the second:

    1. It joins, and a new partition's first facts are fetched.
    2. It joins again, because an older process of this name was just killed, and drops what was fetched and not folded.
    3. It reads on behind these facts, commits that, and they are never seen.

    Asked before it joins, it would be too early:

    1. The start asks.
    2. An older process of this name commits more.
    3. This one joins, which shuts the other out, and reads on behind that.
    4. What was read in between is missing in `as_of`, for ever where no row is left.
    """
    committed = await consumer.seek_to_committed()
    found: dict[str, dict[int, int]] = {JOB_EVENTS: {}, CLUSTER_EVENTS: {}}
    for place, offset in committed.items():
        if place.topic in found and offset:
            found[place.topic][place.partition] = offset
    unread = [place for place, offset in committed.items() if place.topic in found and not offset]
    await consumer.seek_wait(await consumer.earliest_offsets(*unread))
    return found


async def read_again(consumer: Any, passed_over: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
    """Goes back to where the tables stand, in partitions that this process has: those are answered. What is known already changes nothing.

    A worker may join its group twice in a short time: Kafka was slow, or an older process of this name was killed. Then it drops what
    it had fetched, and Faust may read on behind it. Those facts would never be seen, and the tables never follow.
    """
    there = consumer.assignment() if passed_over else ()
    where = {TP(*place): offset for place, offset in passed_over.items() if TP(*place) in there}
    if where:
        log.warning("what was passed over is read again", places={f"{place.topic}[{place.partition}]": at for place, at in where.items()})
        await consumer.seek_wait(where)
    return {(place.topic, place.partition): offset for place, offset in where.items()}


def _table(app: faust.App, facts: str, topology: Topology, partitions: int) -> Any:
    table = _Table(app, name=CHANGELOGS[facts], key_type=str, partitions=partitions)
    table.facts, table.subjects, table.packed = facts, topology, Packed()
    return app.tables.add(table)


def _agent(view: View) -> Any:
    async def fold(stream: Any) -> None:
        async for event in stream.events():
            try:
                view.fold(fact_of(event.message))
            except Exception as failure:  # strangers write what they like: JSON of any depth, a header without a value
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
    body = told(message.value)
    for name, value in body.items():
        if type(value) is str and len(value) <= INTERNED_MOST:
            body[name] = sys.intern(value)
    return Fact(message.topic, message.partition, message.offset, int(message.timestamp * 1000), life, body)
