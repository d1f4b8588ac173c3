"""What a job that FAILED or was CANCELED had finished, so that a job that repairs it need not run it again.

The rows themselves stay in the exchange. This names them: of each finished subtask the folder in which its counted attempt left them.
"""

from __future__ import annotations

from .attempts import AttemptReport, Open, OutputReport
from .base import empty

KEPT_BYTES_MOST = 300_000
"""Of its JSON: it is a part of JobEnded, and stands beside a graph in StartJob and in etcd."""


class KeptSubtask(Open):
    """A finished subtask of a task."""

    subtask: int
    place: int = 0
    """Which of the task's `places`."""
    attempt: int
    """Its rows lie in `<place>/<subtask>/<attempt>`."""
    outputs: dict[str, OutputReport] = empty(dict)
    """By vertex: its rows and bytes."""


class KeptTask(Open):
    """The finished subtasks of a task, and what they were made of. They are kept where a repairing job has the same task."""

    definition: str
    """Digest of its vertices, of what is read and handed on how, and of the definitions of all that it reads of."""
    files: str
    """Digest of the files and variables that its code has."""
    schemas: dict[str, str]
    """Vertex -> Spark's JSON of its rows."""
    schemas_of: int = 0
    """The subtask that reported them."""
    places: list[str]
    """Folders in the exchange: `<acceptance>/<life>/<task folder>`."""
    subtasks: list[KeptSubtask]


class Kept(Open):
    """All of it."""

    why: str = ""
    """Why it cannot be repaired; empty: it can."""
    bytes: int = 0
    """What the rows take in the exchange, as far as it is known."""
    jobs: dict[str, str] = empty(dict)
    """Acceptance -> job: whose attempts made it. A job that repairs one that repaired has rows of both."""
    planning: str = ""
    """Digest of all that its plan follows from."""
    planned: AttemptReport | None = None
    """What the plan attempt reported."""
    planned_by: str = ""
    """The acceptance of the job whose attempt that was."""
    tasks: dict[str, KeptTask] = empty(dict)
