"""Columns that cannot go from one attempt to another are refused before anything is computed; within one plan they go on working."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from services.task_manager.slot.attempt.errors import AttemptError
from tests.slot import whole_graphs
from tests.slot.attempts import Attempts, chained

CANNOT = {
    "time": ("TIME'12:30:00' AS t", "t is of type TIME(6)"),
    "interval": ("make_interval(1, 2, 3) AS i", "i is of type INTERVAL, of months and seconds at once"),
    "nested": ("map('k', array(named_struct('at', make_interval(1)))) AS m", "m.at is of type INTERVAL"),
    "empty struct": ("struct() AS s", "s is a STRUCT without fields"),
    "empty struct within": ("array(struct()) AS s", "s is a STRUCT without fields"),
    "a name twice": ("1 AS a, 2 AS a", "2 columns are called a"),
    "a name in two spellings": ("1 AS a, 2 AS A", "2 columns are called a and A"),
    "a field twice": ("named_struct('x', 1, 'x', 2) AS s", "2 fields of s are called x"),
    "the exchange's own": ("1 AS __share", "the name __share"),
}
EDGES = {"hash": {"keys": ["k"], "key_types": None, "shares": 2}, "broadcast": {}, "forward": {}}


def edge_to(folder: Path, kind: str) -> dict[str, Any]:
    return {"vertex": "q", "edge": kind, "folder": str(folder / "q"), **EDGES[kind]}


@pytest.mark.parametrize("name", CANNOT)
def test_a_column_that_cannot_be_handed_on_is_refused_before_it_is_computed(attempts: Attempts, tmp_path: Path, name: str) -> None:
    columns, says = CANNOT[name]
    producer = {"id": "q", "sql": f"SELECT k, raise_error('computed') AS e, {columns} FROM VALUES (1), (2) AS t(k)"}
    kind = [*EDGES][len(name) % len(EDGES)]
    error = attempts.fail(producer, outputs=[edge_to(tmp_path, kind)])
    assert (error["condition"], error["kind"], error["retryable"], error["vertex"]) == ("NOT_CARRIED", "analysis", False, "q")
    assert says in error["message"], error["message"]


@pytest.mark.parametrize("name", [name for name in CANNOT if name != "the exchange's own"])
def test_what_cannot_be_handed_on_is_as_any_column_within_a_plan(attempts: Attempts, name: str) -> None:
    columns, _ = CANNOT[name]
    made = {"id": "q", "sql": f"SELECT k, {columns} FROM VALUES (1), (2) AS t(k)"}
    assert attempts.rows(made, {"id": "r", "sql": "SELECT count(*), sum(k) FROM (SELECT * FROM q)", "inputs": chained("q")}) == [[2, 3]]


@pytest.mark.parametrize("name", CANNOT)
def test_a_job_that_is_planned_says_at_once_what_cannot_be_handed_on(attempts: Attempts, name: str) -> None:
    columns, says = CANNOT[name]
    producer = {"id": "q", "sql": f"SELECT k, {columns} FROM VALUES (1), (2) AS t(k)", "parallelism": 2}
    reader = {"id": "r", "sql": "SELECT * FROM q", "inputs": chained("q")}
    error = attempts.fail(producer, reader, kind="plan")
    assert (error["condition"], error["vertex"]) == ("NOT_CARRIED", "q") and says in error["message"]
    attempts.run({**producer, "parallelism": 1}, reader, kind="plan")


@pytest.mark.parametrize(("name", "wants"), [
    pytest.param(name, wants, marks=[] if number % 4 == 2 * counted else pytest.mark.long)  # in `make test` every second column, one way
    for number, name in enumerate(CANNOT) for counted, wants in enumerate(("k, v", "count(*) AS n"))
])  # fmt: skip
def test_columns_that_cannot_be_handed_on_and_that_nobody_reads_are_left_behind(
    attempts: Attempts, tmp_path: Path, name: str, wants: str
) -> None:
    """As of a join by SELECT * whose keys have one name, of which the next query takes others."""
    columns, _ = CANNOT[name]
    source = {"format": "json", "path": str(tmp_path / "in"), "options": {}, "schema": "k INT, v STRING"}
    (tmp_path / "in").mkdir()
    for number in (1, 2):
        (tmp_path / "in" / f"{number}.json").write_text(f'{{"k": {number}, "v": "x"}}\n')
    vertices = {
        "s": {"source": source, "parallelism": 2},
        "q": {"sql": f"SELECT {columns}, * FROM s", "inputs": {"s": "forward"}, "parallelism": 2},
        "r": {"sql": f"SELECT {wants} FROM q", "inputs": {"q": "broadcast"}},
    }
    ran = whole_graphs.run(attempts, {"name": "g", "vertices": vertices}, tmp_path / "exchange")
    assert sorted(ran.rows) == ([[2]] if "count" in wants else [[1, "x"], [2, "x"]])


def test_a_graph_without_a_plan_attempt_says_it_before_the_producer_computes(attempts: Attempts, tmp_path: Path) -> None:
    vertices = {
        "q": {"sql": "SELECT id AS k, TIME'10:00:00' AS t, raise_error('computed') AS e FROM range(3)"},
        "r": {"sql": "SELECT k, t, e FROM q", "inputs": {"q": "hash(k)"}, "parallelism": 2},
    }
    with pytest.raises(AttemptError) as caught:
        whole_graphs.run(attempts, {"name": "g", "vertices": vertices}, tmp_path / "exchange")
    assert caught.value.condition == "NOT_CARRIED" and caught.value.vertex == "q"


def test_a_hash_key_that_two_columns_have_the_name_of(attempts: Attempts) -> None:
    error = attempts.fail(
        {"id": "q", "sql": "SELECT 1 AS k, 2 AS k"},
        {"id": "r", "sql": "SELECT 1 AS one FROM q", "inputs": {"q": {"edge": "chained", "keys": ["k"]}}, "parallelism": 2},
        kind="plan",
    )
    assert (error["condition"], error["vertex"]) == ("HASH_KEY_AMBIGUOUS", "q")


def test_a_time_goes_where_the_job_lets_spark_write_it(attempts: Attempts, tmp_path: Path) -> None:
    conf = {"spark.sql.timeType.enabled": "true"}
    vertices = {
        "q": {"sql": "SELECT id AS k, TIME'10:00:00.5' AS t FROM range(3)"},
        "r": {"sql": "SELECT k, CAST(t AS STRING) AS t FROM q", "inputs": {"q": "hash(k)"}, "parallelism": 2},
    }
    ran = whole_graphs.run(attempts, {"name": "g", "vertices": vertices, "conf": conf}, tmp_path / "exchange")
    assert sorted(ran.rows) == [[0, "10:00:00.5"], [1, "10:00:00.5"], [2, "10:00:00.5"]]


def test_names_that_differ_in_case_alone_go_where_the_job_tells_them_apart(attempts: Attempts, tmp_path: Path) -> None:
    conf = {"spark.sql.caseSensitive": "true"}
    report = attempts.run({"id": "q", "sql": "SELECT 1 AS a, 2 AS A"}, outputs=[edge_to(tmp_path, "broadcast")], conf=conf)
    edge = {"edge": "broadcast", "folders": [str(tmp_path / "q")], "schema": report["outputs"]["q"]["schema"]}
    assert attempts.rows({"id": "r", "sql": "SELECT a, A FROM q", "inputs": {"q": edge}}, conf=conf) == [[1, 2]]
