"""Which job another one was run again from. The graph carries it, so that whoever has the graph knows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .messages.execution import JobOrigin
from .trace_context import without

ORIGIN = "origin"
"""The field of a JobGraph."""


def again(graph: Mapping[str, Any], job: str, **how: bool) -> dict[str, Any]:
    """The stored graph of a job as it is submitted again: it says so, and the trace in it is not that of the job before. how: `repair`,
    `keep_changed`."""
    wanted = {name: True for name, given in how.items() if given}
    return {**without(graph), ORIGIN: {"job": job, **wanted}}


def repairs_of(graph: Mapping[str, Any]) -> str | None:
    """The job that a stored graph repairs; None: it repairs none."""
    found = origin_of(graph)
    return str(found["job"]) if found.get("repair") is True else None


def origin_of(graph: Mapping[str, Any]) -> Mapping[str, Any]:
    """As a stored graph has it; empty: of none, or of a graph that this build cannot read."""
    found = graph.get(ORIGIN)
    return found if isinstance(found, dict) and isinstance(found.get("job"), str) else {}


def origin_shown(graph: Mapping[str, Any]) -> JobOrigin | None:
    """As people and programs are shown it."""
    found = origin_of(graph)
    return JobOrigin(job=found["job"], **({"repair": True} if repairs_of(graph) else {})) if found else None
