"""Submissions: accepted or refused; and what would be found wrong with one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response

from millrace.client import Conflict, MillraceError, NotFound, Rejected, new_id
from millrace.core.jobgraph.compile import compile_graph
from millrace.core.jobgraph.model import JobGraph
from millrace.core.messages.base import JOB_ID_PATTERN
from millrace.core.origins import repairs_of
from millrace.edge.graph_file import Loaded
from millrace.edge.requests import check_loaded

from .. import models
from ..commands import Commands, NotAnswered
from ..parcel import CONTENT, MULTIPART, Parcel, receive
from ..problems import Refusal, of_failure, responses
from .asking import WAIT, JobPath, WaitS

BODY = {"requestBody": {"required": True, "content": CONTENT}}
ANY_BODY = {"requestBody": {"required": True, "content": {
    kind: {"schema": {name: value for name, value in each["schema"].items() if kind == MULTIPART or name != "type"}}
    for kind, each in CONTENT.items()
}}}  # fmt: skip
"""Whatever a text says is looked at."""
Parameters = Annotated[
    list[str] | None,
    Query(max_length=100, alias="parameter", description="NAME=VALUE for the graph's ${NAME}; may be repeated."),
]


def _trace(
    traceparent: Annotated[
        str | None, Header(description="The span that the job's spans belong below (W3C Trace Context). What is malformed is ignored.")
    ] = None,
    tracestate: Annotated[
        list[str] | None, Header(description="What goes beside traceparent, as it is. What is malformed is left out.")
    ] = None,
) -> tuple[str | None, str]:
    """Of a request; several headers of the second mean one, says W3C."""
    return traceparent, ",".join(tracestate or ())


Trace = Annotated[tuple[str | None, str], Depends(_trace)]
NewId = Annotated[str | None, Query(pattern=JOB_ID_PATTERN, description="The new job's id; a repeat with it is the same job.")]
Key = Annotated[
    str | None, Header(min_length=1, max_length=255, description="A repeat with it is the same job, instead of an id in the URL.")
]
AGAIN: dict[int | str, dict[str, Any]] = {
    202: {"description": "Accepted", "model": models.Submitted}, **responses(400, 403, 404, 409, 429, 503, 504)
}  # fmt: skip


def submissions(commands: Commands) -> APIRouter:
    """What brings jobs."""
    router = APIRouter(tags=["submissions"])
    _add_again(router, commands)

    @router.post(
        "/jobs",
        status_code=201,
        responses={
            202: {"description": "Accepted", "model": models.Submitted},
            **responses(400, 403, 408, 409, 413, 415, 429, 503, 507),
        },
        openapi_extra=BODY,
    )
    async def submit(
        request: Request,
        response: Response,
        trace: Trace,
        job: Annotated[str | None, Query(pattern=JOB_ID_PATTERN, description="The job's id; a repeat with it is the same job.")] = None,
        parameter: Parameters = None,
        idempotency_key: Key = None,
        wait_s: WaitS = WAIT,
    ) -> models.Submitted:
        """Submits a graph's file (JSON or YAML), a graph with its modules, or a script with the fields of spark-submit.

        201: it is stored and will run, whatever dies. 202: no answer came within `wait_s`; it is asked for at `url`. Another graph under
        the id or key of a job is a 409."""
        chosen = chosen_id("job", job, idempotency_key)
        parcel = await receive(request, parameter or (), commands.load)
        loaded = await parcel.on(commands.load, lambda: loaded_of(parcel))
        id = chosen or new_id(str(loaded.raw.get("name", "")))
        response.headers["Location"] = where = f"/api/v1/jobs/{id}"
        try:
            accepted = await commands.submit(
                loaded.raw, id, parcel.parameters(), loaded.uploads, loaded.env, wait_s, parcel.close, *trace
            )
        except NotAnswered:  # the parcel is still read
            response.status_code = 202
            return models.Submitted(job=id, status=None, url=where, warnings=[])
        except BaseException as failure:
            parcel.close()
            if isinstance(failure, Conflict):
                raise await _conflict(commands, id, loaded.raw, failure) from None
            if isinstance(failure, Rejected):
                raise of_failure(failure, parcel.as_mistakes(loaded, failure.problems)) from None
            raise
        here = parcel.mistakes(loaded, warnings=True)
        known = [(each.place, each.message) for each in here]
        found = [each for each in parcel.as_mistakes(loaded, accepted.warnings) if (each.place, each.message) not in known]
        return models.Submitted(job=id, status=accepted.status, url=where, warnings=[*here, *found])

    @router.post(
        "/validate",
        responses=responses(400, 403, 408, 413, 415, 429, 503, 507),
        openapi_extra=ANY_BODY,
    )
    async def validate(request: Request, parameter: Parameters = None) -> models.Validated:
        """What the cluster would find wrong with a submission, and how it would run. Nothing is sent; no Kafka is needed."""
        parcel = await receive(request, parameter or (), commands.load)

        def found() -> models.Validated:
            try:
                return _validated(parcel)
            finally:
                parcel.close()

        return await parcel.on(commands.load, found)

    return router


def _add_again(router: APIRouter, commands: Commands) -> None:
    @router.post(
        "/jobs/{job}/again",
        status_code=201,
        responses=AGAIN,
    )
    async def again(
        job: JobPath,
        response: Response,
        new: NewId = None,
        idempotency_key: Key = None,
        wait_s: WaitS = WAIT,
    ) -> models.Submitted:
        """Submits the graph of an ended job once more, as it was stored, under a new id. It reads what its sources have now, and its sinks
        write again. 409 for a job that has not ended, or of which nothing is kept; 504 where nothing was submitted yet within `wait_s`."""
        chosen = chosen_id("new", new, idempotency_key)
        graph = await commands.call(lambda client: client.graph_of(job), wait_s)
        return await _submitted(commands, graph, chosen, response, wait_s)

    @router.post(
        "/jobs/{job}/repair",
        status_code=201,
        responses=AGAIN,
    )
    async def repair(
        job: JobPath,
        response: Response,
        new: NewId = None,
        idempotency_key: Key = None,
        wait_s: WaitS = WAIT,
    ) -> models.Submitted:
        """Goes on with a job that FAILED or was CANCELED, as a new job: what had finished is kept, all else runs. 409, with the reason,
        where it has not ended or nothing of it is kept; 504 where nothing was submitted yet within `wait_s`. With files that were mended,
        POST /api/v1/jobs takes a graph whose `origin` is {"job": JOB, "repair": true}."""
        chosen = chosen_id("new", new, idempotency_key)
        graph = await commands.call(lambda client: client.graph_of(job, repair=True), wait_s)
        return await _submitted(commands, graph, chosen, response, wait_s)


async def _submitted(
    commands: Commands, graph: dict[str, Any], new: str | None, response: Response, wait_s: float
) -> models.Submitted:
    id = new or new_id(str(graph.get("name", "")))
    response.headers["Location"] = where = f"/api/v1/jobs/{id}"
    try:
        accepted = await commands.submit(graph, id, wait_s=wait_s)
    except Conflict as failure:
        raise await _conflict(commands, id, graph, failure) from None
    except NotAnswered:
        response.status_code = 202
        return models.Submitted(job=id, status=None, url=where, warnings=[])
    return models.Submitted(job=id, status=accepted.status, url=where, warnings=[])


async def _conflict(commands: Commands, id: str, graph: Mapping[str, Any], failure: Conflict) -> Refusal:
    """Of a submission: the id is another graph's, or the job that it would repair cannot be."""
    if repairs_of(graph) is None or await _is_there(commands, id):
        return of_failure(failure)
    return Refusal(409, str(failure).partition("\n")[0], "wrong-state")


async def _is_there(commands: Commands, job: str) -> bool:
    """Whether there is a job of this id: then its graph is why another one is refused, and else the job that would be repaired."""
    try:
        await commands.call(lambda client: client.show(job))
    except NotFound:
        return False
    except MillraceError:
        return True
    return True


def loaded_of(parcel: Parcel) -> Loaded:
    """Raises Refusal for what is wrong before it is sent."""
    loaded = parcel.load()
    if loaded.errors:
        mistakes = parcel.mistakes(loaded)
        raise Refusal(400, f"the graph has {len(mistakes)} mistake{'s' * (len(mistakes) != 1)}", "invalid-graph", mistakes)
    return loaded


def _validated(parcel: Parcel) -> models.Validated:
    loaded = parcel.load()
    check_loaded(loaded)
    wrong = parcel.mistakes(loaded)
    tasks = _planned(loaded.graph) if loaded.graph is not None and not wrong else []
    return models.Validated(valid=not wrong, errors=wrong, warnings=parcel.mistakes(loaded, warnings=True), tasks=tasks)


def _planned(graph: JobGraph) -> list[models.PlannedTask]:
    plan = compile_graph(graph)
    return [
        models.PlannedTask(
            task=task.id,
            parallelism=task.parallelism,
            reads=list(task.upstream),
            vertices=[
                models.PlannedVertex(
                    vertex=name,
                    kind=graph.vertices[name].kind,
                    inputs=[
                        models.PlannedInput(vertex=each.vertex, edge=each.edge, keys=list(each.keys)) for each in task.inputs[name]
                    ],
                )
                for name in task.vertices
            ],
        )
        for task in plan.tasks.values()
    ]


def chosen_id(parameter: str, id: str | None, key: str | None) -> str | None:
    """The id of a new job, by a parameter or by Idempotency-Key; None: nobody chose one. The same key is the same job, whichever process is
    asked: the cluster refuses another graph under the id of a job. Raises Refusal."""
    if id is not None and key is not None:
        raise Refusal(400, f"give {parameter} or Idempotency-Key: each alone makes a repeat the same job", "invalid-parameter")
    return id if key is None else f"key-{hashlib.sha256(key.encode()).hexdigest()[:24]}"
