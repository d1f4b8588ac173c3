"""Why a job failed, in the order of asking. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from millrace.core.faults import FAULTS, decision_text
from millrace.core.jobgraph.compile import Plan
from millrace.core.messages.attempts import Fault

from .words import LOST_KINDS, label, printable


@dataclass(frozen=True)
class Cause:
    """Why a job failed, in the order of asking: what, where, what to do."""

    headline: str
    message: str
    places: tuple[str, ...]
    condition: str
    help: str
    again: str
    attempt: str
    detail: str


def cause_of(cause: Fault | None) -> Cause | None:
    """The one readable cause of a failure."""
    if cause is None:
        return None
    message = printable(cause.message or cause.kind or "no cause is known").strip()
    head, _, rest = message.partition("\n")
    where = cause.vertex or (label(cause.task) if cause.task else "")
    row = FAULTS.get((cause.kind, cause.retryable))
    places = [f"{cause.file}:{cause.line}" if cause.line else cause.file] if cause.file else (
        [f"line {cause.line} of its query"] if cause.line else []
    )  # fmt: skip
    if cause.frame:
        places.append(cause.frame)
    kind = "is not the job's doing: it is run elsewhere" if cause.kind in LOST_KINDS else "may heal: it was tried again" if (
        cause.retryable
    ) else "is not tried again: it stays until code or data change"  # fmt: skip
    decided = f" Then {decision_text(cause.decided)}." if cause.decided is not None else ""
    attempt = f"{label(cause.task)}[{cause.subtask}], attempt {cause.attempt}" if cause.task and cause.attempt else ""
    headline = f"{where} failed: {head}" if where else head
    return Cause(
        headline, rest.strip(), tuple(places), cause.condition or "", row.help if row is not None else "",
        f"A failure of this kind {kind}.{decided}", attempt, printable(cause.detail),
    )  # fmt: skip


def query_of(plan: Plan | None, cause: Fault | None) -> tuple[tuple[int, str, bool], ...]:
    """The lines of the user's query around the one that failed, numbered as in the user's file where that is known."""
    if plan is None or cause is None or not cause.vertex or not cause.line:
        return ()
    vertex, standing = plan.graph.vertices.get(cause.vertex), plan.graph.sources.get(cause.vertex)
    if vertex is None or vertex.sql is None:
        return ()
    first = 1
    if cause.file:
        if standing is None or standing.file != cause.file or standing.indent is None:
            return ()
        first = standing.line
    lines = enumerate(vertex.sql.splitlines(), first)
    return tuple((n, text, n == cause.line) for n, text in lines if abs(n - cause.line) <= 5)
