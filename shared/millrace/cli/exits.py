"""Exit codes. Those of `submit --wait` tell how the job ended."""

from __future__ import annotations

import errno
import sys
from enum import IntEnum

from .words import printable


class Exit(IntEnum):
    """What a script that calls `millrace` can go by."""

    FINISHED = 0
    FAILED = 1
    """The job FAILED; for other commands: the cluster says no (no such job, no result yet)."""
    INVALID = 2
    """The job or the command line is wrong."""
    UNAVAILABLE = 3
    """Kafka, the cluster or the part of it that knows does not answer, or has no room; nothing was accepted. What `show` can tell without
    the part that is silent it tells, with 0."""
    UNKNOWN = 4
    """No answer came: ask `millrace show JOB`."""
    CANCELED = 5
    INTERRUPTED = 130


_THE_MACHINES = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS)
"""What the system refuses to any program: a full disk, a folder without the right."""


def code_of(failure: Exception) -> int | None:
    """The exit code of a failure; None: not an error that a user can do something about, but a bug.

    A class of errors outside of the client library names its own, as `exit_code`."""
    own = getattr(failure, "exit_code", None)
    if isinstance(own, int):
        return own
    if isinstance(failure, OSError) and failure.errno in _THE_MACHINES:
        return Exit.FAILED
    errors = sys.modules.get("millrace.client.errors")
    if errors is None or not isinstance(failure, errors.MillraceError):
        return None
    if isinstance(failure, (errors.Unavailable, errors.Busy, errors.TooLate)):
        return Exit.UNAVAILABLE
    if isinstance(failure, errors.OutcomeUnknown):
        return Exit.UNKNOWN
    return Exit.INVALID if isinstance(failure, (errors.Rejected, errors.Malformed)) else Exit.FAILED


def message_of(failure: Exception) -> str:
    """What is printed of it."""
    detail = getattr(failure, "detail", "")
    return printable("\n".join([f"millrace: {failure}", *([detail] if isinstance(detail, str) and detail else [])]))
