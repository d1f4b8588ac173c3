"""Joining the group again, by the worker's own consumer on a real Kafka: what was fetched and not folded is read again, also where nothing
was committed yet."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from faust.types import TP

from deploy.local.etcd import EtcdServer
from deploy.local.kafka import KafkaBroker
from deploy.provision import provision
from millrace.core.topics import Topology
from millrace.io.etcd.store import EtcdStore
from millrace.io.kafka.admin import KafkaAdmin
from services.web.settings import WebSettings
from services.web.view import View
from services.web.worker import GROUP, make, read_again, resume

NEW, READ = TP("job.events", 0), TP("job.events", 1)
LIMIT_S = 90.0


@pytest.mark.long
def test_a_partition_without_a_commit_is_read_from_its_start_again_and_where_the_others_are_is_told(tmp_path: Path) -> None:
    with KafkaBroker(tmp_path / "kafka") as broker, EtcdServer(tmp_path / "etcd") as etcd:
        provision(KafkaAdmin(broker.bootstrap), EtcdStore(etcd.endpoint, "/millrace/default/"), Topology())
        settings = WebSettings(kafka_bootstrap=broker.bootstrap, etcd_endpoint=etcd.endpoint)
        left_alone, told, new, read = asyncio.run(resumed(settings))
    assert left_alone == 3, "the library began to do this by itself: the seek to the start can go"
    assert (new, read) == (0, 2)
    assert told == {"job.events": {1: 2}, "cluster.events": {}}


@pytest.mark.long
def test_what_the_worker_passed_over_is_read_again(tmp_path: Path) -> None:
    with KafkaBroker(tmp_path / "kafka") as broker, EtcdServer(tmp_path / "etcd") as etcd:
        provision(KafkaAdmin(broker.bootstrap), EtcdStore(etcd.endpoint, "/millrace/default/"), Topology())
        asyncio.run(read_on_behind(WebSettings(kafka_bootstrap=broker.bootstrap, etcd_endpoint=etcd.endpoint)))


async def read_on_behind(settings: WebSettings) -> None:
    producer = Producer({"bootstrap.servers": settings.kafka_bootstrap, "acks": "all"})
    for partition in (NEW.partition, READ.partition):
        for _ in range(3):
            producer.produce(NEW.topic, "no fact", partition=partition)
    producer.flush(LIMIT_S)
    app, view = make(settings, Topology())
    await app.start()
    try:
        await asyncio.wait_for(read_all(view), LIMIT_S)
        view._as_of[NEW.topic].pop(NEW.partition)  # as if Faust had gone to the end before these records were handed on
        await read_again(app.consumer, {(NEW.topic, NEW.partition): 0, (NEW.topic, 99): 0})
        await asyncio.wait_for(read_all(view), LIMIT_S)
        view._as_of[READ.topic][READ.partition] = [1, 0]  # or in their midst
        await read_again(app.consumer, {(READ.topic, READ.partition): 2})
        await asyncio.wait_for(read_all(view), LIMIT_S)
    finally:
        await app.stop()


async def resumed(settings: WebSettings) -> tuple[int, dict[str, dict[int, int]], int, int]:
    producer = Producer({"bootstrap.servers": settings.kafka_bootstrap, "acks": "all"})
    for partition in (NEW.partition, READ.partition):
        for _ in range(3):
            producer.produce(NEW.topic, "no fact", partition=partition)
    producer.flush(LIMIT_S)
    earlier = Consumer({"bootstrap.servers": settings.kafka_bootstrap, "group.id": GROUP})
    earlier.commit(offsets=[TopicPartition(READ.topic, READ.partition, 2)], asynchronous=False)
    earlier.close()

    app, view = make(settings, Topology())
    app.conf.broker_commit_interval = 2 * LIMIT_S  # not yet
    await app.start()
    try:
        await asyncio.wait_for(read_all(view), LIMIT_S)
        app.consumer.stop_flow()  # as while it joins again
        await app.consumer.seek_wait({NEW: 3, READ: 3})
        await app.consumer.seek_to_committed()
        left_alone = await app.consumer.position(NEW)
        told = await resume(app.consumer)
        return left_alone, told, await app.consumer.position(NEW), await app.consumer.position(READ)
    finally:
        await app.stop()


async def read_all(view: View) -> None:
    while view.ask(lambda _: None)[1]["offsets"]["job.events"] != {"0": 2, "1": 2}:
        await asyncio.sleep(0.05)
