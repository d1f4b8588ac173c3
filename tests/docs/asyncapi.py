"""docs/asyncapi.yaml: every topic with its messages as AsyncAPI 3, from the topics' file and the registry of messages."""

from __future__ import annotations

import inspect
import io
from collections.abc import Sequence
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import LiteralScalarString

from millrace import __version__
from millrace.core.messages.contracts import CONTRACTS, Contract
from millrace.core.topics import IDENTITY, INBOXES, TOPICS, Topic, Topology

from .schemas import BY_CLIENTS, PUBLIC, RECORDS

INFO = LiteralScalarString("""\
Millrace runs PySpark jobs. Any Kafka client may publish requests to client.commands, questions to process.questions, and read
the answers and facts on client.replies, job.events, cluster.events and dead-letters: those six are the contract, see publishing.md.
The inboxes (the other topics) are written by Millrace's own services alone and change with any release; they are here
so that a copied one can be read. This file is made by `python -m tests.docs`.
""")
KEYS = {
    "any": "Any key, or none.",
    "reply_to": "The request's reply_to. The partition is crc32(reply_to) % partitions.",
    "job": "The job's id. The partition is crc32(job) % partitions, so that a job's facts are in order.",
    "task_manager": "The TaskManager's id; of a LeaderElected its scope.",
    "topic": "The topic that the parked record was on.",
    "to": "The scope that the record is for.",
    "process": "The name of the process that is asked; empty: all of them.",
    "command": "The command's id.",
}
CHANNELS = tuple(topic for topic in TOPICS if not topic.compacted and topic.name != IDENTITY)  # these hold their owner's rows
Made = dict[str, Any]


def text() -> str:
    """The document."""
    out = io.StringIO()
    yaml = YAML()
    yaml.width = 200
    yaml.dump(document(), out)
    return out.getvalue()


def document() -> Made:
    """The document as plain values; schemas are references to the files of docs/schema."""
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "Millrace", "version": __version__, "description": INFO, "license": {"name": "Apache-2.0"}},
        "defaultContentType": "application/json",
        "servers": {
            "kafka": {
                "host": "{bootstrap}",
                "protocol": "kafka",
                "description": "The brokers of the cluster; for a local stack `millrace status` tells them.",
                "variables": {"bootstrap": {"default": "127.0.0.1:9092", "description": "host:port"}},
            }
        },
        "channels": {topic.name: _channel(topic) for topic in CHANNELS},
        "operations": {name: made for topic in CHANNELS for name, made in _operations(topic).items()},
        "components": {"messages": _messages()},
    }


def _channel(topic: Topic) -> Made:
    inbox = topic.name in INBOXES
    own = {"cleanup.policy": ["delete"], "retention.ms": topic.retention_ms, "max.message.bytes": _most_bytes(topic)}
    partitions = topic.count(Topology())
    kafka = {"topic": topic.name, "partitions": partitions, "topicConfiguration": own, "bindingVersion": "0.5.0"}
    fixed = (
        ""
        if isinstance(topic.partitions, int)
        else f" {partitions} partitions, unless the cluster was made with another number."
    )
    who = "Internal: no promise from release to release." if inbox else "Public."
    return {
        "address": topic.name,
        "title": topic.carries,
        "description": f"{who} Key: {KEYS[topic.key]}{fixed}",
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in _names(topic)},
        "tags": [{"name": "internal" if inbox else "public"}],
        "bindings": {"kafka": kafka},
    }


def _most_bytes(topic: Topic) -> int:
    return int(topic.config()["max.message.bytes"])


def _operations(topic: Topic) -> Made:
    """What Millrace does with a topic: it receives what it reads, and sends the rest."""
    channel = {"$ref": f"#/channels/{_escaped(topic.name)}"}
    writers, readers = (", ".join(each) for each in (topic.writers, topic.readers))
    made: Made = {}
    if topic.name in (*INBOXES, *BY_CLIENTS):
        made[f"receive-{topic.name}"] = {
            "action": "receive",
            "channel": channel,
            "summary": f"{readers} read what {writers} wrote.",
        }
    if topic.name not in BY_CLIENTS:
        made[f"send-{topic.name}"] = {
            "action": "send",
            "channel": channel,
            "summary": f"{writers} write for {readers}.",
        }
    if topic.name in BY_CLIENTS:
        made[f"receive-{topic.name}"]["reply"] = {
            "channel": {"$ref": "#/channels/client.replies"},
            "messages": [{"$ref": f"#/channels/client.replies/messages/{name}"} for name in _of("client.replies")],
        }
    return made


def _messages() -> Made:
    public = {c.type: _message(c) for c in CONTRACTS.values() if c.topic in PUBLIC}
    records = {
        name: {
            "name": name,
            "summary": _sentences(model),
            "tags": [{"name": "internal"}],
            "payload": {"$ref": f"schema/inboxes.json#/$defs/{name}"},
        }
        for name, model in RECORDS.items()
    }
    return {**public, **records}


def _message(contract: Contract) -> Made:
    made: Made = {
        "name": contract.type,
        "title": f"{contract.type}, version {contract.version}",
        "summary": _sentences(contract.body),
        "tags": [{"name": "public"}],
        "payload": {"$ref": f"schema/{contract.topic}/{contract.type}.json"},
    }
    if contract.topic in (*BY_CLIENTS, "client.replies"):
        made["correlationId"] = {"location": "$message.payload#/correlation"}
    return made


def _names(topic: Topic) -> Sequence[str]:
    return list(RECORDS) if topic.name in INBOXES else _of(topic.name)


def _of(topic: str) -> list[str]:
    return [contract.type for contract in CONTRACTS.values() if contract.topic == topic]


def _sentences(cls: type) -> str:
    return " ".join(inspect.cleandoc(cls.__dict__.get("__doc__") or "").split("\n\n")[0].split())


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
