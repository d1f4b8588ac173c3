"""Joining the group again, on a real Kafka: what was fetched and not folded is read again, also where nothing was committed yet."""

from __future__ import annotations

import asyncio
from pathlib import Path

from aiokafka import AIOKafkaConsumer, TopicPartition
from confluent_kafka import Producer

from deploy.local.kafka import KafkaBroker
from millrace.io.kafka_admin import KafkaAdmin
from services.web.worker import rewind

NEW, READ = TopicPartition("job.events", 0), TopicPartition("job.events", 1)


def test_a_partition_without_a_commit_is_read_from_its_start_again(tmp_path: Path) -> None:
    with KafkaBroker(tmp_path) as broker:  # one of its own: the topic bears its real name
        left_alone, new, read = asyncio.run(joined_twice(broker.bootstrap))
    assert left_alone == 3, "the library began to do this by itself: `rewind` can go"
    assert (new, read) == (0, 2)


async def joined_twice(bootstrap: str) -> tuple[int, int, int]:
    KafkaAdmin(bootstrap).ensure_topics([("job.events", 2, {}), ("other", 1, {})])
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for partition in (NEW.partition, READ.partition):
        for number in range(3):
            producer.produce("job.events", str(number), partition=partition)
    producer.flush(30)

    async with AIOKafkaConsumer(
        bootstrap_servers=bootstrap, group_id="rewind", enable_auto_commit=False, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([NEW, READ, TopicPartition("other", 0)])
        for _ in range(6):
            await consumer.getone()
        await consumer.commit({READ: 2})
        await consumer.seek_to_committed()
        left_alone = await consumer.position(NEW)
        await rewind(consumer)
        await consumer.seek_to_committed()
        return left_alone, await consumer.position(NEW), await consumer.position(READ)
