"""Which columns cannot go from one attempt to another: what is handed on is Parquet, which lacks some types and has no name twice.

Between vertices of one plan any columns go. So this is asked only of what leaves an attempt, and before any of its rows are computed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from ..attempt_wire import AttemptSpec, OutputSpec
from .errors import AttemptError

NAMED_MOST = 5
SHARE = "__share"
_SIMPLE = re.compile(
    r"boolean|byte|short|integer|long|float|double|decimal\(\d+,-?\d+\)|string|binary|date|timestamp|timestamp_ntz|variant"
    r"|interval (?:year|month|day|hour|minute|second)(?: to (?:month|hour|minute|second))?"
)
"""Types, as Spark's JSON has them, that need no question to Spark."""
_MORE = {"interval": ", of months and seconds at once", "time": " (which Spark writes with the setting spark.sql.timeType.enabled)"}
_CASE = "spark.sql.caseSensitive"


def certain(spec: AttemptSpec) -> set[str]:
    """Of a job's vertices, in its plan attempt, those that hand rows to other attempts in any case. Others may do so as well: the attempts
    that run them know."""
    vertices = {vertex["id"]: vertex for vertex in spec["vertices"]}
    found = set()
    for vertex in spec["vertices"]:
        for alias, edge in vertex["inputs"].items():
            shared = vertex["parallelism"] > 1 and bool(edge.get("keys"))
            if not vertices[alias].get("copied") and (shared or vertices[alias]["parallelism"] != vertex["parallelism"]):
                found.add(alias)
    return found


def leaving(outputs: Sequence[OutputSpec]) -> set[str]:
    """The vertices of an attempt whose rows others read."""
    return {output["vertex"] for output in outputs if output["edge"] not in ("result", "sink")}


def chosen(session: Any, schema: str, columns: Sequence[str] | None) -> list[str] | None:
    """The columns that are handed on, of those that readers want: one at least, for Parquet has no rows without columns. None: all."""
    if columns:
        return list(columns)
    return None if columns is None else _names(schema, readable(session, schema))[:1] or None


def check(session: Any, vertex: str, schema: str, columns: Sequence[str] | None) -> None:
    """Raises AttemptError NOT_CARRIED if rows of this schema (Spark's JSON) cannot be handed on. columns: those that readers want; None:
    all."""
    taken, fields = chosen(session, schema, columns), json.loads(schema)["fields"]
    if taken is not None:
        fields = [field for field in fields if field["name"] in taken]
    problems = [*_twice(fields, "", _is_cased(session)), *_types(session, fields)]
    problems += [f"the name {SHARE} is the exchange's own" for field in fields if field["name"].lower() == SHARE]
    if not fields:
        problems.append("it has no columns")
    if not problems:
        return
    raise AttemptError(
        "NOT_CARRIED",
        f"{vertex!r} cannot hand its rows to other tasks: {listed(problems)}. Cast or rename such a column in"
        f" {vertex!r}, or leave it out; between vertices of parallelism 1 it may stay",
        vertex=vertex,
    )


def listed(problems: Sequence[str]) -> str:
    """As a user reads them."""
    more = f", and {len(problems) - NAMED_MOST} more" if len(problems) > NAMED_MOST else ""
    return f"{'; '.join(problems[:NAMED_MOST])}{more}"


def readable(session: Any, schema: str) -> list[bool]:
    """Of each column of a schema whether it can have been handed on."""
    fields, cased = json.loads(schema)["fields"], _is_cased(session)
    names = [_name(field, cased) for field in fields]
    return [
        names.count(name) == 1 and name.lower() != SHARE and not any((*_types(session, [field]), *_twice([field], "", cased)))
        for name, field in zip(names, fields, strict=True)
    ]


def only(schema: str, these: Sequence[bool]) -> str:
    """The schema of some of its columns."""
    whole = json.loads(schema)
    return json.dumps({**whole, "fields": [field for field, its in zip(whole["fields"], these, strict=True) if its]})


def _names(schema: str, these: Sequence[bool]) -> list[str]:
    return [field["name"] for field in json.loads(only(schema, these))["fields"]]


def _is_cased(session: Any) -> bool:
    return str(session.conf.get(_CASE)) == "true"


def _name(field: dict[str, Any], cased: bool) -> str:
    return str(field["name"] if cased else field["name"].lower())


def _twice(fields: Sequence[dict[str, Any]], within: str, cased: bool) -> Iterator[str]:
    """The names that several columns have, or several fields of one struct."""
    by_name: dict[str, list[str]] = {}
    for field in fields:
        by_name.setdefault(_name(field, cased), []).append(field["name"])
    for names in by_name.values():
        if len(names) > 1:
            what = f"fields of {within}" if within else "columns"
            yield f"{len(names)} {what} are called {' and '.join(dict.fromkeys(names))}"
    for field in fields:
        for path, struct in _structs(field["type"], f"{within}.{field['name']}" if within else field["name"]):
            yield from _twice(struct["fields"], path, cased)


def _structs(kind: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The outermost structs of a type."""
    if not isinstance(kind, dict):
        return
    if kind["type"] == "struct":
        yield path, kind
    for part in ("elementType", "keyType", "valueType"):
        yield from _structs(kind.get(part), path)


def _types(session: Any, fields: Sequence[dict[str, Any]], within: str = "") -> Iterator[str]:
    for field in fields:
        yield from _of_type(session, field["type"], f"{within}{field['name']}")


def _of_type(session: Any, kind: Any, path: str) -> Iterator[str]:
    if isinstance(kind, str):
        if not _SIMPLE.fullmatch(kind) and not _is_written(session, kind):
            yield f"{path} is of type {kind.upper()}{_MORE.get(kind.partition('(')[0], '')}"
    elif kind["type"] == "struct":
        if not kind["fields"]:
            yield f"{path} is a STRUCT without fields"
        yield from _types(session, kind["fields"], f"{path}.")
    elif kind["type"] == "udt":
        yield from _of_type(session, kind["sqlType"], path)
    else:
        for part in ("elementType", "keyType", "valueType"):
            if part in kind:
                yield from _of_type(session, kind[part], path)


def _is_written(session: Any, kind: str) -> bool:
    """Whether Spark itself says that it writes and reads such columns as Parquet, with the settings of this session."""
    from pyspark.errors import AnalysisException

    jvm = session._jvm
    jkind = jvm.org.apache.spark.sql.types.DataType.fromJson(json.dumps(kind))
    try:
        jvm.org.apache.spark.sql.catalyst.util.TypeUtils.failUnsupportedDataType(jkind, session._jsparkSession.sessionState().conf())
    except AnalysisException:
        return False
    return bool(getattr(jvm, "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat")().supportDataType(jkind))
