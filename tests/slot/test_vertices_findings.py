"""Schemas that were inferred once, and queries that were planned, are known to the next attempt, as long as nothing that they follow from
has changed."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from services.task_manager.slot.attempt import findings, shares, vertices
from tests.slot.attempts import Attempts, chained


class Opened:
    """What `shares.open_source` is asked: "inferred" of a source whose schema nobody knows, else "known"."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._asked: list[str] = []
        really = shares.open_source

        def opening(session: Any, source: Any, schema: str | None = None, paths: list[str] | None = None) -> Any:
            if source.get("schema") != "value STRING":  # the look at its files
                self._asked.append("known" if schema or source.get("schema") else "inferred")
            return really(session, source, schema, paths)

        monkeypatch.setattr(shares, "open_source", opening)

    def take(self) -> list[str]:
        asked, self._asked = self._asked, []
        return asked


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    return Opened(monkeypatch)


def file(path: Path, text: str, age_s: int = 60) -> str:
    path.write_text(text)
    now = path.stat().st_mtime
    os.utime(path, (now - age_s, now - age_s))
    return str(path)


def csv(path: str, **options: str) -> dict[str, Any]:
    return {"id": "s", "source": {"format": "csv", "path": path, "options": {"header": "true", "inferSchema": "true", **options}}}


def rows(attempts: Attempts, source: dict[str, Any], **fields: Any) -> tuple[Any, Any]:
    """(types, rows) of the source."""
    report = attempts.run(source, outputs=[{"vertex": "s", "edge": "result", "rows": 10}], **fields)
    return report["result"]["types"], report["result"]["rows"]


def test_a_schema_is_inferred_once(attempts: Attempts, tmp_path: Path, opened: Opened) -> None:
    source = csv(file(tmp_path / "a.csv", "n,t\n1,2024-01-01\n2,\n"))
    first = rows(attempts, source)
    assert opened.take() == ["inferred"]
    assert rows(attempts, source) == first == (["int", "date"], [[1, "2024-01-01"], [2, None]])
    assert opened.take() == ["known"]
    planned = attempts.run(source, kind="plan", parallelism=1)
    assert planned["pinned"]["s"]["schema"] == planned["schemas"]["s"]
    assert opened.take() == ["known"]


def test_json_is_inferred_once_with_the_column_of_its_bad_lines(attempts: Attempts, tmp_path: Path, opened: Opened) -> None:
    path = file(tmp_path / "a.json", '{"a": {"b": 1}}\nno json\n')
    source = {"id": "s", "source": {"format": "json", "path": path, "options": {}}}
    first = rows(attempts, source)
    assert rows(attempts, source) == first
    assert opened.take() == ["inferred", "known"]


@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_a_schema_that_files_carry_is_read_once(attempts: Attempts, tmp_path: Path, opened: Opened, form: str) -> None:
    def write(query: str) -> None:
        attempts.spark.sql(query).coalesce(1).write.mode("overwrite").format(form).save(str(tmp_path / "in"))
        for path in (tmp_path / "in").glob("part-*"):
            os.utime(path, (time.time() - 60, time.time() - 60))

    source = {"id": "s", "source": {"format": form, "path": str(tmp_path / "in"), "options": {}}}
    write("SELECT 1 AS n, CAST('2.50' AS DECIMAL(9,2)) AS d, named_struct('x', array('y')) AS s, TIMESTAMP_NTZ'2024-01-01 00:00' AS t")
    first = rows(attempts, source)
    assert rows(attempts, source) == first
    assert opened.take() == ["inferred", "known"]
    write("SELECT 'text' AS n")
    assert rows(attempts, source) == (["string"], [["text"]])
    assert opened.take() == ["inferred"]


@pytest.mark.parametrize("change", ["a row more", "another time", "a file more", "an option", "a setting"])
def test_what_has_changed_is_inferred_again(attempts: Attempts, tmp_path: Path, opened: Opened, change: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    path = Path(file(folder / "a.csv", "n\n1\n"))
    source, fields = csv(str(folder)), {}
    assert rows(attempts, source) == (["int"], [[1]])
    types, found = "int", [[1]]
    if change == "a row more":
        file(path, "n\n1\nx\n")
        types, found = "string", [["1"], ["x"]]
    elif change == "another time":
        file(path, "n\nx\n", 30)  # as long as before
        types, found = "string", [["x"]]
    elif change == "a file more":
        file(folder / "b.csv", "n\n0.5\n", 90)
        types, found = "double", [[0.5], [1.0]]
    elif change == "an option":
        source = csv(str(folder), inferSchema="false")
        types, found = "string", [["1"]]
    else:
        fields = {"conf": {"spark.sql.ansi.enabled": "false"}}
    now = rows(attempts, source, **fields)
    assert (now[0], sorted(now[1])) == ([types], found)
    assert opened.take() == ["inferred", "inferred"]


@pytest.mark.parametrize("case", ["a new file", "partition columns", "after user code"])
def test_what_is_not_certain_is_not_kept(attempts: Attempts, tmp_path: Path, opened: Opened, case: str) -> None:
    folder = tmp_path / "in" / "p=1"
    folder.mkdir(parents=True)
    file(folder / "a.csv", "n\n1\n", -3600 if case == "a new file" else 60)  # it stays new, however slow this machine is
    source = csv(str(tmp_path / "in" if case == "partition columns" else folder))
    more: list[dict[str, Any]] = []
    fields: dict[str, Any] = {}
    if case == "after user code":
        fields["modules"] = [attempts.module("m.py", "def f(spark): return spark.range(1)")]
        more = [{"id": "p", "python": "m:f"}]
    for _ in range(2):
        attempts.run(*more, source, outputs=[{"vertex": "s", "edge": "result", "rows": 10}], **fields)
    assert opened.take() == ["inferred", "inferred"]


@pytest.mark.parametrize("written", [b"", b"no schema", b"\xff", b'"int" ' * findings.BYTES_MAX])
def test_a_finding_that_is_no_schema_is_not_there(attempts: Attempts, tmp_path: Path, opened: Opened, written: bytes) -> None:
    source = csv(file(tmp_path / "a.csv", "n\n1\n"))
    rows(attempts, source)
    (kept,) = attempts.findings.iterdir()
    kept.write_bytes(written)
    assert rows(attempts, source) == (["int"], [[1]])
    assert opened.take() == ["inferred", "inferred"]
    assert rows(attempts, source) == (["int"], [[1]])
    assert opened.take() == ["known"]


def test_the_newest_findings_are_kept(attempts: Attempts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "KEPT", 2)
    seen: set[str] = set()
    for number in range(3):
        rows(attempts, csv(file(tmp_path / f"{number}.csv", "n\n1\n")))
        seen |= set(os.listdir(attempts.findings))
    assert len(seen) == 3
    assert len(os.listdir(attempts.findings)) == 2


def test_findings_that_cannot_be_kept_cost_nothing_else(attempts: Attempts, tmp_path: Path, opened: Opened) -> None:
    attempts.findings.parent.mkdir(exist_ok=True)
    attempts.findings.write_text("a file where a folder is needed")
    source = csv(file(tmp_path / "a.csv", "n\n1\n"))
    for _ in range(2):
        assert rows(attempts, source) == (["int"], [[1]])
    assert opened.take() == ["inferred", "inferred"]


def test_a_source_whose_options_make_its_schema_is_read_as_before(attempts: Attempts, tmp_path: Path) -> None:
    """Spark refuses any other schema beside such an option, so the look at the files must not be what fails."""
    path = file(tmp_path / "a.json", '{"a": 1}\n')
    source = {"id": "s", "source": {"format": "json", "path": path, "options": {"singleVariantColumn": "v"}}}
    query = {"id": "q", "sql": "SELECT variant_get(v, '$.a', 'int') AS a FROM s", "inputs": {"s": {"edge": "chained"}}}
    for _ in range(2):
        assert attempts.rows(source, query) == [[1]]


SOURCE = "SELECT id AS k, CAST(id AS STRING) AS t, id * 2 AS n FROM range(9)"


@pytest.fixture
def analysed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queries that Spark is asked about."""
    asked: list[str] = []
    really = vertices.Chain.sql

    def sql(chain: vertices.Chain, text: str, inputs: dict[str, Any]) -> Any:
        asked.append(text)
        return really(chain, text, inputs)

    monkeypatch.setattr(vertices.Chain, "sql", sql)
    return asked


def query(text: str, *inputs: str, keys: list[str] | None = None, name: str = "q", **fields: Any) -> dict[str, Any]:
    edges = {alias: {"edge": "chained", "keys": keys} for alias in inputs} if keys else chained(*inputs)
    return {"id": name, "sql": text, "inputs": edges, "parallelism": 2, **fields}


def test_a_query_is_planned_once(attempts: Attempts, analysed: list[str]) -> None:
    graph = [
        query(SOURCE, name="a"),
        query("SELECT k, n + 1 AS m FROM a", "a", name="b"),
        query("SELECT a.k, b.m FROM a JOIN b ON a.k = b.k WHERE b.m > 3", "a", "b", keys=["k"]),
    ]
    first = attempts.run(*graph, kind="plan")
    assert len(analysed) == 3
    assert first["key_types"] == {"q": ["BIGINT"]} and first["pinned"]["b"]["filter"] and first["pinned"]["a"]["columns"] == ["k", "n"]
    again = attempts.run(*graph, kind="plan")
    assert len(analysed) == 3
    assert {**again, "spent": None} == {**first, "spent": None}


@pytest.mark.parametrize("change", ["text", "columns of the input", "keys", "parallelism", "setting", "time zone", "what is found out"])
def test_a_changed_query_is_planned_again(
    attempts: Attempts, analysed: list[str], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    graph = [query(SOURCE, name="a"), query("SELECT max(k) AS m FROM a", "a", keys=["k"])]
    attempts.run(*graph, kind="plan")
    fields: dict[str, Any] = {}
    if change == "text":
        graph[1]["sql"] = "SELECT min(k) AS m FROM a"
    elif change == "columns of the input":
        graph[0]["sql"] = SOURCE.replace("id AS k", "CAST(id AS INT) AS k")
    elif change == "keys":
        graph[1]["inputs"] = {"a": {"edge": "chained", "keys": ["t"]}}
    elif change == "parallelism":
        graph[1]["parallelism"] = 3
    elif change == "setting":
        fields["conf"] = {"spark.sql.ansi.enabled": "false"}
    elif change == "time zone":  # of the machine, where no setting names one
        fresh = attempts.spark.newSession

        def in_tokyo() -> Any:
            session = fresh()
            session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
            return session

        monkeypatch.setattr(attempts.spark, "newSession", in_tokyo)
    else:
        monkeypatch.setattr(findings, "QUERIES", -1)
    attempts.run(*graph, kind="plan", **fields)
    assert analysed.count(graph[1]["sql"]) == (1 if change == "text" else 2)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM parquet.`{}`",
        "SELECT k FROM a WHERE k IN (SELECT k FROM parquet.`{}`)",
        "WITH c AS (SELECT k FROM parquet.`{}`) SELECT c.k FROM a JOIN c ON a.k = c.k",
        "SELECT 1 AS k FROM parquet.`{}` WHERE false",
    ],
)
def test_a_query_of_more_than_its_inputs_is_planned_each_time(
    attempts: Attempts, analysed: list[str], tmp_path: Path, spark: Any, text: str
) -> None:
    spark.range(3).selectExpr("id AS k").write.parquet(str(tmp_path / "in"))
    graph = [query(SOURCE, name="a"), query(text.format(tmp_path / "in"), "a")]
    for _ in range(2):
        attempts.run(*graph, kind="plan")
    assert analysed == [SOURCE, graph[1]["sql"], graph[1]["sql"]]


@pytest.mark.parametrize("more", ["a catalog", "a jar"])
def test_a_query_that_may_name_more_than_spark_knows_is_planned_each_time(
    attempts: Attempts, analysed: list[str], monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    """A view or a function of a catalog changes without any word of ours, and so does what a jar brings."""
    fields: dict[str, Any] = {"modules": [attempts.module("a.jar", "", "jar")]}
    if more == "a catalog":
        fields = {}
        really = findings.Findings._jvm_settings
        hive = "spark.sql.catalogImplementation=hive"
        monkeypatch.setattr(findings.Findings, "_jvm_settings", lambda kept, session: [*really(kept, session), hive])
    for _ in range(2):
        attempts.run(query(SOURCE), kind="plan", **fields)
    assert len(analysed) == 2


def test_a_query_after_user_code_is_planned_each_time(attempts: Attempts, analysed: list[str]) -> None:
    modules = [attempts.module("m.py", "def f(spark): return spark.range(1)")]
    graph = [{"id": "p", "python": "m:f"}, query("SELECT id FROM p", "p")]
    for _ in range(2):
        attempts.run(*graph, kind="plan", modules=modules)
    assert analysed == ["SELECT id FROM p"] * 2


@pytest.mark.parametrize(
    "written", ["", "[]", '{"schema": "s"}', '{"schema": 1, "key_types": null, "taken": {}}',
                '{"schema": "s", "key_types": [1], "taken": {}}', '{"schema": "s", "key_types": null, "taken": {"a": {"columns": "k"}}}',
                '{"schema": "s", "key_types": null, "taken": {"a": {"columns": ["k"], "filters": [1]}}}',
                '{"schema": "no schema", "key_types": null, "taken": {}}'],
)  # fmt: skip
def test_a_finding_that_is_no_query_is_not_there(attempts: Attempts, analysed: list[str], written: str) -> None:
    first = attempts.run(query(SOURCE), kind="plan")
    (kept,) = attempts.findings.iterdir()
    kept.write_text(written)
    assert attempts.run(query(SOURCE), kind="plan")["schemas"] == first["schemas"]
    assert len(analysed) == 2
