"""Graphs leave, cell by cell, what the same vertices give as one chain of queries in a plain session: drawn ones, and some that did not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from services.task_manager.slot.attempt.errors import AttemptError
from tests.simulation.seeds import each_seed
from tests.slot import whole_graphs
from tests.slot.attempts import Attempts
from tests.slot.drawn.check import differences


@each_seed((0, 1, 5, 2, 3, 4, *range(6, 24)), first=2)
def test_a_drawn_graph(spark: Any, tmp_path: Path, seed: int) -> None:
    assert differences(seed, spark, tmp_path / "drawn") == []


class Compared:
    """Runs a graph both ways."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark, self.folder, self.attempts = spark, folder, Attempts(spark, folder / "attempts")
        (folder / "in.csv").write_text("k,v,d\na,1,1.0\nb,2,NaN\na,3,7.0\n,4,\n")
        source = {"format": "csv", "path": str(folder / "in.csv"), "options": {"header": "true"}, "schema": "k STRING, v INT, d DOUBLE"}
        self.source: dict[str, Any] = {"source": source}

    def __call__(self, vertices: dict[str, Any], module: str = "", conf: dict[str, str] | None = None) -> tuple[list[Any], list[Any]]:
        """The rows of the last vertex, from the graph and from the session."""
        (self.folder / "modules").mkdir()
        (self.folder / "modules" / "functions_of_graph.py").write_text(module)
        modules = [self.attempts.module("functions_of_graph.py", module)]
        document = {"name": "g", "vertices": vertices, "modules": modules, "conf": conf or {}}
        ran = whole_graphs.run(self.attempts, document, self.folder / "exchange")
        chain = whole_graphs.PlainChain(self.spark, conf or {}, self.folder / "modules")
        plain = [chain.add(name, vertex) for name, vertex in vertices.items()][-1].collect()
        return sorted(ran.rows, key=repr), sorted(map(list, plain), key=repr)


@pytest.fixture
def compared(spark: Any, tmp_path: Path) -> Compared:
    return Compared(spark, tmp_path)


NULLS = (
    "SELECT k, v FROM a WHERE one IS NOT NULL",
    "SELECT k, v, one IS NULL AS none FROM a",
    "SELECT count(one) AS n, sum(v) AS s FROM a",
    "SELECT v FROM a WHERE items.x IS NOT NULL",
)


@pytest.mark.parametrize(("query", "declared"), [
    pytest.param(query, declared, marks=[] if number % 2 == declared else pytest.mark.long)  # in `make test` each query one way
    for number, query in enumerate(NULLS) for declared in (False, True)
])  # fmt: skip
def test_a_column_that_is_never_null_is_handed_on_where_a_query_looks_for_nulls(compared: Compared, query: str, declared: bool) -> None:
    """The query was planned as one that does not read it, and then met nothing but NULL."""
    made = "SELECT k, v, 1 AS one, named_struct('x', 1) AS items FROM s"
    function = f"def made(s):\n    s.createOrReplaceTempView('s')\n    return s.sparkSession.sql({made!r})\n"
    schema = "k STRING, v INT, one INT NOT NULL, items STRUCT<x: INT NOT NULL> NOT NULL"
    what = {"python": "functions_of_graph:made", "schema": schema} if declared else {"sql": made}
    graph, session = compared({
        "s": {**compared.source, "parallelism": 2},
        "a": {**what, "inputs": {"s": "hash(k)"}, "parallelism": 2},
        "b": {"sql": query, "inputs": {"a": "broadcast"}},
    }, function)  # fmt: skip
    assert graph == session


@pytest.mark.parametrize("condition", ["d > 8", "d = double('NaN')", "isnan(d)"])
def test_rows_that_are_nan_are_found_in_what_is_read_twice(compared: Compared, condition: str) -> None:
    """It is kept in memory, where Spark leaves out rows by least and greatest values that NaN is not among."""
    graph, session = compared({
        "s": compared.source,
        "some": {"sql": f"SELECT k, v FROM s WHERE {condition}", "inputs": {"s": "forward"}},
        "all": {"sql": "SELECT count(*) AS n FROM s", "inputs": {"s": "forward"}},
        "both": {"sql": "SELECT k, v, n FROM some CROSS JOIN all", "inputs": {"some": "forward", "all": "forward"}},
    })  # fmt: skip
    assert graph == session == [["b", 2, 4]]


def test_a_udf_of_rows_that_come_from_other_attempts(compared: Compared) -> None:
    """They are a scan of Parquet, whose batches Spark gave to the Python worker as they were: both waited for ever."""
    module = "from pyspark.sql import functions as F\ndef up(s): return s.withColumn('up', F.udf(lambda x: x and x.upper())('k'))\n"
    graph, session = compared({
        "s": compared.source,
        "q": {"sql": "SELECT k FROM s", "inputs": {"s": "forward"}},
        "up": {"python": "functions_of_graph:up", "inputs": {"q": "hash(k)"}, "parallelism": 2, "schema": "k STRING, up STRING"},
        "n": {"sql": "SELECT up, count(*) AS n FROM up GROUP BY up", "inputs": {"up": "hash(up)"}, "parallelism": 2},
    }, module)  # fmt: skip
    assert graph == session == [["A", 2], ["B", 1], [None, 1]]


@pytest.mark.parametrize(
    ("kinds", "ansi"),
    [
        (("DECIMAL(38,0)", "DECIMAL(38,18)", "DOUBLE"), "true"),
        (("FLOAT", "BIGINT", "DOUBLE"), "false"),
        (("INT", "FLOAT", "DOUBLE"), "false"),
    ],
)
def test_numbers_that_rounding_makes_equal_are_no_keys_of_three_inputs(compared: Compared, kinds: tuple[str, ...], ansi: str) -> None:
    """As the type of all three they differ, and went to different subtasks: rows of the join were missing."""
    queries = [f"SELECT CAST(id AS {kind}) AS k FROM range(9)" for kind in kinds]
    vertices: dict[str, Any] = {name: {"sql": query} for name, query in zip("abc", queries, strict=True)}
    query = "SELECT a.k FROM a JOIN b ON a.k = b.k LEFT JOIN c ON c.k = a.k"
    join = {"sql": query, "inputs": dict.fromkeys("abc", "hash(k)"), "parallelism": 3}
    with pytest.raises(AttemptError, match="NO_COMMON_KEY_TYPE|no common type"):
        compared({**vertices, "j": join}, conf={"spark.sql.ansi.enabled": ansi})
