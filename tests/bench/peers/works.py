"""The works: three queries in SQL that Spark and Flink both take, and the same as graphs of Millrace."""

from __future__ import annotations

from typing import Any

REVENUE = """
    SELECT r_name, n_name, o_year, sum(l_price * (1 - l_discount)) AS revenue, count(*) AS items
    FROM lineitem
    JOIN orders ON l_orderkey = o_orderkey
    JOIN customer ON o_custkey = c_custkey
    JOIN supplier ON l_suppkey = s_suppkey AND c_nationkey = s_nationkey
    JOIN nation ON c_nationkey = n_nationkey
    JOIN region ON n_regionkey = r_regionkey
    WHERE o_year >= 1994 AND o_year < 1998
    GROUP BY r_name, n_name, o_year
"""
MONTHLY = """
    SELECT l_suppkey, l_month, sum(l_price * (1 - l_discount)) AS revenue FROM lineitem GROUP BY l_suppkey, l_month
"""
RUNNING = """
    SELECT l_month, revenue,
           sum(revenue) OVER (PARTITION BY l_suppkey ORDER BY l_month) AS total,
           lag(revenue) OVER (PARTITION BY l_suppkey ORDER BY l_month) AS earlier
    FROM ({monthly}) AS monthly
"""
MONTHS = """
    SELECT l_month, count(*) AS suppliers, max(total) AS highest, avg(revenue) AS mean_revenue,
           sum(CASE WHEN revenue > earlier THEN 1 ELSE 0 END) AS grown
    FROM {running} AS summed GROUP BY l_month ORDER BY l_month
"""
TOTALS = """
    SELECT n_name, o_orderkey, sum(l_price * (1 - l_discount)) AS total
    FROM lineitem
    JOIN orders ON l_orderkey = o_orderkey
    JOIN customer ON o_custkey = c_custkey
    JOIN nation ON c_nationkey = n_nationkey
    GROUP BY n_name, o_orderkey
"""
TOP = """
    SELECT n_name, place, o_orderkey, total FROM (
        SELECT n_name, o_orderkey, total, row_number() OVER (PARTITION BY n_name ORDER BY total DESC, o_orderkey) AS place
        FROM {totals} AS totals
    ) AS placed WHERE place <= 3 ORDER BY n_name, place
"""

QUERIES = {
    "revenue": f"{REVENUE} ORDER BY r_name, n_name, o_year",
    "running": MONTHS.format(running=f"({RUNNING.format(monthly=MONTHLY)})"),
    "top": TOP.format(totals=f"({TOTALS})"),
}
WHAT = {
    "revenue": "a join of six tables, grouped",
    "running": "an aggregation with running sums and the month before",
    "top": "the three dearest orders of each nation",
}


def graph(query: str, tables: dict[str, str], parallelism: int) -> dict[str, Any]:
    """The query as vertices: what is large comes by hash, what is small by broadcast. With parallelism 1 it is one plan."""
    rest = {"nation": "broadcast", "customer": "broadcast"}
    by_order = {"lineitem": "hash(l_orderkey)", "orders": "hash(o_orderkey)"}
    steps = {
        "revenue": {
            "joined": _sql(REVENUE, {**by_order, **rest, "supplier": "broadcast", "region": "broadcast"}, parallelism),
            "result": _sql(
                "SELECT r_name, n_name, o_year, sum(revenue) AS revenue, sum(items) AS items FROM joined "
                "GROUP BY r_name, n_name, o_year ORDER BY r_name, n_name, o_year",
                {"joined": "hash(n_name)"},
            ),
        },
        "running": {
            "running": _sql(RUNNING.format(monthly=MONTHLY), {"lineitem": "hash(l_suppkey)"}, parallelism),
            "result": _sql(MONTHS.format(running="running"), {"running": "hash(l_month)"}),
        },
        "top": {
            "totals": _sql(TOTALS, {**by_order, **rest}, parallelism),
            "result": _sql(TOP.format(totals="totals"), {"totals": "hash(n_name)"}),
        },
    }[query]
    read = {name for step in steps.values() for name in step["inputs"]} & tables.keys()
    sources = {name: _source(path, parallelism if name in by_order else 1) for name, path in tables.items() if name in read}
    return {"name": f"{query}-{parallelism}", "vertices": {**sources, **steps}}


def _source(path: str, parallelism: int) -> dict[str, Any]:
    return {"source": {"format": "parquet", "path": path}, "parallelism": parallelism}


def _sql(query: str, inputs: dict[str, str], parallelism: int = 1) -> dict[str, Any]:
    return {"sql": query, "inputs": inputs, "parallelism": parallelism}
