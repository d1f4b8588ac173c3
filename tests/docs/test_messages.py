"""docs/messages.md: its examples are what the code reads and writes, its commands work."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from millrace.core.jobgraph.model import DEFAULT_LIMITS
from millrace.core.messages.contracts import CONTRACTS
from millrace.core.topics import TOPICS, Topology
from millrace.edge.requests import check_graph, decode
from millrace.io.kafka.admin import KafkaAdmin
from tests.conftest import RealKafka

from .generate import ROOT, SCHEMAS

TEXT = (ROOT / "docs" / "messages.md").read_text()
BLOCKS = re.findall(r"^```(sh|json)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
EXAMPLES = [json.loads(line) for kind, block in BLOCKS if kind == "json" for line in block.splitlines()]
TOOLS = {
    "kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
}


def named(example: dict[str, Any]) -> str:
    return str(example["type"])


@pytest.mark.parametrize("example", EXAMPLES, ids=named)
def test_an_example_is_a_message(example: dict[str, Any]) -> None:
    contract = CONTRACTS[example["type"], example["version"]]
    if contract.topic == "client.commands":
        request = decode(json.dumps(example).encode(), DEFAULT_LIMITS)
        assert type(request) is contract.body
    else:
        body = contract.body.model_validate_json(json.dumps(example))
        assert json.loads(body.model_dump_json()) == example, "a fact or an answer has all its fields"


@pytest.mark.parametrize("example", [each for each in EXAMPLES if each["type"] == "SubmitJob"], ids=lambda e: e["job"])
def test_a_graph_of_the_examples_is_valid(example: dict[str, Any]) -> None:
    found = check_graph(example["graph"], example.get("parameters", {}), DEFAULT_LIMITS)
    assert found.graph is not None and not found.problems and not found.warnings


@pytest.mark.parametrize("example", EXAMPLES, ids=named)
def test_an_example_is_right_by_its_schema_and_has_nothing_that_it_does_not_know(example: dict[str, Any]) -> None:
    [file] = SCHEMAS.rglob(f"{example['type']}.json")
    schema = json.loads(file.read_text())
    by_file = Registry(retrieve=lambda uri: Resource.from_contents(json.loads(Path(uri[len("file://") :]).read_text())))
    validator = Draft202012Validator({"$ref": file.as_uri()}, registry=by_file)
    assert [error.message for error in validator.iter_errors(example)] == []
    assert not validator.is_valid({**example, "version": 99})
    assert set(example) <= set(schema["properties"])
    assert (schema["properties"]["type"]["const"], schema["properties"]["version"]["const"]) == (
        example["type"],
        example["version"],
    )


@pytest.mark.parametrize("file", sorted(SCHEMAS.rglob("*.json")), ids=lambda file: file.stem)
def test_a_schema_refers_only_to_what_is_there(file: Path) -> None:
    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return own + [each for inner in value.values() for each in references(inner)]
        return [each for inner in value for each in references(inner)] if isinstance(value, list) else []

    schema = json.loads(file.read_text())
    for reference in references(schema):
        path, _, inner = reference.partition("#")
        target: Any = json.loads((file.parent / path).read_text()) if path else schema
        for step in inner.split("/")[1:]:
            target = target[step]
        assert isinstance(target, dict)


def test_the_partitions_are_those_that_the_page_tells() -> None:
    topology = Topology()
    for name in ("hello-1", "flights-7", "3f6c1f0e"):
        assert topology.partition("job.events", name) == zlib.crc32(name.encode()) % topology.job_event_partitions
        assert topology.partition("client.replies", name) == zlib.crc32(name.encode()) % topology.reply_partitions


def test_the_commands_publish_a_request_and_follow_facts(real_kafka: RealKafka) -> None:
    """As they stand on the page, with the tool that takes the place of an installation, and an end to following."""
    [topic] = [each for each in TOPICS if each.name == "client.commands"]
    admin = KafkaAdmin(real_kafka.bootstrap)
    admin.ensure_topics([(topic.name, topic.count(Topology()), topic.config())])
    publish, follow = (block for kind, block in BLOCKS if kind == "sh" and "kafka-console" in block)
    _run(publish, real_kafka)
    follow = follow.replace("job.events", topic.name).rstrip() + " --max-messages 1\n"
    request = decode(_run(follow, real_kafka).encode(), DEFAULT_LIMITS)
    assert (request.type, request.job) == ("SubmitJob", "hello-1")


def _run(block: str, kafka: RealKafka) -> str:
    for tool, name in TOOLS.items():
        block = block.replace(tool, f"{shlex.quote(sys.executable)} -m deploy.local.kafka tool {name}")
    environment = {**os.environ, "KAFKA": kafka.bootstrap}
    done = subprocess.run(
        ["bash", "-euc", block], cwd=ROOT, env=environment, text=True, capture_output=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
