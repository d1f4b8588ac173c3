"""Whether a submission may be stored. Policies over plain values."""

from __future__ import annotations

RETRY_AFTER_MS = 1_000
"""What a client is told to wait when there is no room: about as long as a thousand jobs need to be accepted."""


def no_room(
    *, live: int, putting: int, graphs_bytes: int, graph_bytes: int, max_live: int, max_graphs_mb: int
) -> str | None:
    """Why there is no room for one more job; None: there is. `live` and `putting` count jobs."""
    if live + putting >= max_live:
        return f"{live + putting} jobs are live, and max_live_jobs is {max_live}; try again when some have ended"
    if graphs_bytes + graph_bytes > max_graphs_mb * 1024 * 1024:
        return f"the graphs of live jobs fill max_live_graphs_mb ({max_graphs_mb}); try again when some have ended"
    return None


def conflict(job: str, digest: str, stored_digest: str) -> str | None:
    """Why a submission is not the same job again; None: it is."""
    if digest == stored_digest:
        return None
    return f"job {job} exists with another graph or other parameters; submit under another id"


def cancel_refusal(job: str, status: str) -> str | None:
    """Why an ended job cannot be canceled; None: it is CANCELED already, and a repeat is harmless."""
    return None if status == "CANCELED" else f"job {job} has ended already: it is {status}"
