"""Effects of the ResourceManager on its provider of TaskManagers, and their outcomes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .base import Body, empty


class StartWorker(Body):
    """Has the provider start a TaskManager of this id. One that it runs under the id already is the one."""

    type: Literal["StartWorker"] = "StartWorker"
    version: Literal[1] = 1
    worker: str
    avoid: Annotated[list[str], Field(exclude_if=lambda avoid: not avoid)] = empty(list)
    """Hosts on which it is not to be started: they are blocked."""


class WorkerStarted(Body):
    """The provider has started the process. `problem`: it has not confirmed that, in its words. The process may run all the same, so it is
    stopped before another one is started."""

    type: Literal["WorkerStarted"] = "WorkerStarted"
    version: Literal[1] = 1
    worker: str
    problem: str | None = None


class StopWorker(Body):
    """Has the provider stop the TaskManager of this id, and forget it."""

    type: Literal["StopWorker"] = "StopWorker"
    version: Literal[1] = 1
    worker: str


class WorkerStopped(Body):
    """Nothing of it runs any more."""

    type: Literal["WorkerStopped"] = "WorkerStopped"
    version: Literal[1] = 1
    worker: str


class ListWorkers(Body):
    """Asks the provider which TaskManagers it has started for this cluster. From then on it takes nothing of an earlier leader."""

    type: Literal["ListWorkers"] = "ListWorkers"
    version: Literal[1] = 1
    number: int
    """Of the question: only the answer to the last one counts."""


class WorkersListed(Body):
    """What the provider has. `problem`: it has not answered, in its words; then nothing is known."""

    type: Literal["WorkersListed"] = "WorkersListed"
    version: Literal[1] = 1
    number: int
    workers: dict[str, str | None] = empty(dict)
    """Id -> why its process has ended, in the provider's words; null: it runs."""
    problem: str | None = None
    hosts: Annotated[list[str], Field(exclude_if=lambda hosts: not hosts)] = empty(list)
    """Where it starts TaskManagers; empty: that is not known."""
    left_out: Annotated[list[str], Field(exclude_if=lambda left_out: not left_out)] = empty(list)
    """Why parts of it are not used, such as agents that do not answer: a line each."""
