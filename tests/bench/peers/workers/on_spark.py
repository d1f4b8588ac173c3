"""A PySpark process that keeps its session: `on_spark.py SOCKET local[2]`, or `on_spark.py SOCKET connect` for Spark Connect."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import script
from lines import serve
from pyspark.sql import SparkSession


def main() -> None:
    builder = SparkSession.builder
    where = sys.argv[2]
    started: Any = builder.remote("local[2]") if where == "connect" else builder.master(where)
    spark = started.config("spark.ui.enabled", "false").getOrCreate()

    def as_script(request: dict[str, Any]) -> list[list[Any]]:
        """Runs the file whole; its `getOrCreate` gets this session."""
        sys.argv = [request["script"], *request["arguments"]]
        runpy.run_path(request["script"], run_name="__main__")
        return list(json.loads(Path(request["arguments"][-1]).read_text()))

    def small(request: dict[str, Any]) -> list[list[Any]]:
        return [list(row) for number in request["numbers"] for row in spark.sql(f"SELECT {number} AS number").collect()]

    serve({
        "flights": lambda request: [list(row) for row in script.run(spark, request)],
        "query": lambda request: [list(row) for row in script.run(spark, request)],
        "script": as_script,
        "small": small,
    })  # fmt: skip
    spark.stop()


if __name__ == "__main__":
    main()
