"""What is refused of SQL, what is left to Spark, and what a query may read."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import millrace.edge.sql as sql_
from millrace.core.jobgraph.model import DEFAULT_LIMITS, JobGraph
from millrace.core.jobgraph.problems import Problem
from millrace.core.jobgraph.validate import validate
from millrace.edge.sql import check_sql, look


def graph(sql: str, *inputs: str, **fields: Any) -> JobGraph:
    sources = {name: {"source": {"format": "csv", "path": "f"}} for name in inputs}
    query = {"sql": sql, "inputs": dict.fromkeys(inputs, "forward")}
    result = validate({"name": "job", "vertices": {**sources, "q": query}, **fields})
    assert isinstance(result, JobGraph), result
    return result


def told(sql: str, *inputs: str, **fields: Any) -> list[str]:
    return [f"{'warning ' if each.warning else ''}{each}" for each in check_sql(graph(sql, *inputs, **fields))]


NOT_A_QUERY = "must be a query (SELECT, WITH, FROM, VALUES, TABLE), not"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT a FROM", "does not parse: expected table name but got the end at line 1, column 10, near FROM"),
        ("SELECT *\nFROM", "does not parse: expected table name but got the end at line 2, column 1, near FROM"),
        ("SELECT t.*, count(*), a.* FROM", "does not parse: expected table name but got the end at line 1, column 27, near FROM"),
        ("SELECT * FRM x", "does not parse: unexpected x at line 1, column 14"),
        ("SELECT 1\nFROM (SELECT 2\n", "does not parse: expecting ) at line 2, column 14, near 2"),
        ("SELECT 'a", "does not parse: a ' does not end"),
        ("SELECT `a", "does not parse: a ` does not end"),
        ("SELECT /* a", "does not parse: a quote or comment does not end"),
        ("  ", "must be one query, not no statement"),
        ("-- a comment", "must be one query, not no statement"),
        ("SELECT 1; SELECT 2", "must be one query, not 2 statements"),
        ("CREATE TABLE a (x INT)", f"{NOT_A_QUERY} CREATE"),
        ("/* x */ -- y\n drop table a", f"{NOT_A_QUERY} DROP"),
        ("INSERT INTO a SELECT 1", f"{NOT_A_QUERY} INSERT"),
    ],
)
def test_sql_that_is_refused(sql: str, expected: str) -> None:
    assert told(sql) == [f"vertices.q.sql: {expected}"]


@pytest.mark.parametrize("sql", ["SELECT 1;", "SELECT 1;; -- one", "-- one\nSELECT 1; /* two */ ;"])
def test_a_query_may_end_as_it_would_in_a_file(sql: str) -> None:
    assert told(sql) == []


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT values, t.select, t.x AS order FROM t WHERE max(values) > 1",
        "SELECT id, where.city, from.x + on.y FROM t WHERE where.city > 'a' GROUP BY id, where.city",
        "SELECT id, max(where), where FROM t",
        "SELECT from, any, count(*) AS n FROM t WHERE any > 1 AND from <> on GROUP BY from, any HAVING case IS NULL ORDER BY from DESC",
        "SELECT a.from FROM t AS a JOIN t AS b ON from = a.on WHERE NOT from = 1 AND on IN (1, 2) AND 2 * from - on BETWEEN drop AND 9",
        "SELECT CASE WHEN from > 1 THEN union ELSE using END AS x, if - 1 AS y FROM (SELECT * FROM t) WHERE from LIKE 'x%'",
        "SELECT DISTINCT from, CAST(on AS INT) AS on, row_number() OVER (PARTITION BY outer ORDER BY from) AS n FROM t",
        "SELECT a:b.c::int, CAST(NULL AS VOID), x >>> 2 FROM t",
        "SELECT x >>> 2, max(from), CASE -x WHEN 1 THEN 2 END AS c FROM t WHERE any > 1 AND x NOT BETWEEN -5 AND 5",
        "SELECT a, between, between + 1 AS x, case, case - 1 AS y, (case + 2) AS z, case * 2 FROM t",
        "SELECT from, CASE -(CASE WHEN a THEN 1 END) WHEN 1 THEN 2 END AS c, case + 1 FROM t WHERE NOT between - 1 > 2",
        "SELECT t.values FROM (VALUES (1), (2)) AS t (values)",
        "SELECT from, sum(x) OVER (ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM t WHERE (rows BETWEEN 1 AND 2) AND any > 1",
        "SELECT from, sum(x) OVER w AS s FROM t WHERE any > 1 WINDOW w AS (RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)",
        "SELECT window.start, count(*) FROM t GROUP BY window(at, '1 hour')",
        "SELECT k, window(at, '1 hour', '5 minutes').end FROM t GROUP BY k, WINDOW (at, '1 hour', '5 minutes') HAVING count(*) > 1",
        "SELECT window(at, '1 hour').start s, sum(x) OVER v FROM t GROUP BY window(at, '1 hour'), x WINDOW v AS (ORDER BY x)",
    ],
)
def test_what_spark_takes_and_sqlglot_does_not_is_no_problem(sql: str) -> None:
    assert look(sql).message is None


@pytest.mark.parametrize(
    "sql",
    ["SELECT a FROM t WHERE x = AND y > 1", "SELECT a FROM t WHERE (a > from AND b = 2", "SELECT from a b FROM t WHERE a >"],
)
def test_a_keyword_in_the_wrong_place_is_no_name(sql: str) -> None:
    assert (look(sql).message or "").startswith("does not parse: ")


def test_a_problem_names_the_line_in_the_query() -> None:
    assert check_sql(graph("SELECT 1\nFROM t t t", "t")) == [
        Problem(("vertices", "q", "sql"), "does not parse: unexpected t at line 2, column 10", line=2, column=10),
    ]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SHOW TABLES", "only Spark can tell whether this SHOW is right"),
        ("DESCRIBE t", "only Spark can tell whether this DESCRIBE is right"),
        (
            f"SELECT {'(' * 2000}1{')' * 2000}",
            "is nested so deeply that only Spark can tell whether it is right",
        ),
    ],
)
def test_sql_that_is_left_to_spark(sql: str, expected: str, caplog: pytest.LogCaptureFixture) -> None:
    assert told(sql) == [f"warning vertices.q.sql: {expected}"]
    assert caplog.records == [], "the parser's own warnings are not shown"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM t;",
        "SELECT `a b`, x FROM T LATERAL VIEW explode(xs) v AS x",
        "FROM t SELECT a",
        "FROM t |> WHERE x > 1 |> SELECT y",
        "TABLE t",
        "(SELECT 1 FROM t)",
        "WITH u AS (SELECT * FROM t), v AS (SELECT * FROM u) SELECT * FROM u JOIN v",
        "WITH t AS (SELECT * FROM t WHERE x) SELECT * FROM t",
        "SELECT * FROM t WHERE x IN (SELECT max(x) FROM t AS other)",
        "SELECT * FROM t, t.items",
        "SELECT * FROM t JOIN range(10) JOIN VALUES (1, 2) AS v (a, b)",
        "SELECT * FROM t TABLESAMPLE (10 PERCENT)",
        "SELECT * FROM t PIVOT (sum(a) FOR b IN (1, 2))",
        "SELECT transform(xs, x -> x + 1), * EXCEPT (a) FROM t GROUP BY ALL",
        "SELECT * FROM t JOIN parquet.`/a/b` USING (k)",
        "SELECT /*+ BROADCAST(b), MERGE(a, c), REPARTITION(3, k) */ * FROM t AS a JOIN t AS b USING (k)",
    ],
)
def test_queries_that_only_read_their_input(sql: str) -> None:
    assert told(sql, "t") == []


def test_a_query_sees_exactly_its_inputs() -> None:
    assert told("SELECT * FROM flight JOIN weather JOIN Flight", "flights", "weather") == [
        "vertices.q.sql: reads flight, which is no input (did you mean flights?)",
        "warning vertices.q.inputs.flights: is not read by the query",
    ]
    assert told("SELECT * FROM xyz", "a", "b") == [
        "vertices.q.sql: reads xyz, which is no input (its inputs are a, b)",
        "warning vertices.q.inputs.a: is not read by the query",
        "warning vertices.q.inputs.b: is not read by the query",
    ]
    assert told("SELECT * FROM xyz") == ["vertices.q.sql: reads xyz, which is no input (it has no inputs)"]


def test_a_catalog_of_the_job_may_have_more_tables() -> None:
    assert told("SELECT * FROM xyz", conf={"spark.sql.catalog.lake": "x.Y"}) == []


def test_a_computed_name_cannot_be_followed() -> None:
    assert told("SELECT * FROM IDENTIFIER('a' || 'b')") == []


def test_the_same_text_is_parsed_once() -> None:
    look.cache_clear()
    for _ in range(3):
        told("SELECT 1 AS once")
    assert look.cache_info().misses == 1


@pytest.mark.parametrize("name", ["date", "struct", "decimal", "timestamp"])
def test_a_small_text_that_would_be_tried_for_ever_is_left_to_spark(name: str) -> None:
    [said] = told(f"SELECT {f'{name}(' * 60}1{')' * 60}")
    assert said == "warning vertices.q.sql: is nested so deeply that only Spark can tell whether it is right"
    assert told(f"SELECT {f'{name}(' * 5}1{')' * 5}") == []


def test_a_mistake_of_the_parser_is_left_to_spark() -> None:
    assert told("map ( year if } cube percent") == ["warning vertices.q.sql: is such that only Spark can tell whether it is right"]


def test_no_more_problems_are_told_than_anybody_reads() -> None:
    assert len(told("SELECT 1 FROM " + ", ".join(f"t{n}" for n in range(500)))) == 101


def test_all_sql_of_a_graph_together_takes_bounded_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """250 KB of `date(date(date(1)))`, each text below what a text may take, kept the Dispatcher from all requests for seconds."""
    _, parser = sql_._dialect()
    steps, advance = itertools.count(), parser._advance

    def counted(self: Any, times: int = 1) -> None:
        next(steps)
        advance(self, times)

    monkeypatch.setattr(parser, "_advance", counted)
    text = f"SELECT {', '.join(['date(date(date(1)))'] * 2_800)}"
    many = {f"v{n}": {"sql": f"{text} -- {n}"} for n in range(4)}
    checked = validate({"name": "g", "vertices": many}, DEFAULT_LIMITS, {})
    assert isinstance(checked, JobGraph)
    said = [str(problem.message) for problem in check_sql(checked) if problem.warning]
    assert next(steps) <= sql_.STEPS_A_GRAPH + 10
    first, *others = said
    assert first == "is so long, with the SQL before it, that only Spark can tell whether it is right"
    assert others == ["is behind so much SQL in this graph that only Spark can tell whether it is right"] * 3
    assert [problem.message for problem in check_sql(checked)] == said, "also when the same texts were looked at before"


def test_sql_as_people_write_it_is_looked_at_to_the_end_of_the_largest_graph() -> None:
    columns = ", ".join(f"sum(CASE WHEN a.col_{n} > {n} THEN coalesce(b.x{n}, 0) ELSE 1 END) AS c{n}" for n in range(800))
    many = {f"v{n}": {"sql": f"SELECT {columns} -- {n}"} for n in range(3)}
    checked = validate({"name": "g", "vertices": {**many, "last": {"sql": "SELECT * FROM nobody"}}}, DEFAULT_LIMITS, {})
    assert isinstance(checked, JobGraph)
    assert [problem.message for problem in check_sql(checked)] == ["reads nobody, which is no input"]
