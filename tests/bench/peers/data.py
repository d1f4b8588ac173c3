"""Tables of orders as Parquet, drawn from a seed: the same rows on every machine."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy
import pyarrow
from pyarrow import parquet

TABLES = ("lineitem", "orders", "customer", "supplier", "nation", "region")
SEED = 19
FILES = 4
YEARS = range(1992, 1999)
REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")


def tables(folder: Path) -> dict[str, str]:
    """The tables of a folder by their names."""
    return {name: str(folder / name) for name in TABLES}


def generate(folder: Path, rows: int, seed: int = SEED) -> Path:
    """The folder, with so many rows of `lineitem`, a quarter as many orders, and what belongs to them. Made once."""
    made = folder / f"rows-{rows}-seed-{seed}"
    if made.exists():
        return made
    new = made.with_suffix(".new")
    shutil.rmtree(new, ignore_errors=True)
    draw = numpy.random.default_rng(seed)
    orders, customers, suppliers = max(rows // 4, 8), max(rows // 40, 8), max(rows // 600, 8)
    _write(new / "region", {"r_regionkey": numpy.arange(5), "r_name": list(REGIONS)})
    _write(new / "nation", {
        "n_nationkey": numpy.arange(25),
        "n_name": [f"NATION {number:02}" for number in range(25)],
        "n_regionkey": numpy.arange(25) % 5,
    })  # fmt: skip
    _write(new / "supplier", {"s_suppkey": numpy.arange(suppliers), "s_nationkey": draw.integers(0, 25, suppliers)})
    _write(new / "customer", {"c_custkey": numpy.arange(customers), "c_nationkey": draw.integers(0, 25, customers)})
    _write(new / "orders", {
        "o_orderkey": numpy.arange(orders),
        "o_custkey": draw.integers(0, customers, orders),
        "o_year": draw.integers(YEARS.start, YEARS.stop, orders),
    }, FILES)  # fmt: skip
    for number in range(FILES):
        share = rows * (number + 1) // FILES - rows * number // FILES
        _write(new / "lineitem", _lines(draw, share, orders, suppliers), first=number)
    new.rename(made)
    return made


def _lines(draw: numpy.random.Generator, rows: int, orders: int, suppliers: int) -> dict[str, Any]:
    months = draw.integers(YEARS.start, YEARS.stop, rows) * 100 + draw.integers(1, 13, rows)
    return {
        "l_orderkey": draw.integers(0, orders, rows),
        "l_suppkey": draw.integers(0, suppliers, rows),
        "l_month": months,
        "l_price": draw.integers(90_000, 10_000_000, rows) / 100,
        "l_discount": draw.integers(0, 11, rows) / 100,
    }


def _write(folder: Path, columns: dict[str, Any], files: int = 1, first: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    whole = pyarrow.table(columns)
    for number in range(files):
        begin, end = (whole.num_rows * part // files for part in (number, number + 1))
        parquet.write_table(whole.slice(begin, end - begin), folder / f"part-{first + number}.parquet")
