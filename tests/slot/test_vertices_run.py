"""Vertices of an attempt on a real Spark: what each kind sees, gives and refuses."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millrace.core.jobgraph.model import Limits
from services.task_manager.slot.attempt import run as attempt_run
from tests.slot.attempts import Attempts, chained
from tests.slot.lifecycle import SPENT


def sql(name: str, text: str, *inputs: str) -> dict[str, Any]:
    return {"id": name, "sql": text, "inputs": chained(*inputs)}


def python(name: str, function: str, *inputs: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "python": function, "inputs": chained(*inputs), **fields}


def test_a_trivial_query(attempts: Attempts) -> None:
    report = attempts.run(sql("one", "SELECT 1 AS a"), outputs=[{"vertex": "one", "edge": "result", "rows": 10}])
    schema = report["outputs"]["one"].pop("schema")
    assert json.loads(schema)["fields"] == [{"name": "a", "type": "integer", "nullable": False, "metadata": {}}]
    assert report.pop("spent").keys() == SPENT
    assert report == {
        "outputs": {"one": {"rows": 1, "bytes": None}},
        "result": {"columns": ["a"], "types": ["int"], "rows": [[1]], "truncated": False},
    }


def test_a_chain_of_all_kinds(attempts: Attempts, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("k,v\na,1\nb,2\na,3\n")
    modules = [
        attempts.module(
            "mine.py",
            "def double(sums, parameters):\n    return sums.selectExpr('k', f\"s * {parameters['by']} AS s\")\n",
        )
    ]
    report = attempts.run(
        {"id": "src", "source": {"format": "csv", "path": str(tmp_path / "in.csv"), "options": {"header": True}}},
        sql("sums", "SELECT k, CAST(sum(v) AS INT) AS s FROM src GROUP BY k ORDER BY k", "src"),
        python("doubled", "mine:double", "sums", schema="k STRING, s INT"),
        {"id": "out", "sink": {"format": "json", "path": "unused", "options": {}}, "inputs": chained("doubled")},
        outputs=[
            {"vertex": "doubled", "edge": "result", "rows": 1},
            {"vertex": "out", "edge": "sink", "folder": str(tmp_path / "staged")},
        ],
        modules=modules,
        parameters={"by": 10},
    )
    assert report["result"] == {
        "columns": ["k", "s"],
        "types": ["string", "int"],
        "rows": [["a", 40]],
        "truncated": True,
    }
    lines = [line for file in sorted((tmp_path / "staged").glob("*.json")) for line in file.read_text().splitlines()]
    assert sorted(lines) == ['{"k":"a","s":40}', '{"k":"b","s":20}']
    assert not (tmp_path / "staged" / "_SUCCESS").exists()
    assert report["outputs"]["out"]["bytes"] == sum(len(line) + 1 for line in lines)


def test_sql_sees_exactly_its_inputs(attempts: Attempts) -> None:
    first = sql("first", "SELECT 1 AS a")
    second = sql("second", "SELECT 2 AS a")
    assert attempts.rows(
        first, second, sql("both", "SELECT f.a, s.a FROM first f JOIN second s", "first", "second")
    ) == [[1, 2]]
    error = attempts.fail(
        first,
        second,
        sql("bad", "SELECT *\nFROM first", "second"),
        outputs=[{"vertex": "bad", "edge": "result", "rows": 1}],
    )
    assert (error["kind"], error["retryable"], error["condition"]) == ("analysis", False, "TABLE_OR_VIEW_NOT_FOUND")
    assert (error["vertex"], error["line"], error["column"], error["file"]) == ("bad", 2, 6, None)
    assert error["message"] == "The table or view `first` cannot be found. Vertex 'bad' sees its inputs: second"


def test_sql_does_not_see_views_of_python(attempts: Attempts) -> None:
    modules = [attempts.module("views.py", "def f(a):\n    a.createOrReplaceTempView('leak')\n    return a\n")]
    error = attempts.fail(
        sql("a", "SELECT 1 AS x"), python("p", "views:f", "a"), sql("q", "SELECT * FROM leak", "p"), modules=modules,
        outputs=[{"vertex": "q", "edge": "result", "rows": 1}],
    )  # fmt: skip
    assert error["condition"] == "TABLE_OR_VIEW_NOT_FOUND"


def test_as_many_vertices_in_a_chain_as_a_graph_may_have(attempts: Attempts) -> None:
    chain = [sql(f"v{n}", f"SELECT a + 1 AS a FROM v{n - 1}", f"v{n - 1}") for n in range(1, Limits().vertices)]
    assert attempts.rows(sql("v0", "SELECT 1 AS a"), *chain) == [[200]]


def test_a_dollar_in_a_query_is_text(attempts: Attempts) -> None:
    assert attempts.rows(sql("q", "SELECT '${spark.app.id} ${x} ${env:HOME}' AS a")) == [["${spark.app.id} ${x} ${env:HOME}"]]


def test_views_and_columns_of_any_name(attempts: Attempts) -> None:
    rows = attempts.rows(
        sql("select", "SELECT 1 AS `a b.c`"), sql("q", "SELECT `select`.`a b.c` + 1 FROM `select`", "select")
    )
    assert rows == [[2]]


BINDING = """
def named(right, left): return left.selectExpr("x AS l").join(right.selectExpr("x AS r"))
def mixed(other, left): return left.selectExpr("x AS l").join(other.selectExpr("x AS r"))
def several(*frames): return frames[0].selectExpr("x AS l").join(frames[1].selectExpr("x AS r"))
def keywords(n=2, **frames): return frames["left"].selectExpr("x AS l").join(frames["right"].selectExpr("x AS r"))
def with_spark(left, right, spark, parameters): return spark.sql(f"SELECT 1 AS l, {parameters['n']} AS r")
def defaults(left, right=None, n=2): return left.selectExpr("x AS l", f"{n} AS r")
"""


@pytest.mark.parametrize("name", ["named", "mixed", "several", "keywords", "with_spark", "defaults"])
def test_how_a_function_gets_its_inputs(attempts: Attempts, name: str) -> None:
    modules = [attempts.module("binding.py", BINDING)]
    left, right = sql("left", "SELECT 1 AS x"), sql("right", "SELECT 2 AS x")
    vertices = (left, right, python("p", f"binding:{name}", "left", "right"))
    assert attempts.rows(*vertices, modules=modules, parameters={"n": 2}) == [[1, 2]]


@pytest.mark.parametrize(
    ("code", "condition", "message"),
    [
        ("def f(): pass", "WRONG_PARAMETERS", "no parameter for a"),
        ("def f(a, b): pass", "WRONG_PARAMETERS", "nothing for b"),
        ("def f(a): pass", "NOT_A_DATAFRAME", "m:f returned nothing; it must return a Spark DataFrame"),
        ("def f(a): return a.toPandas()", "NOT_A_DATAFRAME", "DataFrame; it must return a Spark DataFrame; spark.createDataFrame"),
        ("def g(a): pass", "FUNCTION_NOT_FOUND", "Module m has no function f; it has: g"),
        ("def f(a): return a.selectExpr('x AS z')", "SCHEMA_NOT_AS_DECLARED", "returned (z int); 'p' declares (x int)"),
    ],
)  # fmt: skip
def test_a_function_that_does_not_fit(attempts: Attempts, code: str, condition: str, message: str) -> None:
    error = attempts.fail(
        sql("a", "SELECT 1 AS x"), python("p", "m:f", "a", schema="x INT"), modules=[attempts.module("m.py", code)]
    )
    assert (error["condition"], error["kind"], error["vertex"]) == (condition, error["kind"], "p")
    assert message in error["message"]


@pytest.mark.parametrize("function", ["def f(one, two): return one", "def f(left, one=None, two=None): return left"])
def test_several_inputs_are_never_given_to_other_names_by_their_order(attempts: Attempts, function: str) -> None:
    inputs = [sql(name, "SELECT 1 AS x") for name in ("left", "right", "third")]
    error = attempts.fail(*inputs, python("p", "m:f", "left", "right", "third"), modules=[attempts.module("m.py", function)])
    assert error["condition"] == "WRONG_PARAMETERS"
    assert "parameters are named as the inputs are" in error["message"]


def test_a_udf_finds_modules_of_the_job_in_the_workers(attempts: Attempts) -> None:
    helper = attempts.module("helper_of_job.py", "def up(x): return x.upper()\n")
    code = (
        "import helper_of_job\nfrom pyspark.sql.functions import udf\n"
        "def f(a): return a.select(udf(helper_of_job.up)('x').alias('x'))\n"
    )
    assert attempts.rows(
        sql("a", "SELECT 'abc' AS x"), python("p", "uses:f", "a"), modules=[helper, attempts.module("uses.py", code)]
    ) == [["ABC"]]


def test_zipped_modules_and_files(attempts: Attempts, tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "lib.whl", "w") as archive:
        archive.writestr("packed/__init__.py", "")
        archive.writestr("packed/deep.py", "def plus(x): return x + 1\n")
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        archive.writestr("inner.txt", "7")
    code = (
        "from packed.deep import plus\nfrom pyspark.sql.functions import udf\n"
        "def f(a):\n    n = int(open('n.txt').read()) + int(open('data.zip/inner.txt').read())\n"
        "    return a.select(udf(plus, 'int')('x').alias('x')).selectExpr(f'x + {n}')\n"
    )
    modules = [
        attempts.module("lib.whl", (tmp_path / "lib.whl").read_bytes()),
        attempts.module("data.zip", (tmp_path / "data.zip").read_bytes(), "archive"),
        attempts.module("n.txt", "100", "file"),
        attempts.module("m.py", code),
    ]
    assert attempts.rows(sql("a", "SELECT 1 AS x"), python("p", "m:f", "a"), modules=modules) == [[109]]


def test_a_module_that_did_not_arrive(attempts: Attempts) -> None:
    error = attempts.fail(modules=[{"name": "x.py", "sha256": "0" * 64, "kind": "py"}])
    assert (error["kind"], error["retryable"], error["condition"]) == ("infrastructure", True, "MODULE_MISSING")


def test_several_outputs_of_a_vertex_compute_it_once(attempts: Attempts, tmp_path: Path) -> None:
    code = (
        "import os, pathlib\nfrom pyspark.sql.functions import udf\n"
        f"MARK = {str(tmp_path / 'marks')!r}\n"
        "def seen(x):\n    open(MARK, 'a').write(f'{x}\\n')\n    return x\n"
        "def f(a): return a.select(udf(seen, 'long')('id').alias('x'))\n"
    )
    report = attempts.run(
        sql("a", "SELECT id FROM range(0, 6, 1, 2)"),
        python("p", "counting:f", "a"),
        sql("q", "SELECT sum(x) AS s FROM p", "p"),
        outputs=[
            {"vertex": "p", "edge": "broadcast", "folder": str(tmp_path / "b")},
            {
                "vertex": "p",
                "edge": "hash",
                "keys": ["x"],
                "key_types": None,
                "shares": 2,
                "folder": str(tmp_path / "h"),
            },
            {"vertex": "p", "edge": "result", "rows": 3},
            {"vertex": "q", "edge": "broadcast", "folder": str(tmp_path / "q")},
        ],
        modules=[attempts.module("counting.py", code)],
    )
    assert sorted((tmp_path / "marks").read_text().split()) == ["0", "1", "2", "3", "4", "5"]
    assert report["result"]["truncated"] and len(report["result"]["rows"]) == 3
    assert attempts.spark.read.parquet(str(tmp_path / "q")).collect()[0][0] == 15
    assert attempts.spark._jsparkSession.sharedState().cacheManager().isEmpty()


SCRIPT = """
import sys, os
from pyspark.sql import SparkSession
import beside
spark = SparkSession.builder.appName("script").config("spark.sql.shuffle.partitions", 3).getOrCreate()
if __name__ == "__main__":
    assert sys.path[0] == os.path.dirname(os.path.abspath(__file__))
    spark.createDataFrame([(a,) for a in sys.argv[1:]], "x STRING").write.text(beside.TARGET)
    assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    sys.exit(0)
"""


def test_a_script_runs_as_spark_submit_runs_it(attempts: Attempts, tmp_path: Path) -> None:
    modules = [
        attempts.module("etl.py", SCRIPT, "file"),
        attempts.module("beside.py", f"TARGET = {str(tmp_path / 'out')!r}\n"),
    ]
    report = attempts.run(
        {"id": "main", "spark_app": {"script": "etl.py", "args": ["one", 2]}},
        outputs=[{"vertex": "main", "edge": "result", "rows": 5}],
        modules=modules,
    )
    assert report.pop("spent").keys() == SPENT
    assert report == {"outputs": {}, "result": None}
    assert sorted(row[0] for row in attempts.spark.read.text(str(tmp_path / "out")).collect()) == ["2", "one"]


def test_a_script_that_is_not_there(attempts: Attempts) -> None:
    error = attempts.fail({"id": "main", "spark_app": {"script": "etl.py"}})
    assert error["condition"] == "SCRIPT_NOT_FOUND" and "'etl.py'" in error["message"]


def test_settings_reach_every_vertex(attempts: Attempts) -> None:
    modules = [attempts.module("tz.py", "def f(spark): return spark.sql('SELECT current_timezone()')\n")]
    conf = {"spark.sql.session.timeZone": "Asia/Tokyo", "spark.sql.shuffle.partitions": "7"}
    assert attempts.rows(sql("q", "SELECT current_timezone()"), conf=conf) == [["Asia/Tokyo"]]
    assert attempts.rows(python("p", "tz:f"), conf=conf, modules=modules) == [["Asia/Tokyo"]]
    error = attempts.fail(sql("q", "SELECT 1"), conf={"spark.master": "local-cluster[2,1,512]"})
    assert (error["condition"], error["kind"]) == ("CONF_REFUSED", "user") and "spark.master" in error["message"]


@pytest.mark.parametrize(("master", "size", "partitions"), [
    ("local[2]", None, "4"), ("spark://h:7077", None, None), ("spark://h:7077", 9 << 20, "4"), ("spark://h:7077", 1 << 30, "64"),
])  # fmt: skip
def test_executors_that_are_yet_to_come_are_not_taken_for_few_cores(master: str, size: int | None, partitions: str | None) -> None:
    """A script of a job with a master and dynamic allocation had 4 partitions for any number of executors."""
    session = SimpleNamespace(sparkContext=SimpleNamespace(master=master, defaultParallelism=2))
    sizing = attempt_run._sizing(session, size)
    assert sizing.get("spark.sql.shuffle.partitions") == partitions and sizing["spark.sql.adaptive.enabled"] == "true"


@pytest.mark.parametrize(("slot", "job", "set_for_it"), [
    ({}, {}, {"partitions": "1", "enabled": "false"}),
    ({"spark.sql.shuffle.partitions": "50"}, {}, {"enabled": "false"}),
    ({"spark.sql.adaptive.enabled": "true"}, {"spark.sql.shuffle.partitions": "3"}, {}),
])  # fmt: skip
def test_what_the_settings_of_the_slot_say_stands(slot: dict[str, str], job: dict[str, str], set_for_it: dict[str, str]) -> None:
    """It was the operator's, and a figure by the size of the data took its place."""
    done: list[tuple[str, str]] = []
    context = SimpleNamespace(_conf=SimpleNamespace(contains=slot.__contains__), master="local[2]", defaultParallelism=2)
    session = SimpleNamespace(sparkContext=context, conf=SimpleNamespace(set=lambda key, value: done.append((key.split(".")[-1], value))))
    spec: Any = {"conf": job}
    attempt_run._apply(attempt_run._sizing(session, 1), spec, [session])
    assert dict(done) == set_for_it


def test_partitions_follow_the_size_of_the_input(attempts: Attempts, tmp_path: Path) -> None:
    """Little: one partition; much: enough for all cores; what the job sets itself stays."""
    code = (
        "def f(src, spark):\n    g = src.groupBy('v').count()\n"
        "    return spark.sql(f\"SELECT '{spark.conf.get('spark.sql.adaptive.enabled')}' AS a,"
        ' {g.rdd.getNumPartitions()} AS n")\n'
    )
    (tmp_path / "in.txt").write_text("1\n2\n3\n")
    report = attempts.run(
        sql("src", "SELECT 1 AS v"), outputs=[{"vertex": "src", "edge": "broadcast", "folder": str(tmp_path / "b")}]
    )
    edge = {"edge": "broadcast", "folders": [str(tmp_path / "b")], "schema": report["outputs"]["src"]["schema"]}
    function = {"id": "p", "python": "m:f", "inputs": {"src": edge}}
    modules = [attempts.module("m.py", code)]
    assert attempts.rows(function, modules=modules) == [["false", 1]]
    conf = {"spark.sql.shuffle.partitions": "5"}
    assert attempts.rows(function, modules=modules, conf=conf) == [["false", 5]]
    # Who opens a source does not know before how much there is: adaptive execution.
    source = {"id": "src", "source": {"format": "text", "path": str(tmp_path / "in.txt")}}
    renamed = sql("renamed", "SELECT value AS v FROM src", "src")
    assert attempts.rows(source, {**renamed, "id": "src2"}, python("p", "m2:f", "src2"), modules=[
        attempts.module("m2.py", code.replace("src", "src2"))])[0][0] == "true"  # fmt: skip
