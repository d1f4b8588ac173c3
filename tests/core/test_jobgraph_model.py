"""Edges as text and back, and the JSON Schema that users read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.core.jobgraph.model import Edge, JobGraph, Sink
from millrace.edge.schema import Explained


@pytest.mark.parametrize(
    ("text", "edge"),
    [
        (" forward ", Edge("forward")),
        ("broadcast", Edge("broadcast")),
        ("hash(a)", Edge("hash", ("a",))),
        ("hash ( a ,b )", Edge("hash", ("a", "b"))),
        ("hash(`a, (b)`, c d)", Edge("hash", ("a, (b)", "c d"))),
    ],
)
def test_edges_are_read(text: str, edge: Edge) -> None:
    assert Edge.parse(text) == edge


@pytest.mark.parametrize(
    "text", ["", "hash", "hash(", "hash()", "hash(a", "hash(a,)", "hash(,a)", "hash(a b`c`)", "hash(a) x", "hash((a))"]
)
def test_what_is_no_edge_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="hash"):
        Edge.parse(text)


@given(st.lists(st.text(st.characters(exclude_characters="`"), min_size=1), min_size=1, unique=True))
def test_any_columns_come_through(keys: list[str]) -> None:
    edge = Edge("hash", tuple(keys))
    assert Edge.parse(str(edge)) == edge


@pytest.mark.parametrize(
    "path, plain",
    [
        ("/out/new/../report", "/out/report"),
        ("file:/out/./report/.", "file:/out/report"),
        ("s3a://bucket/../a/b/..", "s3a://bucket/a"),
        ("/out/..report//x.y/", "/out/..report//x.y/"),
    ],
)
def test_a_sinks_path_is_what_hadoop_makes_of_it(path: str, plain: str) -> None:
    """What is staged under the one is looked for under the other."""
    sink = Sink(format="csv", path=path)
    assert sink.path == Sink.model_validate_json(sink.model_dump_json()).path == plain


def test_the_model_explains_itself() -> None:
    """The JSON Schema is read by users: every field of every model says what it means."""
    schema = JobGraph.model_json_schema(schema_generator=Explained)
    models = {"JobGraph": schema, **schema["$defs"]}
    assert list(models) == [
        "JobGraph", "Module", "Origin", "Resources", "Restart", "Sink", "Source", "SparkApp", "Speculation", "Standing", "Timeouts",
        "Vertex",
    ]  # fmt: skip
    for name, model in models.items():
        assert model["description"], name
        assert model["additionalProperties"] is False, name
        for field, part in model["properties"].items():
            assert part.get("description"), f"{name}.{field}"
    assert "schema" in models["Source"]["properties"]
    assert models["Vertex"]["properties"]["inputs"]["additionalProperties"] == {
        "type": "string",
        "pattern": r"^\s*(forward|broadcast|hash\s*\(.+\))\s*$",
    }
