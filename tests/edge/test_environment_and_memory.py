"""What a graph's file or a command line says of environment variables and of what belongs to slots; and where its queries stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.core.jobgraph.compile import compile_graph
from millrace.core.jobgraph.model import DEFAULT_LIMITS, ENV_RULE, JobGraph, dump
from millrace.core.jobgraph.specs import attempt_spec
from millrace.core.jobgraph.validate import validate
from millrace.edge.graph_file import load_graph, load_script
from millrace.edge.requests import check_graph

ONE = {"name": "x", "vertices": {"a": {"sql": "SELECT 1"}}}


def test_variables_of_a_graphs_file_go_apart_from_it(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("name: x\nenv: {ETL_ENV: dev, PORT: 80, TOKEN: hush-file}\nvertices: {a: {sql: SELECT 1}}\n")
    loaded = load_graph(path, env={"ETL_ENV": "prod", "MORE": "hush-flag"})
    assert loaded.rendered() == []
    assert loaded.env == {"ETL_ENV": "prod", "PORT": "80", "TOKEN": "hush-file", "MORE": "hush-flag"}
    assert "env" not in loaded.raw and "hush" not in str(loaded.raw)


def test_variables_that_cannot_be_set_are_told_without_their_values(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("name: x\nenv:\n  1A: hush\n  MILLRACE_JOB: hush\n  B: [hush]\nvertices: {a: {sql: SELECT 1}}\n")
    said = [line.removeprefix(str(path)) for line in load_graph(path).rendered()]
    assert said == [
        f":2:1: env: the name of variable 1 is none: {ENV_RULE}",
        ":4:3: env.MILLRACE_JOB: cannot be set: names that begin like this are the slot's own (call it otherwise than MILLRACE_JOB)",
        ":5:3: env.B: must be text, not a list",
    ]
    script = tmp_path / "etl.py"
    script.write_text("")
    loaded = load_script(script, env={"A": "x\0hush", "B": "y" * 70_000})
    assert loaded.graph is None and not any("hush" in line or "yyy" in line for line in loaded.rendered())
    assert [each.place for each in loaded.errors] == [("env", "A"), ("env",)]


@pytest.mark.parametrize("env", ["PW=hush", "{PW=hush}", "{PW=hush: [1]}", "[PW=hush]", "{PW: [hush]}", "3.14"])
def test_what_stands_where_variables_should_is_not_quoted(tmp_path: Path, env: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(f"name: x\nenv: {env}\nvertices: {{a: {{sql: SELECT 1}}}}\n")
    said = load_graph(path).rendered()
    assert said and not any("hush" in line or "3.14" in line for line in said), said
    assert all(line.removeprefix(str(path)).startswith(":2:") for line in said)


def test_a_value_that_is_no_utf8_is_told_as_a_mistake(tmp_path: Path) -> None:
    script = tmp_path / "etl.py"
    script.write_text("")
    said = load_script(script, env={"A": "hush\udcff"}).rendered()
    assert len(said) == 1 and "env.A: its value is no UTF-8" in said[0] and "hush" not in said[0]


def test_a_file_may_be_called_as_the_module_of_variables_is() -> None:
    sha256 = "0" * 64
    modules = [{"name": "environment", "sha256": sha256, "kind": "file"}, {"name": "environment", "sha256": sha256, "kind": "env"}]
    assert isinstance(validate({**ONE, "modules": modules}), JobGraph)


def test_variables_of_a_message_are_told_to_attempts_and_only_then() -> None:
    graph = validate({**ONE, "env": {"A": "1"}})
    assert isinstance(graph, JobGraph) and dump(graph)["env"] == {"A": "1"}
    for each, env in ((graph, {"A": "1"}), (validate(ONE), None)):
        plan = compile_graph(each)
        spec = attempt_spec(plan, job="j", task="a", subtask=0, attempt=1, published={}, planned=None, exchange="e", run="r")
        assert spec.model_dump(mode="json").get("env") == env


@pytest.mark.parametrize("key", ["spark.driver.memory", "spark.executor.memory", "spark.executor.instances"])
def test_a_setting_of_what_belongs_to_slots_is_refused_as_its_flag_is(tmp_path: Path, key: str) -> None:
    script, graph = tmp_path / "etl.py", tmp_path / "job.yaml"
    script.write_text("")
    graph.write_text(f"name: x\nconf: {{{key}: '2'}}\nvertices: {{a: {{sql: SELECT 1}}}}\n")
    for loaded in (load_script(script, conf={key: "2"}), load_graph(graph)):
        assert [each.place for each in loaded.errors] == [("conf", key)]
        assert "cannot be set by a job: " in loaded.errors[0].message and "(millrace up --" in loaded.errors[0].message
        assert loaded.graph is None
    found = check_graph({**ONE, "conf": {key: "2"}}, {}, DEFAULT_LIMITS)
    assert not found.problems and len(found.warnings) == 1, "what 0.1.0 took of a message is taken"


def test_a_graph_tells_where_its_queries_stand(tmp_path: Path) -> None:
    path = tmp_path / "flow.yaml"
    path.write_text(
        "name: x\nvertices:\n  a:\n    sql: |\n      SELECT 1\n      AS b\n  c: {sql: \"SELECT 2\"}\n  d: {sql: SELECT 3}\n"
        "  e:\n    sql: >\n      SELECT\n      4\n  f: {sql: \"SELECT \\\"5\\\"\"}\n  g: {source: {format: csv, path: /tmp}}\n"
    )
    loaded = load_graph(path, same_machine=False)
    assert loaded.raw["sources"] == {
        "a": {"file": "flow.yaml", "line": 5, "indent": 6},
        "c": {"file": "flow.yaml", "line": 7, "indent": 12},
        "d": {"file": "flow.yaml", "line": 8, "indent": 11},
        "e": {"file": "flow.yaml", "line": 10},
        "f": {"file": "flow.yaml", "line": 13},
    }
    assert isinstance(validate(loaded.raw), JobGraph)
