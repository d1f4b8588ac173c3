"""Steps of the works on one pandas frame, for the peers that have no SQL: Dask and Ray."""

from __future__ import annotations

import math
from typing import Any

import numpy
import pandas

FLIGHTS = ["carrier", "origin", "time_hour", "dep_delay"]
WEATHER = ["origin", "time_hour", "visib", "precip"]
GROUP = ["airline", "weather"]
TOP = 3


def weather_of(path: str) -> Any:
    """With a mark that says, after a left join, that there was a row."""
    return pandas.read_csv(path, usecols=WEATHER).assign(seen=True)


def kind_of_weather(joined: Any) -> Any:
    """The columns that are grouped and averaged, of flights joined with both."""
    kinds = numpy.select(
        [joined.seen.isna(), joined.visib < 3, joined.precip > 0], ["unknown", "fog", "rain or snow"], "dry and clear"
    )
    late = (joined.dep_delay > 30).astype("int64")
    return joined.assign(weather=pandas.Series(kinds, index=joined.index, dtype="object"), airline=joined.name_of, late=late)[
        [*GROUP, "dep_delay", "late"]
    ]


def ranked(sums: Any) -> Any:
    """The report, of `flights`, `dep_delay` and `late` summed by airline and weather."""
    frame = sums.reset_index()
    frame = frame[frame.flights >= 100]
    frame["mean_delay"] = (frame.dep_delay / frame.flights).map(lambda value: half_up(value, 1))
    frame["late_share"] = (frame.late / frame.flights).map(lambda value: half_up(value, 3))
    frame = frame.sort_values(["weather", "mean_delay", "airline"], ascending=[True, False, True])
    frame["rank"] = frame.groupby("weather").cumcount() + 1
    return frame[["weather", "rank", "airline", "flights", "mean_delay", "late_share"]]


def half_up(value: float, digits: int) -> float:
    """As SQL rounds: a half away from zero."""
    return math.copysign(math.floor(abs(value) * 10**digits + 0.5) / 10**digits, value)


def running(monthly: Any) -> list[list[Any]]:
    """The query `running`, of the revenue by supplier and month."""
    frame = monthly.sort_values(["l_suppkey", "l_month"])
    by_supplier = frame.groupby("l_suppkey").revenue
    frame = frame.assign(total=by_supplier.cumsum(), grown=frame.revenue > by_supplier.shift())
    found = frame.groupby("l_month").agg(
        suppliers=("revenue", "size"), highest=("total", "max"), mean=("revenue", "mean"), grown=("grown", "sum")
    )
    return [list(row) for row in found.sort_index().reset_index().itertuples(index=False)]


def top(totals: Any) -> Any:
    """The dearest orders of each nation, of `n_name`, `o_orderkey`, `total`: of a part, or of all parts' dearest."""
    ordered = totals.sort_values(["n_name", "total", "o_orderkey"], ascending=[True, False, True])
    return ordered[ordered.groupby("n_name").cumcount() < TOP]


def top_rows(totals: Any) -> list[list[Any]]:
    ordered = top(totals)
    places = ordered.groupby("n_name").cumcount() + 1
    return [
        [row.n_name, place, row.o_orderkey, row.total]
        for row, place in zip(ordered.itertuples(index=False), places, strict=True)
    ]


def customers(tables: dict[str, str]) -> Any:
    """Customers with their nation and region."""
    frames = {name: pandas.read_parquet(tables[name]) for name in ("customer", "nation", "region")}
    nations = frames["nation"].merge(frames["region"], left_on="n_regionkey", right_on="r_regionkey")
    return frames["customer"].merge(nations, left_on="c_nationkey", right_on="n_nationkey")[
        ["c_custkey", "c_nationkey", "n_name", "r_name"]
    ]
