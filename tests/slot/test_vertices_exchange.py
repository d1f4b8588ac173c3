"""Exchange between attempts: every row once, equal keys together, exact values, and what planning says about keys."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from tests.slot.attempts import Attempts, chained


def sql(name: str, text: str, *inputs: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "sql": text, "inputs": chained(*inputs), **fields}


def hashed(*keys: str) -> dict[str, Any]:
    return {"edge": "chained", "keys": list(keys)}


class Exchange:
    """Producers and consumers of one job, as the JobMaster would join them."""

    def __init__(self, attempts: Attempts, folder: Path) -> None:
        self.attempts, self.folder = attempts, folder
        self.schemas: dict[str, str] = {}

    def produce(self, name: str, query: str, edge: str, parts: int = 1, **output: Any) -> None:
        """Runs `query` in `parts` subtasks; `{i}` in it is the subtask's number."""
        for i in range(parts):
            place = {"vertex": name, "edge": edge, "folder": str(self.folder / name / str(i)), **output}
            report = self.attempts.run(sql(name, query.replace("{i}", str(i))), outputs=[place])
            self.schemas[name] = report["outputs"][name]["schema"]

    def edge(self, name: str, kind: str, **fields: Any) -> dict[str, Any]:
        folders = sorted(str(path) for path in (self.folder / name).iterdir())
        return {"edge": kind, "folders": folders, "schema": self.schemas[name], **fields}


@pytest.fixture
def exchange(attempts: Attempts, tmp_path: Path) -> Exchange:
    return Exchange(attempts, tmp_path / "exchange")


VALUES = {
    "int": "CAST(id AS INT)",
    "bigint": "id",
    "smallint": "CAST(id AS SMALLINT)",
    "decimal(10,2)": "CAST(id AS DECIMAL(10,2))",
    "decimal(20,5)": "CAST(id AS DECIMAL(20,5))",
    "double": "CAST(id AS DOUBLE)",
    "float": "CAST(id AS FLOAT)",
    "string": "CAST(id AS STRING)",
    "date": "date_add(DATE'2020-01-01', CAST(id AS INT))",
    "timestamp": "CAST(date_add(DATE'2020-01-01', CAST(id AS INT)) AS TIMESTAMP)",
    "date string": "CAST(date_add(DATE'2020-01-01', CAST(id AS INT)) AS STRING)",
    "binary": "CAST(CAST(id AS STRING) AS BINARY)",
}
PAIRS = [
    ("int", "int"), ("int", "bigint"), ("smallint", "double"), ("int", "decimal(10,2)"), ("bigint", "decimal(20,5)"),
    ("decimal(10,2)", "decimal(20,5)"), ("int", "string"), ("double", "string"), ("decimal(10,2)", "double"),
    ("float", "double"), ("date", "timestamp"), ("date", "date string"), ("timestamp", "date string"), ("string", "string"),
    ("binary", "binary"),
]  # fmt: skip
WHOLE = [PAIRS[1], PAIRS[7], pytest.param(*PAIRS[10], marks=pytest.mark.long), pytest.param(*PAIRS[14], marks=pytest.mark.long)]
SHARES = 2


@pytest.mark.parametrize(
    ("left", "right"), [pytest.param(*pair, marks=pytest.mark.long if number % 4 else []) for number, pair in enumerate(PAIRS)]
)
def test_keys_of_two_types_meet_as_in_a_join_of_spark(attempts: Attempts, exchange: Exchange, left: str, right: str) -> None:
    """Full outer join of shares = Spark's own full outer join, with nulls and rows without a partner on both sides."""
    queries = {
        "l": f"SELECT IF(id % 5 = 0, NULL, {VALUES[left]}) AS k, id AS v FROM range(0, 40)",
        "r": f"SELECT IF(id % 7 = 0, NULL, {VALUES[right]}) AS key, id AS w FROM range(20, 60)",
    }
    join = "SELECT v, w FROM l FULL JOIN r ON l.k = r.key"
    vertices = [sql(name, query) for name, query in queries.items()]
    consumer = {"id": "j", "sql": join, "inputs": {"l": hashed("k"), "r": hashed("key")}, "parallelism": SHARES}
    types = attempts.run(*vertices, consumer, kind="plan")["key_types"]["j"]
    for name, key in (("l", "k"), ("r", "key")):
        exchange.produce(name, queries[name], "hash", keys=[key], key_types=types, shares=SHARES)
    found, parts = [], []
    for share in range(SHARES):
        edges = {
            n: exchange.edge(n, "hash", keys=[k], share=share, shares=SHARES) for n, k in (("l", "k"), ("r", "key"))
        }
        part = attempts.rows({**consumer, "inputs": edges})
        parts.append(len(part))
        found += part
    whole = attempts.rows(*vertices, sql("j", join, "l", "r"))
    assert sorted(map(str, found)) == sorted(map(str, whole))
    assert min(parts) > 0  # the test divides


@pytest.mark.parametrize(("left", "right"), WHOLE)
def test_a_source_that_each_reads_whole_meets_what_is_handed_over(
    attempts: Attempts, exchange: Exchange, spark: Any, tmp_path: Path, left: str, right: str
) -> None:
    """One side comes by shares, of the other each subtask keeps its own: together they are Spark's own full outer join."""
    given = f"SELECT IF(id % 5 = 0, NULL, {VALUES[left]}) AS k, id AS v FROM range(0, 40)"
    query = f"SELECT IF(id % 7 = 0, NULL, {VALUES[right]}) AS key, id AS w FROM range(20, 60)"
    spark.sql(query).write.parquet(str(tmp_path / "in"))
    source = {"id": "r", "source": {"format": "parquet", "path": str(tmp_path / "in"), "options": {}}, "parallelism": 1, "copied": True}
    join = "SELECT v, w FROM l FULL JOIN r ON l.k = r.key"
    consumer = {"id": "j", "sql": join, "inputs": {"l": hashed("k"), "r": hashed("key")}, "parallelism": SHARES}
    planned = attempts.run(sql("l", given), source, consumer, kind="plan")
    exchange.produce("l", given, "hash", keys=["k"], key_types=planned["key_types"]["j"], shares=SHARES)
    parts = []
    for share in range(SHARES):
        own = {"edge": "chained", "keys": ["key"], "key_types": planned["key_types"]["j"], "share": share, "shares": SHARES}
        edges = {"l": exchange.edge("l", "hash", keys=["k"], share=share, shares=SHARES), "r": own}
        reader = {**consumer, "inputs": edges}
        parts.append(attempts.rows(source, reader, pinned=planned["pinned"], subtask=share, parallelism=SHARES))
    whole = attempts.rows(sql("l", given), sql("r", query), sql("j", join, "l", "r"))
    assert sorted(map(str, [*parts[0], *parts[1]])) == sorted(map(str, whole))
    assert all(parts)


@pytest.mark.parametrize(
    ("left", "right", "common"),
    [
        ("INT", "BIGINT", "BIGINT"),
        ("INT", "STRING", "BIGINT"),
        ("DECIMAL(10,2)", "DECIMAL(20,5)", "DECIMAL(20,5)"),
        ("DATE", "TIMESTAMP", "TIMESTAMP"),
        ("STRUCT<a: INT>", "STRUCT<a: BIGINT>", "STRUCT<a: BIGINT>"),
    ],
)
def test_the_common_type_of_keys(attempts: Attempts, left: str, right: str, common: str) -> None:
    consumer = {"id": "j", "sql": "SELECT 1", "inputs": {"l": hashed("k"), "r": hashed("k")}}
    vertices = [sql(name, f"SELECT CAST(NULL AS {kind}) AS k") for name, kind in (("l", left), ("r", right))]
    assert attempts.run(*vertices, consumer, kind="plan")["key_types"] == {"j": [common]}


@pytest.mark.parametrize(
    ("kinds", "condition", "says"),
    [
        (["INT", "DATE"], "NO_COMMON_KEY_TYPE", "a.k is INT, b.k is DATE"),
        (["MAP<INT, INT>", "MAP<INT, INT>"], "NO_COMMON_KEY_TYPE", "MAP<INT, INT>"),
        (["STRING", "DATE", "TIMESTAMP"], "NO_COMMON_KEY_TYPE", "a.k is STRING, b.k is DATE, c.k is TIMESTAMP"),
        (["STRING COLLATE UTF8_LCASE", "STRING"], "COLLATED_KEY", "'k' of 'a'"),
        (["STRING", "ARRAY<STRING COLLATE UNICODE_CI>"], "COLLATED_KEY", "'k' of 'b'"),
    ],
)
def test_keys_that_cannot_meet(attempts: Attempts, kinds: list[str], condition: str, says: str) -> None:
    names = "abc"[: len(kinds)]
    vertices = [sql(name, f"SELECT CAST(NULL AS {kind}) AS k") for name, kind in zip(names, kinds, strict=True)]
    consumer = {"id": "j", "sql": "SELECT 1", "inputs": {n: hashed("k") for n in names}, "parallelism": 2}
    error = attempts.fail(*vertices, consumer, kind="plan")
    assert (error["condition"], error["retryable"]) == (condition, False)
    assert says in error["message"]


def test_three_number_types_meet(attempts: Attempts) -> None:
    vertices = [sql(n, f"SELECT CAST(NULL AS {k}) AS k") for n, k in (("a", "INT"), ("b", "BIGINT"), ("c", "DOUBLE"))]
    consumer = {"id": "j", "sql": "SELECT 1", "inputs": {n: hashed("k") for n in "abc"}, "parallelism": 2}
    assert attempts.run(*vertices, consumer, kind="plan")["key_types"] == {"j": ["DOUBLE"]}


def test_a_collated_key_at_run_time(attempts: Attempts, tmp_path: Path) -> None:
    output = {
        "vertex": "q",
        "edge": "hash",
        "keys": ["k"],
        "key_types": None,
        "shares": 2,
        "folder": str(tmp_path / "x"),
    }
    error = attempts.fail(sql("q", "SELECT 'a' COLLATE UTF8_LCASE AS k"), outputs=[output])
    assert (error["condition"], error["vertex"]) == ("COLLATED_KEY", "q")


def test_zeros_and_nans_are_one_key(attempts: Attempts, exchange: Exchange) -> None:
    query = "SELECT * FROM VALUES (0D), (-0D), (DOUBLE('NaN')), (-DOUBLE('NaN')), (DOUBLE(FLOAT('NaN'))) AS t(k)"
    exchange.produce("q", query, "hash", keys=["k"], key_types=["DOUBLE"], shares=16)
    shares = [
        attempts.rows({"id": "c", "sql": "SELECT k FROM q", "inputs": {"q": exchange.edge("q", "hash", share=i)}})
        for i in range(16)
    ]
    assert sorted(len(rows) for rows in shares if rows) == [2, 3]


def test_a_key_that_does_not_fit_its_common_type_goes_through(attempts: Attempts, exchange: Exchange) -> None:
    """Which rows are compared is for the consumer's own query: routing never fails for a value."""
    exchange.produce("q", "SELECT explode(array('1', 'x')) AS k", "hash", keys=["k"], key_types=["BIGINT"], shares=2)
    consumer = [
        {"id": "c", "sql": "SELECT k FROM q", "inputs": {"q": exchange.edge("q", "hash", share=i)}} for i in range(2)
    ]
    assert sorted(row for vertex in consumer for row in attempts.rows(vertex)) == [["1"], ["x"]]


def test_all_types_come_back_exactly(attempts: Attempts, exchange: Exchange) -> None:
    query = (
        "SELECT {i} AS i, CAST(NULL AS STRING) AS n, 1.50BD AS d, DATE'1500-02-03' AS old, TIMESTAMP'1900-01-01 00:00:00.000001' AS ts,"
        " TIMESTAMP_NTZ'2020-02-30 01:02:03'::STRING AS bad, X'00ff' AS b, array(struct(1 AS a, map('k', 2S) AS m)) AS nested,"
        " float('nan') AS f, true AS t, 'a,\"b\nc' AS `odd name.x`"
    ).replace("2020-02-30", "2020-02-29")
    exchange.produce("q", query, "broadcast", parts=2)
    read = {"id": "c", "sql": "SELECT * FROM q ORDER BY i", "inputs": {"q": exchange.edge("q", "broadcast")}}
    found = attempts.rows(read)
    assert found == [attempts.rows(sql("q", query.replace("{i}", str(i))))[0] for i in range(2)]
    assert found[0][3:5] == ["1500-02-03", "1900-01-01T00:00:00.000001Z"]


MANY = {
    "tiny": "CAST(id % 100 AS TINYINT)", "small": "CAST(id % 30000 AS SMALLINT)", "i": "CAST(id * 7919 % 2000000000 AS INT)",
    "l": "id * 1000003", "f": "CAST(id / 7 AS FLOAT)", "d": "sin(id)", "t": "id % 3 = 0", "s": "concat('text ', id % 50)",
    "long": "repeat(CAST(id AS STRING), 40)", "b": "CAST(CAST(id AS STRING) AS BINARY)", "d9": "CAST(id / 100 AS DECIMAL(9,2))",
    "d18": "CAST(id / 100 AS DECIMAL(18,4))", "d38": "CAST(id AS DECIMAL(38,18)) / 7", "day": "date_add(DATE'1700-01-01', CAST(id AS INT))",
    "at": "timestamp_micros(id * 86400000001)", "local": "CAST(timestamp_micros(id * 3600000001) AS TIMESTAMP_NTZ)",
    "of": "make_dt_interval(0, 0, 0, id)", "list": "sequence(0, id % 5)", "nested": "struct(id AS a, array(concat('x', id), NULL) AS b)",
}  # fmt: skip
"""Columns with many values: they meet the encodings of pages, which a few rows do not."""


def test_many_rows_of_all_types_come_back_exactly(attempts: Attempts, exchange: Exchange) -> None:
    columns = ", ".join(f"IF(id % 11 = {place}, NULL, {sql}) AS {name}" for place, (name, sql) in enumerate(MANY.items()))
    query = f"SELECT id, {columns} FROM range(20000)"
    exchange.produce("q", query, "hash", keys=["id"], shares=1)
    whole = "SELECT count(*) AS n, count(DISTINCT id) AS ids, sum(CAST(xxhash64(*) AS DECIMAL(38,0))) AS digest FROM q"
    read = {"id": "c", "sql": whole, "inputs": {"q": exchange.edge("q", "hash", keys=["id"], share=0, shares=1)}}
    found = attempts.rows(read)
    assert found == attempts.rows(sql("q", query), sql("c", whole, "q"))
    assert found[0][:2] == [20000, 20000]


def test_what_a_job_sets_for_its_sinks_and_sources_leaves_the_exchange_whole(
    attempts: Attempts, tmp_path: Path
) -> None:
    conf = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS", "spark.sql.files.ignoreCorruptFiles": "true"}
    folder = tmp_path / "t"
    output = {"vertex": "t", "edge": "broadcast", "folder": str(folder)}
    report = attempts.run(sql("t", "SELECT TIMESTAMP'2020-01-01 00:00:00.123456' AS t"), outputs=[output], conf=conf)
    edge = {"edge": "broadcast", "folders": [str(folder)], "schema": report["outputs"]["t"]["schema"]}
    read = {"id": "r", "sql": "SELECT t FROM t", "inputs": {"t": edge}}
    assert attempts.rows(read, conf=conf) == [["2020-01-01T00:00:00.123456Z"]]
    for file in folder.glob("*.parquet"):
        file.write_bytes(b"no Parquet")
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    assert attempts.fail(read, outputs=[{"vertex": "r", "edge": "result", "rows": 1}], conf=conf)["kind"]


def test_empty_outputs_and_missing_shares(attempts: Attempts, exchange: Exchange) -> None:
    exchange.produce("q", "SELECT id AS k FROM range(0)", "hash", parts=2, keys=["k"], key_types=None, shares=4)
    exchange.produce("p", "SELECT 1 AS k, 'x' AS s", "hash", keys=["k"], key_types=None, shares=4)
    assert sum(len(list((exchange.folder / name).glob("*/__share=*"))) for name in "qp") == 1
    query = "SELECT (SELECT count(*) FROM q) AS q, (SELECT count(*) FROM p) AS p, (SELECT count(s) FROM p) AS s"
    counts = [
        attempts.rows({"id": "c", "sql": query, "inputs": {n: exchange.edge(n, "hash", share=i) for n in "qp"}})[0]
        for i in range(4)
    ]
    assert sorted(counts) == [[0, 0, 0]] * 3 + [[0, 1, 1]]


def test_one_share_is_written_without_hashing(attempts: Attempts, exchange: Exchange) -> None:
    exchange.produce("q", "SELECT id AS k FROM range(10)", "hash", parts=2, keys=["k"], key_types=None, shares=1)
    edge = exchange.edge("q", "hash", share=0)
    assert attempts.rows({"id": "c", "sql": "SELECT count(*), sum(k) FROM q", "inputs": {"q": edge}}) == [[20, 90]]


def test_shares_are_even_inside_the_consumer(attempts: Attempts, exchange: Exchange, spark: Any) -> None:
    """A share's keys still spread over Spark's own shuffle partitions (they would not, were its hash used twice)."""
    exchange.produce("q", "SELECT id AS k FROM range(1000)", "hash", keys=["k"], key_types=None, shares=2)
    frame = spark.read.parquet(str(exchange.folder / "q" / "0" / "__share=0"))
    sizes = [len(part) for part in frame.repartition(4, "k").rdd.glom().collect()]
    assert min(sizes) > 80 and sum(sizes) == frame.count()


def test_rows_that_are_gone_from_the_exchange_are_said_at_once_and_not_looked_for_elsewhere(attempts: Attempts, exchange: Exchange) -> None:
    exchange.produce("q", "SELECT 1 AS k", "broadcast")
    edge = exchange.edge("q", "broadcast")
    shutil.rmtree(exchange.folder / "q")
    error = attempts.fail({"id": "c", "sql": "SELECT * FROM q", "inputs": {"q": edge}})
    assert (error["kind"], error["retryable"], error["condition"]) == ("infrastructure", False, "EXCHANGE_LOST")
    assert error["lost"].split("\n") == edge["folders"]


def test_little_data_makes_few_files(attempts: Attempts, exchange: Exchange) -> None:
    exchange.produce("q", "SELECT id % 3 AS k, id FROM range(100)", "broadcast")
    edge = exchange.edge("q", "broadcast")
    out = str(exchange.folder / "out")
    attempts.run(
        {"id": "c", "sql": "SELECT k, sum(id) AS s FROM q GROUP BY k", "inputs": {"q": edge}},
        outputs=[{"vertex": "c", "edge": "broadcast", "folder": out}],
    )
    assert [path.suffix for path in Path(out).iterdir() if not path.name.startswith(".")] == [".parquet"]


def test_a_plan_touches_no_rows(attempts: Attempts, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k,v\n1,2\n3,4\n")
    modules = [attempts.module("m.py", "def f(a): return a.limit(5)\ndef g(a): return a.first().k\n")]
    src = {"id": "src", "source": {"format": "csv", "path": str(tmp_path / "a.csv"), "options": {"header": "true"}}}
    query = sql("q", "SELECT CAST(k AS INT) AS k, raise_error('ran') AS e FROM src", "src")
    report = attempts.run(
        {**src, "parallelism": 2}, query, {"id": "p", "python": "m:f", "inputs": chained("q")},
        {"id": "d", "python": "m:g", "inputs": chained("q"), "schema": "z DOUBLE"},
        {"id": "s", "sink": {"format": "csv", "path": "out"}, "inputs": chained("d")},
        kind="plan", modules=modules,
    )  # fmt: skip
    names = {v: [(f["name"], f["type"]) for f in json.loads(s)["fields"]] for v, s in report["schemas"].items()}
    assert names["src"] == [("k", "string"), ("v", "string")]
    assert names["p"] == names["q"] == [("k", "integer"), ("e", "void")]
    assert names["s"] == names["d"] == [("z", "double")]
    assert report["key_types"] == {} and list(report["pinned"]) == ["src"]
    assert report["pinned"]["src"]["columns"] == ["k"]
    assert report["time_zone"] == attempts.spark.conf.get("spark.sql.session.timeZone")
    assert attempts.run(src, query, kind="plan", conf={"spark.sql.session.timeZone": "Asia/Tokyo"})["time_zone"] == "Asia/Tokyo"
    assert json.loads(json.dumps(report)) == report


def test_a_function_that_needs_rows_is_told_to_declare(attempts: Attempts) -> None:
    modules = [attempts.module("m.py", "def f(a): return a.first().k\n")]
    error = attempts.fail(
        sql("a", "SELECT 1 AS k"), {"id": "p", "python": "m:f", "inputs": chained("a")}, kind="plan", modules=modules
    )
    assert (error["condition"], error["vertex"], error["retryable"]) == ("SCHEMA_NOT_KNOWN", "p", False)
    assert "declare its columns: schema:" in error["message"]
    assert (error["file"], error["line"]) == ("m.py", 1)


def test_a_module_that_is_not_there_is_not_a_matter_of_rows(attempts: Attempts) -> None:
    modules = [attempts.module("m.py", "def f(a):\n    import helper\n    return helper.g(a)\n")]
    error = attempts.fail(
        sql("a", "SELECT 1 AS k"), {"id": "p", "python": "m:f", "inputs": chained("a")}, kind="plan", modules=modules
    )
    assert "No module named 'helper'. If it is a file of yours, list that under modules:" in error["message"]
    assert "schema:" not in error["message"]


def test_a_key_that_is_not_there(attempts: Attempts) -> None:
    consumer = {"id": "j", "sql": "SELECT * FROM a", "inputs": {"a": hashed("orign")}, "parallelism": 2}
    error = attempts.fail(sql("a", "SELECT 1 AS origin"), consumer, kind="plan")
    assert (error["kind"], error["vertex"], error["retryable"]) == ("analysis", "j", False)
    assert "'orign'" in error["message"] and "origin" in error["message"] and "'a'" in error["message"]


def test_a_key_that_is_not_there_is_missed_by_one_share_too(attempts: Attempts, tmp_path: Path) -> None:
    output = {"vertex": "a", "edge": "hash", "keys": ["orign"], "key_types": None, "shares": 1, "folder": str(tmp_path)}
    error = attempts.fail(sql("a", "SELECT 1 AS origin"), outputs=[output])
    assert (error["condition"], error["vertex"], error["retryable"]) == ("HASH_KEY_NOT_FOUND", "a", False)


@pytest.mark.parametrize(("there", "fails"), [("else.csv", True), ("job-1-s-0-part.csv", False), (None, False)])
def test_a_sink_that_may_not_write_says_so_at_once(
    attempts: Attempts, tmp_path: Path, there: str | None, fails: bool
) -> None:
    target = tmp_path / "out"
    if there:
        target.mkdir()
        (target / there).touch()
    sink = {"id": "s", "sink": {"format": "csv", "path": str(target), "mode": "error"}, "inputs": chained("q")}
    staged = {"vertex": "s", "edge": "sink", "folder": str(tmp_path / "staged"), "name": "job-1-s"}
    if not fails:
        attempts.run(sql("q", "SELECT 1 AS a"), sink, outputs=[staged])
        return
    error = attempts.fail(sql("q", "SELECT 1 AS a"), sink, outputs=[staged])
    assert (error["condition"], error["vertex"], error["retryable"]) == ("PATH_ALREADY_EXISTS", "s", False)
    assert not (tmp_path / "staged").exists()


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize(("edge", "query", "columns"), [
    ("hash", "SELECT k, count(*) AS n, max(v) AS m FROM src GROUP BY k", ["k", "v"]),
    ("broadcast", "SELECT 0 AS k, count(*) AS n, 0 AS m FROM src", []),
    ("broadcast", "SELECT a, b, k FROM src", ["a", "b", "k"]),
])  # fmt: skip
def test_a_source_writes_only_what_is_read(
    attempts: Attempts, tmp_path: Path, spark: Any, parallelism: int, edge: str, query: str, columns: list[str]
) -> None:
    (tmp_path / "a.csv").write_text("a,b,k,v\n" + "".join(f"x{i},y{i},{i % 4},{i}\n" for i in range(40)))
    options = {"header": "true", "inferSchema": "true"}
    src = {"id": "src", "source": {"format": "csv", "path": str(tmp_path / "a.csv"), "options": options}}
    consumer = {"id": "q", "sql": query, "inputs": {"src": hashed("k") if edge == "hash" else {"edge": "chained"}}}
    pinned = attempts.run({**src, "parallelism": parallelism}, consumer, kind="plan")["pinned"]
    assert pinned["src"]["columns"] == columns
    folders, schema = [], ""
    for i in range(parallelism):
        output = {"vertex": "src", "edge": edge, "folder": str(tmp_path / f"out{i}")}
        if edge == "hash":
            output.update(keys=["k"], key_types=None, shares=2)
        report = attempts.run(src, outputs=[output], pinned=pinned, parallelism=parallelism, subtask=i)
        folders.append(output["folder"])
        schema = report["outputs"]["src"]["schema"]
    assert [field["name"] for field in json.loads(schema)["fields"]] == ["a", "b", "k", "v"]
    written = [name for name in spark.read.parquet(folders[0]).columns if name != "__share"]
    assert written == (columns or ["a"])
    found = []
    for share in range(2 if edge == "hash" else 1):
        given = {"edge": edge, "folders": folders, "schema": schema, "share": share}
        found += attempts.rows({**consumer, "inputs": {"src": given}})
    assert sorted(found) == sorted(attempts.rows(src, {**consumer, "inputs": chained("src")}))


def test_an_attempt_reports_where_its_time_went(exchange: Exchange, attempts: Attempts, tmp_path: Path) -> None:
    """What an edge costs is its own part; the jobs that compute its rows are not in it."""
    began_s = time.monotonic()
    place = {"vertex": "a", "edge": "hash", "keys": ["id"], "shares": 2, "folder": str(tmp_path / "edge")}
    written = attempts.run(sql("a", "SELECT id, sum(id) AS s FROM range(0, 200000, 1, 4) GROUP BY id"), outputs=[place])
    whole_ms = 1000 * (time.monotonic() - began_s)
    spent = written["spent"]
    assert list(spent) == ["start_ms", "plan_ms", "compute_ms", "exchange_ms"]
    assert all(type(ms) is int and ms >= 0 for ms in spent.values()) and sum(spent.values()) <= whole_ms, (spent, whole_ms)
    assert spent["plan_ms"] and spent["compute_ms"] and spent["exchange_ms"], spent
    schema = written["outputs"]["a"]["schema"]
    edge = {"edge": "hash", "keys": ["id"], "share": 0, "shares": 2, "folders": [place["folder"]], "schema": schema}
    shown = [{"vertex": "b", "edge": "result", "rows": 5}]
    read = attempts.run({"id": "b", "sql": "SELECT count(*) FROM a", "inputs": {"a": edge}}, outputs=shown)["spent"]
    assert read["compute_ms"] and read["exchange_ms"], read
    alone = attempts.run(sql("c", "SELECT 1"), outputs=[{"vertex": "c", "edge": "result", "rows": 5}])["spent"]
    assert alone["compute_ms"] and alone["exchange_ms"] == 0, alone


def test_the_time_of_a_python_vertex_and_of_a_script_is_computing(attempts: Attempts) -> None:
    sleeps = "import time\ndef f(spark):\n    time.sleep(0.3)\n    return spark.range(1)\n"
    report = attempts.run({"id": "f", "python": "sleeps:f"}, modules=[attempts.module("sleeps.py", sleeps)])
    assert report["spent"]["compute_ms"] >= 300
    script = attempts.module("script.py", "import time\ntime.sleep(0.3)\n", "file")
    report = attempts.run({"id": "s", "spark_app": {"script": "script.py"}}, modules=[script])
    assert report["spent"]["compute_ms"] >= 300


@pytest.mark.parametrize(("kind", "narrow", "rows"), [("sql", True, 10), ("declared", True, 20), ("python", False, 20)])
def test_any_vertex_hands_on_only_what_is_taken(attempts: Attempts, tmp_path: Path, spark: Any, kind: str, narrow: bool, rows: int) -> None:
    """Not all columns, unless they are known only once it has run; not all rows, unless user code has run."""
    modules = [attempts.module("m.py", "def f(spark): return spark.range(20).selectExpr('id AS a', 'id % 4 AS k', 'id AS z')")]
    producer: dict[str, Any] = {
        "sql": sql("p", "SELECT id AS a, id % 4 AS k, id AS z FROM range(20)"),
        "declared": {"id": "p", "python": "m:f", "schema": "a BIGINT, k BIGINT, z BIGINT"},
        "python": {"id": "p", "python": "m:f"},
    }[kind]
    consumer = {"id": "q", "sql": "SELECT k, count(*) AS n FROM p WHERE a > 9 GROUP BY k", "inputs": {"p": hashed("k")}, "parallelism": 2}
    pinned = attempts.run(producer, consumer, kind="plan", modules=modules)["pinned"]
    assert (set(pinned) == {"p"}) == narrow
    output = {"vertex": "p", "edge": "hash", "keys": ["k"], "key_types": None, "shares": 2, "folder": str(tmp_path / "out")}
    report = attempts.run(producer, outputs=[output], pinned=pinned, modules=modules)
    assert report["outputs"]["p"]["rows"] == rows
    assert set(spark.read.parquet(output["folder"]).columns) == {"a", "k", "__share", *([] if narrow else ["z"])}
    schema, found = report["outputs"]["p"]["schema"], []
    for share in range(2):
        given = {"edge": "hash", "folders": [output["folder"]], "schema": schema, "share": share}
        found += attempts.rows({**consumer, "inputs": {"p": given}})
    assert sorted(found) == [[0, 2], [1, 2], [2, 3], [3, 3]]


@pytest.mark.parametrize("where", ["when it is planned", "where it is handed on"])
def test_a_filter_means_the_same_whatever_user_code_sets(attempts: Attempts, tmp_path: Path, where: str) -> None:
    """A time in a filter's SQL is read in the session's time zone."""
    zone = "def f(spark):\n    spark.conf.set('spark.sql.session.timeZone', 'Asia/Tokyo')\n    return spark.range(1)\n"
    modules = [attempts.module("m.py", zone)]
    setter = {"id": "z", "python": "m:f"}
    at = "timestamp_seconds(1704067200 + 3600 * id)"  # from the first hour of 2024 on
    producer = sql("p", f"SELECT id AS a, {at} AS t FROM range(24)")
    late = "SELECT a FROM p WHERE t >= TIMESTAMP'2024-01-01 20:00:00'"
    consumer = {"id": "q", "sql": late, "inputs": {"p": hashed("a")}, "parallelism": 2}
    order = [setter, producer, consumer] if where == "when it is planned" else [producer, consumer]
    pinned = attempts.run(*order, kind="plan", modules=modules)["pinned"]
    assert (pinned.get("p", {}).get("filter") is None) == (where == "when it is planned")
    output = {"vertex": "p", "edge": "hash", "keys": ["a"], "key_types": None, "shares": 2, "folder": str(tmp_path / "out")}
    report = attempts.run(setter, producer, outputs=[output], pinned=pinned, modules=modules)
    found = []
    for share in range(2):
        given = {"edge": "hash", "folders": [output["folder"]], "schema": report["outputs"]["p"]["schema"], "share": share}
        found += attempts.rows({**consumer, "inputs": {"p": given}})
    assert sorted(found) == [[20], [21], [22], [23]]


@pytest.mark.parametrize("days", ["handed over", "read by each"])
def test_user_code_that_sets_a_time_zone_divides_rows_as_others_do(
    attempts: Attempts, exchange: Exchange, spark: Any, tmp_path: Path, days: str
) -> None:
    """A day is midnight in the session's zone, when it meets times."""
    zone = "def f(spark):\n    spark.conf.set('spark.sql.session.timeZone', 'Asia/Tokyo')\n    return spark.sql(\"{}\")\n"
    day = "SELECT date_add(DATE'2024-01-01', CAST(id AS INT)) AS d FROM range(20)"
    modules = [attempts.module("m.py", zone.format(day))]
    setter = {"id": "z", "python": "m:f"}
    midnights = "SELECT timestamp_seconds(1704067200 + 86400 * id) AS t FROM range(20)"
    exchange.produce("t", midnights, "hash", keys=["t"], key_types=["TIMESTAMP"], shares=2)
    place = {"vertex": "z", "edge": "hash", "keys": ["d"], "key_types": ["TIMESTAMP"], "shares": 2, "folder": str(tmp_path / "z")}
    schema = attempts.run(setter, outputs=[place], modules=modules)["outputs"]["z"]["schema"]
    spark.sql(day).write.parquet(str(tmp_path / "days"))
    source = {"id": "d", "source": {"format": "parquet", "path": str(tmp_path / "days"), "options": {}}, "parallelism": 1, "copied": True}
    pinned = attempts.run(source, kind="plan")["pinned"]
    found = []
    for share in range(2):
        edges: dict[str, Any] = {"t": exchange.edge("t", "hash", keys=["t"], share=share, shares=2)}
        if days == "handed over":
            edges["z"] = {"edge": "hash", "keys": ["d"], "share": share, "shares": 2, "folders": [place["folder"]], "schema": schema}
            before: list[Any] = []
        else:
            edges["d"] = {"edge": "chained", "keys": ["d"], "key_types": ["TIMESTAMP"], "share": share, "shares": 2}
            before = [setter, source]
        query = f"SELECT d FROM {'z' if days == 'handed over' else 'd'} JOIN t ON d = t"
        join = {"id": "j", "sql": query, "inputs": edges, "parallelism": 2}
        found += attempts.rows(*before, join, modules=modules, pinned=pinned, subtask=share, parallelism=2)
    assert len(found) == 20
