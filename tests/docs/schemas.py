"""JSON Schemas for docs/schema: a folder for each public topic, a file for each message type; the records of inboxes in one file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Union

from pydantic import TypeAdapter

from millrace.core.jobgraph.model import JobGraph
from millrace.core.messages import records
from millrace.core.messages.contracts import CONTRACTS, Contract
from millrace.edge.schema import Explained

DIALECT = "https://json-schema.org/draft/2020-12/schema"
BY_CLIENTS = ("client.commands", "process.questions")
"""The topics that clients write."""
PUBLIC = (*BY_CLIENTS, "client.replies", "job.events", "cluster.events", "dead-letters", "audit.events")
RECORDS = {
    model.__name__: model
    for model in (records.Elected, records.Tick, records.Message, records.Outcome, records.Client, records.Probe)
}
"""What stands in an inbox."""


ABSENT = "left out where it has its default"
"""Marks such a field until it is known which are required."""


class Written(Explained):
    """As `Explained`, of what we write."""

    def model_schema(self, schema: Any) -> dict[str, Any]:
        made = super().model_schema(schema)
        for name, field in schema["cls"].model_fields.items():
            if field.exclude_if is not None:
                made["properties"][field.alias or name][ABSENT] = True
        return made


def names() -> list[str]:
    """The paths of `files`, which take a second or two to make."""
    return ["JobGraph.json", *(_name(contract) for contract in CONTRACTS.values() if contract.topic in PUBLIC), "inboxes.json"]


def public() -> Iterator[tuple[str, str]]:
    """(path below docs/schema, text) of what strangers write and read: the published contract."""
    yield "JobGraph.json", _text({"$schema": DIALECT, **_without_titles(JobGraph.model_json_schema(schema_generator=Explained))})
    for contract in CONTRACTS.values():
        if contract.topic in PUBLIC:
            yield _name(contract), _text(_schema(contract))


def files() -> Iterator[tuple[str, str]]:
    """(path below docs/schema, text) of every file."""
    yield from public()
    yield "inboxes.json", _text(_inboxes())


def _name(contract: Contract) -> str:
    return f"{contract.topic}/{contract.type}.json"


def _inboxes() -> dict[str, Any]:
    """All that services write to each other and to themselves: no contract, but what a copied inbox can be read by."""
    schema = TypeAdapter(Union[tuple(RECORDS.values())]).json_schema(mode="serialization", schema_generator=Explained)  # noqa: UP007
    about = "A record of an inbox. Written and read by services of one build alone: it changes with any release."
    return {"$schema": DIALECT, "title": "Record", "description": about, **_without_titles(schema)}


def _schema(contract: Contract) -> dict[str, Any]:
    written_by_us = contract.topic not in BY_CLIENTS
    schema = contract.body.model_json_schema(
        mode="serialization" if written_by_us else "validation", schema_generator=Written if written_by_us else Explained
    )
    schema = {"$schema": DIALECT, "title": contract.type, **_without_titles(schema)}
    if contract.type == "SubmitJob":
        graph = schema["properties"]["graph"]
        schema["properties"]["graph"] = {"description": graph["description"], "$ref": "../JobGraph.json"}
    if written_by_us:
        _let_grow(schema)
    required = schema.get("required", [])
    schema["required"] = ["type", "version", *(name for name in required if name not in ("type", "version"))]
    for name in ("type", "version"):
        schema["properties"][name].pop("default", None)
    return schema


def _let_grow(schema: Any) -> None:
    """What we write has every field but those that are left out at their default. A reader must bear those that a later build adds. Of an
    `Open` part those alone are sure to be there that have no default."""
    if isinstance(schema, dict):
        grows = schema.get("additionalProperties")
        if isinstance(grows, bool) and "properties" in schema:
            always = [name for name, field in schema["properties"].items() if not field.pop(ABSENT, False)]
            del schema["additionalProperties"]
            if not grows:
                schema["required"] = always
        for value in schema.values():
            _let_grow(value)
    elif isinstance(schema, list):
        for value in schema:
            _let_grow(value)


def _without_titles(value: Any, of_names: bool = False) -> Any:
    """Without the titles that pydantic makes of names. of_names: the keys are names of fields or definitions."""
    if isinstance(value, dict):
        return {
            key: _without_titles(inner, key in ("properties", "$defs") and not of_names)
            for key, inner in value.items()
            if of_names or key != "title"
        }
    return [_without_titles(inner) for inner in value] if isinstance(value, list) else value


def _text(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
