"""Errors of attempts as a user reads them: one cause, and where it is."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from millrace.edge.spark_conf import PACKAGES
from services.task_manager.slot.attempt import errors, udfs
from services.task_manager.slot.common import faults
from tests.slot.attempts import Attempts, chained


def sql(name: str, text: str, *inputs: str) -> dict[str, Any]:
    return {"id": name, "sql": text, "inputs": chained(*inputs)}


def shown(vertex: str) -> list[dict[str, Any]]:
    return [{"vertex": vertex, "edge": "result", "rows": 10}]


def picked(error: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(error[name] for name in names)


KIND = ("kind", "retryable", "condition")
PLACE = ("vertex", "file", "line", "column")


def test_a_column_that_is_not_there(attempts: Attempts) -> None:
    error = attempts.fail(sql("a", "SELECT 1 AS x"), sql("q", "SELECT x,\n       y FROM a", "a"), outputs=shown("q"))
    assert picked(error, *KIND) == ("analysis", False, "UNRESOLVED_COLUMN.WITH_SUGGESTION")
    assert picked(error, *PLACE) == ("q", None, 2, 8)
    assert error["message"] == (
        "A column, variable, or function parameter with name `y` cannot be resolved. Did you mean one of the following? [`x`]."
    )


def test_sql_that_does_not_parse(attempts: Attempts) -> None:
    error = attempts.fail(sql("q", "SELECT 1 +\n* frm x"), outputs=shown("q"))
    assert picked(error, *KIND) == ("analysis", False, "PARSE_SYNTAX_ERROR")
    assert picked(error, *PLACE) == ("q", None, 2, 7)
    assert error["message"] == "Syntax error at or near 'x': extra input 'x'."


def test_a_row_that_fails_in_the_middle_of_a_chain(attempts: Attempts) -> None:
    """The error comes when the last vertex is computed; its place is the vertex that divides."""
    vertices = (
        sql("numbers", "SELECT id FROM range(3)"),
        sql("divided", "SELECT id,\n  1 / id AS d FROM numbers", "numbers"),
        sql("summed", "SELECT sum(d) AS s FROM divided", "divided"),
    )
    error = attempts.fail(*vertices, outputs=shown("summed"))
    assert picked(error, *KIND) == ("user", False, "DIVIDE_BY_ZERO")
    assert picked(error, *PLACE) == ("divided", None, 2, 3)
    assert error["message"].startswith("Division by zero. Use `try_divide`") and "SQLSTATE" not in error["message"]


def test_a_function_that_raises(attempts: Attempts) -> None:
    code = "def helper(x):\n    raise ValueError('no ' + x)\n\ndef f(a):\n    return helper('way')\n"
    error = attempts.fail(
        sql("a", "SELECT 1"), {"id": "p", "python": "mine:f", "inputs": chained("a")},
        modules=[attempts.module("mine.py", code)], outputs=shown("p"),
    )  # fmt: skip
    assert picked(error, *KIND) == ("user", False, "ValueError")
    assert picked(error, *PLACE) == ("p", "mine.py", 2, None)
    assert picked(error, "message", "frame") == ("ValueError: no way", "mine.py:2 in helper")
    assert "Traceback" in error["detail"] and "raise ValueError" in error["detail"]


def test_the_last_frame_is_the_users_not_the_librarys(attempts: Attempts) -> None:
    code = "import json\ndef f():\n    return json.loads('{')\n"
    error = attempts.fail({"id": "p", "python": "mine:f"}, modules=[attempts.module("mine.py", code)])
    assert picked(error, "condition", "frame") == ("JSONDecodeError", "mine.py:3 in f")


def test_a_udf_that_raises_in_a_worker(attempts: Attempts) -> None:
    code = (
        "from pyspark.sql.functions import udf\n"
        "def deep(x):\n    return {}[x]\n"
        "def bad(x):\n    return deep(x)\n"
        "def f(a): return a.select(udf(bad, 'int')('x').alias('y'))\n"
    )
    error = attempts.fail(
        sql("a", "SELECT 7 AS x"), {"id": "p", "python": "mine:f", "inputs": chained("a")},
        sql("q", "SELECT y + 1 FROM p", "p"), modules=[attempts.module("mine.py", code)], outputs=shown("q"),
    )  # fmt: skip
    assert picked(error, *KIND) == ("user", False, "KeyError")
    assert picked(error, *PLACE) == ("p", "mine.py", 3, None)
    assert picked(error, "message", "frame") == ("KeyError: 7", "mine.py:3 in deep (in a Python worker)")


def test_a_pandas_udf_and_an_rdd_that_raise_in_a_worker(attempts: Attempts) -> None:
    code = (
        "import pandas as pd\nfrom pyspark.sql.functions import pandas_udf\n"
        "@pandas_udf('long')\ndef up(s: pd.Series) -> pd.Series:\n    raise RuntimeError('first\\nsecond')\n"
        "def frames(): \n    from pyspark.sql import SparkSession\n"
        "    return SparkSession.builder.getOrCreate().range(3).select(up('id'))\n"
        "def rdd(spark):\n    return spark.sparkContext.parallelize([1]).map(lambda x: 1 / 0).toDF()\n"
    )
    modules = [attempts.module("mine.py", code)]
    error = attempts.fail({"id": "p", "python": "mine:frames"}, modules=modules, outputs=shown("p"))
    assert picked(error, "kind", "message", "file", "line") == ("user", "RuntimeError: first\nsecond", "mine.py", 5)
    error = attempts.fail({"id": "p", "python": "mine:rdd"}, modules=modules, outputs=shown("p"))
    assert picked(error, "kind", "message", "file", "line") == (
        "user",
        "ZeroDivisionError: division by zero",
        "mine.py",
        10,
    )


def test_a_dataframe_expression_that_fails_later(attempts: Attempts) -> None:
    code = "from pyspark.sql.functions import col\ndef f(a):\n    return a.select(\n        col('x') / 0)\n"
    error = attempts.fail(
        sql("a", "SELECT 7 AS x"), {"id": "p", "python": "mine:f", "inputs": chained("a")},
        sql("q", "SELECT * FROM p", "p"), modules=[attempts.module("mine.py", code)], outputs=shown("q"),
    )  # fmt: skip
    assert picked(error, *KIND) == ("user", False, "DIVIDE_BY_ZERO")
    assert picked(error, *PLACE) == ("p", "mine.py", 4, None)


def test_an_analysis_error_in_python(attempts: Attempts) -> None:
    code = "def f(a, spark):\n    spark.sql('SELECT 1')\n    return a.select('nope')\n"
    error = attempts.fail(
        sql("a", "SELECT 7 AS x"), {"id": "p", "python": "mine:f", "inputs": chained("a")},
        modules=[attempts.module("mine.py", code)],
    )  # fmt: skip
    assert picked(error, *KIND) == ("analysis", False, "UNRESOLVED_COLUMN.WITH_SUGGESTION")
    assert picked(error, *PLACE) == ("p", "mine.py", 3, None)


def test_missing_paths(attempts: Attempts, tmp_path: Path) -> None:
    source = {"id": "src", "source": {"format": "csv", "path": f"{tmp_path.parent}/nope.csv"}}
    error = attempts.fail(source, outputs=shown("src"))
    assert picked(error, *KIND) == ("missing_path", False, "PATH_NOT_FOUND")
    assert picked(error, "vertex", "message") == ("src", f"Path does not exist: file:{tmp_path.parent}/nope.csv.")
    error = attempts.fail(source, outputs=shown("src"), conf={"spark.master": "spark://host:7077"})
    assert "nope.csv. Executors of spark://host:7077 must see it, too: " in error["message"].replace("..", ".")
    modules = [
        attempts.module(
            "mine.py", f"def f(spark):\n    print(spark.sparkContext.textFile('{tmp_path.parent}/none').count())\n"
        )
    ]
    error = attempts.fail({"id": "p", "python": "mine:f"}, modules=modules)
    assert picked(error, "kind", "retryable", "vertex", "line") == ("missing_path", False, "p", 2)
    assert error["message"] == f"Input path does not exist: file:{tmp_path.parent}/none"


def test_a_file_that_goes_away_while_it_is_read(attempts: Attempts, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x\n")
    code = "import os\ndef f(src):\n    os.unlink(src.inputFiles()[0][7:])\n    return src\n"
    source = {"id": "src", "source": {"format": "text", "path": str(tmp_path / "a.txt")}}
    function = {"id": "p", "python": "mine:f", "inputs": chained("src")}
    error = attempts.fail(source, function, modules=[attempts.module("mine.py", code)], outputs=shown("p"))
    assert picked(error, *KIND) == ("missing_path", False, "FAILED_READ_FILE.FILE_NOT_EXIST")


def test_a_value_of_two_lines_does_not_cut_the_cause(attempts: Attempts) -> None:
    text = "concat('12', chr(10), 'pieces', repeat('!', 300))"
    error = attempts.fail(sql("q", f"SELECT CAST({text} AS BIGINT) AS n"), outputs=shown("q"))
    assert picked(error, "condition", "vertex", "line", "column") == ("CAST_INVALID_INPUT", "q", 1, 8)
    assert error["message"].startswith("The value '12\\npieces!!!") and "... " not in error["message"]
    assert "(311 characters) of the type \"STRING\" cannot be cast to \"BIGINT\" because it is malformed." in error["message"]
    assert len(error["message"]) < 500 and "\n" not in error["message"]


UDF = (
    "from decimal import Decimal; from pyspark.sql.functions import udf\n\ndef g(x):\n    return {}\n"
    "def f(a):\n    return a.select(udf(g, '{}')('x').alias('y'))\n"
)


@pytest.mark.parametrize(
    ("value", "declared", "message"),
    [
        ("'0 euros'", "decimal(5,2)", "TypeError: g returned '0 euros', of type str, which is no decimal(5,2), the type that it declares"),
        (
            "Decimal('123456.78')", "decimal(5,2)",
            "TypeError: g returned 123456.78, which is too large for decimal(5,2), the type that it declares",
        ),
        ("'z'", "int", "what a function returned cannot be made the type that it declares: g (int); Spark says "),
        ("'zz'", "struct<a:int>", "what a function returned cannot be made the type that it declares: g (struct<a:int>); Spark says A"),
        ("[Decimal('1e9')]", "array<decimal(5,2)>", "what a function returned cannot be made the type that it declares: g (array<decimal"),
    ],
)  # fmt: skip
def test_what_a_udf_returned_is_blamed_on_the_udf(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch, value: str, declared: str, message: str
) -> None:
    """Whose the rows are is a later vertex; the worker's traceback has no frame of the user's."""
    monkeypatch.setattr(udfs, "DECLARED", [])
    error = attempts.fail(
        sql("a", "SELECT 7 AS x"), {"id": "p", "python": "mine:f", "inputs": chained("a")}, sql("out", "SELECT * FROM p", "p"),
        modules=[attempts.module("mine.py", UDF.format(value, declared))], outputs=shown("out"),
    )  # fmt: skip
    assert error["message"].startswith(message), error["message"]
    assert picked(error, "kind", *PLACE) == ("user", "p", "mine.py", 3, None)
    assert error["frame"] == "mine.py:3 in g (in a Python worker)"


def test_decimals_that_fit_are_left_as_they_are(attempts: Attempts) -> None:
    values = "[Decimal('999.99'), Decimal('-0.001'), Decimal(0), None, Decimal('NaN')][x]"
    rows = attempts.rows(
        sql("a", "SELECT id AS x FROM range(5)"), {"id": "p", "python": "mine:f", "inputs": chained("a")},
        sql("out", "SELECT CAST(y AS STRING) FROM p", "p"), modules=[attempts.module("mine.py", UDF.format(values, "decimal(5,2)"))],
    )  # fmt: skip
    assert rows == [["999.99"], ["0.00"], ["0.00"], [None], [None]]


def test_a_relative_path_that_is_not_there_says_where_it_starts(attempts: Attempts, tmp_path: Path) -> None:
    folder = attempts.folder
    for path, written in ((f"{folder}/attempt-1/in.csv", "in.csv"), (f"{folder}/proj/in.csv", "../proj/in.csv")):
        error = attempts.fail({"id": "src", "source": {"format": "csv", "path": path}}, outputs=shown("src"))
        assert picked(error, "kind", "message") == ("missing_path", f"Path does not exist: {written}. {errors.RELATIVE}")
    error = attempts.fail(
        {"id": "main", "spark_app": {"script": "etl.py"}}, modules=[attempts.module("etl.py", "open('data/in.csv')\n", "file")]
    )
    assert error["message"] == f"FileNotFoundError: [Errno 2] No such file or directory: 'data/in.csv'. {errors.RELATIVE}"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ({"format": "parquet", "path": "s3a://b/x"}, "s3a"),
        ({"format": "iceberg", "path": "/w/x"}, "iceberg"),
        ({"format": "avro", "path": "/x"}, "avro"),
    ],
)
def test_a_source_without_its_package_names_the_package_and_is_not_tried_again(
    attempts: Attempts, source: dict[str, str], name: str
) -> None:
    error = attempts.fail({"id": "src", "source": source}, outputs=shown("src"))
    assert picked(error, "retryable", "vertex") == (False, "src")
    assert f"spark.jars.packages: {PACKAGES[name]}" in error["message"], error


def test_an_error_in_a_query_tells_the_line_of_the_users_file(attempts: Attempts) -> None:
    vertices = (sql("a", "SELECT 1 AS x"), sql("q", "SELECT x,\n       y FROM a", "a"))
    standing = {"file": "flow.yaml", "line": 12, "indent": 6}
    error = attempts.fail(*vertices, outputs=shown("q"), sources={"q": standing})
    assert picked(error, *PLACE) == ("q", "flow.yaml", 13, 14)
    error = attempts.fail(*vertices, outputs=shown("q"), sources={"q": {**standing, "indent": None}})
    assert picked(error, *PLACE) == ("q", "flow.yaml", 12, None)


def test_modules_that_cannot_be_imported(attempts: Attempts) -> None:
    vertex = {"id": "p", "python": "mine:f"}
    error = attempts.fail(vertex, modules=[attempts.module("mine.py", "import os\ndef f(:\n")])
    assert picked(error, *KIND) == ("user", False, "SyntaxError")
    assert picked(error, "vertex", "file", "line") == ("p", "mine.py", 2)
    error = attempts.fail(vertex, modules=[attempts.module("mine.py", "\nimport not_there_at_all\n")])
    assert picked(error, "condition", "file", "line") == ("ModuleNotFoundError", "mine.py", 2)
    error = attempts.fail(vertex)
    assert picked(error, "condition", "message", "vertex") == (
        "ModuleNotFoundError",
        "ModuleNotFoundError: No module named 'mine'",
        "p",
    )


@pytest.mark.parametrize(
    ("code", "kind", "message", "line"),
    [
        ("import sys\n\nsys.exit(3)\n", "exit", "The user's code called sys.exit(3)", 3),
        ("raise SystemExit('no input')\n", "exit", "The user's code called sys.exit: no input", 1),
        ("def f():\n    raise OSError(2, 'gone')\nf()\n", "user", "FileNotFoundError: [Errno 2] gone", 2),
    ],
)
def test_scripts_that_fail(attempts: Attempts, code: str, kind: str, message: str, line: int) -> None:
    modules = [attempts.module("etl.py", code, "file")]
    error = attempts.fail({"id": "main", "spark_app": {"script": "etl.py"}}, modules=modules)
    assert picked(error, "kind", "message", "vertex", "file", "line", "retryable") == (
        kind,
        message,
        "main",
        "etl.py",
        line,
        kind != "exit",
    )
    assert error.get("exit_code") == {3: 3, 1: 1, 2: None}[line]


def test_a_jvm_that_is_out_of_memory(attempts: Attempts) -> None:
    modules = [
        attempts.module(
            "mine.py",
            "def f(spark):\n    spark._jvm.java.lang.reflect.Array.newInstance(spark._jvm.java.lang.Object().getClass(), 2**31 - 1)\n",
        )
    ]
    error = attempts.fail({"id": "p", "python": "mine:f"}, modules=modules)
    assert picked(error, *KIND) == ("jvm", True, "OUT_OF_MEMORY")
    assert picked(error, "vertex", "line") == ("p", 2)
    assert error["message"].startswith("The JVM of the slot is out of memory: ")


def test_an_exception_of_java(attempts: Attempts) -> None:
    modules = [attempts.module("mine.py", "def f(spark):\n    return spark._jvm.java.lang.Integer.parseInt('x')\n")]
    error = attempts.fail({"id": "p", "python": "mine:f"}, modules=modules)
    assert picked(error, "kind", "message", "line") == ("jvm", 'NumberFormatException: For input string: "x"', 2)


def test_the_detail_is_bounded(attempts: Attempts) -> None:
    modules = [attempts.module("mine.py", "def f():\n    raise ValueError('ä' * 100_000)\n")]
    error = attempts.fail({"id": "p", "python": "mine:f"}, modules=modules)
    assert len(error["detail"].encode()) <= errors.DETAIL_BYTES
    assert error["detail"].startswith("Traceback") and "(cut)" in error["detail"]
    assert len(error["message"]) <= 1000


def test_sql_of_a_script_is_no_vertex(attempts: Attempts) -> None:
    code = "from pyspark.sql import SparkSession\nspark = SparkSession.builder.getOrCreate()\nspark.sql('SELECT * FROM nope')\n"
    modules = [attempts.module("etl.py", code, "file")]
    error = attempts.fail({"id": "main", "spark_app": {"script": "etl.py"}}, modules=modules)
    assert picked(error, *PLACE) == ("main", "etl.py", 3, None)
    assert error["message"].startswith("The table or view `nope` cannot be found.")


@pytest.mark.parametrize(
    ("code", "kind", "condition", "says"),
    [
        ("os._exit(0)", "exit", None, "exit code 0 before it could report"),
        ("os._exit(7)", "exit", None, "exit code 7"),
        ("os.kill(os.getpid(), 9)", "killed", "SIGKILL", "SIGKILL"),
        ("os.kill(os.getpid(), 11)", "killed", "SIGSEGV", "SIGSEGV"),
    ],
)
def test_how_a_process_ended(code: str, kind: str, condition: str | None, says: str) -> None:
    import subprocess
    import sys

    process = subprocess.Popen([sys.executable, "-c", f"import os; {code}"])
    _, status = os.waitpid(process.pid, 0)
    process.returncode = 0
    error = faults.describe_exit(status)
    assert picked(error, *KIND) == (kind, True, condition)
    assert says in error["message"]
    assert set(error) == {
        "kind", "retryable", "condition", "message", "vertex", "line", "column", "file", "frame", "detail", "exit_code",
    }  # fmt: skip
    assert error["exit_code"] == {"os._exit(7)": 7, "os.kill(os.getpid(), 9)": 137, "os.kill(os.getpid(), 11)": 139}.get(code, 1)
    assert signal.Signals.SIGKILL == 9
