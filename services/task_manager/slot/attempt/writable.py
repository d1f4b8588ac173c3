"""Which columns the format of a sink cannot hold. Spark says so when it writes: hours after that was known, and of the first one alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from ..attempt_wire import SinkSpec
from . import carried
from .errors import AttemptError

TYPE_CHARS_MOST = 100
_PACKAGE = "org.apache.spark.sql.execution.datasources"
_FORMATS = {
    "csv": "csv.CSVFileFormat",
    "json": "json.JsonFileFormat",
    "orc": "orc.OrcFileFormat",
    "parquet": "parquet.ParquetFileFormat",
    "text": "text.TextFileFormat",
    "xml": "xml.XmlFileFormat",
}
"""Those that Spark brings. Of others only they themselves know it."""
_IN_ALL = re.compile(r"boolean|byte|short|integer|long|float|double|decimal\(\d+,-?\d+\)|string|date|timestamp|timestamp_ntz")
"""Types that all of them but text hold: Spark is not asked."""


def check(session: Any, vertex: str, sink: SinkSpec, schema: str) -> None:
    """Raises AttemptError NOT_WRITABLE if rows of this schema (Spark's JSON) cannot be written by the sink `vertex`."""
    name = sink["format"].lower()
    if name not in _FORMATS:
        return
    fields = json.loads(schema)["fields"]
    problems = [*_types(session, name, fields)]
    if name == "text" and len(fields) != 1:
        problems.append(f"it has {len(fields)} columns, and text takes one")
    if not problems:
        return
    raise AttemptError(
        "NOT_WRITABLE",
        f"{vertex!r} cannot write its rows as {name}: {carried.listed(problems)}. Make such a column a STRING before it, say by to_json"
        " or CAST, or leave it out; or take another format",
        vertex=vertex,
    )


def _types(session: Any, name: str, fields: Sequence[dict[str, Any]]) -> Iterator[str]:
    if name != "text":
        fields = [field for field in fields if not (isinstance(field["type"], str) and _IN_ALL.fullmatch(field["type"]))]
    if not fields:
        return
    types, its = session._jvm.org.apache.spark.sql.types.DataType, getattr(session._jvm, f"{_PACKAGE}.{_FORMATS[name]}")()
    for field in fields:
        kind = types.fromJson(json.dumps(field["type"]))
        if not its.supportDataType(kind):
            text = str(kind.sql())
            yield f"{field['name']} is of type {text[:TYPE_CHARS_MOST]}{'...' if len(text) > TYPE_CHARS_MOST else ''}"
