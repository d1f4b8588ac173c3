"""Another parallelism for vertices of a stored graph."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.core.jobgraph.model import JobGraph, dump
from millrace.core.jobgraph.problems import Problem
from millrace.core.jobgraph.rescale import Bounds, bounds_of, changed, with_parallelism
from millrace.core.jobgraph.validate import validate

RAW: dict[str, Any] = {
    "name": "flights",
    "vertices": {
        "read": {"source": {"format": "parquet", "path": "/in"}, "parallelism": 2},
        "table": {"source": {"format": "jdbc"}},
        "clean": {"sql": "SELECT * FROM read", "parallelism": 2, "inputs": {"read": "forward"}},
        "joined": {"sql": "SELECT 1 AS k FROM clean", "parallelism": 3, "inputs": {"clean": "hash(k)", "table": "broadcast"}},
        "last": {"sql": "SELECT * FROM joined", "inputs": {"joined": "broadcast"}},
        "out": {"sink": {"format": "parquet", "path": "/out", "mode": "overwrite"}, "inputs": {"last": "forward"}},
        "app": {"spark_app": {"script": "a.py"}},
    },
    "modules": [{"name": "a.py", "sha256": "0" * 64}],
}
REPLICATED = "last: parallelism 2 needs an input by forward or hash: else every subtask computes the same rows"
NO_FILES = "must be 1: only files are read in shares, and jdbc is no file format"


def graph() -> dict[str, Any]:
    found = validate(RAW)
    assert isinstance(found, JobGraph), found
    return dump(found)


def test_what_may_be_set_is_what_the_rules_of_a_graph_allow() -> None:
    assert bounds_of(graph()) == {
        "read": Bounds(2, 128, "read", None),
        "table": Bounds(1, 1, "table", NO_FILES),
        "clean": Bounds(2, 128, "read", None),
        "joined": Bounds(3, 128, "joined", None),
        "last": Bounds(1, 1, "last", REPLICATED),
        "out": Bounds(1, 1, "last", REPLICATED),
        "app": Bounds(1, 1, "app", "a spark_app has parallelism 1, not 2"),
    }


@pytest.mark.parametrize(("vertices", "every", "expected"), [
    ({"joined": 8}, None, {"joined": 8}),
    ({"clean": 1}, None, {"read": 1, "clean": 1}),
    ({}, 4, {"read": 4, "clean": 4, "joined": 4}),
    ({"joined": 1}, 4, {"read": 4, "clean": 4, "joined": 1}),
    ({}, 3, {"read": 3, "clean": 3}),
    ({"joined": 3, "last": 1, "read": 2, "clean": 2}, None, {}),
])  # fmt: skip
def test_what_gets_another_number(vertices: dict[str, int], every: int | None, expected: dict[str, int]) -> None:
    assert changed(bounds_of(graph()), vertices, every) == expected


def test_a_graph_with_other_numbers_is_the_one_that_would_have_been_submitted_with_them() -> None:
    other = {**RAW, "vertices": {**RAW["vertices"], **{name: {**RAW["vertices"][name], "parallelism": 1} for name in ("read", "clean")}}}
    found = validate(other)
    assert isinstance(found, JobGraph)
    assert with_parallelism(graph(), {"read": 1, "clean": 1}) == dump(found)
    assert JobGraph.model_validate(with_parallelism(graph(), {"joined": 128})).vertices["joined"].parallelism == 128
    assert with_parallelism({"vertices": "of another build"}, {"a": 1}) == {"vertices": "of another build"}


def test_all_that_is_wrong_is_told_at_once() -> None:
    found = changed(bounds_of(graph()), {"joint": 2, "joined": 129, "out": 2, "read": 3, "clean": 4, "app": 2}, 500)
    assert found == [
        Problem(("vertices", "joint"), "no vertex is called joint", "did you mean joined?"),
        Problem(("vertices", "joined"), "must be at most 128, not 129"),
        Problem(("vertices", "out"), f"stays at 1, not 2: {REPLICATED}"),
        Problem(("vertices", "clean"), "has 4, and read has 3: forward needs equal parallelism"),
        Problem(("vertices", "app"), "stays at 1, not 2: a spark_app has parallelism 1, not 2"),
        Problem(("parallelism",), "must be at most 128, not 500"),
    ]


def test_a_job_without_a_vertex_that_may_have_several_subtasks_says_so() -> None:
    only = dump(validate({"name": "one", "vertices": {"v": {"sql": "SELECT 1"}}}))
    assert changed(bounds_of(only), {}, 2) == [Problem(("parallelism",), "no vertex of this job can have several subtasks")]
