"""What a JVM is led through while it notes the classes for an archive: an ordinary script, ``training.py FOLDER``."""

from __future__ import annotations

import os
import sys


def train(folder: str) -> None:
    """Reads, joins, aggregates and writes a few rows in the formats most used, in SQL and in Python."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    spark.sql("SELECT 1").collect()
    facts = spark.range(1000).selectExpr("id", "id % 7 AS key", "cast(id AS string) AS text", "rand(1) AS number")
    for form in ("parquet", "csv", "json"):
        path = os.path.join(folder, form)
        facts.write.option("header", True).format(form).save(path)
        spark.read.option("header", True).option("inferSchema", True).format(form).load(path).createOrReplaceTempView(form)
    query = """SELECT p.key, count(*) AS n, avg(c.number) AS mean, max(p.text) AS last, sum(j.id) OVER (ORDER BY p.key)
        FROM parquet p JOIN csv c USING (id) LEFT JOIN json j ON j.id = p.id WHERE p.id > 3 GROUP BY p.key, j.id
        ORDER BY n DESC"""
    for adaptive in ("true", "false"):
        spark.conf.set("spark.sql.adaptive.enabled", adaptive)
        spark.sql(query).limit(10).toJSON().collect()
    facts.repartition(2, "key").write.partitionBy("key").parquet(os.path.join(folder, "shares"))
    facts.rdd.map(lambda row: row.key).sum()


if __name__ == "__main__":
    train(sys.argv[1])
