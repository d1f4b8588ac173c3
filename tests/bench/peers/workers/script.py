"""A plain PySpark script, as a user of spark-submit writes it: `script.py REQUEST.json ROWS.json`.

The warm session imports its functions, or runs it whole; `spark-submit` and a `spark_app` run it as it is.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def main() -> None:
    request = json.loads(Path(sys.argv[1]).read_text())
    spark = SparkSession.builder.getOrCreate()
    rows = run(spark, request)
    Path(sys.argv[2]).write_text(json.dumps([list(row) for row in rows], default=str))


def run(spark: Any, request: dict[str, Any]) -> list[Any]:
    if "graph" in request:
        return graph(spark, request["graph"], request["modules"])
    return query(spark, request["tables"], request["sql"])


def query(spark: Any, tables: dict[str, str], sql: str) -> list[Any]:
    """One query over Parquet."""
    for name, path in tables.items():
        spark.read.parquet(path).createOrReplaceTempView(name)
    return list(spark.sql(sql).collect())


def graph(spark: Any, graph: dict[str, Any], modules: str) -> list[Any]:
    """The steps of a JobGraph as one would write them by hand. The rows are those of the vertex that the sink writes."""
    frames: dict[str, Any] = {}
    rows: list[Any] = []
    for name, vertex in graph["vertices"].items():
        inputs = {alias: frames[alias] for alias in vertex.get("inputs", {})}
        if "source" in vertex:
            source = vertex["source"]
            reader = spark.read.format(source["format"]).options(**source.get("options", {}))
            frames[name] = reader.load(source["path"])
        elif "sql" in vertex:
            for alias, frame in inputs.items():
                frame.createOrReplaceTempView(alias)
            frames[name] = spark.sql(vertex["sql"])
        elif "python" in vertex:
            frames[name] = _function(vertex["python"], modules)(*inputs.values())
        else:
            (frame,) = inputs.values()
            sink = vertex["sink"]
            frame.persist()  # written and shown, computed once
            frame.write.format(sink["format"]).mode(sink["mode"]).save(sink["path"])
            rows = frame.take(1000)
            frame.unpersist()
    return rows


def _function(name: str, modules: str) -> Any:
    module, _, function = name.partition(":")
    found = importlib.util.spec_from_file_location(module, f"{modules}/{module}.py")
    assert found is not None and found.loader is not None
    loaded = importlib.util.module_from_spec(found)
    found.loader.exec_module(loaded)
    return getattr(loaded, function)


if __name__ == "__main__":
    main()
