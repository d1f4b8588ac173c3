"""An ordinary PySpark script, unchanged from spark-submit: counts the words of a text file.

millrace submit --wait examples/wordcount.py "$PWD/README.md"
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: wordcount.py FILE")
    spark = SparkSession.builder.appName("wordcount").getOrCreate()
    words = spark.read.text(sys.argv[1]).select(F.explode(F.split(F.lower("value"), r"\W+")).alias("word"))
    counts = words.where("word <> ''").groupBy("word").count().orderBy(F.desc("count"), "word")
    counts.show(20, truncate=False)
    spark.stop()


if __name__ == "__main__":
    main()
