"""PyFlink's Table API in batch mode on a local mini cluster: `on_flink.py SOCKET JAR ...`."""

from __future__ import annotations

import csv
import shutil
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet
from lines import serve
from pyflink.table import EnvironmentSettings, TableEnvironment

SETTINGS = {
    "parallelism.default": "2",
    "taskmanager.numberOfTaskSlots": "2",
    "taskmanager.memory.managed.size": "1gb",
    "taskmanager.memory.network.max": "256mb",
}
NUMBERS = {"dep_delay", "visib", "precip"}
# Flink's CSV has no header option. What is no number is null, so the header's line falls out like a flight without a delay.
CSV = "'format' = 'csv', 'csv.ignore-parse-errors' = 'true', 'csv.null-literal' = 'NA'"
JOINED = """
    SELECT airlines.name AS airline,
           CASE WHEN weather.origin IS NULL THEN 'unknown'
                WHEN weather.visib < 3 THEN 'fog'
                WHEN weather.precip > 0 THEN 'rain or snow'
                ELSE 'dry and clear' END AS weather,
           flights.dep_delay
    FROM flights
    JOIN airlines ON flights.carrier = airlines.carrier
    LEFT JOIN weather ON flights.origin = weather.origin AND flights.time_hour = weather.time_hour
    WHERE flights.dep_delay IS NOT NULL
"""
DELAYS = f"""
    SELECT airline, weather, count(*) AS flights, round(avg(dep_delay), 1) AS mean_delay,
           round(avg(CASE WHEN dep_delay > 30 THEN 1.0E0 ELSE 0.0E0 END), 3) AS late_share
    FROM ({JOINED}) GROUP BY airline, weather
"""
RANKED = f"""
    SELECT weather, row_number() OVER (PARTITION BY weather ORDER BY mean_delay DESC, airline) AS place,
           airline, flights, mean_delay, late_share
    FROM ({DELAYS}) WHERE flights >= 100
"""
REPORT = "weather STRING, place BIGINT, airline STRING, flights BIGINT, mean_delay DOUBLE, late_share DOUBLE"


def main() -> None:
    environment = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    for key, value in SETTINGS.items():
        environment.get_config().set(key, value)
    environment.get_config().set("pipeline.jars", ";".join(Path(jar).as_uri() for jar in sys.argv[2:]))
    serve({
        "flights": lambda request: flights(environment, request),
        "query": lambda request: query(environment, request),
        "small": lambda request: small(environment, request),
    })  # fmt: skip


def rows_of(environment: Any, sql: str) -> list[list[Any]]:
    with environment.execute_sql(sql).collect() as rows:
        return [list(row) for row in rows]


def table(environment: Any, name: str, columns: str, path: str, form: str) -> None:
    environment.execute_sql(f"DROP TEMPORARY TABLE IF EXISTS `{name}`")
    options = f"'connector' = 'filesystem', 'path' = '{path}', {form}"
    environment.execute_sql(f"CREATE TEMPORARY TABLE `{name}` ({columns}) WITH ({options})")


def flights(environment: Any, request: dict[str, Any]) -> list[list[Any]]:
    for name in ("flights", "weather", "airlines"):
        path = f"{request['data']}/{name}.csv"
        with open(path, newline="") as file:
            header = next(csv.reader(file))
        columns = ", ".join(f"`{column}` {'DOUBLE' if column in NUMBERS else 'STRING'}" for column in header)
        table(environment, name, columns, path, CSV)
    shutil.rmtree(request["out"], ignore_errors=True)
    table(environment, "report", REPORT, request["out"], "'format' = 'parquet'")
    environment.execute_sql(f"INSERT INTO report {RANKED}").wait()
    written = [file for file in Path(request["out"]).iterdir() if not file.name.startswith((".", "_"))]
    rows = [list(row.values()) for file in written for row in pyarrow.parquet.read_table(file).to_pylist()]
    return sorted(rows, key=lambda row: (row[0], row[1]))


def query(environment: Any, request: dict[str, Any]) -> list[list[Any]]:
    for name, path in request["tables"].items():
        schema = pyarrow.parquet.read_schema(sorted(Path(path).glob("*.parquet"))[0])
        types = {"int64": "BIGINT", "double": "DOUBLE", "string": "STRING"}
        columns = ", ".join(f"`{field.name}` {types[str(field.type)]}" for field in schema)
        table(environment, name, columns, path, "'format' = 'parquet'")
    return rows_of(environment, request["sql"])


def small(environment: Any, request: dict[str, Any]) -> list[list[Any]]:
    return [row for number in request["numbers"] for row in rows_of(environment, f"SELECT {number} AS number")]


if __name__ == "__main__":
    main()
