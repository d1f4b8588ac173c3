"""Small files drawn from a seed: values that engines get wrong, in CSV, JSON and Parquet."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Drawing = Callable[[random.Random], Any]
WORDS = ("a", "a", "a", "A", "b", "", " x ", "comma, \"quote\"", "line\nbreak", "it's", "Ünï ☃", "10", "2", "-3", "NaN", "null", "\\",
         "b/c=d%", "long " * 30, "nul\0in", "cr\rin", "tab\tin", "😀", "e\u0301", "é")  # fmt: skip
ZONE = datetime.timezone.utc
CLOCKS = tuple(datetime.datetime(*each, tzinfo=ZONE) for each in ((2020, 1, 1, 0), (2020, 11, 1, 4), (2021, 3, 14, 6), (1955, 5, 5, 0)))
"""Midnights, hours around changes of clocks in New York, and others."""
DOUBLES = (0.0, -0.0, math.nan, math.inf, -math.inf, 1.0, 2.0, 10.0, 2.5, -7.25, 1e-300, 1e300)


def _day(r: random.Random) -> datetime.date:
    return datetime.date(2020, 1, 1) + datetime.timedelta(days=r.choice((0, 0, 0, 1, 31, 59, 366, -40000, r.randint(-9000, 9000))))


def _scaled(number: int, scale: int) -> decimal.Decimal:
    return decimal.Decimal(number).scaleb(-scale)


def _moment(r: random.Random) -> datetime.datetime:
    more = datetime.timedelta(minutes=r.choice((0, 0, 30, 60, 90, 150)), microseconds=r.choice((0, 0, 1, 999999)))
    return (r.choice(CLOCKS) + more).astimezone(datetime.timezone(datetime.timedelta(minutes=r.choice((0, 0, 345, -300)))))


KINDS: dict[str, tuple[pa.DataType, Drawing]] = {
    "INT": (pa.int32(), lambda r: r.choice((0, 1, 1, 1, 1, 2, 3, 10, r.randint(-5, 40)))),
    "BIGINT": (pa.int64(), lambda r: r.choice((0, 1, 1, 2, 3, 10, 2**40, -(2**53) - 1, r.randint(-50, 400)))),
    "SMALLINT": (pa.int16(), lambda r: r.randint(-3, 12)),
    "DOUBLE": (pa.float64(), lambda r: r.choice(DOUBLES)),
    "FLOAT": (pa.float32(), lambda r: r.choice((0.0, -0.0, math.nan, math.inf, 1.0, 2.0, 10.0, 2.5))),
    "DECIMAL(10,2)": (pa.decimal128(10, 2), lambda r: _scaled(r.choice((0, 100, 200, 250, -725, 1000, r.randint(-999, 9999))), 2)),
    "DECIMAL(30,10)": (pa.decimal128(30, 10), lambda r: _scaled(r.choice((0, 10**10, 2 * 10**10, 25 * 10**9, 1)), 10)),
    "STRING": (pa.string(), lambda r: r.choice(WORDS)),
    "BOOLEAN": (pa.bool_(), lambda r: r.random() < 0.5),
    "DATE": (pa.date32(), _day),
    "TIMESTAMP": (pa.timestamp("us", "UTC"), _moment),
    "TIMESTAMP_NTZ": (pa.timestamp("us"), lambda r: _moment(r).astimezone(ZONE).replace(tzinfo=None)),
    "BINARY": (pa.binary(), lambda r: r.choice((b"", b"\x00\xff", b"abc"))),
    "ARRAY<STRING>": (pa.list_(pa.string()), lambda r: [r.choice((*WORDS, None)) for _ in range(r.choice((0, 1, 2, 5)))]),
    "STRUCT<a: INT, b: STRING>": (
        pa.struct([("a", pa.int32()), ("b", pa.string())]),
        lambda r: {"a": r.choice((1, 2, None)), "b": r.choice(("x", "y, z", None))},
    ),
    "ARRAY<STRUCT<d: DOUBLE>>": (
        pa.list_(pa.struct([("d", pa.float64())])),
        lambda r: [{"d": r.choice((*DOUBLES, None))} for _ in range(r.choice((0, 1, 3)))],
    ),
    "MAP<STRING, INT>": (
        pa.map_(pa.string(), pa.int32()),
        lambda r: [(word, r.choice((1, None))) for word in ("p", "q")[: r.randint(0, 2)]],
    ),
}  # fmt: skip
NESTED = tuple(kind for kind in KINDS if "<" in kind)


def rows_of(r: random.Random, kinds: list[str], count: int) -> list[list[Any]]:
    return [[None if r.random() < 0.15 else KINDS[kind][1](r) for kind in kinds] for _ in range(count)]


def write(path: Path, kind: str, names: list[str], kinds: list[str], rows: list[list[Any]]) -> None:
    """One file."""
    if kind == "parquet":
        columns = [pa.array([row[i] for row in rows], KINDS[each][0]) for i, each in enumerate(kinds)]
        pq.write_table(pa.table(columns, names=names), path)
    elif kind == "json":
        given = [{name: _json(value) for name, value in zip(names, row, strict=True) if value is not None} for row in rows]
        lines = [json.dumps(each, ensure_ascii=False) for each in given]
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    else:
        lines = [",".join(map(_csv, row)) for row in [names, *rows]]
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _json(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: _json(each) for name, each in value.items()}
    if isinstance(value, list):
        return dict(value) if value and isinstance(value[0], tuple) else [_json(each) for each in value]
    return value.isoformat() if isinstance(value, datetime.date) else value


def _csv(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return {math.inf: "Inf", -math.inf: "-Inf"}.get(value, str(value).replace("nan", "NaN"))
    if isinstance(value, bytes):
        return value.hex()
    text = value.isoformat() if isinstance(value, datetime.date) else str(value)
    return text if text and not set(text) & set(',"\n\r\\') and text.strip() == text else '"' + text.replace('"', '""') + '"'
