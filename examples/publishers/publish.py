"""Submits a job and follows it, with confluent-kafka alone:   python publish.py HOST:PORT JOB

Asks for an answer, so that a mistake in the request is heard of at once; then reads the job's facts to its end.
"""

import json
import sys
import time
import uuid
import zlib

from confluent_kafka import Consumer, Producer, TopicPartition

bootstrap, job = sys.argv[1:3]
reply_to = str(uuid.uuid4())  # names this client; the key of its answers
request = {
    "type": "SubmitJob", "version": 1, "reply_to": reply_to, "correlation": "1", "job": job,
    "accept_before_ms": int(time.time() * 1000) + 30_000,  # nothing is accepted behind our back once we have given up
    "graph": {"name": "from-python", "vertices": {"greeting": {"sql": "SELECT 'Hello from Python' AS greeting"}}},
}  # fmt: skip


def partition(consumer: Consumer, topic: str, key: str) -> int:
    """Where Millrace puts the records of a key."""
    return zlib.crc32(key.encode()) % len(consumer.list_topics(topic, timeout=10).topics[topic].partitions)


def records(consumer: Consumer, key: str, until: float = float("inf")):
    """The records with this key, as JSON, as they come."""
    while time.time() < until:
        message = consumer.poll(1)
        if message is not None and message.error() is None and message.key() == key.encode():
            yield json.loads(message.value())
    sys.exit("no answer within 30 s: is a Dispatcher running? The same request can be sent again")


consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "publish.py", "enable.auto.commit": False})
answers = TopicPartition("client.replies", partition(consumer, "client.replies", reply_to))
facts = TopicPartition("job.events", partition(consumer, "job.events", job))
for place in (answers, facts):  # from where they end now: read before it is asked, and no answer is missed
    place.offset = consumer.get_watermark_offsets(place, timeout=10)[1]

producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
producer.produce("client.commands", json.dumps(request))
if producer.flush(10) != 0:
    sys.exit(f"Kafka at {bootstrap} does not take the request")

consumer.assign([answers])
answer = next(records(consumer, reply_to, time.time() + 30))
print(json.dumps(answer))
if answer["type"] != "JobAcceptedReply":
    sys.exit(2 if answer["type"] == "JobRejected" else 4)  # 4: it is not known, so the same request is sent again
if answer["status"] in ("FINISHED", "FAILED", "CANCELED"):  # sent again: its facts stand before those that are read here
    sys.exit(answer["status"] != "FINISHED")

consumer.assign([facts])
for fact in records(consumer, job):
    print(json.dumps(fact))
    if fact["type"] in ("JobFinished", "JobFailed", "JobCanceled"):
        consumer.close()
        sys.exit(fact["type"] != "JobFinished")
