"""docs/asyncapi.yaml is AsyncAPI 3.0, and names every topic and every message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator, Draft202012Validator
from ruamel.yaml import YAML

from millrace.core.messages.contracts import CONTRACTS
from millrace.core.topics import INBOXES

from .asyncapi import CHANNELS
from .generate import ASYNCAPI, SCHEMAS
from .schemas import PUBLIC

DOCUMENT: dict[str, Any] = YAML(typ="safe").load(ASYNCAPI.read_text())
OFFICIAL = json.loads((Path(__file__).parent / "asyncapi-3.0.0" / "schema.json").read_text())


def test_it_is_what_asyncapi_says_a_document_is() -> None:
    errors = [f"{error.json_path}: {error.message}" for error in Draft7Validator(OFFICIAL).iter_errors(DOCUMENT)]
    assert errors == []


def test_a_wrong_document_would_be_seen() -> None:
    wrong = {**DOCUMENT, "channels": {"x": {"address": 7}}}
    assert not Draft7Validator(OFFICIAL).is_valid(wrong)


def test_every_topic_is_a_channel_with_all_its_messages() -> None:
    assert list(DOCUMENT["channels"]) == [topic.name for topic in CHANNELS]
    for topic in CHANNELS:
        messages = DOCUMENT["channels"][topic.name]["messages"]
        if topic.name in PUBLIC:
            assert list(messages) == [each.type for each in CONTRACTS.values() if each.topic == topic.name]
        else:
            assert topic.name in INBOXES and {"Elected", "Tick", "Message"} <= set(messages)


def references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [each for inner in value.values() for each in references(inner)]
    return [each for inner in value for each in references(inner)] if isinstance(value, list) else []


def test_what_it_refers_to_is_there() -> None:
    found = references(DOCUMENT)
    assert len(found) > 100
    for reference in found:
        path, _, inner = reference.partition("#")
        target: Any = json.loads((ASYNCAPI.parent / path).read_text()) if path else DOCUMENT
        for step in inner.split("/")[1:]:
            target = target[step.replace("~1", "/").replace("~0", "~")]
        assert isinstance(target, dict), reference


@pytest.mark.parametrize("file", sorted(SCHEMAS.rglob("*.json")), ids=lambda file: file.stem)
def test_a_schema_is_one(file: Path) -> None:
    Draft202012Validator.check_schema(json.loads(file.read_text()))
