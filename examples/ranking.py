"""The python vertex of flights.yaml: DataFrames in, by the names of its inputs; a DataFrame out."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def rank(delays: DataFrame) -> DataFrame:
    """Airlines from the most to the least delayed, in each kind of weather; those with few flights are left out."""
    worst_first = Window.partitionBy("weather").orderBy(F.desc("mean_delay"), "airline")
    return (
        delays.where("flights >= 100")
        .withColumn("rank", F.row_number().over(worst_first))
        .select("weather", "rank", "airline", "flights", "mean_delay", "late_share")
        .orderBy("weather", "rank")
    )
