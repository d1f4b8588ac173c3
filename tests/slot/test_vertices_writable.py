"""What the format of a sink cannot hold is refused before anything is computed; what Spark writes is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.slot.attempts import Attempts, chained

CANNOT = {
    ("csv", "array(1) AS a"): "a is of type ARRAY<INT>",
    ("csv", "named_struct('x', id, 'y', id) AS s, map('k', id) AS m"): "; m is of type MAP<STRING, BIGINT>",
    ("CSV", "make_interval(1) AS i"): "i is of type INTERVAL",
    ("orc", "array(make_interval(1)) AS a"): "a is of type ARRAY<INTERVAL>",
    ("parquet", "array(make_interval(1)) AS a"): "a is of type ARRAY<INTERVAL>",
    ("text", "1 AS a"): "a is of type INT",
    ("text", "'x' AS a, 'y' AS b"): "it has 2 columns, and text takes one",
}
CAN = [
    ("csv", "1 AS a, 'x' AS b, date'2024-01-01' AS c, 1.5BD AS d, interval '1' day AS e, CAST(NULL AS BOOLEAN) AS f"),
    ("json", "array(named_struct('x', map('k', 1))) AS a, named_struct('x', 1, 'X', 2) AS s"),
    ("parquet", "array(named_struct('x', map('k', 1))) AS a, X'00' AS b, timestamp_ntz'2024-01-01 00:00:00' AS t"),
    ("orc", "array(named_struct('x', map('k', 1))) AS a, X'00' AS b"),
    ("text", "'x' AS a"),
]


def sink_of(format: str, tmp_path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    sink = {"id": "out", "sink": {"format": format, "path": str(tmp_path / "out"), "options": {}}, "inputs": chained("q")}
    return sink, {"vertex": "out", "edge": "sink", "folder": str(tmp_path / "staged"), "name": "job-1-out"}


@pytest.mark.parametrize(("format", "columns"), CANNOT)
def test_a_sink_that_cannot_hold_a_column_is_refused_before_it_is_computed(
    attempts: Attempts, tmp_path: Path, spark: Any, format: str, columns: str
) -> None:
    says, (sink, staged) = CANNOT[format, columns], sink_of(format, tmp_path)
    query = f"SELECT {columns} FROM range(3) WHERE raise_error('computed') IS NULL"
    error = attempts.fail({"id": "q", "sql": query}, sink, outputs=[staged])
    assert (error["condition"], error["kind"], error["retryable"], error["vertex"]) == ("NOT_WRITABLE", "analysis", False, "out")
    assert says in error["message"], error["message"]
    planned = attempts.fail({"id": "q", "sql": query, "parallelism": 2}, {**sink, "parallelism": 2}, kind="plan")
    assert (planned["condition"], planned["vertex"]) == ("NOT_WRITABLE", "out") and says in planned["message"]
    with pytest.raises(Exception, match="UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE|only a single column"):
        spark.sql(f"SELECT {columns} FROM range(3)").write.format(format).save(str(tmp_path / "plain"))


@pytest.mark.parametrize(("format", "columns"), CAN)
def test_what_a_format_can_hold_is_written(attempts: Attempts, tmp_path: Path, format: str, columns: str) -> None:
    sink, staged = sink_of(format, tmp_path)
    report = attempts.run({"id": "q", "sql": f"SELECT {columns} FROM range(3)"}, sink, outputs=[staged])
    assert report["outputs"]["out"]["rows"] == 3


def test_of_a_long_type_the_beginning_is_shown(attempts: Attempts, tmp_path: Path) -> None:
    sink, staged = sink_of("csv", tmp_path)
    fields = ", ".join(f"'field{number}', 1" for number in range(50))
    message = attempts.fail({"id": "q", "sql": f"SELECT named_struct({fields}) AS s"}, sink, outputs=[staged])["message"]
    assert "s is of type STRUCT<field0: INT NOT NULL, " in message and len(message) < 400
