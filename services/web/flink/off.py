"""What has no meaning here answers as Flink does where the feature is off, or where its scheduler is not the adaptive one.

Jars, profilers and what nobody lists here are unknown paths: `Not found`."""

from __future__ import annotations

from fastapi import APIRouter, Request

from .errors import Refusal, Reply
from .source import Source

NO_PROGRAMS = (
    "This is a Millrace cluster: it runs PySpark jobs, and no programs of Flink. Submit a graph or a script with `millrace submit`, "
    "or over HTTP at /api/v1/jobs."
)


def router(source: Source) -> APIRouter:
    api = APIRouter(tags=["off"], include_in_schema=False)

    @api.post("/jobs")
    async def submit(request: Request) -> Reply:
        async for _ in request.stream():  # whoever still sends does not read the answer
            pass
        raise Refusal(501, NO_PROGRAMS)

    @api.patch("/jobs/{job}/rescaling")
    @api.get("/jobs/{job}/rescaling/{trigger}")
    async def rescaling(job: str) -> Reply:
        await source.job(job)
        raise Refusal(503, "Rescaling is temporarily disabled. See FLINK-12312.")

    @api.get("/jobs/{job}/rescales/{rest:path}")
    async def adaptive(job: str) -> Reply:
        await source.job(job)
        raise Refusal(404, "Only the adaptive scheduler keeps a history of rescales; here the job's events have each.")

    @api.post("/jobs/{job}/coordinators/{operator}")
    async def coordinator(job: str) -> Reply:
        await source.job(job)
        raise Refusal(404, "No operator of a job has a coordinator here.")

    @api.delete("/datasets/{data_set}")
    @api.get("/datasets/delete/{trigger}")
    async def no_data_set() -> Reply:
        raise Refusal(404, "There is no such data set.")

    @api.delete("/cluster")
    async def shut_down() -> Reply:
        raise Refusal(403, "A cluster is not ended here: `millrace shutdown` does that, or POST /api/v1/shutdown.")

    return api
