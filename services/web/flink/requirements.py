"""The parallelism of a job's vertices as Flink has it for its adaptive scheduler: a lower bound and an upper one of each.

A job gets the upper bound here, and waits for slots where it must, so the lower one is 1. The other way round only the upper bound counts.
A vertex of Flink's plan is a task here. Which vertices are one task may be another question once their parallelism is another one, so
ids are to be asked for again then, as from the job's plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field, RootModel

from millrace.client import Invalid, NotFound, Refused

from . import shapes
from .commands import Commands
from .errors import Refusal, Reply
from .ids import vertex_id
from .operations import body_of, described
from .source import Job, Source

WAIT_S = 12.0
UNSET = -1
"""As Flink has it: the lower bound is 1 then, and the upper one as high as can be."""


VertexId = Annotated[str, Field(pattern="^[0-9a-fA-F]{32}$")]


class Parallelism(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    lower: Annotated[int, Field(alias="lowerBound")] = UNSET
    upper: Annotated[int, Field(alias="upperBound")] = UNSET


class Requirement(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    parallelism: Parallelism


class JobResourceRequirementsBody(RootModel[dict[VertexId, Requirement]]):
    root: Annotated[dict[VertexId, Requirement], Field(max_length=1000)]


def router(source: Source, commands: Commands) -> APIRouter:
    api = APIRouter(prefix="/jobs/{job}/resource-requirements", tags=["requirements"])

    @api.get("", response_model=dict[str, shapes.VertexRequirements])
    async def requirements(job: str) -> Reply:
        """What each vertex of a job that has not ended is to have."""
        found = await _live(source, job)
        bounds = await _most(commands, found)
        body: dict[str, shapes.VertexRequirements] = {
            vertex_id(name): {"parallelism": {"lowerBound": 1, "upperBound": now}} for name, (now, _) in bounds.items()
        }
        return Reply(body)

    @api.put("", response_model=shapes.Empty, openapi_extra=described(JobResourceRequirementsBody))
    async def update(
        job: str, asked: Annotated[JobResourceRequirementsBody, Depends(body_of(JobResourceRequirementsBody))]
    ) -> Reply:
        """Gives each vertex its upper bound: what runs begins again. All vertices are to be named."""
        found = await _live(source, job)
        bounds = await _most(commands, found)
        wanted = _checked({key.lower(): each.parallelism for key, each in asked.root.items()}, bounds)
        try:
            if wanted:
                await commands.rescale(str(found.row["job"]), None, wanted)
        except Invalid as wrong:
            raise Refusal(400, *(each.message for each in wrong.problems)) from None
        except NotFound:
            raise _unknown(job) from None
        except Refused as refused:
            raise Refusal(409, str(refused)) from None
        return Reply({})

    return api


def _unknown(job: str) -> Refusal:
    return Refusal(404, f"Job {job[:100]} not found")


async def _live(source: Source, text: str) -> Job:
    found = await source.job(text)
    if found.has_ended:
        raise _unknown(text)  # Flink asks the JobMaster alone, which is gone
    return found


async def _most(commands: Commands, job: Job) -> dict[str, tuple[int, int]]:
    """Task -> its parallelism, and the most that it may be."""
    try:
        vertices = await commands.call(lambda client: client.requirements(str(job.row["job"])), WAIT_S)
    except Refused as refused:  # it has ended meanwhile
        raise Refusal(404, str(refused)) from None
    known = {each.vertex: each for each in vertices}
    names = [task.name for task in job.tasks if all(vertex in known for vertex in task.name.split("+"))]
    return {
        name: (known[name.split("+")[0]].parallelism, max(known[vertex].most for vertex in name.split("+"))) for name in names
    }


def _checked(asked: Mapping[str, Parallelism], bounds: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Vertex -> its parallelism. Raises Refusal with all that is wrong."""
    ids = {vertex_id(name): name for name in bounds}
    wrong = [f"Newly requested job vertex {key} is not part of the job." for key in asked if key not in ids]
    wrong += [f"The request is incomplete, it lacks the job vertex {key} ({name})." for key, name in ids.items() if key not in asked]
    wanted: dict[str, int] = {}
    for key, each in asked.items():
        if key not in ids:
            continue
        now, most = bounds[ids[key]]
        lower, upper = 1 if each.lower == UNSET else each.lower, most if each.upper == UNSET else each.upper
        if not 1 <= lower <= upper:
            wrong.append(f"Vertex {key}: the bounds {lower} and {upper} are no range of numbers from 1 on.")
        elif upper > most:
            wrong.append(f"Vertex {key}: the upper bound {upper} is higher than {most}, which is the most that it can have.")
        elif upper != now:
            wanted |= dict.fromkeys(ids[key].split("+"), upper)
    if wrong:
        raise Refusal(400, *wrong[:20])
    return wanted
