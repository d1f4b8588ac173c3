"""What jobs do, in short: a JVM is led through it while it notes the classes for an archive (``training.py FOLDER``), and while its slot
is idle for the first time (`control.warming`)."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

ROWS = 20_000
FORMATS = ("parquet", "csv", "json")
COLUMNS = (
    "id", "id % 7 AS key", "cast(id AS string) AS text", "rand(1) AS number",
    "cast(date'2024-01-01' + cast(id % 90 AS int) AS string) AS day",
)  # fmt: skip
QUERY = """SELECT p.key, count(*) AS n, avg(c.number) AS mean, max(upper(p.text)) AS last, sum(j.id) OVER (ORDER BY p.key) AS total,
       round(avg(CAST(c.number > 0.5 AS INT)), 3) AS share, min(CASE WHEN c.number < 0.1 THEN 'low' ELSE p.day END) AS level
  FROM parquet p JOIN csv c USING (id) LEFT JOIN json j ON j.id = p.id AND j.key = p.key
 WHERE p.id > 3 AND c.number IS NOT NULL GROUP BY p.key, j.id ORDER BY n DESC, p.key"""


def steps(spark: Any, folder: str) -> list[Callable[[], object]]:
    """Reads, joins, aggregates and writes a few rows in the formats most used, in SQL and in Python; each step is short."""
    def facts() -> Any:
        return spark.range(ROWS).selectExpr(*COLUMNS)

    def path(name: str) -> str:
        return os.path.join(folder, name)

    def plan(adaptive: str) -> None:
        spark.conf.set("spark.sql.adaptive.enabled", adaptive)
        spark.sql(QUERY)._jdf.queryExecution().executedPlan()

    def show() -> None:
        spark.sql(QUERY).limit(1000).toJSON().collect()

    def keep() -> None:
        kept = spark.sql(QUERY).persist()
        kept.write.mode("overwrite").parquet(path("kept"))
        kept.unpersist()

    def write(form: str) -> None:
        facts().write.mode("overwrite").option("header", True).format(form).save(path(form))

    def read(form: str) -> None:
        read = spark.read.option("header", True).option("inferSchema", True).format(form).load(path(form))
        read.createOrReplaceTempView(form)

    def look() -> None:
        """As `attempt/spark_json.py` does: the first time in a JVM takes half a second, while it learns how Spark's classes look."""
        from py4j.java_gateway import JavaClass

        store = spark._jsc.sc().statusStore()
        mapper = getattr(JavaClass("org.apache.spark.util.JsonProtocol$", spark._jsc._gateway_client), "MODULE$").mapper()
        [job] = json.loads(mapper.writeValueAsString(store.jobsList(None).take(1)))
        mapper.writeValueAsString(store.lastStageAttempt(job["stageIds"][-1]))

    return [
        lambda: spark.conf.set("spark.sql.shuffle.partitions", "2"),
        *(lambda form=form: write(form) for form in FORMATS),
        *(lambda form=form: read(form) for form in FORMATS),
        lambda: spark.sql("SELECT key, count(*) FROM csv WHERE number > 0.5 GROUP BY key").collect(),
        lambda: spark.sql("SELECT key, count(*) FROM parquet JOIN csv USING (id, key) GROUP BY key ORDER BY key").toJSON().collect(),
        look,
        lambda: plan("true"), show, keep,
        lambda: plan("false"), show, keep,
        lambda: facts().repartition(2, "key").write.mode("overwrite").partitionBy("key").parquet(path("shares")),
        lambda: spark.read.parquet(path("shares")).groupBy("key").count().collect(),
        lambda: facts().limit(100).rdd.map(lambda row: row.key).sum(),
        lambda: spark.createDataFrame([(1, "a"), (2, "b")], "id INT, text STRING").join(facts().drop("text"), "id").collect(),
    ]


def train(folder: str) -> None:
    """Every step once, in a session of its own."""
    from pyspark.sql import SparkSession

    for step in steps(SparkSession.builder.getOrCreate(), folder):
        step()


if __name__ == "__main__":
    train(sys.argv[1])
