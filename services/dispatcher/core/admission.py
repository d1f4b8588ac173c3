"""Whether a submission may be stored. Policies over plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millrace.core.jobgraph.model import Limits

RETRY_AFTER_MS = 1_000
"""After which a client tries again when there is no room: about as long as a thousand jobs need to be accepted."""


def subtasks_of(graph: Mapping[str, Any]) -> int:
    """The subtasks of all vertices: what a graph may come to cost its JobMaster. Its text is no measure of that [R30]. A graph that this
    build cannot read counts nothing: its JobMaster fails it."""
    vertices = graph.get("vertices")
    found = [each.get("parallelism", 1) for each in vertices.values() if isinstance(each, dict)] if isinstance(vertices, dict) else []
    return sum(min(max(each, 0), Limits.parallelism) for each in found if isinstance(each, int))


def too_wide(*, subtasks: int, max_subtasks: int) -> str | None:  # [R30]
    """Why a job can never be accepted here; None: it can."""
    if subtasks <= max_subtasks:
        return None
    return f"its vertices have {subtasks} subtasks in all, and max_live_subtasks is {max_subtasks}: lower their parallelism"


def no_room(
    *,
    live: int,
    putting: int,
    graphs_bytes: int,
    graph_bytes: int,
    live_subtasks: int,
    subtasks: int,
    max_live: int,
    max_graphs_mb: int,
    max_subtasks: int,
) -> str | None:  # [R30]
    """Why there is no room for one more job; None: there is. `live` and `putting` count jobs, `graphs_bytes` and `live_subtasks` what is of
    both."""
    if live + putting >= max_live:
        are = "1 job is" if live + putting == 1 else f"{live + putting} jobs are"
        return f"{are} live, and max_live_jobs is {max_live}; try again when some have ended"
    if graphs_bytes + graph_bytes > max_graphs_mb * 1024 * 1024:
        return f"the graphs of live jobs fill max_live_graphs_mb ({max_graphs_mb}); try again when some have ended"
    if live_subtasks + subtasks > max_subtasks:
        return (
            f"live jobs have {live_subtasks} subtasks, this one {subtasks}, and max_live_subtasks is {max_subtasks};"
            " try again when some have ended"
        )
    return None


def conflict(job: str, digest: str, stored_digest: str) -> str | None:
    """Why a submission is not the same job again; None: it is."""
    if digest == stored_digest:
        return None
    return f"job {job} exists with another graph or other parameters; submit under another id"


def cancel_refusal(job: str, status: str) -> str | None:
    """Why an ended job cannot be canceled; None: it is CANCELED already, and a repeat is harmless."""
    return None if status == "CANCELED" else f"job {job} has ended already: it is {status}"
