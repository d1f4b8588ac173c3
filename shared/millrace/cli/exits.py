"""Exit codes. Those of `submit --wait` tell how the job ended."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """What a script that calls `millrace` can go by."""

    FINISHED = 0
    FAILED = 1
    """The job FAILED; for other commands: the cluster says no (no such job, no result yet)."""
    INVALID = 2
    """The job or the command line is wrong."""
    UNAVAILABLE = 3
    """Kafka or the cluster does not answer, or has no room; nothing was accepted."""
    UNKNOWN = 4
    """No answer came: ask `millrace show JOB`."""
    CANCELED = 5
    INTERRUPTED = 130
