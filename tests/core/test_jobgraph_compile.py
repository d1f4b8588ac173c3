"""Graphs of many shapes to tasks, and tasks to attempt specs, exactly."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.core.jobgraph.compile import Output, Plan, Task, check_unread, compile_graph, producers, vertex_order
from millrace.core.jobgraph.model import JobGraph
from millrace.core.jobgraph.specs import attempt_spec, plan_spec, staging_folder
from millrace.core.jobgraph.validate import validate
from millrace.core.messages.attempts import AttemptReport
from tests.core.of_jobgraph import Published, published


def plan_of(shape: str, **fields: Any) -> Plan:
    """A plan from lines `id[*parallelism][!kind] <- input:edge ...`; f, b and h(keys) are the edges."""
    vertices: dict[str, Any] = {}
    for line in shape.strip().splitlines():
        head, _, rest = line.partition("<-")
        head, _, kind = head.strip().partition("!")
        name, _, parallelism = head.partition("*")
        inputs = {}
        for part in rest.split():
            producer, _, edge = part.partition(":")
            inputs[producer] = {"f": "forward", "b": "broadcast"}.get(edge) or edge.replace("h(", "hash(")
        body: dict[str, Any] = {
            "sink": {"sink": {"format": "parquet", "path": f"/out/{name}"}},
            "app": {"spark_app": {"script": "e.py"}},
            "jdbc": {"source": {"format": "jdbc"}},
            "parquet": {"source": {"format": "parquet", "path": f"/in/{name}"}},
        }.get(kind) or ({"sql": "SELECT 1"} if inputs else {"source": {"format": "csv", "path": f"/in/{name}"}})
        vertices[name] = {**body, "parallelism": int(parallelism or 1), "inputs": inputs}
    modules = [{"name": "e.py", "sha256": "0" * 64, "kind": "file"}]
    graph = validate({"name": "job", "vertices": vertices, "modules": modules, **fields})
    assert isinstance(graph, JobGraph), [str(problem) for problem in graph]
    return compile_graph(graph)


def told(plan: Plan) -> list[str]:
    """A plan as lines: task, what it reads, what it leaves."""
    lines = []
    for task in plan.tasks.values():
        reads = [f"{each.vertex}:{each.edge}" for inputs in task.inputs.values() for each in inputs if each.task]
        leaves = [
            f"{each.vertex}:{each.edge}{list(each.keys) if each.keys else ''}{each.shares or ''}"
            for each in task.outputs
        ]
        copies = [vertex for vertex in task.vertices if vertex not in task.id.split("+")]
        parts = [f"{task.id}*{task.parallelism}", "<-", *copies, *reads, "->", *leaves]
        lines.append(" ".join(parts))
    return lines


SHAPES = {
    "one vertex": ("a", ["a*1 <- -> a:result"]),
    "a chain is one task": (
        "a\nb <- a:f\nc!sink <- b:f",
        ["a+b+c*1 <- -> b:result c:sink"],
    ),
    "a chain runs n times": ("a*3\nb*3 <- a:f", ["a+b*3 <- -> b:result"]),
    "any edge joins vertices of parallelism 1": ("a\nb <- a:b\nc <- b:h(k)", ["a+b+c*1 <- -> c:result"]),
    "a diamond of parallelism 1, whatever its edges": ("a\nb <- a:h(k)\nc <- a:f b:b", ["a+b+c*1 <- -> c:result"]),
    "sinks of parallelism 1": ("a\nb <- a:h(k)\nc!sink <- a:f\nd!sink <- b:b", ["a+b+c+d*1 <- -> c:sink d:sink"]),
    "what meets nowhere is apart": ("a\nb <- a:h(k)\nc\nd <- c:b", ["a+b*1 <- ->", "c+d*1 <- ->"]),
    "other edges part tasks of more subtasks": (
        "a*2\nb*2 <- a:b a:f\nc*2 <- b:h(k)",
        ["a+b*2 <- -> b:hash['k']2", "c*2 <- b:hash -> c:result"],
    ),
    "a way round through subtasks parts vertices of parallelism 1": (
        "a!jdbc\nb*2 <- a:h(k)\nc <- b:b a:b",
        ["a*1 <- -> a:hash['k']2 a:broadcast", "b*2 <- a:hash -> b:broadcast", "c*1 <- b:broadcast a:broadcast -> c:result"],
    ),
    "a fork stays one task": (
        "a\nb <- a:f\nc <- a:f",
        ["a+b+c*1 <- ->"],
    ),
    "a forward diamond is one task": (
        "a\nb <- a:f\nc <- a:f\nd <- b:f c:f",
        ["a+b+c+d*1 <- -> d:result"],
    ),
    "a join of two sources is one task": ("a\nb\nc <- a:f b:f", ["a+b+c*1 <- -> c:result"]),
    "a diamond with an exchange keeps one forward edge as an exchange": (
        "a*2\nb*2 <- a:h(k)\nc*2 <- a:f b:f",
        ["a*2 <- -> a:hash['k']2 a:forward", "b+c*2 <- a:hash a:forward -> c:result"],
    ),
    "a long way round with an exchange": (
        "a*2\nb*2 <- a:f\nc*2 <- b:h(k)\nd*2 <- c:f\ne*2 <- b:f d:f",
        ["a+b*2 <- -> b:hash['k']2 b:forward", "c+d+e*2 <- b:hash b:forward -> e:result"],
    ),
    "the declared order of inputs does not make a cycle": (
        "c*2 <- b:f a:f\nb*2 <- a:h(k)\na*2",
        ["a*2 <- -> a:hash['k']2 a:forward", "b+c*2 <- a:hash a:forward -> c:result"],
    ),
    "equal readers share an output": (
        "a*2\nb*2 <- a:h(k)\nc*2 <- a:h(k)\nd*3 <- a:h(k)\ne*2 <- a:h(k,l)\nf <- a:b\ng <- a:b",
        [
            "a*2 <- -> a:hash['k']2 a:hash['k']3 a:hash['k', 'l']2 a:broadcast",
            "b*2 <- a:hash ->",
            "c*2 <- a:hash ->",
            "d*3 <- a:hash ->",
            "e*2 <- a:hash ->",
            "f*1 <- a:broadcast ->",
            "g*1 <- a:broadcast ->",
        ],
    ),
    "a chained vertex read elsewhere too": (
        "a!jdbc\nb <- a:f\nc*2 <- a:h(k)",
        ["a+b*1 <- -> a:hash['k']2", "c*2 <- a:hash ->"],
    ),
    "a source by hash is read by each of few subtasks itself": ("a\nx*4\nb*4 <- x:f a:h(k)", ["x+b*4 <- a -> b:result"]),
    "and is still read for others": ("a\nb <- a:f\nc*2 <- a:h(k)", ["a+b*1 <- ->", "c*2 <- a ->"]),
    "more than few get their shares handed over": (
        "a\nx*5\nb*5 <- x:f a:h(k)",
        ["a*1 <- -> a:hash['k']5", "x+b*5 <- a:hash -> b:result"],
    ),
    "declared consumers first": (
        "z <- a:h(k)\na*2",
        ["a*2 <- -> a:hash['k']1", "z*1 <- a:hash -> z:result"],
    ),
    "a source by broadcast is read by each subtask itself": ("a\nb*2\nc*2 <- b:f a:b", ["b+c*2 <- a -> c:result"]),
    "a copy for each task that reads it so": (
        "a\nx*2\nb*2 <- x:f a:b\nc*2 <- b:h(k) a:b\nd*2 <- c:f a:b",
        ["x+b*2 <- a -> b:hash['k']2", "c+d*2 <- a b:hash -> d:result"],
    ),
    "a source that is read in other ways, too": (
        "a\nx*2\nb*2 <- x:f a:b\nc*2 <- b:f a:h(k)\nd <- a:f",
        ["a+d*1 <- ->", "x+b+c*2 <- a ->"],
    ),
    "so many subtasks get it handed over": ("a\nx*17\nb*17 <- x:f a:b", ["a*1 <- -> a:broadcast", "x+b*17 <- a:broadcast -> b:result"]),
    "a source of subtasks is handed over": ("a*2\nx*2\nb*2 <- x:f a:b", ["a*2 <- -> a:broadcast", "x+b*2 <- a:broadcast -> b:result"]),
    "columns are read by each, however many subtasks their source has": (
        "a*2!parquet\nb*4!parquet\nc*4 <- a:h(k) b:b", ["c*4 <- a b -> c:result"],
    ),
    "columns that five subtasks share are handed over": (
        "a*2!parquet\nc*5 <- a:h(k)", ["a*2 <- -> a:hash['k']5", "c*5 <- a:hash -> c:result"],
    ),
    "columns that many subtasks are to read are handed over": (
        "a*5!parquet\nb*2 <- a:h(k)", ["a*5 <- -> a:hash['k']2", "b*2 <- a:hash -> b:result"],
    ),
    "columns that many readers take are handed over": (
        "a*2!parquet\nb*3 <- a:h(k)\nc*3 <- a:h(k)\nd*3 <- a:h(k)",
        ["a*2 <- -> a:hash['k']3", "b*3 <- a:hash ->", "c*3 <- a:hash ->", "d*3 <- a:hash ->"],
    ),
    "columns that one reader takes share by share are handed over": (
        "a*2!parquet\nb*2 <- a:f\nc*2 <- a:h(k) b:f", ["a+b*2 <- -> a:hash['k']2 b:forward", "c*2 <- a:hash b:forward -> c:result"],
    ),
    "what is computed is handed over": (
        "a\nb <- a:f\nx*2\nc*2 <- x:f b:b",
        ["a+b*1 <- -> b:broadcast", "x+c*2 <- b:broadcast -> c:result"],
    ),
    "a script": ("a!app", ["a*1 <- ->"]),
    "a script beside a pipeline": ("a!app\nb", ["a*1 <- ->", "b*1 <- ->"]),
    "a sink that gathers": ("a*2\nb!sink <- a:b", ["a*2 <- -> a:broadcast a:result", "b*1 <- a:broadcast -> b:sink"]),
}


EARLIER_SHAPES = {
    "a\nb <- a:b\nc <- b:h(k)": [
        "a*1 <- -> a:broadcast", "b*1 <- a:broadcast -> b:hash['k']1", "c*1 <- b:hash -> c:result",
    ],
    "a\nb <- a:h(k)\nc <- a:f b:f": ["a*1 <- -> a:hash['k']1 a:forward", "b+c*1 <- a:hash a:forward -> c:result"],
    "a\nb <- a:f\nc <- b:b\nd <- c:f\ne <- b:f d:f": [
        "a+b*1 <- -> b:broadcast b:forward", "c+d+e*1 <- b:broadcast b:forward -> e:result",
    ],
    "a\nb <- a:f\nc <- a:b": ["a+b*1 <- -> a:broadcast", "c*1 <- a:broadcast ->"],
    "a\nx*2\nb*2 <- x:f a:b": ["a*1 <- -> a:broadcast", "x+b*2 <- a:broadcast -> b:result"],
    "a\nx*2\nb*2 <- x:f a:h(k)": ["a*1 <- -> a:hash['k']2", "x+b*2 <- a:hash -> b:result"],
}  # fmt: skip


@pytest.mark.parametrize("case", SHAPES)
def test_shapes(case: str) -> None:
    shape, expected = SHAPES[case]
    assert told(plan_of(shape)) == expected


def test_columns_that_are_the_result_are_handed_over() -> None:
    assert told(plan_of("a*2!parquet\nb*2 <- a:h(k)", result="a")) == ["a*2 <- -> a:hash['k']2 a:result", "b*2 <- a:hash ->"]
    sink = ["a*2 <- -> a:hash['k']2 a:result", "b*2 <- a:hash -> b:sink"]
    assert told(plan_of("a*2!parquet\nb*2!sink <- a:h(k)")) == sink, "what a sink writes is the result"
    assert told(plan_of("a!parquet\nb*2!sink <- a:h(k)")) == ["a*1 <- -> a:result", "b*2 <- a -> b:sink"]


@pytest.mark.parametrize("shape", EARLIER_SHAPES)
def test_a_job_that_an_earlier_build_began_keeps_its_plan(shape: str) -> None:
    assert told(compile_graph(plan_of(shape).graph, planner=0)) == EARLIER_SHAPES[shape]


def test_an_earlier_build_planned_what_two_inputs_are_hashed_by() -> None:
    graph = plan_of("a\nb\nc <- a:h(k) b:h(k)").graph
    assert compile_graph(graph, planner=0).needs_planning


@pytest.mark.parametrize("source", [{"format": "jdbc"}, {"format": "com.example.Source", "path": "/in"}])
def test_a_source_that_is_no_files_is_read_once(source: dict[str, Any]) -> None:
    """Read twice, it might have other rows each time."""
    graph = plan_of("a\nx!jdbc\nb*2 <- x:h(k) a:b").graph.model_dump(mode="json", by_alias=True)
    graph["vertices"]["a"]["source"] = source
    plan = compile_graph(JobGraph.model_validate(graph))
    assert told(plan)[0] == "a*1 <- -> a:broadcast"
    assert not plan.needs_planning


def test_a_source_whose_rows_are_the_result_is_read_for_that_once() -> None:
    plan = plan_of("a\nx*2\nb*2 <- x:f a:b", result="a")
    assert told(plan) == ["a*1 <- -> a:result", "x+b*2 <- a ->"]


def test_a_copy_is_pinned_and_known_as_one() -> None:
    plan = plan_of("a\nx!jdbc\nb*2 <- x:h(k) a:b")
    assert plan.needs_planning
    planned = plan_spec(plan, job="j", attempt=1).json_value()["vertices"]
    assert [(each["id"], each.get("copied", False)) for each in planned] == [("a", True), ("x", False), ("b", False)]
    report = AttemptReport.model_validate({"pinned": {"a": {"schema": "{}", "files": [["/in/a", 1, 2]]}}})
    reads = {"x": published({"x": "{}"}, 1)}
    read = attempt_spec(plan, job="j", task="b", subtask=1, attempt=1, published=reads, planned=report, exchange="/x", run="r")
    given = read.json_value()
    assert given["parallelism"] == 2
    assert [(each["id"], each["parallelism"], list(each["inputs"])) for each in given["vertices"]] == [("a", 1, []), ("b", 2, ["x", "a"])]
    assert given["vertices"][1]["inputs"]["a"] == {"edge": "chained"}
    assert given["pinned"]["a"]["files"] == [["/in/a", 1, 2]]


def test_of_a_copy_by_hash_a_subtask_keeps_its_share() -> None:
    plan = plan_of("a\nx!jdbc\nb*2 <- x:h(k) a:h(l)")
    report = AttemptReport(key_types={"b": ["bigint"]})
    reads = {"x": published({"x": "{}"}, 1)}
    read = attempt_spec(plan, job="j", task="b", subtask=1, attempt=1, published=reads, planned=report, exchange="/x", run="r")
    assert read.json_value()["vertices"][1]["inputs"]["a"] == {
        "edge": "chained", "keys": ["l"], "key_types": ["bigint"], "share": 1, "shares": 2,
    }  # fmt: skip


def test_a_chained_hash_input_keeps_its_keys() -> None:
    vertices = spec(plan_of("a\nb <- a:h(k)"), "a+b", 0, 1, {})["vertices"]
    assert vertices[1]["inputs"] == {"a": {"edge": "chained", "keys": ["k"]}}


def test_upstream() -> None:
    plan = plan_of("a*2\nb\nc*2 <- a:h(k) b:b\nd*2 <- c:f\ne <- d:b b:f")
    assert {task.id: task.upstream for task in plan.tasks.values()} == {"a": (), "c+d": ("a",), "b+e": ("c+d",)}


def test_a_subtask_waits_for_what_it_reads_and_nothing_else() -> None:
    plan = plan_of("a*2\nb*2 <- a:h(k)\nc*2 <- b:b a:f\nd <- c:b")
    assert told(plan) == [
        "a*2 <- -> a:hash['k']2 a:forward",
        "b*2 <- a:hash -> b:broadcast",
        "c*2 <- b:broadcast a:forward -> c:broadcast",
        "d*1 <- c:broadcast -> d:result",
    ]
    assert {
        (task.id, n): producers(plan, task.id, n) for task in plan.tasks.values() for n in range(task.parallelism)
    } == {
        ("a", 0): (),
        ("a", 1): (),
        ("b", 0): (("a", 0), ("a", 1)),
        ("b", 1): (("a", 0), ("a", 1)),
        ("c", 0): (("a", 0), ("b", 0), ("b", 1)),
        ("c", 1): (("a", 1), ("b", 0), ("b", 1)),
        ("d", 0): (("c", 0), ("c", 1)),
    }


@pytest.mark.parametrize(
    ("shape", "fields", "expected"),
    [
        ("a", {}, "a"),
        ("a\nb <- a:f", {}, "b"),
        ("a\nb!sink <- a:f", {}, "a"),
        ("a\nb", {}, None),
        ("a\nb", {"result": "b"}, "b"),
        ("a\nb <- a:f", {"result": "a"}, "a"),
        ("a\nb!sink <- a:f\nc!sink <- a:f", {}, None),
        ("a\nb!sink <- a:f\nc!sink <- a:f", {"result": "c"}, "a"),
        ("a!app", {}, None),
    ],
)
def test_the_result(shape: str, fields: dict[str, Any], expected: str | None) -> None:
    plan = plan_of(shape, **fields)
    assert plan.result == expected
    results = [output for task in plan.tasks.values() for output in task.outputs if output.edge == "result"]
    assert results == ([Output(expected, "result")] if expected else [])


@pytest.mark.parametrize(
    ("shape", "fields", "unread"),
    [
        ("a", {}, []),
        ("a\nb!sink <- a:f\nc!sink <- a:f\nd!app", {}, []),
        ("a\nb", {}, ["a", "b"]),
        ("a\nb", {"result": "b"}, ["a"]),
        ("a\nb <- a:f", {"result": "a"}, ["b"]),
        ("a\nb!sink <- a:f\nc <- a:f", {}, ["c"]),
    ],
)
def test_a_vertex_whose_rows_nobody_gets_is_warned_of(shape: str, fields: dict[str, Any], unread: list[str]) -> None:
    found = check_unread(plan_of(shape, **fields).graph)
    assert [each.place for each in found] == [("vertices", name) for name in unread]
    assert all(each.warning for each in found)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("a\nb <- a:h(k)", False),
        ("a*2", True),
        ("a\nb\nc <- a:h(k) b:h(k)", False),
        ("a\nb\nc*2 <- a:h(k) b:h(k)", True),
        ("a\nb\nc*2 <- a:h(k) b:b", True),
        ("a\nb\nd <- b:f\nc*2 <- a:h(k) d:b", True),
        ("a!jdbc\nb\nd <- b:f\nc*2 <- a:h(k) d:b", False),
    ],
)
def test_what_needs_planning(shape: str, expected: bool) -> None:
    assert plan_of(shape).needs_planning is expected


def spec(
    plan: Plan, task: str, subtask: int, attempt: int, reads: dict[str, Published]
) -> dict[str, Any]:
    common: dict[str, Any] = {"job": "j", "planned": None, "exchange": "/x", "run": "j-g1"}
    return attempt_spec(plan, task=task, subtask=subtask, attempt=attempt, published=reads, **common).json_value()


def test_a_script_is_not_planned() -> None:
    plan = plan_of("a!app\nb*2")
    assert [vertex["id"] for vertex in plan_spec(plan, job="j", attempt=1).json_value()["vertices"]] == ["b"]
    app = spec(plan, "a", 0, 1, {})["vertices"][0]
    assert app == {
        "id": "a",
        "spark_app": {"script": "e.py", "args": []},
        "schema": None,
        "parallelism": 1,
        "inputs": {},
    }


def test_a_forward_exchange_is_read_from_its_own_subtask_only() -> None:
    plan = plan_of("a*2\nb*2 <- a:h(k)\nc*2 <- a:f b:f")
    found = spec(plan, "b+c", 1, 1, {"a": published({"a": "AS"}, 5, 6)})
    assert {vertex["id"]: vertex["inputs"] for vertex in found["vertices"]} == {
        "b": {
            "a": {
                "edge": "hash",
                "keys": ["k"],
                "share": 1,
                "shares": 2,
                "folders": ["/x/j-g1/0-a/0/5/0-a", "/x/j-g1/0-a/1/6/0-a"],
                "schema": "AS",
            }
        },
        "c": {
            "a": {"edge": "forward", "folders": ["/x/j-g1/0-a/1/6/1-a"], "schema": "AS"},
            "b": {"edge": "chained"},
        },
    }
    assert [output["folder"] for output in spec(plan, "a", 1, 6, {})["outputs"]] == [
        "/x/j-g1/0-a/1/6/0-a",
        "/x/j-g1/0-a/1/6/1-a",
    ]


def test_readers_that_compare_keys_as_other_types_get_outputs_of_their_own() -> None:
    """x joins a.k with a bigint, y with a text, z only wants equal rows together: it takes the first."""
    plan = plan_of("a!jdbc\nb!jdbc\nc!jdbc\nz*2 <- a:h(k)\nx*2 <- a:h(k) b:h(k)\ny*2 <- a:h(k) c:h(k)")
    planned = AttemptReport(key_types={"x": ["bigint"], "y": ["string"]})
    common: dict[str, Any] = {"job": "j", "subtask": 0, "planned": planned, "exchange": "/x", "run": "j"}
    written = attempt_spec(plan, task="a", attempt=1, published={}, **common).json_value()["outputs"]
    assert [(output["key_types"], output["folder"]) for output in written] == [
        (["bigint"], "/x/j/0-a/0/1/0-a"),
        (["string"], "/x/j/0-a/0/1/1-a"),
    ]
    reads = {task: published({task: "S"}, 1) for task in "abc"}
    read = {
        task: attempt_spec(plan, task=task, attempt=1, published=reads, **common).json_value()["vertices"][0]["inputs"]["a"][
            "folders"
        ]
        for task in "xyz"
    }
    assert read == {"x": ["/x/j/0-a/0/1/0-a"], "y": ["/x/j/0-a/0/1/1-a"], "z": ["/x/j/0-a/0/1/0-a"]}


def test_the_staging_folder_is_a_hidden_neighbour() -> None:
    paths = {"/d/out": "/d/.out.staging", "out": ".out.staging", "s3a://b/x/out//": "s3a://b/x/.out.staging"}
    for path, expected in paths.items():
        plan = plan_of("a\nb!sink <- a:f")
        sink = plan.graph.vertices["b"]
        assert sink.sink is not None
        moved = sink.model_copy(update={"sink": sink.sink.model_copy(update={"path": path})})
        assert (
            staging_folder(plan.graph.model_copy(update={"vertices": {**plan.graph.vertices, "b": moved}}), "b")
            == expected
        )


@st.composite
def graphs(draw: st.DrawFn) -> JobGraph:
    """Any valid graph of up to nine vertices of one parallelism, declared in any order; sources that nobody reads by forward may have 1."""
    parallelism, form = draw(st.sampled_from([1, 2])), draw(st.sampled_from(["csv", "parquet"]))
    names = draw(st.permutations([f"v{i}" for i in range(draw(st.integers(1, 9)))]))
    vertices: dict[str, Any] = {}
    for index, name in enumerate(names):
        inputs = {
            other: draw(st.sampled_from(["forward", "forward", "broadcast", "hash(k)"]))
            for other in names[:index]
            if draw(st.booleans())
        }
        if inputs and all(edge == "broadcast" for edge in inputs.values()):
            inputs[next(iter(inputs))] = "forward"
        body: dict[str, Any] = {"sql": "SELECT 1"} if inputs else {"source": {"format": form, "path": "f"}}
        vertices[name] = {**body, "parallelism": parallelism, "inputs": inputs}
    for name, vertex in vertices.items():
        edges = [other["inputs"][name] for other in vertices.values() if name in other["inputs"]]
        if "source" in vertex and "forward" not in edges and draw(st.booleans()):
            vertex["parallelism"] = 1
    declared = {name: vertices[name] for name in sorted(vertices)}
    graph = validate({"name": "job", "vertices": declared})
    assert isinstance(graph, JobGraph), [str(problem) for problem in graph]
    return graph


def copies(graph: JobGraph, task: Task) -> list[str]:
    """A task is called by its own vertices."""
    return [vertex for vertex in task.vertices if vertex not in task.id.split("+")]


@given(graphs())
def test_any_plan_keeps_every_vertex_and_edge_and_has_no_cycle(graph: JobGraph) -> None:
    plan = compile_graph(graph)
    place = {vertex: index for index, vertex in enumerate(vertex_order(graph.vertices))}
    own = [vertex for task in plan.tasks.values() for vertex in task.vertices if vertex not in copies(graph, task)]
    assert len(own) == len(set(own))
    assert {vertex for task in plan.tasks.values() for vertex in task.vertices} == set(graph.vertices)
    for task in plan.tasks.values():
        members = [vertex for vertex in task.vertices if vertex not in copies(graph, task)]
        assert members and [place[vertex] for vertex in members] == sorted(place[vertex] for vertex in members)
        assert all(plan.tasks[other].index < task.index for other in task.upstream)
        for vertex in task.vertices:
            assert {each.vertex: each.keys for each in task.inputs[vertex]} == {
                producer: edge.keys for producer, edge in graph.vertices[vertex].inputs.items()
            }
            for each in task.inputs[vertex]:
                kind = graph.vertices[vertex].inputs[each.vertex].kind
                if each.task is None:
                    assert each.edge == "chained"
                    assert kind == "forward" or task.parallelism == 1 or each.vertex in copies(graph, task)
                    assert each.vertex in task.vertices
                else:
                    assert each.edge == kind
                    outputs = plan.tasks[each.task].outputs
                    readers = [
                        output for output in outputs if output.vertex == each.vertex and vertex in output.consumers
                    ]
                    assert [(output.edge, output.keys) for output in readers] == [(kind, each.keys)]


def test_the_same_graph_gives_the_same_plan_whatever_the_hash_seed() -> None:
    program = (
        "import sys; sys.path[:0] = sys.argv[1:]; from test_jobgraph_compile import SHAPES, plan_of;"
        " from millrace.core.jobgraph.specs import plan_spec;"
        " print([(plan_of(shape), plan_spec(plan_of(shape), job='j', attempt=1)) for shape, _ in SHAPES.values()])"
    )
    paths = [str(Path(__file__).parent), *(path for path in sys.path if path)]
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program, *paths],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    ]
    assert len(outputs[0]) > 1000
    assert outputs[0] == outputs[1]
