"""Graphs whose vertices all have parallelism 1: one attempt, one Spark plan, whatever their edges are called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from millrace.core.jobgraph.compile import compile_graph
from millrace.core.jobgraph.model import JobGraph
from millrace.core.jobgraph.specs import attempt_spec
from millrace.core.jobgraph.validate import validate
from services.task_manager.slot.attempt import errors
from tests.slot.attempts import Attempts

COUNTED = """
def noted(rows, spark, parameters):
    def note(batches):
        for batch in batches:
            with open(parameters["notes"], "a") as file:
                file.write("x" * len(batch))
            yield batch
    return rows.mapInPandas(note, rows.schema)
"""


def spec_of(tmp_path: Path, vertices: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The spec of the one attempt that such a graph is."""
    graph = validate({"name": "one", "vertices": vertices, **fields})
    assert isinstance(graph, JobGraph), [str(problem) for problem in graph]
    plan = compile_graph(graph)
    assert not plan.needs_planning
    (task,) = plan.tasks
    spec = attempt_spec(
        plan, job="j", task=task, subtask=0, attempt=1, published={}, planned=None, exchange=str(tmp_path / "exchange"), run="j/1"
    )
    return spec.json_value()


def sink(path: Path, name: str, edge: str) -> dict[str, Any]:
    return {"sink": {"format": "json", "path": str(path)}, "inputs": {name: edge}}


def staged(spec: dict[str, Any], vertex: str) -> list[Any]:
    """The rows that a sink's output left."""
    (folder,) = [output["folder"] for output in spec["outputs"] if output["vertex"] == vertex]
    return [json.loads(line) for file in sorted(Path(folder).glob("*.json")) for line in file.read_text().splitlines()]


def test_a_diamond_with_two_sinks_reads_what_is_read_twice_once(attempts: Attempts, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("k,v\na,1\nb,2\na,3\nc,4\n")
    notes = tmp_path / "notes"
    vertices = {
        "src": {"source": {"format": "csv", "path": str(tmp_path / "in.csv"), "options": {"header": True}, "schema": "k STRING, v INT"}},
        "noted": {"python": "counted:noted", "inputs": {"src": "hash(k)"}, "schema": "k STRING, v INT"},
        "sums": {"sql": "SELECT k, sum(v) AS s FROM noted GROUP BY k", "inputs": {"noted": "hash(k)"}},
        "most": {"sql": "SELECT max(v) AS m FROM noted", "inputs": {"noted": "broadcast"}},
        "both": {"sql": "SELECT k, s, m FROM sums CROSS JOIN most ORDER BY k", "inputs": {"sums": "hash(k)", "most": "broadcast"}},
        "all": sink(tmp_path / "all", "both", "forward"),
        "raw": sink(tmp_path / "raw", "noted", "broadcast"),
    }
    spec = spec_of(
        tmp_path, vertices, modules=[attempts.module("counted.py", COUNTED)], parameters={"notes": str(notes)}, result="both"
    )
    report = attempts.run_spec(spec)
    expected = [["a", 4, 4], ["b", 2, 4], ["c", 4, 4]]
    assert report["result"]["rows"] == expected
    assert [list(row.values()) for row in staged(spec, "all")] == expected
    assert sorted((row["k"], row["v"]) for row in staged(spec, "raw")) == [("a", 1), ("a", 3), ("b", 2), ("c", 4)]
    assert len(notes.read_text()) == 4  # each of the four rows went through the function once, for three readers
    assert not (tmp_path / "exchange").exists()


def test_a_hash_key_that_is_not_there_is_said_though_there_is_one_share(attempts: Attempts, tmp_path: Path) -> None:
    vertices = {"a": {"sql": "SELECT 1 AS k"}, "b": {"sql": "SELECT * FROM a", "inputs": {"a": "hash(kk)"}}}
    spec = spec_of(tmp_path, vertices)
    with pytest.raises(errors.AttemptError) as caught:
        attempts.run_spec(spec)
    described = errors.describe(caught.value, spec)
    assert described["condition"] == "HASH_KEY_NOT_FOUND" and described["vertex"] == "b"
    assert "'a' has no column 'kk' to hash by; it has: k" in described["message"]


def test_keys_of_types_that_nothing_must_agree_on(attempts: Attempts, tmp_path: Path) -> None:
    """With one share the query's own comparison is all that counts."""
    vertices = {
        "a": {"sql": "SELECT 1 AS k, 'one' AS x"},
        "b": {"sql": "SELECT '1' AS k, 'two' AS y"},
        "c": {"sql": "SELECT x, y FROM a JOIN b ON a.k = b.k", "inputs": {"a": "hash(k)", "b": "hash(k)"}},
    }
    assert attempts.run_spec(spec_of(tmp_path, vertices))["result"]["rows"] == [["one", "two"]]


def test_a_failing_vertex_in_the_middle_is_named_with_its_line(attempts: Attempts, tmp_path: Path) -> None:
    vertices = {
        "a": {"sql": "SELECT 1 AS k"},
        "b": {"sql": "SELECT k,\n  nothing FROM a", "inputs": {"a": "hash(k)"}},
        "c": {"sql": "SELECT * FROM b", "inputs": {"b": "broadcast"}},
    }
    spec = spec_of(tmp_path, vertices)
    with pytest.raises(Exception) as caught:
        attempts.run_spec(spec)
    described = errors.describe(caught.value, spec)
    assert (described["vertex"], described["line"]) == ("b", 2)
