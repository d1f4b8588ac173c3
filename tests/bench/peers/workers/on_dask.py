"""Dask's data frames on two worker processes: `on_dask.py SOCKET`."""

from __future__ import annotations

import os
from typing import Any

import dask.dataframe
import pandas
import pandas_steps as steps
from dask.distributed import Client, LocalCluster
from lines import serve


def flights(request: dict[str, Any]) -> list[list[Any]]:
    data = request["data"]
    weather = steps.weather_of(f"{data}/weather.csv")
    airlines = pandas.read_csv(f"{data}/airlines.csv").rename(columns={"name": "name_of"})
    read = dask.dataframe.read_csv(
        f"{data}/flights.csv", usecols=steps.FLIGHTS, dtype={"dep_delay": "float64"}, blocksize="16MB"
    )
    joined = read.dropna(subset=["dep_delay"]).merge(airlines, on="carrier").merge(weather, on=["origin", "time_hour"], how="left")
    kinds = joined.map_partitions(steps.kind_of_weather)
    sums = kinds.groupby(steps.GROUP).agg({"dep_delay": ["sum", "count"], "late": "sum"}).compute()
    sums.columns = ["dep_delay", "flights", "late"]
    report = steps.ranked(sums)
    os.makedirs(request["out"], exist_ok=True)
    report.to_parquet(f"{request['out']}/part-0.parquet", index=False)
    return report.values.tolist()


def query(request: dict[str, Any]) -> list[list[Any]]:
    tables = request["tables"]
    lines = dask.dataframe.read_parquet(tables["lineitem"])
    lines = lines.assign(revenue=lines.l_price * (1 - lines.l_discount))
    if request["name"] == "running":
        monthly = lines.groupby(["l_suppkey", "l_month"]).revenue.sum().reset_index().compute()
        return steps.running(monthly)
    orders = dask.dataframe.read_parquet(tables["orders"])
    customers = steps.customers(tables)
    if request["name"] == "top":
        bought = orders.merge(customers, left_on="o_custkey", right_on="c_custkey")[["o_orderkey", "n_name"]]
        joined = lines[["l_orderkey", "revenue"]].merge(bought, left_on="l_orderkey", right_on="o_orderkey")
        totals = joined.groupby(["n_name", "o_orderkey"]).revenue.sum(split_out=2).rename("total").reset_index()
        return steps.top_rows(totals.map_partitions(steps.top).compute())
    orders = orders[(orders.o_year >= 1994) & (orders.o_year < 1998)]
    bought = orders.merge(customers, left_on="o_custkey", right_on="c_custkey").rename(columns={"c_nationkey": "s_nationkey"})
    suppliers = pandas.read_parquet(tables["supplier"])
    sold = lines.merge(suppliers, left_on="l_suppkey", right_on="s_suppkey")[["l_orderkey", "s_nationkey", "revenue"]]
    joined = sold.merge(bought, left_on=["l_orderkey", "s_nationkey"], right_on=["o_orderkey", "s_nationkey"])
    found = joined.groupby(["r_name", "n_name", "o_year"]).revenue.agg(["sum", "count"]).compute()
    return found.sort_index().reset_index().values.tolist()


def one(number: int) -> list[int]:
    return [number]


def main() -> None:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1") as cluster,
        Client(cluster) as client,
    ):
        serve({
            "flights": flights,
            "query": query,
            "small": lambda request: [client.submit(one, number, pure=False).result() for number in request["numbers"]],
        })  # fmt: skip


if __name__ == "__main__":
    main()
