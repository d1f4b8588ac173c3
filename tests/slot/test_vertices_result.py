"""A result as JSON: every type of Spark, exactly; and what a report says about sizes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from services.task_manager.slot.attempt import result
from services.task_manager.slot.attempt import run as attempt_run
from services.task_manager.slot.attempt.errors import AttemptError
from tests.slot.attempts import Attempts


@pytest.mark.parametrize(
    ("expression", "kind", "value"),
    [
        ("CAST(NULL AS INT)", "int", None),
        ("NULL", "void", None),
        ("true", "boolean", True),
        ("9223372036854775807L", "bigint", 9223372036854775807),
        ("CAST(1.5 AS DOUBLE)", "double", 1.5),
        ("CAST('NaN' AS DOUBLE)", "double", "NaN"),
        ("CAST('-Infinity' AS FLOAT)", "float", "-Infinity"),
        ("CAST(1234567890123456789012345678.90 AS DECIMAL(38,10))", "decimal(38,10)", "1234567890123456789012345678.9000000000"),
        ("CAST(0 AS DECIMAL(38,18))", "decimal(38,18)", "0.000000000000000000"),
        ("'ä\"\\n😀'", "string", 'ä"\n😀'),
        ("X'00ff10'", "binary", "AP8Q"),
        ("DATE'2020-02-29'", "date", "2020-02-29"),
        ("DATE'+12020-02-29'", "date", "+12020-02-29"),
        ("TIMESTAMP'2020-01-02 03:04:05.000006+02:00'", "timestamp", "2020-01-02T01:04:05.000006Z"),
        ("TIMESTAMP'2021-10-31 00:30:00Z'", "timestamp", "2021-10-31T00:30:00Z"),
        ("TIMESTAMP'2021-10-31 01:30:00Z'", "timestamp", "2021-10-31T01:30:00Z"),
        ("TIMESTAMP_NTZ'2020-01-02 03:04:05'", "timestamp_ntz", "2020-01-02T03:04:05"),
        ("array(1, NULL)", "array<int>", [1, None]),
        ("map('a', DATE'2020-01-01')", "map<string,date>", [{"key": "a", "value": "2020-01-01"}]),
        ("named_struct('x', 1.5BD, 'y', array(X'ff'))", "struct<x:decimal(2,1),y:array<binary>>", {"x": "1.5", "y": ["/w=="]}),
        ("named_struct('x', 1, 'x', 2, 'x_2', 3)", "struct<x:int,x:int,x_2:int>", {"x": 1, "x_3": 2, "x_2": 3}),
        ("map(named_struct('x', 1), 2)", "map<struct<x:int>,int>", "{{1} -> 2}"),
        ("INTERVAL '1-2' YEAR TO MONTH", "interval year to month", "INTERVAL '1-2' YEAR TO MONTH"),
        ("INTERVAL '1' DAY", "interval day", "INTERVAL '1' DAY"),
        ("make_interval(1, 2, 3)", "interval", "1 years 2 months 21 days"),
        ("parse_json('{\"a\": [1]}')", "variant", '{"a":[1]}'),
        ("TIME'01:02:03.5'", "time(6)", "01:02:03.5"),
    ],
)  # fmt: skip
def test_values(attempts: Attempts, monkeypatch: pytest.MonkeyPatch, expression: str, kind: str, value: Any) -> None:
    # Local time with an hour that is there twice: a result must not depend on where it is made.
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        report = attempts.run(
            {"id": "q", "sql": f"SELECT {expression} AS v, 1 AS v"},
            outputs=[{"vertex": "q", "edge": "result", "rows": 3}],
        )
    finally:
        monkeypatch.undo()
        time.tzset()
    found = report["result"]
    assert (found["columns"], found["rows"]) == (["v", "v"], [[value, 1]])
    assert found["types"] == [kind, "int"]
    assert json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.mark.parametrize(
    ("zone", "moment"),
    [("America/New_York", "9999-12-31 23:59:59"), ("Europe/Berlin", "0001-01-01 00:00:00"), ("UTC", "+10000-01-01 00:00:00")],
)
def test_a_moment_that_python_has_no_time_for(attempts: Attempts, monkeypatch: pytest.MonkeyPatch, zone: str, moment: str) -> None:
    """The last second of the year 9999 stands for "for ever" in many tables; west of Greenwich it is over in UTC."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        query = {"id": "q", "sql": f"SELECT TIMESTAMP'{moment}' AS t, 1.5BD AS d"}
        rows = attempts.rows(query, conf={"spark.sql.session.timeZone": zone})
    finally:
        monkeypatch.undo()
        time.tzset()
    assert rows == [[moment, "1.5"]]


@pytest.mark.parametrize(("count", "truncated", "rows"), [(0, False, 0), (5, False, 5), (6, True, None)])
def test_only_the_first_rows(attempts: Attempts, count: int, truncated: bool, rows: int | None) -> None:
    report = attempts.run(
        {"id": "q", "sql": f"SELECT id FROM range(0, {count}, 1, 3) ORDER BY id DESC"},
        outputs=[{"vertex": "q", "edge": "result", "rows": 5}],
    )
    assert report["result"]["rows"] == [[i] for i in range(count - 1, -1, -1)][:5]
    assert report["result"]["truncated"] is truncated
    assert report["outputs"]["q"]["rows"] == rows


def test_only_as_many_rows_as_a_report_may_hold(attempts: Attempts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result, "BYTES_MAX", 3 * len('["xxxxxxxxxx"]') + 1)
    report = attempts.run(
        {"id": "q", "sql": "SELECT repeat('x', 10) FROM range(0, 5, 1, 2)"}, outputs=[{"vertex": "q", "edge": "result", "rows": 5}]
    )
    assert (report["result"]["rows"], report["result"]["truncated"]) == ([["x" * 10]] * 3, True)
    assert report["outputs"]["q"]["rows"] is None


def test_a_report_that_is_too_large_to_be_passed_on_fails_the_attempt(attempts: Attempts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_run, "REPORT_FILE_BYTES_MAX", 200)
    columns = ", ".join(f"1 AS a_long_name_{n}" for n in range(9))
    with pytest.raises(AttemptError, match=r"lists of files take \d+ bytes") as failed:
        attempts.run({"id": "q", "sql": f"SELECT {columns}"}, outputs=[{"vertex": "q", "edge": "result", "rows": 5}])
    assert (failed.value.condition, failed.value.retryable) == ("REPORT_TOO_LARGE", False)


@pytest.mark.parametrize("adaptive", ["false", "true"])
@pytest.mark.parametrize("edge", ["hash", "broadcast", "sink"])
def test_a_report_counts_what_was_written(attempts: Attempts, tmp_path: Path, edge: str, adaptive: str) -> None:
    """Adaptive execution lists the counts of each plan that it made on its way."""
    table = "range(0, 1234, 1, 3)"
    query = {"id": "q", "sql": f"SELECT id, id % 10 AS k FROM {table} JOIN {table} AS other USING (id) GROUP BY id"}
    sink = {"id": "s", "sink": {"format": "csv", "path": "unused"}, "inputs": {"q": {"edge": "chained"}}}
    output = {
        "vertex": "q",
        "edge": edge,
        "keys": ["k"],
        "key_types": None,
        "shares": 4,
        "folder": str(tmp_path / "out"),
    }
    name = "s" if edge == "sink" else "q"
    vertices = [query, sink] if edge == "sink" else [query]
    conf = {"spark.sql.adaptive.enabled": adaptive, "spark.sql.shuffle.partitions": "2"}
    report = attempts.run(*vertices, outputs=[{**output, "vertex": name}], conf=conf)
    written = [path for path in (tmp_path / "out").rglob("*") if path.is_file() and not path.name.startswith(".")]
    assert report["outputs"][name]["rows"] == 1234
    assert report["outputs"][name]["bytes"] == sum(path.stat().st_size for path in written)
