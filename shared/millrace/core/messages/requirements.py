"""What parallelism the vertices of a job have, and another one for a job that runs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .base import JOB_ID_PATTERN, Part, Reply, Request, empty

Count = Annotated[int, Field(ge=1, le=1_000_000)]
JobId = Annotated[str, Field(pattern=JOB_ID_PATTERN)]


class UpdateRequirements(Request):
    """Gives vertices of a job that has not ended another parallelism. What runs of it begins again, with what has finished and stays the
    same; no restart is spent. Numbers that it has already change nothing."""

    type: Literal["UpdateRequirements"] = "UpdateRequirements"
    version: Literal[1] = 1
    job: JobId
    parallelism: Count | None = None
    """Of each vertex that may have several subtasks; null: of none."""
    vertices: Annotated[dict[str, Count], Field(max_length=1000)] = empty(dict)
    """Vertex -> its parallelism, which goes before the other. Vertices that `forward` joins with it get the same."""


class DescribeRequirements(Request):
    """Which parallelism the vertices of a job that has not ended have, and which they may have."""

    type: Literal["DescribeRequirements"] = "DescribeRequirements"
    version: Literal[1] = 1
    job: JobId


class VertexRequirement(Part):
    """A vertex: its parallelism may be 1 to `most`."""

    vertex: str
    parallelism: int
    most: int
    group: str
    """Vertices of one group are joined by `forward`, and have one parallelism. The name is that of the first of them."""
    why: str | None = None
    """What keeps it at 1; null: nothing."""


class JobRequirements(Reply):
    """Answers DescribeRequirements."""

    type: Literal["JobRequirements"] = "JobRequirements"
    version: Literal[1] = 1
    job: str
    vertices: list[VertexRequirement]


class RequirementsUpdated(Reply):
    """Answers UpdateRequirements: the job's JobMaster has taken it, or begins the job with it."""

    type: Literal["RequirementsUpdated"] = "RequirementsUpdated"
    version: Literal[1] = 1
    job: str
    changed: dict[str, int]
    """Vertex -> its new parallelism, of those that had another one; empty: nothing changes."""
    vertices: list[VertexRequirement]
    """As they are now."""
    silent: Annotated[str | None, Field(exclude_if=lambda silent: silent is None)] = None
    """The job's JobMaster, which does not answer: it is noted, and is done when that one is back, unless the job has ended there."""


class Rescale(Part):
    """What a JobMaster is sent of it."""

    parallelism: dict[str, int]
    """Vertex -> parallelism, of all for which clients have asked since the job was submitted."""
    log: str
    offset: int
    """Of the newest of these requests, in client.commands: a JobMaster takes each once."""
