"""Shares of a source are disjoint and together the whole input, whatever its files look like."""

from __future__ import annotations

import gzip
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.slot.attempts import Attempts, chained

KINDS = ("csv", "parquet", "partitioned")


def source(path: Path, kind: str, parallelism: int, **options: Any) -> dict[str, Any]:
    what = {"format": kind, "path": str(path), "options": options}
    return {"id": "src", "source": what, "parallelism": parallelism}


def planned(attempts: Attempts, *vertices: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return attempts.run(*vertices, kind="plan", **fields)


def share_rows(attempts: Attempts, vertex: dict[str, Any], pinned: dict[str, Any], share: int) -> list[tuple[Any, ...]]:
    rows = attempts.rows(vertex, subtask=share, parallelism=vertex["parallelism"], pinned=pinned)
    return [tuple(map(repr, row)) for row in rows]


def check(attempts: Attempts, vertex: dict[str, Any], rows: int) -> list[int]:
    """All shares together are what one reader sees; returns the rows of each."""
    pinned = planned(attempts, vertex)["pinned"]
    whole = attempts.rows({**vertex, "parallelism": 1})
    assert len(whole) == rows
    shares = [share_rows(attempts, vertex, pinned, i) for i in range(vertex["parallelism"])]
    assert sum(map(Counter, shares), Counter()) == Counter(tuple(map(repr, row)) for row in whole)
    return [len(share) for share in shares]


def lines(count: int, seed: int) -> list[str]:
    random_ = random.Random(seed)
    return [f'{i},"{"x" * random_.randrange(40)}",{random_.random()}' for i in range(count)]


@pytest.mark.parametrize("parallelism", [2, 5])
def test_one_csv_file(attempts: Attempts, tmp_path: Path, parallelism: int) -> None:
    (tmp_path / "a.csv").write_text("\n".join(["id,name,x", *lines(1000, parallelism)]) + "\n")
    sizes = check(attempts, source(tmp_path / "a.csv", "csv", parallelism, header=True), 1000)
    assert min(sizes) > 1000 / parallelism / 2


def test_many_files_of_all_sizes_and_compressions(attempts: Attempts, tmp_path: Path) -> None:
    folder = tmp_path / "files with [odd] {names} %20"
    folder.mkdir()
    for number, count in enumerate([0, 1, 1, 1, 700, 20, 3, 3]):
        text = "".join(f"{number}-{i}\n" for i in range(count))
        (folder / f"part *{number}.txt").write_text(text)
        with gzip.open(folder / f"zipped{number}.txt.gz", "wt") as file:
            file.write(text)
    (folder / "_ignored.txt").write_text("not data\n")
    check(
        attempts,
        {**source(folder, "text", 4), "source": {"format": "text", "path": _glob_quoted(folder), "options": {}}},
        1458,
    )


def _glob_quoted(path: Path) -> str:
    return "".join(f"\\{c}" if c in "[]{}*?" else c for c in str(path))


def test_rows_of_several_lines(attempts: Attempts, tmp_path: Path) -> None:
    folder = tmp_path / "multi"
    folder.mkdir()
    for number in range(5):
        rows = [f'{number},"first\nsecond, ""quoted""\n",{i}' for i in range(number * 30)]
        (folder / f"{number}.csv").write_text("\n".join(["a,b,c", *rows]) + "\n")
    check(attempts, source(folder, "csv", 3, header=True, multiLine=True, escape='"'), 300)


@pytest.mark.parametrize("kind", ["parquet", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("orc", "json"))])
def test_other_formats(attempts: Attempts, spark: Any, tmp_path: Path, kind: str) -> None:
    frame = spark.range(5000).selectExpr(
        "id", "CAST(id AS STRING) AS s", "struct(id, array(id)) AS n", "id % 3 AS part"
    )
    frame.repartition(3).write.partitionBy("part").format(kind).save(str(tmp_path / kind))
    check(attempts, source(tmp_path / kind, kind, 4), 5000)


@pytest.mark.parametrize(("path", "rows"), [("year=2020", 30), ("year=*", 60), ("year=*/month=1", 20)])
@pytest.mark.parametrize("option", [pytest.param("basePath", marks=pytest.mark.long), "basepath"])
def test_a_base_path_in_any_case_of_letters(
    attempts: Attempts, spark: Any, tmp_path: Path, path: str, rows: int, option: str
) -> None:
    frame = spark.range(60).selectExpr("id AS v", "2020 + id % 2 AS year", "1 + id % 3 AS month")
    frame.write.partitionBy("year", "month").csv(str(tmp_path / "t"))
    check(attempts, source(tmp_path / "t" / path, "csv", 2, **{option: str(tmp_path / "t")}), rows)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_partition_column_that_the_files_hold_as_well_stays_in_its_place(
    attempts: Attempts, spark: Any, tmp_path: Path, parallelism: int
) -> None:
    """`SELECT *` and UNION go by the order of columns."""
    for p in (1, 2):
        spark.sql(f"SELECT {p} AS p, '{p}' AS x").coalesce(1).write.parquet(str(tmp_path / "both" / f"p={p}"))
    vertex = source(tmp_path / "both", "parquet", parallelism)
    assert list(spark.read.parquet(str(tmp_path / "both")).columns) == ["p", "x"]
    check(attempts, vertex, 2)
    pinned = planned(attempts, vertex)["pinned"]
    report = attempts.run(
        vertex, outputs=[{"vertex": "src", "edge": "result", "rows": 9}], pinned=pinned, parallelism=parallelism
    )
    assert report["result"]["columns"] == ["p", "x"]


def test_more_shares_than_rows(attempts: Attempts, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n2\n")
    assert sorted(check(attempts, source(tmp_path / "a.csv", "csv", 9, header=True), 2))[-2:] in ([1, 1], [0, 2])


def test_an_empty_folder(attempts: Attempts, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    vertex = source(tmp_path / "none", "csv", 2)
    vertex["source"]["schema"] = "a INT"
    assert check(attempts, vertex, 0) == [0, 0]


def test_a_share_reads_only_its_part(attempts: Attempts, tmp_path: Path) -> None:
    """Not a filter over the whole file: the other share's part may hold what cannot be read."""
    good = "".join(f"{i}\n" for i in range(1000, 2000))
    (tmp_path / "a.csv").write_text("7777\n" + good + good.replace("1", "x"))
    vertex = {"id": "src", "parallelism": 2, "source": {
        "format": "csv", "path": str(tmp_path / "a.csv"), "options": {"mode": "FAILFAST"}, "schema": "a INT"}}  # fmt: skip
    pinned = planned(attempts, vertex)["pinned"]
    outcomes = []
    for share in range(2):
        error = None
        try:
            rows = share_rows(attempts, vertex, pinned, share)
        except Exception as raised:
            error = raised
        outcomes.append("failed" if error else len(rows))
    assert sorted(map(str, outcomes)) == ["1001", "failed"]


def test_another_listing_is_refused(attempts: Attempts, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_text("one\ntwo\n")
    (folder / "b.txt").write_text("three\n")
    vertex = source(folder, "text", 2)
    pinned = planned(attempts, vertex)["pinned"]
    result = [{"vertex": "src", "edge": "result", "rows": 10}]

    def refusal() -> str:
        error = attempts.fail(vertex, outputs=result, parallelism=2, pinned=pinned)
        assert (error["condition"], error["retryable"], error["vertex"]) == ("SOURCE_CHANGED", False, "src")
        return error["message"]

    (folder / "c.txt").write_text("four\n")
    assert f"new: file:{folder}/c.txt" in refusal()
    (folder / "c.txt").unlink()
    assert len(share_rows(attempts, vertex, pinned, 0)) + len(share_rows(attempts, vertex, pinned, 1)) == 3
    stat = (folder / "a.txt").stat()
    os.utime(folder / "a.txt", (stat.st_atime, stat.st_mtime + 5))
    assert f"changed: file:{folder}/a.txt" in refusal()
    os.utime(folder / "a.txt", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    (folder / "b.txt").unlink()
    assert f"gone: file:{folder}/b.txt" in refusal()


def test_columns_that_nobody_reads_are_not_read(attempts: Attempts, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "\n".join(["a,b,c,d,e", *(f"{i},{i % 3},x{i},y{i},z{i}" for i in range(100))]) + "\n"
    )
    src = source(tmp_path / "a.csv", "csv", 2, header=True, inferSchema=True)
    query = {
        "id": "q",
        "sql": "SELECT b, count(*) AS n FROM (SELECT * FROM src) WHERE c <> 'x1' GROUP BY b",
        "inputs": {},
    }
    query["inputs"] = {"src": {"edge": "chained", "keys": ["d"]}}
    pinned = planned(attempts, src, query)["pinned"]
    assert pinned["src"]["columns"] == ["b", "c", "d"]

    found: Counter[int] = Counter()
    for share in range(2):
        vertices = (src, {**query, "inputs": chained("src")})
        for b, n in attempts.rows(*vertices, subtask=share, parallelism=2, pinned=pinned):
            found[b] += n
    assert found == {0: 34, 1: 32, 2: 33}
    # Where the source itself is shown, all of it is.
    assert all(None not in row for row in attempts.rows(src, parallelism=2, pinned=pinned))


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("SELECT count(*) AS n FROM src", []),
        ("SELECT * FROM src", None),
        ("SELECT IF(now() < TIMESTAMP'2999-01-01 00:00:00', a, b) AS x FROM src", None),  # true only until then
        ("SELECT a FROM src WHERE b IN (SELECT c FROM src)", ["a", "b", "c"]),
        ("SELECT a, (SELECT max(e) FROM src) AS m FROM src", ["a", "e"]),
        ("SELECT x.a, y.b FROM src x JOIN src y ON x.c = y.c", ["a", "b", "c"]),
        ("SELECT A FROM SRC ORDER BY D", ["a", "d"]),
        ("SELECT a FROM src UNION ALL SELECT b FROM src", ["a", "b"]),
        ("SELECT * EXCEPT (a, b) FROM src", ["c", "d", "e"]),
    ],
)
def test_which_columns_a_query_needs(attempts: Attempts, tmp_path: Path, query: str, columns: list[str] | None) -> None:
    (tmp_path / "a.csv").write_text("a,b,c,d,e\n" + "".join(f"{i},{i * 7 % 10},{i % 5},{i},{i}\n" for i in range(10)))
    src = source(tmp_path / "a.csv", "csv", 2, header=True)
    vertices = (src, {"id": "q", "sql": query, "inputs": chained("src")})
    pinned = planned(attempts, *vertices)["pinned"]
    assert pinned["src"]["columns"] == columns
    for share in range(2):
        pruned = attempts.rows(*vertices, subtask=share, parallelism=2, pinned=pinned)
        whole = {"src": {**pinned["src"], "columns": None}}
        assert sorted(pruned) == sorted(attempts.rows(*vertices, subtask=share, parallelism=2, pinned=whole))


@pytest.fixture(scope="module")
def hundred(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A hundred rows as files of each kind, and as the view `rows_of_the_test`."""
    rows = spark.range(100).selectExpr("id AS a", "IF(id % 20 = 19, NULL, CAST(id % 20 AS INT)) AS b",
        "concat('x', id % 7) AS c", "date_add(DATE'2024-01-01', CAST(id % 10 AS INT)) AS `d e`",
        "CAST(date_add(DATE'2024-01-01', CAST(id % 10 AS INT)) AS TIMESTAMP) AS f")  # fmt: skip
    rows.createOrReplaceTempView("rows_of_the_test")
    folder, writer = tmp_path_factory.mktemp("hundred"), rows.coalesce(1).write.option("header", True)
    writer.csv(str(folder / "csv"))
    writer.parquet(str(folder / "parquet"))
    rows.coalesce(1).write.partitionBy("b").parquet(str(folder / "partitioned"))
    return {kind: folder / kind for kind in KINDS}


NEEDED: list[tuple[list[str], str | bool | None]] = [
    (["SELECT a FROM src WHERE b > 3"], "(((`b` IS NOT NULL)) AND ((`b` > 3)))"),
    (["SELECT x.a FROM src AS x WHERE x.b > 3 AND x.c LIKE 'x1%'"], True),
    (["SELECT a FROM src WHERE c = 'it\\'s b; -- `c` \"x\"' OR c = 'x2'"], True),
    (["SELECT a FROM src WHERE c = 'src.c' OR c = 'x2'"], None),  # a text that looks like a column's name
    (["SELECT a FROM src WHERE `d e` >= DATE'2024-01-05' AND f < TIMESTAMP'2024-01-08 12:00:00'"], True),
    (["SELECT a FROM src WHERE b IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)"], True),
    (["SELECT a FROM src WHERE b > 3", "SELECT c FROM src WHERE b = 1"], True),
    (["SELECT count(*) AS n FROM src WHERE b > 3 AND b < 2"], True),
    (["SELECT x.a FROM src x JOIN src y ON x.b = y.b WHERE x.b > 5 AND y.a < 90"], True),
    (["SELECT k.b FROM (VALUES (1), (2)) AS k(b) LEFT JOIN src ON k.b = src.b WHERE k.b < 2"], True),
    (["SELECT src.b, k.b FROM src LEFT JOIN (VALUES (1), (2)) AS k(b) ON k.b = src.b AND src.b < 2"], None),
    (["SELECT a FROM src WHERE b > 3", "SELECT c FROM src"], None),
    (["SELECT a FROM src"], None),
    (["SELECT a FROM src WHERE f < now()"], None),
    (["SELECT a FROM src WHERE rand() < 2"], None),
    (["SELECT a FROM src WHERE b > (SELECT min(b) FROM src)"], None),
    (["SELECT a FROM src WHERE EXISTS (SELECT 1 FROM src AS y WHERE y.a > src.b AND y.b > 5)"], None),
    (["SELECT a FROM src LIMIT 5"], None),
    (["SELECT a, rank() OVER (ORDER BY a) AS r FROM src WHERE b = 5"], True),
    (["SELECT * FROM (SELECT a, b, rank() OVER (ORDER BY a) AS r FROM src) WHERE b = 5"], None),
]
"""Queries -> the filter that their source gets by them, whether it gets one, or None."""
CASES = [
    pytest.param(*case, kind, marks=[] if number % 6 == 2 * which else pytest.mark.long)  # in `make test` every second over one kind
    for which, kind in enumerate(KINDS)
    for number, case in enumerate(NEEDED)
]


@pytest.mark.parametrize(("queries", "needed", "kind"), CASES)
def test_rows_that_no_query_needs_are_not_read(
    attempts: Attempts, tmp_path: Path, spark: Any, hundred: dict[str, Path], queries: list[str], needed: str | bool | None, kind: str
) -> None:
    """What a query gives does not change, and the source gives no more rows than its readers' filters keep."""
    file_format = "csv" if kind == "csv" else "parquet"
    options = {"header": "true", "inferSchema": "true"} if kind == "csv" else {}
    src = {"id": "src", "source": {"format": file_format, "path": str(hundred[kind]), "options": options}, "parallelism": 2}
    readers = [{"id": f"q{i}", "sql": query, "inputs": chained("src"), "parallelism": 2} for i, query in enumerate(queries)]
    pinned = planned(attempts, src, *readers)["pinned"]
    found = pinned["src"]["filter"]
    assert found == needed if isinstance(needed, str) else (found is not None) == bool(needed), found
    whole = {"src": {**pinned["src"], "filter": None, "columns": None}}
    given = 0
    for share in range(2):
        for number, reader in enumerate(readers):
            result = {"vertex": reader["id"], "edge": "result", "rows": 100_000}
            handed_over = {"vertex": "src", "edge": "broadcast", "folder": str(tmp_path / f"out{share}")}
            outputs = [result] if number else [result, handed_over]
            report = attempts.run(src, reader, outputs=outputs, pinned=pinned, parallelism=2, subtask=share)
            of_all = attempts.rows(src, reader, subtask=share, parallelism=2, pinned=whole)
            assert sorted(report["result"]["rows"], key=str) == sorted(of_all, key=str)
            given += 0 if number else report["outputs"]["src"]["rows"]
    if needed:
        assert given == spark.sql(f"SELECT * FROM rows_of_the_test WHERE {found}").count() < 100
    else:
        assert given == 100


@pytest.mark.parametrize("union", ["UNION ALL", "UNION"])
def test_both_sides_of_a_union_are_read(attempts: Attempts, tmp_path: Path, union: str) -> None:
    sources = []
    for name in ("s", "t"):
        (tmp_path / f"{name}.csv").write_text(f"a,b\n{name}1,x\n{name}2,y\n")
        sources.append({**source(tmp_path / f"{name}.csv", "csv", 2, header=True), "id": name})
    query = {"id": "q", "sql": f"SELECT * FROM s {union} SELECT * FROM t", "inputs": chained("s", "t"), "parallelism": 2}
    pinned = planned(attempts, *sources, query)["pinned"]
    parts = [attempts.rows(*sources, query, subtask=i, parallelism=2, pinned=pinned) for i in range(2)]
    assert sorted(sum(parts, [])) == [["s1", "x"], ["s2", "y"], ["t1", "x"], ["t2", "y"]]


def test_a_source_without_files_is_refused(attempts: Attempts) -> None:
    error = attempts.fail({"id": "src", "source": {"format": "rate"}, "parallelism": 2}, kind="plan")
    assert error["vertex"] == "src" and error["retryable"] is False


@pytest.mark.parametrize("kind", ["csv", "parquet", "partitioned", "folders of partitions", "empty"])
def test_a_source_that_several_read_is_whole_for_each_and_as_planned(attempts: Attempts, tmp_path: Path, spark: Any, kind: str) -> None:
    folder = tmp_path / "in"
    writer = spark.range(0 if kind == "empty" else 10).selectExpr("id AS a", "id % 2 AS p").coalesce(1).write.option("header", True)
    file_format = "csv" if kind == "csv" else "parquet"
    if kind == "folders of partitions":
        spark.range(10).selectExpr("id AS a", "id % 2 AS p", "id % 3 AS year").write.partitionBy("year", "p").parquet(str(folder))
    else:
        (writer.partitionBy("p") if kind == "partitioned" else writer).format(file_format).save(str(folder))
    options = {"csv": {"header": "true", "inferSchema": "true"}, "folders of partitions": {"basePath": str(folder)}}.get(kind, {})
    path = str(folder / "year=*") if kind == "folders of partitions" else str(folder)
    src = {"id": "src", "source": {"format": file_format, "path": path, "options": options}, "parallelism": 1, "copied": True}
    query = {"id": "q", "sql": "SELECT a, p FROM src WHERE a > 4", "inputs": chained("src"), "parallelism": 2}
    pinned = planned(attempts, src, query)["pinned"]
    expected = [] if kind == "empty" else [[a, a % 2] for a in range(5, 10)]
    for subtask in range(2):
        assert sorted(attempts.rows(src, query, subtask=subtask, parallelism=2, pinned=pinned)) == expected
    place, columns = (folder / "year=1" / "p=1", ["id AS a"]) if "*" in path else (folder, ["id AS a", "id % 2 AS p"])
    spark.range(10, 12).selectExpr(*columns).write.mode("append").option("header", True).format(file_format).save(str(place))
    result = [{"vertex": "q", "edge": "result", "rows": 1}]
    error = attempts.fail(src, query, outputs=result, subtask=1, parallelism=2, pinned=pinned)
    assert (error["condition"], error["vertex"], error["retryable"]) == ("SOURCE_CHANGED", "src", False)
    error = attempts.fail(src, query, outputs=result, subtask=1, parallelism=2)
    assert error["condition"] == "SOURCE_NOT_PLANNED"
