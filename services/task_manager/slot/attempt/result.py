"""The first rows of a result as JSON.

Numbers, strings and booleans are themselves. Dates, times and timestamps are ISO 8601: a timestamp in UTC, with Z, one without
time zone without it. Decimals, intervals and variants are strings, binary is base64; NaN and infinities are the strings "NaN",
"Infinity", "-Infinity". Arrays are lists, structs are objects (a repeated name with a number), maps are lists of {"key", "value"}.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from typing import Any

from pyspark.sql import types as T

from ..attempt_wire import ResultRows

BYTES_MAX = 4 << 20
"""Of a result's rows as JSON: less than the host passes on (`common.left.ROWS_BYTES_MAX`)."""
_EXACT = (
    T.NullType, T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType, T.DecimalType,
    T.StringType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType,
)  # fmt: skip


def take(df: Any, rows: int) -> ResultRows:
    """The first `rows` rows, or as many as BYTES_MAX holds, by one Spark query."""
    fields = df.schema.fields
    # By position: names may be there twice.
    plain = [_is_exact(field.dataType) for field in fields]
    try:
        kept, truncated = _first(df if all(plain) else _with_strings(df, plain), rows)
    except (ValueError, OverflowError):  # a date or time outside of Python's years 1 to 9999, here or in UTC
        timeless = [p and not _has_time(f.dataType) for p, f in zip(plain, fields, strict=True)]
        kept, truncated = _first(_with_strings(df, timeless), rows)
    return {
        "columns": [field.name for field in fields],
        "types": [field.dataType.simpleString() for field in fields],
        "rows": kept,
        "truncated": truncated,
    }


def _first(df: Any, rows: int) -> tuple[list[list[Any]], bool]:
    """The first rows as JSON, and whether there are more."""
    found = df.limit(rows + 1).collect()
    kinds = [field.dataType for field in df.schema.fields]
    kept: list[list[Any]] = []
    size = 0
    for row in found[:rows]:
        values = [to_json(value, kind) for value, kind in zip(row, kinds, strict=True)]
        size += len(json.dumps(values))
        if size > BYTES_MAX:
            break
        kept.append(values)
    return kept, len(found) > len(kept)


def to_json(value: Any, kind: T.DataType) -> Any:
    """One value of a Spark type as JSON."""
    if value is None:
        return None
    if isinstance(value, float):
        return (
            value if math.isfinite(value) else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        )
    if isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(bytes(value)).decode("ascii")
    if isinstance(value, datetime.datetime):
        if isinstance(kind, T.TimestampType):
            # PySpark gives the local time of this process, with `fold` where it is ambiguous.
            return value.astimezone(datetime.timezone.utc).replace(tzinfo=None).isoformat() + "Z"
        return value.isoformat()
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(kind, T.StructType):
        items = (to_json(item, field.dataType) for field, item in zip(kind.fields, value, strict=True))
        return dict(zip(_keys(kind.names), items, strict=True))
    if isinstance(kind, T.ArrayType):
        return [to_json(item, kind.elementType) for item in value]
    if isinstance(kind, T.MapType):
        return [{"key": to_json(k, kind.keyType), "value": to_json(v, kind.valueType)} for k, v in value.items()]
    return str(value)


def _keys(names: list[str]) -> list[str]:
    """Names as keys of an object: a repeated one gets a number, else its value would be lost. As `cli/tables.py:unique` does: a slot
    imports nothing of ours but what lies beside it, for the user's own Python may run it."""
    keys: list[str] = []
    for name in names:
        key, number = name, 1
        while key in keys or (number > 1 and key in names):
            number += 1
            key = f"{name}_{number}"
        keys.append(key)
    return keys


def _is_exact(kind: T.DataType) -> bool:
    """Whether Python has a value for each value of this type."""
    if isinstance(kind, T.StructType):
        return all(_is_exact(field.dataType) for field in kind.fields)
    if isinstance(kind, T.ArrayType):
        return _is_exact(kind.elementType)
    if isinstance(kind, T.MapType):  # a map with keys that Python cannot hash would fail
        return isinstance(kind.keyType, _EXACT) and _is_exact(kind.valueType)
    return isinstance(kind, _EXACT)


def _has_time(kind: T.DataType) -> bool:
    return any(word in kind.simpleString() for word in ("date", "timestamp"))


def _with_strings(df: Any, keep: list[bool]) -> Any:
    """The columns that are not kept, as Spark writes them."""
    from pyspark.sql import functions

    names = [f"c{i}" for i in range(len(keep))]
    renamed = df.toDF(*names)
    return renamed.select(
        *(
            functions.col(name) if kept else functions.col(name).cast("string").alias(name)
            for name, kept in zip(names, keep, strict=True)
        )
    )
