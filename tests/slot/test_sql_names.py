"""Every keyword of Spark as a column's name: what Spark parses is not refused before Spark sees it."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import ParseException

from millrace.edge.sql import look

QUERIES = (
    "SELECT a, {0}, {0} + 1 AS x, max({0}) AS y FROM t",
    "SELECT {0} AS x, t.{0}, CAST({0} AS INT) FROM t",
    "SELECT a FROM t WHERE a = 1 AND {0} > 1 AND b = {0} AND {0} IN (1, 2) AND {0} IS NOT NULL",
    "SELECT {0}, count(*) AS n FROM t GROUP BY {0}, a HAVING {0} > 1 ORDER BY {0} DESC LIMIT 3",
    "SELECT t.a FROM t JOIN u ON t.{0} = u.{0} AND {0} = b",
    "SELECT CASE WHEN {0} > 1 THEN {0} ELSE b END AS x FROM (SELECT a AS {0} FROM t)",
)
NO_NAMES = {"DISTINCT", "NOT", "SELECT"}  # Spark takes even these; before a value they say what is done with it


@pytest.mark.long
def test_a_keyword_can_be_a_name_wherever_it_is_one_to_spark(spark: Any) -> None:
    parser = spark._jsparkSession.sessionState().sqlParser()
    keywords = {row.keyword for row in spark.sql("SELECT keyword FROM sql_keywords()").collect()} - NO_NAMES

    def parses(sql: str) -> bool:
        try:
            parser.parsePlan(sql)
        except ParseException:
            return False
        return True

    queries = [query.format(keyword.lower()) for keyword in sorted(keywords) for query in QUERIES]
    taken = [sql for sql in queries if parses(sql)]
    assert len(taken) > len(queries) / 2
    assert [(sql, look(sql).message) for sql in taken if look(sql).message and not look(sql).warning] == []
