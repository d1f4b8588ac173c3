"""Job graphs of tests, and what is said of them."""

from __future__ import annotations

from typing import Any

from millrace.core.jobgraph.model import JobGraph
from millrace.core.jobgraph.validate import validate

CSV = {"source": {"format": "csv", "path": "f.csv"}}


def graph(vertices: Any, **fields: Any) -> dict[str, Any]:
    return {"name": "job", "vertices": vertices, **fields}


def problems(raw: object, **options: Any) -> list[str]:
    """Each problem as one line; a graph that is accepted is a failure."""
    result = validate(raw, **options)
    assert isinstance(result, list), f"accepted: {result}"
    return [str(problem) for problem in result]


def accepted(raw: object, **options: Any) -> JobGraph:
    result = validate(raw, **options)
    assert isinstance(result, JobGraph), [str(problem) for problem in result]
    return result
