"""What can go wrong for a client; each says in one sentence what it was and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from millrace.core.messages.attempts import Fault
from millrace.core.messages.client import Problem


class MillraceError(Exception):
    """All errors of this library."""


class Unavailable(MillraceError):
    """Kafka, the cluster or its blob server does not answer. A submission that ends so was not and will not be accepted. `silent`: the part
    of the cluster that has not answered, where another one has told that."""

    def __init__(self, message: str, silent: str | None = None) -> None:
        super().__init__(message)
        self.silent = silent


class OutcomeUnknown(MillraceError):
    """The request is in Kafka, or may be, and no answer came: for a submission, ask for the job's status."""

    def __init__(self, message: str, job: str | None = None) -> None:
        super().__init__(message)
        self.job = job


class Rejected(MillraceError):
    """The submission was not accepted, and nothing was kept of it."""

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        self.problems = list(problems)
        """What is wrong with the graph, each with its place."""
        says_it = len(self.problems) == 1 and self.problems[0].message in message
        super().__init__("\n".join([*([] if says_it else [message]), *map(_line, self.problems)]))


def _line(problem: Problem) -> str:
    place = ".".join(map(str, problem.place))
    hint = f" ({problem.hint})" if problem.hint else ""
    return f"{place + ': ' if place else ''}{problem.message}{hint}"


class Invalid(Rejected):
    """The graph is wrong; `problems` has every mistake."""


class Conflict(Rejected):
    """The id belongs to a job with another graph."""


class TooLate(Rejected):
    """It reached the cluster after its time was up."""


class Busy(Rejected):
    """The cluster has no room for more jobs now; try again later."""


class Refused(MillraceError):
    """The cluster understood the request and says no."""


class NotFound(Refused):
    """There is no such job."""


class Malformed(Refused):
    """What was given can be no such name or number, of a job or a host say, whatever the cluster has; nothing was sent."""


class NotFinished(MillraceError):
    """There is no result: the job has not ended, or has ended otherwise. `status`; `cause` of a FAILED one."""

    def __init__(self, message: str, status: str, cause: Fault | None = None) -> None:
        super().__init__(message)
        self.status, self.cause = status, cause
