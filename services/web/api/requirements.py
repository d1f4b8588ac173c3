"""The parallelism of a job's vertices: what it is and may be, and another one."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field

from millrace.core.messages.requirements import Count, VertexRequirement

from ..commands import Commands
from ..models import Shape
from ..problems import responses
from .asking import WAIT, JobPath, WaitS, json_alone


class Rescale(BaseModel):
    """Another parallelism for vertices of a job."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid", strict=True)

    parallelism: Count | None = None
    """Of each vertex that may have several subtasks; null: of none."""
    vertices: Annotated[dict[str, Count], Field(max_length=1000)] = Field(default_factory=dict)
    """Vertex -> its parallelism, which goes before the other. Vertices that `forward` joins with it get the same."""


class Requirements(Shape):
    """What parallelism the vertices of a job have, and may have."""

    job: str
    vertices: list[VertexRequirement]


class Rescaled(Requirements):
    """As they are now."""

    changed: dict[str, int]
    """Vertex -> its new parallelism, of those that had another one; empty: nothing changes."""


def add_requirements(router: APIRouter, commands: Commands) -> None:
    @router.get("/jobs/{job}/requirements", responses=responses(400, 404, 409, 429, 503, 504))
    async def requirements(job: JobPath, wait_s: WaitS = WAIT) -> Requirements:
        """The parallelism of each vertex of a job that has not ended, and what it may be."""
        return Requirements(job=job, vertices=await commands.call(lambda client: client.requirements(job), wait_s))

    @router.put(
        "/jobs/{job}/requirements", responses=responses(400, 403, 404, 408, 409, 413, 415, 429, 503, 504),
        dependencies=[Depends(json_alone)],
    )  # fmt: skip
    async def rescale(job: JobPath, how: Rescale, wait_s: WaitS = WAIT) -> Rescaled:
        """Gives vertices another parallelism: of all that may have several subtasks, or of some by name. What runs begins again, with what
        has finished and stays the same; no restart is spent. The same numbers again change nothing."""
        done = await commands.rescale(job, how.parallelism, how.vertices, wait_s)
        return Rescaled(job=job, vertices=done.vertices, changed=done.changed)
