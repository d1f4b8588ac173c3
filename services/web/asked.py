"""A job that the tables do not have: it is too old, or too new. The cluster is asked for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from millrace.client import Conflict, Millrace, MillraceError, NotFound, Shown

from .kept import shape
from .problems import Refusal, of_failure

T = TypeVar("T")
WAIT_S = 2.0
"""For so long a read waits for the cluster: its job may be in the tables the next time."""


class Commands(Protocol):
    """As much of the service's commands as that needs."""

    async def call(self, request: Callable[[Millrace], T], wait_s: float) -> T:
        """The answer to any call of the client library."""

    def refused(self, job: str) -> MillraceError | None:
        """Why the last submission under this id was not accepted, as far as this process remembers."""


async def asked(job: str, commands: Commands) -> Shown:
    """Raises MillraceError; NotFound: there is none. Refusal: there is none, for it was not accepted."""
    refused = commands.refused(job)
    try:
        return await commands.call(lambda client: client.show(job), WAIT_S)
    except NotFound as unknown:
        if refused is None:
            raise
        known = of_failure(refused)
        kind = "wrong-state" if isinstance(refused, Conflict) else known.kind  # no job has its id: the job that it would repair cannot be
        raise Refusal(404, f"{unknown}: it was not accepted: {known.detail}", kind, known.mistakes) from None


def row_of(found: Shown) -> dict[str, Any]:
    """In the shape in which jobs are shown."""
    one = found.summary
    names = ("job", "name", "status", "accepted_ms", "running_ms", "ended_ms", "waiting", "position", "expected_ms", "state")
    since_ms = found.detail.since_ms if found.detail is not None else None
    detail = shape(found.detail) if found.detail is not None else {"cause": None, "spent": None, "origin": None, "tasks": []}
    return {**{name: getattr(one, name) for name in names}, "since_ms": since_ms, "archive": None, **detail}
