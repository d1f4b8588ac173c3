"""Does a change of the published schemas break somebody? A schema of now against the one that was released.

Of what clients write, all that was right must be right still: the schema of now must take every value that the released one takes. Of what
Millrace writes, the released schema must take every value of now, for readers were made by it. Both are one question: does `wide`
take all that `narrow` takes? RULES answers it for each keyword that our schemas use; one that has no rule must be equal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from millrace import __version__
from millrace.core.topics import TOPICS

from . import schemas

RELEASED = Path(__file__).parents[2] / "docs" / "released"
SILENT = {"title", "description", "default", "examples", "$schema", "$defs", "discriminator", "properties", "required"}
"""Keywords that refuse nothing by themselves, or that `_object` looks at."""
Schema = dict[str, Any]
ABSENT = object()


def _at_most(wide: Any, narrow: Any) -> bool:
    return wide is ABSENT or (narrow is not ABSENT and narrow <= wide)


def _at_least(wide: Any, narrow: Any) -> bool:
    return wide is ABSENT or (narrow is not ABSENT and narrow >= wide)


def _same(wide: Any, narrow: Any) -> bool:
    return wide is ABSENT or wide == narrow


RULES: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "maximum": (_at_most, "a larger number is refused"),
    "exclusiveMaximum": (_at_most, "a larger number is refused"),
    "maxLength": (_at_most, "a longer text is refused"),
    "maxItems": (_at_most, "a longer list is refused"),
    "maxProperties": (_at_most, "a larger mapping is refused"),
    "minimum": (_at_least, "a smaller number is refused"),
    "exclusiveMinimum": (_at_least, "a smaller number is refused"),
    "minLength": (_at_least, "a shorter text is refused"),
    "minItems": (_at_least, "a shorter list is refused"),
    "minProperties": (_at_least, "a smaller mapping is refused"),
    "pattern": (_same, "another pattern"),
    "format": (_same, "another format"),
}
"""Keyword -> (does the value of `wide` take all that the value of `narrow` does?, what it means if not)."""


class Comparison:
    """All reasons for which `wide` does not take what `narrow` takes. References are followed in their own files."""

    def __init__(self, wide: Schema, narrow: Schema) -> None:
        self._wide, self._narrow = wide, narrow
        self._open: list[tuple[Any, Any]] = []  # pairs that are being compared: a schema may hold itself

    def reasons(self) -> list[str]:
        return self._schema(self._wide, self._narrow, "")

    def _schema(self, wide: Any, narrow: Any, place: str) -> list[str]:
        if narrow is False or (wide, narrow) in self._open:
            return []
        if wide is False:
            return [f"{place}: is refused"]
        self._open.append((wide, narrow))
        reasons: list[str] = []
        for one in _alternatives(narrow, self._narrow):
            found = [list(self._single(each, one, place)) for each in _alternatives(wide, self._wide)]
            reasons += min(found, key=len)
        self._open.pop()
        return reasons

    def _single(self, wide: Schema, narrow: Schema, place: str) -> Iterator[str]:
        here = place or "the value"
        if missing := _types(narrow) - _types(wide):
            yield f"{here}: {', '.join(sorted(missing))} is refused"
            return
        values = _values(wide)
        if values is not None and (lost := [each for each in _values(narrow) or [ABSENT] if each not in values]):
            told = "any other value" if lost == [ABSENT] else ", ".join(map(str, lost))
            yield f"{here}: {told} is refused"
        for keyword in sorted((wide.keys() | narrow.keys()) - SILENT - _ELSEWHERE):
            rule, meaning = RULES.get(keyword, (_same, f"another {keyword}"))
            if not rule(wide.get(keyword, ABSENT), narrow.get(keyword, ABSENT)):
                yield f"{here}: {meaning} ({keyword}: {wide.get(keyword)} does not take {narrow.get(keyword, 'any')})"
        if "object" in _types(narrow):
            yield from self._object(wide, narrow, place)
        if "items" in wide and "array" in _types(narrow):
            yield from self._schema(wide["items"], narrow.get("items", {}), f"{place}[]")

    def _object(self, wide: Schema, narrow: Schema, place: str) -> Iterator[str]:
        for name in wide.get("required", []):
            if name not in narrow.get("required", []):
                yield f"{_at(place, name)}: is required, and need not be there"
        further = wide.get("additionalProperties", {})
        known = wide.get("properties", {})
        for name, schema in narrow.get("properties", {}).items():
            yield from self._schema(known.get(name, further), schema, _at(place, name))
        if "additionalProperties" in wide and "patternProperties" not in narrow:
            yield from self._schema(further, narrow.get("additionalProperties", {}), _at(place, "*"))
        for pattern, schema in wide.get("patternProperties", {}).items():
            yield from self._schema(schema, narrow.get("patternProperties", {}).get(pattern, {}), _at(place, "*"))


_ELSEWHERE = {"type", "const", "enum", "anyOf", "oneOf", "$ref", "items"} | {
    "additionalProperties",
    "patternProperties",
}
_TYPES = {"array", "boolean", "integer", "null", "number", "object", "string"}


def _resolved(schema: Schema, root: Schema) -> Schema:
    """With its reference followed; one into another file stands for itself, for that file is compared, too."""
    reference = schema.get("$ref", "")
    if not reference.startswith("#/"):
        return schema
    target: Any = root
    for step in reference[2:].split("/"):
        target = target[step]
    return _resolved({**target, **{key: value for key, value in schema.items() if key != "$ref"}}, root)


def _alternatives(schema: Any, root: Schema) -> list[Schema]:
    """What a schema takes is what one of these takes."""
    schema = _resolved({} if schema is True else schema, root)
    choice = schema.get("anyOf") or schema.get("oneOf")
    return [each for one in choice for each in _alternatives(one, root)] if choice else [schema]


def _types(schema: Schema) -> set[str]:
    """The JSON types that a schema takes; a whole number is a number, too."""
    values = _values(schema)
    if "type" not in schema and values is not None:
        return {_type_of(each) for each in values}
    types = schema.get("type", sorted(_TYPES))
    found = {types} if isinstance(types, str) else set(types)
    return found | ({"integer"} if "number" in found else set())


def _type_of(value: Any) -> str:
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null", list: "array"}
    return kinds.get(type(value), "object")


def _values(schema: Schema) -> list[Any] | None:
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _told(schema: Schema, keyword: str) -> str:
    return str(schema.get(keyword, "none"))


def _at(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


# ---- releases


def contract() -> dict[str, Any]:
    """What is published now: the public schemas by their files, and the keys of the public topics."""
    topics = {topic.name: topic.key for topic in TOPICS if topic.name in schemas.PUBLIC}
    return {"topics": topics, "schemas": {name: json.loads(text) for name, text in schemas.public()}}


def breaks(released: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """One line for each change from a release to now that breaks a publisher or a reader."""
    found = [f"topic {name}: is gone" for name in released["topics"] if name not in now["topics"]]
    found += [
        f"topic {name}: the key was {key} and is {now['topics'][name]}"
        for name, key in released["topics"].items()
        if now["topics"].get(name, key) != key
    ]
    for name, was in released["schemas"].items():
        schema = now["schemas"].get(name)
        if schema is None:
            found.append(f"{name}: is gone")
            continue
        written_by_clients = name.partition("/")[0] in schemas.BY_CLIENTS or name == "JobGraph.json"
        wide, narrow = (schema, was) if written_by_clients else (was, schema)
        found += [f"{name}: {reason}" for reason in Comparison(wide, narrow).reasons()]
        if written_by_clients:
            found += [f"{name}: {reason}" for reason in _defaults(was, schema)]
    return found


def _defaults(was: Schema, now: Schema) -> Iterator[str]:
    """A field left out means its default: another one gives old records another meaning."""
    for where in ("", *was.get("$defs", {})):
        old, new = (each["$defs"].get(where, {}) if where else each for each in (was, now))
        for name, field in old.get("properties", {}).items():
            now_is = new.get("properties", {}).get(name)
            if "default" in field and now_is is not None and not _means(now_is.get("default"), field["default"]):
                yield f"{_at(where, name)}: left out, it meant {field['default']!r} and means {now_is.get('default')!r}"


def _means(now: Any, was: Any) -> bool:
    """Whether a default has the meaning that it had. An object may have more fields now: each is left out where the object is."""
    if isinstance(now, dict) and isinstance(was, dict):
        return all(name in now and now[name] == value for name, value in was.items())
    return bool(now == was)


def releases() -> list[Path]:
    """The releases that the code must bear: those with the first number of its own version."""
    major = __version__.partition(".")[0]
    return sorted(RELEASED.glob(f"{major}.*.json"))


def release() -> Path:
    """Keeps what is published now as this version's contract. Raises FileExistsError: a release is never changed."""
    file = RELEASED / f"{__version__}.json"
    RELEASED.mkdir(exist_ok=True)
    now = contract()
    lines = [
        f"{json.dumps(name)}: {json.dumps(schema, separators=(',', ':'))}" for name, schema in now["schemas"].items()
    ]
    text = f'{{"topics": {json.dumps(now["topics"])},\n"schemas": {{\n' + ",\n".join(lines) + "\n}}\n"
    with open(file, "x") as out:
        out.write(text)
    return file
