"""What the Dispatcher's leader notices in etcd that others have done to the graphs of jobs: Flink's JobGraphListener, as records.

They are facts of a moment, and may come twice, or late: a handler looks first at what the log knows of the job.
"""

from __future__ import annotations

from typing import Any, Literal

from .base import Body, empty
from .client import Problem


class JobGraphAdded(Body):
    """Somebody else has put a graph under the key of a job that no record of this log knows. It was checked, as a submission is."""

    type: Literal["JobGraphAdded"] = "JobGraphAdded"
    version: Literal[1] = 1
    job: str
    revision: int
    """Of the key, as it was read."""
    acceptance: str
    """That it names: of another job, of this one's earlier life, or by records that this log has lost. Empty: it cannot be read."""
    digest: str = ""
    graph: dict[str, Any] | None = None
    """The valid graph; null: it is refused."""
    problems: list[Problem] = empty(list)
    """Why it is refused."""
    size_bytes: int
    sha256: str
    head_base64: str
    """Of what stands there, for its dead letter."""


class JobGraphRemoved(Body):
    """Somebody else has deleted the key of a live job: etcd has told of it, and the key is gone."""

    type: Literal["JobGraphRemoved"] = "JobGraphRemoved"
    version: Literal[1] = 1
    job: str
    acceptance: str
    """Of the job, as it lived when its key was looked at."""


class JobGraphChanged(Body):
    """The key of a job that this log knows holds something else, or is gone though nobody is known to have deleted it, as in an etcd that
    was restored from a backup."""

    type: Literal["JobGraphChanged"] = "JobGraphChanged"
    version: Literal[1] = 1
    job: str
    acceptance: str
    """Of the job, as this log had it when its key was looked at."""
    revision: int
    """Of the key, as it was read; 0: it is gone."""
    size_bytes: int = 0
    sha256: str = ""
    head_base64: str = ""
    """Of what stands there, for its dead letter."""


NOTICED: tuple[type[Body], ...] = (JobGraphAdded, JobGraphRemoved, JobGraphChanged)
