"""Every class of bad graph gets exactly its problems; good graphs come out with parameters put in."""

from __future__ import annotations

import pytest

from millrace.core.jobgraph.model import Edge, JobGraph, Module, dump, spark_app_graph
from millrace.core.jobgraph.problems import Problem
from millrace.core.jobgraph.validate import validate
from tests.core.of_jobgraph import CSV, accepted, graph, problems

HASH = "0" * 64
ID_RULE = "an id is a letter or _, then letters, digits or _, at most 63 characters in all"
REPLICATED = "needs an input by forward or hash: else every subtask computes the same rows"

BAD: dict[str, tuple[object, list[str]]] = {
    "no mapping": ([], ["a job graph is a mapping with name and vertices, not a list"]),
    "nothing in it": ({}, ["name is missing", "vertices is missing"]),
    "no vertices": (graph({}), ["vertices: must not be empty"]),
    "vertices no mapping": (graph([CSV]), ["vertices: must be a mapping, not a list"]),
    "unknown field, near": (
        graph({"a": CSV}, prioritty=1),
        ["prioritty: unknown field prioritty (did you mean priority?)"],
    ),
    "unknown field, far": (
        graph({"a": CSV}, restart={"zzz": 1}),
        [
            "restart.zzz: unknown field zzz (there are strategy, scope, attempts, delay_ms, max_failures_per_interval,"
            " failure_rate_interval_ms, initial_backoff_ms, max_backoff_ms, backoff_multiplier, jitter_factor,"
            " reset_backoff_threshold_ms, attempts_before_reset_backoff, out_of_memory_attempts)"
        ],
    ),
    "unknown field in a source": (
        graph({"a": {"source": {"format": "csv", "pth": "f"}}}),
        [
            "vertices.a.source.pth: unknown field pth (did you mean path?)",
            "vertices.a.source: path is missing: csv is read from files",
        ],
    ),
    "unknown kind": (
        graph({"a": {"sqll": "SELECT 1"}}),
        ["vertices.a.sqll: unknown kind or field sqll (did you mean sql?)"],
    ),
    "no kind": (
        graph({"a": {"parallelism": 1}}),
        ["vertices.a: has no kind (a vertex is exactly one of source, sql, python, sink, spark_app)"],
    ),
    "no kind in an empty vertex": (
        graph({"a": {}}),
        ["vertices.a: has no kind (a vertex is exactly one of source, sql, python, sink, spark_app)"],
    ),
    "several kinds": (
        graph({"a": {"sql": "SELECT 1", "python": "m:f"}}),
        ["vertices.a: has several kinds: sql, python (a vertex is exactly one of them)"],
    ),
    "vertex no mapping": (graph({"a": None}), ["vertices.a: must be a mapping, not nothing"]),
    "wrong types": (
        graph({"a": CSV}, priority="high", conf=[], modules="m.py", timeouts={"run_ms": True}),
        [
            "modules: must be a list, not the text 'm.py'",
            "conf: must be a mapping, not a list",
            "timeouts.run_ms: must be a whole number, not true",
            "priority: must be a whole number, not the text 'high'",
        ],
    ),
    "values out of range": (
        graph(
            {"a": CSV}, restart={"attempts": -1}, timeouts={"queue_ms": 0}, priority=1001, resources={"memory_mb": 0},
            speculative={"baseline_ratio": 0},
        ),
        [
            "restart.attempts: must be at least 0, not -1",
            "timeouts.queue_ms: must be at least 1, not 0",
            "resources.memory_mb: must be at least 1, not 0",
            "priority: must be at most 1000, not 1001",
            "speculative.baseline_ratio: must be more than 0.0, not 0",
        ],
    ),
    "unknown restart strategy": (
        graph({"a": CSV}, restart={"strategy": "fixed"}),
        [
            "restart.strategy: must be one of fixed-delay, failure-rate, exponential-delay, none, not the text 'fixed'"
            " (did you mean fixed-delay?)"
        ],
    ),
    "a name that is none": (graph({"9a": CSV}), [f"vertices.9a: {ID_RULE}; not the text '9a'"]),
    "an id with a hyphen": (graph({"a-b": CSV}), [f"vertices.a-b: {ID_RULE}; not the text 'a-b'"]),
    "an id too long": (graph({"a" * 64: CSV}), [f"vertices.{'a' * 64}: {ID_RULE}; not the text '{'a' * 60}'..."]),
    "an id with a line end": (graph({"a\n": CSV}), [f"vertices.a\n: {ID_RULE}; not the text 'a\\n'"]),
    "ids that Spark does not tell apart": (
        graph({"a": CSV, "A": CSV}),
        ["vertices.A: duplicate id: Spark does not tell it from a"],
    ),
    "dangling input, near": (
        graph({"flights": CSV, "b": {"sql": "SELECT 1", "inputs": {"flight": "forward"}}}),
        ["vertices.b.inputs.flight: no vertex is called flight (did you mean flights?)"],
    ),
    "dangling input, far": (
        graph({"a": CSV, "b": {"sql": "SELECT 1", "inputs": {"xyz": "forward"}}}),
        ["vertices.b.inputs.xyz: no vertex is called xyz (vertices are a, b)"],
    ),
    "edges that are none": (
        graph(
            {
                "a": CSV,
                "b": CSV,
                "c": CSV,
                "d": CSV,
                "e": CSV,
                "f": CSV,
                "g": CSV,
                "z": {
                    "sql": "SELECT 1",
                    "inputs": {
                        "a": "forwards",
                        "b": "hash",
                        "c": "hash()",
                        "d": "broadcast(x)",
                        "e": "hash(x, x)",
                        "f": 3,
                        "g": "hash(x",
                    },
                },
            }
        ),
        [
            "vertices.z.inputs.a: unknown edge 'forwards': an edge is one of forward, broadcast, hash(column, ...)",
            "vertices.z.inputs.b: hash needs its columns: hash(column, ...)",
            "vertices.z.inputs.c: hash needs its columns: hash(column, ...)",
            "vertices.z.inputs.d: broadcast takes no columns; only hash does",
            "vertices.z.inputs.e: hash names the column x twice",
            "vertices.z.inputs.f: an edge is one of forward, broadcast, hash(column, ...)",
            "vertices.z.inputs.g: hash(x has no closing parenthesis: between braces YAML ends it at the comma, so write"
            ' "hash(x, ...)" in quotes',
        ],
    ),
    "forward between unequal parallelism": (
        graph({"a": {**CSV, "parallelism": 2}, "b": {"sql": "SELECT 1", "inputs": {"a": "forward"}}}),
        ["vertices.b.inputs.a: forward needs equal parallelism: a has 2, b has 1 (use hash(column, ...) or broadcast)"],
    ),
    "parallelism 0": (graph({"a": {**CSV, "parallelism": 0}}), ["vertices.a.parallelism: must be at least 1, not 0"]),
    "parallelism above the limit": (
        graph({"a": {**CSV, "parallelism": 129}}),
        ["vertices.a.parallelism: must be at most 128, not 129"],
    ),
    "parallelism no number": (
        graph(
            {"a": {**CSV, "parallelism": 1.5}, "b": {**CSV, "parallelism": True}, "c": {**CSV, "parallelism": "two"},
             "d": {**CSV, "parallelism": "-1"}}
        ),  # fmt: skip
        [
            "vertices.a.parallelism: must be a whole number, not 1.5",
            "vertices.b.parallelism: must be a whole number, not true",
            "vertices.c.parallelism: must be a whole number, not the text 'two'",
            "vertices.d.parallelism: must be at least 1, not the text '-1'",
        ],
    ),
    "the same rows n times: no input": (
        graph({"a": {"sql": "SELECT 1", "parallelism": 2}}),
        [f"vertices.a.parallelism: parallelism 2 {REPLICATED}"],
    ),
    "the same rows n times: broadcast only": (
        graph({"a": CSV, "b": {"python": "m:f", "parallelism": 2, "inputs": {"a": "broadcast"}}}),
        [f"vertices.b.parallelism: parallelism 2 {REPLICATED}"],
    ),
    "hash inputs with unequally many columns": (
        graph({"a": CSV, "b": CSV, "c": {"sql": "SELECT 1", "inputs": {"a": "hash(x)", "b": "hash(x, y)"}}}),
        [
            "vertices.c.inputs: hash inputs of one vertex need equally many columns, so that equal rows meet: a 1, b 2",
        ],
    ),
    "a source with inputs": (
        graph({"a": CSV, "b": {**CSV, "inputs": {"a": "forward"}}}),
        ["vertices.b.inputs: a source has no inputs"],
    ),
    "a source without format": (
        graph({"a": {"source": {"path": "f"}}}),
        ["vertices.a.source: format is missing"],
    ),
    "a file source without path": (
        graph({"a": {"source": {"format": "Parquet"}}}),
        ["vertices.a.source: path is missing: Parquet is read from files"],
    ),
    "shares of what is no file": (
        graph({"a": {"source": {"format": "jdbc", "options": {"url": "x"}}, "parallelism": 2}}),
        [
            (
                "vertices.a.parallelism: must be 1: only files are read in shares, and jdbc is no file format"
                " (file formats are csv, json, parquet, orc, text, avro, xml, binaryFile)"
            )
        ],
    ),
    "a schema in the wrong place": (
        graph({"a": {**CSV, "schema": "x INT"}, "b": {"sql": "SELECT 1", "schema": "x INT"}}),
        [
            "vertices.a.schema: only a python vertex declares a schema here (write it under source)",
            "vertices.b.schema: only a python vertex declares a schema here",
        ],
    ),
    "empty sql": (graph({"a": {"sql": ""}}), ["vertices.a.sql: must not be empty"]),
    "sql that is no text": (graph({"a": {"sql": 5}}), ["vertices.a.sql: must be text, not 5"]),
    "a python target that is none": (
        graph({"a": {"python": "ranking.rank"}}),
        ["vertices.a.python: must be module:function, such as ranking:rank; not the text 'ranking.rank'"],
    ),
    "a sink without input": (
        graph({"a": {"sink": {"format": "csv", "path": "o"}}}),
        ["vertices.a.inputs: a sink has exactly one input, not 0"],
    ),
    "a sink with two inputs": (
        graph(
            {
                "a": CSV,
                "b": CSV,
                "c": {"sink": {"format": "csv", "path": "o"}, "inputs": {"a": "forward", "b": "forward"}},
            }
        ),
        ["vertices.c.inputs: a sink has exactly one input, not 2"],
    ),
    "a sink with a reader": (
        graph(
            {
                "a": CSV,
                "b": {"sink": {"format": "csv", "path": "o"}, "inputs": {"a": "forward"}},
                "c": {"sql": "SELECT 1", "inputs": {"b": "forward"}},
            }
        ),
        ["vertices.c.inputs.b: b is a sink and has no rows to read"],
    ),
    "a sink with unknown format and mode": (
        graph(
            {"a": CSV, "b": {"sink": {"format": "parqet", "path": "o", "mode": "replace"}, "inputs": {"a": "forward"}}}
        ),
        [
            (
                "vertices.b.sink.format: must be one of parquet, csv, json, orc, text, avro, xml, not the text 'parqet'"
                " (did you mean parquet?)"
            ),
            "vertices.b.sink.mode: must be one of error, overwrite, append, not the text 'replace'",
        ],
    ),
    "a sink with options that would do nothing": (
        graph(
            {
                "a": CSV,
                "b": {
                    "sink": {"format": "csv", "path": "o", "options": {"PartitionBy": "k", "mode": "append", "header": True}},
                    "inputs": {"a": "forward"},
                },
            }
        ),
        [
            "vertices.b.sink.options.PartitionBy: is no option of a sink and would have no effect"
            " (a sink writes one folder without partitions; several may share the rows)",
            "vertices.b.sink.options.mode: is no option of a sink and would have no effect (write it beside options)",
        ],
    ),
    "a sink on a whole file system": (
        graph(
            {
                "a": CSV,
                "b": {"sink": {"format": "csv", "path": "/"}, "inputs": {"a": "forward"}},
                "c": {"sink": {"format": "csv", "path": "file:///"}, "inputs": {"a": "forward"}},
            }
        ),
        [
            "vertices.b.sink.path: must be a folder below /",
            "vertices.c.sink.path: must be a folder below file:///",
        ],
    ),
    "a sink at the root, by dots": (
        graph({"a": CSV, "b": {"sink": {"format": "csv", "path": "/x/.."}, "inputs": {"a": "forward"}}}),
        ["vertices.b.sink.path: must be a folder below /"],
    ),
    "a sink in the folder of another": (
        graph(
            {
                "a": CSV,
                "b": {"sink": {"format": "csv", "path": "/o/p/q", "mode": "append"}, "inputs": {"a": "forward"}},
                "c": {"sink": {"format": "csv", "path": "/o", "mode": "overwrite"}, "inputs": {"a": "forward"}},
                "d": {"sink": {"format": "csv", "path": "/o/p/q/r", "mode": "overwrite"}, "inputs": {"a": "forward"}},
                "e": {"sink": {"format": "csv", "path": "/o-e", "mode": "overwrite"}, "inputs": {"a": "forward"}},
            }
        ),
        [
            "vertices.b.sink.path: it lies in the folder of c, which is to hold its files alone"
            " (give it a folder beside that one, or let c append)",
            "vertices.d.sink.path: it lies in the folder of c, which is to hold its files alone"
            " (give it a folder beside that one, or let c append)",
        ],
    ),
    "two sinks on one path": (
        graph(
            {
                "a": CSV,
                "b": {"sink": {"format": "csv", "path": "o", "mode": "append"}, "inputs": {"a": "forward"}},
                "c": {"sink": {"format": "csv", "path": "./x/../o/"}, "inputs": {"a": "forward"}},
            }
        ),
        ["vertices.c.sink.path: b writes the same path (two sinks share a path only if both append)"],
    ),
    "a spark_app with inputs, readers, parallelism and no script": (
        graph(
            {
                "a": CSV,
                "b": {"spark_app": {"script": "etl.py"}, "inputs": {"a": "broadcast"}, "parallelism": 2},
                "c": {"sql": "SELECT 1", "inputs": {"b": "broadcast"}},
            },
            modules=[{"name": "etl2.py", "sha256": HASH, "kind": "file"}],
        ),
        [
            "vertices.b.inputs: a spark_app has no inputs",
            "vertices.b.parallelism: a spark_app has parallelism 1, not 2",
            "vertices.c.inputs.b: b is a spark_app and has no rows to read",
            "vertices.b.spark_app.script: no module is called etl.py (did you mean etl2.py?)",
        ],
    ),
    "modules that are none": (
        graph(
            {"a": CSV},
            modules=[
                "m.py",
                {"name": "../m.py", "sha256": HASH},
                {"name": "m.py", "sha256": "A" * 64},
                {"name": "n.py", "sha256": HASH, "kind": "egg"},
                {"name": "n.py", "sha256": HASH},
            ],
        ),
        [
            "modules.0: must be a mapping, not the text 'm.py'",
            "modules.1.name: must be a file's name, without folders, not starting with a dot; not the text '../m.py'",
            f"modules.2.sha256: must be a SHA-256 hash: 64 digits and letters a to f; not the text '{'A' * 60}'...",
            "modules.3.kind: must be one of py, file, jar, archive, env, not the text 'egg'",
            "modules.4: a second module called n.py",
        ],
    ),
    "a cycle of one": (
        graph({"a": {"sql": "SELECT 1", "inputs": {"a": "forward"}}}),
        ["vertices.a.inputs: a cycle: a -> a"],
    ),
    "two cycles, and what hangs on one": (
        graph(
            {
                "tail": {"sql": "SELECT 1", "inputs": {"x": "forward"}},
                "b": {"sql": "SELECT 1", "inputs": {"a": "forward"}},
                "a": {"sql": "SELECT 1", "inputs": {"c": "forward"}},
                "c": {"sql": "SELECT 1", "inputs": {"b": "forward"}},
                "x": {"sql": "SELECT 1", "inputs": {"y": "hash(k)"}},
                "y": {"sql": "SELECT 1", "inputs": {"x": "broadcast"}},
            }
        ),
        ["vertices.x.inputs: a cycle: x -> y -> x", "vertices.b.inputs: a cycle: b -> c -> a -> b"],
    ),
    "a result that names nothing": (
        graph({"ranked": CSV}, result="rankd"),
        ["result: no vertex is called rankd (did you mean ranked?)"],
    ),
    "a result without rows": (
        graph(
            {"a": {"spark_app": {"script": "e.py"}}},
            result="a",
            modules=[{"name": "e.py", "sha256": HASH, "kind": "file"}],
        ),
        ["result: a is a spark_app and has no rows"],
    ),
    "unknown parameters": (
        graph({"a": {"source": {"format": "csv", "path": "${dta}/${other}/${dta}"}}}, parameters={"data": "/d"}),
        [
            "vertices.a.source.path: unknown parameter ${dta} (did you mean data?)",
            (
                "vertices.a.source.path: unknown parameter ${other}"
                " (declare it under parameters, or write $${other} for the text itself)"
            ),
        ],
    ),
    "a parameter that does not end": (
        graph({"a": {"sql": "SELECT '${data'"}}, parameters={"data": "/d"}),
        ["vertices.a.sql: ${ without its } (write $${ for the text itself)"],
    ),
    "parameters with a bad name and a bad value": (
        graph({"a": {"sql": "SELECT ${b}"}}, parameters={"1a": "x", "b": [1]}),
        [
            (
                "parameters.1a: a parameter's name is a letter or _, then letters, digits or _, at most 63 characters"
                " in all; not the text '1a'"
            ),
            "parameters.b: must be text, not a list",
        ],
    ),
    "half a surrogate pair": (
        graph({"a": {"sql": "SELECT '\ud800'"}}),
        ["a text holds half of a surrogate pair, which is no Unicode"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_graph_gets_exactly_its_problems(case: str) -> None:
    raw, expected = BAD[case]
    assert problems(raw) == expected


def test_a_problem_has_a_place_of_keys_and_a_hint_of_its_own() -> None:
    raw = graph({"a": CSV, "b": {"sql": "SELECT 1", "inputs": {"aa": "forward"}}})
    assert validate(raw) == [
        Problem(("vertices", "b", "inputs", "aa"), "no vertex is called aa", "did you mean a?"),
    ]


def test_every_mistake_is_told_at_once() -> None:
    raw = graph(
        {"a": {**CSV, "parallelism": 0}, "b": {"sqll": "x", "inputs": {"zz": "forward"}}, "c": {"sql": "${x}"}},
        result="d",
        foo=1,
    )
    assert problems(raw, parameters={"p": "1"}) == [
        "parameters: p is given a value but not declared (the graph has no parameters)",
        "vertices.a.parallelism: must be at least 1, not 0",
        "vertices.b.sqll: unknown kind or field sqll (did you mean sql?)",
        (
            "foo: unknown field foo"
            " (there are name, parameters, vertices, modules, env, conf, master, restart, timeouts, resources, priority, together,"
            " speculative, tenant, sources, traceparent, tracestate, origin, result)"
        ),
        "vertices.c.sql: unknown parameter ${x} (declare it under parameters, or write $${x} for the text itself)",
        "vertices.b.inputs.zz: no vertex is called zz (vertices are a, b, c)",
        "result: no vertex is called d (vertices are a, b, c)",
    ]


def test_all_fields_come_through() -> None:
    raw = {
        "name": "job",
        "vertices": {
            "a": {"source": {"format": "csv", "path": "f", "schema": "x INT, `y z` STRING"}, "parallelism": 2},
            "b": {"python": "lib.m:f", "parallelism": 2, "inputs": {"a": "hash(x,  `y z` )"}, "schema": "x INT"},
        },
        "modules": [{"name": "lib.zip", "sha256": HASH, "kind": "py"}],
        "conf": {"spark.sql.shuffle.partitions": 4, "spark.sql.ansi.enabled": False},
        "restart": {"strategy": "none"},
        "timeouts": {"start_ms": None, "run_ms": 5},
        "resources": {"memory_mb": 512},
        "priority": -3,
        "result": "b",
    }
    result = accepted(raw)
    assert result.vertices["b"].inputs == {"a": Edge("hash", ("x", "y z"))}
    assert dump(result) == {
        **raw,
        "vertices": {**raw["vertices"], "b": {**raw["vertices"]["b"], "inputs": {"a": "hash(x, `y z`)"}}},
        "modules": [{"name": "lib.zip", "sha256": HASH}],
        "conf": {"spark.sql.shuffle.partitions": "4", "spark.sql.ansi.enabled": "false"},
    }
    assert JobGraph.model_validate(dump(result)) == result


def test_several_sinks_may_append_to_one_path() -> None:
    sink = {"sink": {"format": "csv", "path": "o", "mode": "append"}, "inputs": {"a": "forward"}}
    accepted(graph({"a": CSV, "b": sink, "c": sink}))


def test_the_spark_submit_form_is_a_valid_graph() -> None:
    module = Module(name="etl.py", sha256=HASH)
    raw = spark_app_graph(
        "etl",
        module,
        ["--day", "$1", "${HOME}", "$$"],
        {"spark.sql.ansi.enabled": "false", "spark.jars.packages": "g:a:1"},
        py_files=[Module(name="lib.zip", sha256="1" * 64)],
        files=[Module(name="a.ini", sha256="2" * 64)],
        jars=[Module(name="udf.jar", sha256="3" * 64)],
        archives=[Module(name="env.tgz", sha256="4" * 64)],
        packages=["g:b:2", "g:a:1"],
    )
    result = accepted(raw)
    assert dump(result) == {
        "name": "etl",
        "restart": {"strategy": "none"},
        "vertices": {"main": {"spark_app": {"script": "etl.py", "args": ["--day", "$1", "${HOME}", "$$"]}}},
        "modules": [
            {"name": "etl.py", "sha256": HASH, "kind": "file"},
            {"name": "a.ini", "sha256": "2" * 64, "kind": "file"},
            {"name": "lib.zip", "sha256": "1" * 64},
            {"name": "udf.jar", "sha256": "3" * 64, "kind": "jar"},
            {"name": "env.tgz", "sha256": "4" * 64, "kind": "archive"},
        ],
        "conf": {"spark.sql.ansi.enabled": "false", "spark.jars.packages": "g:a:1,g:b:2"},
    }
