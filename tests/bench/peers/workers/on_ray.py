"""Ray's tasks over pandas frames, with two processors: `on_ray.py SOCKET FOLDER`."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any

import pandas
import pandas_steps as steps
import ray
from lines import serve

PARTS = 2


@ray.remote
def one(number: int) -> list[int]:
    return [number]


@ray.remote
def flights_of(path: str, part: int, weather: Any, airlines: Any) -> Any:
    """Sums of a share of the flights."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        names = file.readline().decode().strip().split(",")
        begin, end = (_line_at(file, size * number // PARTS) for number in (part, part + 1))
        file.seek(begin)
        share = pandas.read_csv(io.BytesIO(file.read(end - begin)), names=names, usecols=steps.FLIGHTS)
    share = share.dropna(subset=["dep_delay"]).merge(airlines, on="carrier").merge(weather, on=["origin", "time_hour"], how="left")
    return _sums(steps.kind_of_weather(share).assign(flights=1))


def _line_at(file: Any, place: int) -> int:
    """Where the first line begins at or after a place; the header is passed over."""
    file.seek(max(place - 1, 0))
    file.readline()
    return int(file.tell())


def _sums(frame: Any) -> Any:
    return frame.groupby(steps.GROUP)[["dep_delay", "flights", "late"]].sum()


def flights(request: dict[str, Any]) -> list[list[Any]]:
    data = request["data"]
    weather = ray.put(steps.weather_of(f"{data}/weather.csv"))
    airlines = ray.put(pandas.read_csv(f"{data}/airlines.csv").rename(columns={"name": "name_of"}))
    parts = ray.get([flights_of.remote(f"{data}/flights.csv", part, weather, airlines) for part in range(PARTS)])
    report = steps.ranked(pandas.concat(parts).groupby(level=[0, 1]).sum())
    os.makedirs(request["out"], exist_ok=True)
    report.to_parquet(f"{request['out']}/part-0.parquet", index=False)
    return report.values.tolist()


def _lines(path: str) -> Any:
    lines = pandas.read_parquet(path)
    return lines.assign(revenue=lines.l_price * (1 - lines.l_discount))


@ray.remote
def monthly_of(path: str) -> Any:
    return _lines(path).groupby(["l_suppkey", "l_month"]).revenue.sum()


@ray.remote
def revenue_of(path: str, suppliers: Any, bought: Any) -> Any:
    sold = _lines(path).merge(suppliers, left_on="l_suppkey", right_on="s_suppkey")
    joined = sold.merge(bought, left_on=["l_orderkey", "s_nationkey"], right_on=["o_orderkey", "s_nationkey"])
    return joined.groupby(["r_name", "n_name", "o_year"]).revenue.agg(["sum", "count"])


@ray.remote(num_returns=PARTS)
def parted(path: str) -> list[Any]:
    """A file's revenue by order, parted by the order's key."""
    totals = _lines(path).groupby("l_orderkey").revenue.sum().rename("total").reset_index()
    return [totals[totals.l_orderkey % PARTS == part] for part in range(PARTS)]


@ray.remote
def top_of(bought: Any, *totals: Any) -> Any:
    summed = pandas.concat(totals).groupby("l_orderkey").total.sum().reset_index()
    return steps.top(summed.merge(bought, left_on="l_orderkey", right_on="o_orderkey")[["n_name", "o_orderkey", "total"]])


def query(request: dict[str, Any]) -> list[list[Any]]:
    tables = request["tables"]
    files = [str(file) for file in sorted(Path(tables["lineitem"]).glob("*.parquet"))]
    if request["name"] == "running":
        monthly = pandas.concat(ray.get([monthly_of.remote(file) for file in files]))
        return steps.running(monthly.groupby(level=[0, 1]).sum().reset_index())
    orders = pandas.read_parquet(tables["orders"])
    if request["name"] == "revenue":
        orders = orders[(orders.o_year >= 1994) & (orders.o_year < 1998)]
    bought = orders.merge(steps.customers(tables), left_on="o_custkey", right_on="c_custkey")
    if request["name"] == "top":
        kept = ray.put(bought[["o_orderkey", "n_name"]])
        shares = [parted.remote(file) for file in files]
        tops = ray.get([top_of.remote(kept, *(share[part] for share in shares)) for part in range(PARTS)])
        return steps.top_rows(pandas.concat(tops))
    kept = ray.put(bought.rename(columns={"c_nationkey": "s_nationkey"}))
    suppliers = ray.put(pandas.read_parquet(tables["supplier"]))
    found = pandas.concat(ray.get([revenue_of.remote(file, suppliers, kept) for file in files]))
    return found.groupby(level=[0, 1, 2]).sum().sort_index().reset_index().values.tolist()


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=2 << 30, _temp_dir=sys.argv[2])
    try:
        serve({
            "flights": flights,
            "query": query,
            "small": lambda request: [ray.get(one.remote(number)) for number in request["numbers"]],
        })  # fmt: skip
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
