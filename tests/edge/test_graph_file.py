"""A graph's file, and a script's command line, made ready to submit."""

from __future__ import annotations

import errno
import hashlib
import json
import runpy
from pathlib import Path

import pytest

from millrace.core.jobgraph.compile import compile_graph
from millrace.core.jobgraph.model import JobGraph
from millrace.core.jobgraph.validate import validate
from millrace.edge.files import inputs_problem, local_path, target_problem
from millrace.edge.graph_file import Loaded, load_graph, load_script
from services.task_manager.slot.attempt import vertices
from services.task_manager.slot.attempt.errors import AttemptError

EXAMPLES = Path(__file__).parents[2] / "examples"


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def write(folder: Path, **files: str) -> Path:
    """Files by name with __ for the dot; the graph's file is job.yaml."""
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder / "job.yaml"


def told(loaded: Loaded, folder: Path) -> list[str]:
    """The rendered problems, the folder's name taken out."""
    assert loaded.graph is None or not loaded.errors
    return [line.replace(str(folder), "~") for line in loaded.rendered()]


def test_a_graph_is_completed(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        job__yaml="""
name: job
parameters: {data: data, who: $$}
vertices:
  a: {source: {format: csv, path: "${data}/*.csv"}}
  b: {python: "lib:work", inputs: {a: forward}}
  c: {sink: {format: parquet, path: "../out/$${x}"}, inputs: {b: forward}}
  d: {spark_app: {script: etl.py, args: [1.50, "$$HOME"]}}
modules: [settings.ini, {name: data.zip, kind: archive}]
conf: {spark.x: 1.10}
""",
        lib__py="def work(a): return a",
        etl__py="print()",
        settings__ini="[a]",
        data__zip="zip",
    )
    (tmp_path / "data").mkdir()
    write(tmp_path / "data", a__csv="1")
    loaded = load_graph(path)
    assert told(loaded, tmp_path) == []
    assert loaded.raw == {
        "name": "job",
        "parameters": {"data": "data", "who": "$$"},
        "vertices": {
            "a": {"source": {"format": "csv", "path": f"file://{tmp_path}/data/*.csv"}},
            "b": {"python": "lib:work", "inputs": {"a": "forward"}},
            "c": {
                "sink": {"format": "parquet", "path": f"file://{tmp_path.parent}/out/$${{x}}"},
                "inputs": {"b": "forward"},
            },
            "d": {"spark_app": {"script": "etl.py", "args": ["1.50", "$$HOME"]}},
        },
        "modules": [
            {"name": "settings.ini", "sha256": sha256("[a]"), "kind": "file"},
            {"name": "data.zip", "sha256": sha256("zip"), "kind": "archive"},
            {"name": "lib.py", "sha256": sha256("def work(a): return a"), "kind": "py"},
            {"name": "etl.py", "sha256": sha256("print()"), "kind": "file"},
        ],
        "conf": {"spark.x": "1.10"},
    }
    assert loaded.uploads == {
        sha256("[a]"): tmp_path / "settings.ini",
        sha256("zip"): tmp_path / "data.zip",
        sha256("def work(a): return a"): tmp_path / "lib.py",
        sha256("print()"): tmp_path / "etl.py",
    }
    # What is sent is what was checked: a service that validates it comes to the same graph.
    assert validate(json.loads(json.dumps(loaded.raw))) == loaded.graph


def test_overrides_go_into_what_is_sent_and_are_relative_to_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(
        tmp_path,
        job__yaml="""
name: job
parameters: {data: data, n: 1}
vertices:
  a: {source: {format: csv, path: "${data}/f.csv"}, parallelism: "${n}"}
""",
    )
    here = tmp_path / "here"
    (here / "other").mkdir(parents=True)
    write(here / "other", f__csv="1")
    monkeypatch.chdir(here)
    loaded = load_graph(path, {"data": "./other", "n": "2"})
    assert told(loaded, tmp_path) == []
    assert loaded.raw["parameters"] == {"data": "./other", "n": "2"}
    assert loaded.raw["vertices"]["a"]["source"]["path"] == f"file://{here}/other/f.csv"
    assert loaded.graph is not None
    assert loaded.graph.vertices["a"].parallelism == 2
    assert validate(loaded.raw) == loaded.graph


@pytest.mark.parametrize("path", ["/d/f", "file:///d/f", "s3a://b/f", "hdfs://h/f", "${data}/f"])
def test_an_absolute_path_stays_as_it_is(tmp_path: Path, path: str) -> None:
    text = f"name: j\nparameters: {{data: /d}}\nvertices:\n  a: {{source: {{format: csv, path: '{path}'}}}}\n"
    loaded = load_graph(write(tmp_path, job__yaml=text), checks=False)
    assert loaded.raw["vertices"]["a"]["source"]["path"] == path


def test_the_path_of_another_format_is_not_touched(tmp_path: Path) -> None:
    text = "name: j\nvertices:\n  a: {source: {format: iceberg, path: lake.flights}}\n"
    loaded = load_graph(write(tmp_path, job__yaml=text))
    assert told(loaded, tmp_path) == []
    assert loaded.raw["vertices"]["a"]["source"]["path"] == "lake.flights"


def test_every_mistake_is_told_at_its_line(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        ranking__py="def rank(x): ...",
        job__yaml="""\
name: job
prioritty: 1
vertices:
  a: {source: {format: csv, path: missing.csv}}
  a: {source: {format: csv, path: missing.csv}}
  b:
    sql: |
      SELECT *
      FROM
    parallelism: 0
    inputs: {aa: forward}
  c: {python: rankin:rank, inputs: {b: forward}}
  d: {python: ranking:rnak, inputs: {b: forward}}
  e: {spark_app: {script: no.py}}
modules: [no.zip, ranking.py]
""",
    )
    assert told(load_graph(path), tmp_path) == [
        "~/job.yaml:2:1: prioritty: unknown field prioritty (did you mean priority?)",
        "~/job.yaml:4:29: vertices.a.source.path: no such file: ~/missing.csv",
        "~/job.yaml:5:3: vertices.a: duplicate key: a stands on line 4 already",
        "~/job.yaml:9:7: vertices.b.sql: does not parse: expected table name but got the end at line 2, column 1, near FROM",
        "~/job.yaml:10:5: vertices.b.parallelism: must be at least 1, not 0",
        "~/job.yaml:11:14: vertices.b.inputs.aa: no vertex is called aa (did you mean a?)",
        "~/job.yaml:13:7: vertices.d.python: ranking.py has no function rnak (did you mean rank?)",
        "~/job.yaml:14:19: vertices.e.spark_app.script: script ~/no.py: No such file or directory",
        "~/job.yaml:15:11: modules.0: module ~/no.zip: No such file or directory",
    ]


def test_mistakes_in_sql_are_told_beside_mistakes_of_structure(tmp_path: Path) -> None:
    """But none that follows from another one: what a name stands for that is not read right."""
    path = write(
        tmp_path,
        job__yaml="""\
name: job
vertices:
  a: {sql: "SELEC 1", paralelism: 2}
  b: {sql: "SELECT 1 + FROM ${nope}", inputs: [a]}
  c: {sql: "SELECT * FROM a", input: {a: forward}}
  d: {sql: "SELECT * FROM q", inputs: {a: hush}}
""",
    )
    assert told(load_graph(path), tmp_path) == [
        "~/job.yaml:3:7: vertices.a.sql: does not parse: unexpected 1 at line 1, column 7",
        "~/job.yaml:3:23: vertices.a.paralelism: unknown kind or field paralelism (did you mean parallelism?)",
        "~/job.yaml:4:7: vertices.b.sql: unknown parameter ${nope} (declare it under parameters, or write $${nope} for the text itself)",
        "~/job.yaml:4:39: vertices.b.inputs: must be a mapping, not a list",
        "~/job.yaml:5:31: vertices.c.input: unknown kind or field input (did you mean inputs?)",
        "~/job.yaml:6:7: vertices.d.sql: reads q, which is no input (its inputs are a)",
        "~/job.yaml:6:40: vertices.d.inputs.a: unknown edge 'hush': an edge is one of forward, broadcast, hash(column, ...)",
        "~/job.yaml:6:40: warning: vertices.d.inputs.a: is not read by the query",
    ]


def test_what_sql_reads_and_which_files_are_there_is_checked(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        data__csv="1",
        job__yaml="""\
name: job
vertices:
  a: {source: {format: csv, path: date.csv}}
  b: {source: {format: csv, path: "no/where/*.csv"}}
  c:
    sql: |
      SELECT a.x
      FROM a JOIN bb
    inputs: {a: forward, b: forward}
  d: {sql: "SELECT 1 +", inputs: {a: forward}}
  e: {sql: SHOW TABLES}
  f: {python: "elsewhere:run"}
""",
    )
    loaded = load_graph(path)
    assert told(loaded, tmp_path) == [
        "~/job.yaml:3:29: vertices.a.source.path: no such file: ~/date.csv (did you mean data.csv?)",
        "~/job.yaml:4:29: vertices.b.source.path: no such file: ~/no/where/*.csv (there is no folder ~/no)",
        "~/job.yaml:6:5: vertices.c.sql: reads bb, which is no input (did you mean b?)",
        "~/job.yaml:9:26: warning: vertices.c.inputs.b: is not read by the query",
        "~/job.yaml:10:7: vertices.d.sql: does not parse: incomplete expression at line 1, column 10, near +",
        "~/job.yaml:11:7: warning: vertices.e.sql: only Spark can tell whether this SHOW is right",
        "~/job.yaml:12:7: warning: vertices.f.python: there is no elsewhere.py beside the graph: the module must be"
        " installed where tasks run",
    ]


def test_warnings_alone_stop_nothing(tmp_path: Path) -> None:
    loaded = load_graph(write(tmp_path, job__yaml="name: j\nvertices: {a: {sql: SHOW TABLES}}\n"))
    assert [problem.warning for problem in loaded.problems] == [True]
    assert isinstance(loaded.graph, JobGraph)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "a: [",
            "~/job.yaml:1:5: not YAML: while parsing a flow node, expected the node content, but found '<stream end>'",
        ),
        ("", "~/job.yaml:1:1: a job graph is a mapping with name and vertices, not nothing"),
        ("[a]", "~/job.yaml:1:1: a job graph is a mapping with name and vertices, not a list"),
    ],
)
def test_a_file_that_holds_no_graph(tmp_path: Path, text: str, expected: str) -> None:
    assert told(load_graph(write(tmp_path, job__yaml=text)), tmp_path) == [expected]


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    assert told(load_graph(tmp_path / "job.yaml"), tmp_path) == ["~/job.yaml cannot be read: No such file or directory"]
    assert told(load_graph(tmp_path), tmp_path) == ["~ cannot be read: Is a directory"]
    (tmp_path / "job.yaml").write_bytes(b"name: \xff")
    assert told(load_graph(tmp_path / "job.yaml"), tmp_path) == ["~/job.yaml cannot be read: not UTF-8 at byte 6"]


def test_a_script_as_for_spark_submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write(tmp_path, etl__py="print()", lib__zip="z", a__ini="i", u__jar="j", e__tgz="t").parent)
    loaded = load_script(
        Path("etl.py"),
        ["$1", "x"],
        conf={"spark.a": "b"},
        py_files=[Path("lib.zip")],
        files=[Path("a.ini")],
        jars=[Path("u.jar")],
        archives=[Path("e.tgz")],
        packages=["g:a:1"],
    )
    assert loaded.problems == []
    assert loaded.graph is not None
    assert loaded.graph.name == "etl"
    assert loaded.graph.vertices["main"].spark_app is not None
    assert loaded.graph.vertices["main"].spark_app.args == ("$1", "x")
    assert [(module.name, module.kind) for module in loaded.graph.modules] == [
        ("etl.py", "file"),
        ("a.ini", "file"),
        ("lib.zip", "py"),
        ("u.jar", "jar"),
        ("e.tgz", "archive"),
    ]
    assert loaded.graph.conf == {"spark.a": "b", "spark.jars.packages": "g:a:1"}
    assert sorted(path.name for path in loaded.uploads.values()) == ["a.ini", "e.tgz", "etl.py", "lib.zip", "u.jar"]
    assert all(path.is_absolute() for path in loaded.uploads.values())
    assert validate(loaded.raw) == loaded.graph


def test_files_of_a_script_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write(tmp_path, etl__py="print()").parent)
    loaded = load_script(Path("elt.py"), jars=[Path("no.jar")], py_files=[Path("no.zip")])
    assert loaded.graph is None
    assert loaded.rendered() == [
        "script elt.py: No such file or directory (did you mean etl.py?)",
        "--py-files no.zip: No such file or directory",
        "--jars no.jar: No such file or directory",
    ]


def test_two_files_of_one_name(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    write(tmp_path, etl__py="print()", x__ini="1")
    write(tmp_path / "a", x__ini="2")
    loaded = load_script(tmp_path / "etl.py", files=[tmp_path / "x.ini", tmp_path / "a" / "x.ini"])
    assert loaded.rendered() == ["modules.2: a second module called x.ini"]


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("def f(): ...", True),
        ("async def f(): ...", True),
        ("f = print", True),
        ("f: object = print", True),
        ("a, (b, f) = 1, (2, 3)", True),
        ("from x import g as f", True),
        ("import f.g", True),
        ("from x import *", True),
        ("def __getattr__(name): ...", True),
        ("try:\n    import f\nexcept ImportError:\n    f = None", True),
        ("if 1:\n    def f(): ...", True),
        ("def (", True),
        ("", False),
        ("def g():\n    f = 1", False),
        ("class C:\n    def f(self): ...", False),
        ("print(f)", False),
    ],
)
def test_whether_a_module_has_a_function(tmp_path: Path, text: str, known: bool) -> None:
    path = tmp_path / "m.py"
    path.write_text(text)
    assert target_problem(path, "f") == (None if known else "m.py has no function f")


@pytest.mark.parametrize(
    "parameters",
    [
        "", "a", "x", "a, b", "b, a", "a, x", "x, y", "a, b, x", "a, x=1", "a=1, b=2", "x=1, y=2", "a, b, x=1", "*xs", "a, *xs", "x, *xs",
        "x=1, *xs", "x, y, *xs", "**xs", "a, **xs", "x, **xs", "x=1, **xs", "*, a, b", "*, x", "a, *, x", "a, *, x=1", "a, /", "x, /, b",
        "a, spark", "spark, a, b", "spark", "parameters, x", "a, b, spark, parameters", "spark=None, *xs", "a, x, spark=None, **xs",
    ],
)  # fmt: skip
@pytest.mark.parametrize("inputs", [[], ["a"], ["x"], ["a", "b"], ["b", "a", "c"], ["spark", "a"]])
def test_a_function_is_refused_where_a_slot_could_not_call_it(tmp_path: Path, parameters: str, inputs: list[str]) -> None:
    """Told before anything runs, by the same rules."""
    path = tmp_path / "m.py"
    path.write_text(f"def f({parameters}): ...")
    function = runpy.run_path(str(path))["f"]
    try:
        vertices.bind("v", "m:f", function, dict.fromkeys(inputs), {"spark": 1, "parameters": {}})
        callable_so = True
    except AttemptError:
        callable_so = False
    assert (inputs_problem(path, "f", inputs) is None) == callable_so


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def f(a, x: int = 1, *, y): ...", "f(a, x: int=1, *, y) cannot take the inputs (a, b): nothing for y"),
        ("def f(a, c): ...", None),
        ("def f(c, d): ...", "f(c, d) cannot take the inputs (a, b): nothing for c, d"),
        ("def f(a): ...", "f(a) cannot take the inputs (a, b): no parameter for b"),
        ("@wraps\ndef f(a): ...", None),
        ("def f(a): ...\nf = partial(f)", None),
        ("def f(a): ...\nfrom m import *", None),
        ("if old:\n    def f(a): ...\nelse:\n    def f(a, b): ...", None),
        ("f = other", None),
        ("class f:\n    def __init__(self): ...", None),
        ("def (", None),
    ],
)  # fmt: skip
def test_why_a_function_cannot_take_its_inputs(tmp_path: Path, text: str, expected: str | None) -> None:
    path = tmp_path / "m.py"
    path.write_text(text)
    assert inputs_problem(path, "f", ["a", "b"]) == (expected and f"{expected}; parameters are named as the inputs are")


def test_a_python_vertex_whose_inputs_do_not_fit_is_told_at_its_line(tmp_path: Path) -> None:
    vertices = "a: {sql: SELECT 1}\n  b: {sql: SELECT 2}\n  c: {python: 'm:f', inputs: {a: forward, b: forward}}\n"
    path = write(tmp_path, m__py="def f(one, two): ...", job__yaml=f"name: j\nvertices:\n  {vertices}")
    assert told(load_graph(path), tmp_path) == [
        "~/job.yaml:5:7: vertices.c.python: f(one, two) cannot take the inputs (a, b): nothing for one, two; "
        "parameters are named as the inputs are"
    ]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/a/b c#d?e", "/a/b c#d?e"),
        ("file:///a/b c#d?e", "/a/b c#d?e"),
        ("file:/a/b", "/a/b"),
        ("s3a://a/b", None),
        ("hdfs:/a", None),
        ("file://host/a", "/a"),
        ("file://[", "/"),
    ],
)
def test_which_paths_are_of_this_machine(path: str, expected: str | None) -> None:
    assert local_path(path) == expected


def test_the_examples_are_right() -> None:
    flights = load_graph(EXAMPLES / "flights.yaml", checks=False)
    assert flights.problems == []
    assert flights.graph is not None
    plan = compile_graph(flights.graph)
    assert {task.id: task.parallelism for task in plan.tasks.values()} == {
        "flights": 2,
        "joined": 2,
        "delays+ranked+report": 1,
    }
    assert plan.result == "ranked"
    assert [path.name for path in flights.uploads.values()] == ["ranking.py"]
    hello = load_graph(EXAMPLES / "hello.yaml")
    assert hello.problems == []
    assert load_script(EXAMPLES / "wordcount.py", ["README.md"]).problems == []


def test_the_sql_of_the_example_is_right() -> None:
    loaded = load_graph(EXAMPLES / "flights.yaml", {"data": "/nowhere"})
    assert [problem.place[1:] for problem in loaded.problems] == [
        (name, "source", "path") for name in ("flights", "weather", "airlines")
    ]


@pytest.mark.parametrize(("error", "there"), [(errno.ENAMETOOLONG, False), (errno.EACCES, True)])
def test_a_source_of_which_the_system_does_not_say_whether_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, there: bool
) -> None:
    path = write(tmp_path, job__yaml="name: job\nvertices:\n  a: {source: {format: csv, path: /a.csv}}\n")

    def refuses(_: Path) -> bool:
        raise OSError(error, "no")

    monkeypatch.setattr(Path, "exists", refuses)
    assert [each.message for each in load_graph(path).errors] == ([] if there else ["no such file: /a.csv"])
