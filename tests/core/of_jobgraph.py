"""Job graphs of tests, and what is said of them."""

from __future__ import annotations

from dataclasses import dataclass, field
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


@dataclass
class Counted:
    """A subtask that has published, as a spec reads it."""

    attempt: int
    listed: tuple[str, ...] = ()
    kept: str | None = None


@dataclass
class Published:
    """A task of which a spec reads."""

    schemas: dict[str, str]
    rows: dict[int, Counted] = field(default_factory=dict)


def published(schemas: dict[str, str], *attempts: int) -> Published:
    """The attempt that counts of each of its subtasks."""
    return Published(schemas, {number: Counted(attempt) for number, attempt in enumerate(attempts)})
