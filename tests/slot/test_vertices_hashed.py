"""What an attempt reports of the shares that it hands on by hash, and of the keys that have most of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from services.task_manager.slot.attempt.hashed_rows import ROWS_LEAST
from tests.slot.attempts import Attempts
from tests.slot.test_vertices_exchange import sql

ROWS = 2 * ROWS_LEAST


class Handed:
    """Hash outputs of a query."""

    def __init__(self, attempts: Attempts, folder: Path) -> None:
        self.attempts, self.folder = attempts, folder / "a b[c], d=1"

    def __call__(self, query: str, *keys: str, shares: int = 4, edge: str = "hash") -> Any:
        place = {"vertex": "t", "edge": edge, "folder": str(self.folder), "keys": list(keys), "shares": shares}
        return self.attempts.run(sql("t", query), outputs=[place])["outputs"]["t"].get("hashed")



@pytest.fixture
def handed(attempts: Attempts, tmp_path: Path) -> Handed:
    return Handed(attempts, tmp_path)


def test_rows_and_bytes_of_each_share(handed: Handed, tmp_path: Path) -> None:
    [told] = handed(f"SELECT id AS k, id AS v FROM range({ROWS})", "k")
    assert told["keys"] == ["k"] and sum(told["share_rows"]) == ROWS and max(told["share_rows"]) < ROWS / 3
    files = [sum(each.stat().st_size for each in (handed.folder / f"__share={n}").glob("part-*")) for n in range(4)]
    assert told["share_bytes"] == files
    assert "heaviest" not in told


def test_the_key_that_has_most_rows_is_named(handed: Handed) -> None:
    [told] = handed(f"SELECT CASE WHEN id % 10 < 9 THEN 17 ELSE id END AS `a k`, 'x' AS v FROM range({ROWS})", "a k")
    share = told["share_rows"].index(max(told["share_rows"]))
    [heavy] = told["heaviest"]
    assert (heavy["share"], heavy["key"]) == (share, ["17"])
    assert abs(heavy["rows_about"] - 0.9 * ROWS) < 0.02 * ROWS


def test_a_key_of_several_columns_that_are_null_or_long(handed: Handed) -> None:
    query = f"SELECT IF(id % 20 = 0, id, NULL) AS k, repeat('w', 100) AS w FROM range({ROWS})"
    [told] = handed(query, "k", "w", shares=2)
    assert [each["key"] for each in told["heaviest"]] == [[None, "w" * 64 + "…"]]


def test_a_share_without_rows_is_counted(handed: Handed) -> None:
    [told] = handed(f"SELECT 'same' AS k, id AS v FROM range({ROWS})", "k", shares=3)
    assert sorted(told["share_rows"]) == [0, 0, ROWS] and sorted(told["share_bytes"])[:2] == [0, 0]
    assert told["heaviest"] == [{"share": told["share_rows"].index(ROWS), "key": ["same"], "rows_about": ROWS}]


@pytest.mark.parametrize(("rows", "shares", "edge"), [(ROWS_LEAST - 1, 4, "hash"), (ROWS, 1, "hash"), (ROWS, 0, "broadcast")])
def test_of_few_rows_or_one_share_nothing_is_told(handed: Handed, rows: int, shares: int, edge: str) -> None:
    keys = ["k"] if edge == "hash" else []
    assert handed(f"SELECT 1 AS k FROM range({rows})", *keys, shares=shares, edge=edge) is None
