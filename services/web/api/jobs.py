"""Jobs: the list, one of them, and its cancellation."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse

from millrace.core.messages.client import CURSOR_PATTERN
from millrace.core.states import JobState

from .. import models
from ..asked import asked, row_of
from ..changes import Level
from ..commands import Commands, NotAnswered
from ..core.failures import failures_of
from ..kept import Kept
from ..listing import BadCursor, Listing
from ..problems import responses
from ..view import View
from .asking import WAIT, JobPath, WaitS, check_ready, shown, wrong_parameter
from .requirements import add_requirements

PAGE_MOST = 1000
TIME_MOST = 1 << 53
ARCHIVED_WAIT_S = 10.0
Sort = Literal[
    "accepted_ms", "-accepted_ms", "since_ms", "-since_ms", "running_ms", "-running_ms", "ended_ms", "-ended_ms",
    "name", "-name", "status", "-status", "job", "-job",
]  # fmt: skip


def jobs(view: View, commands: Commands, kept: Kept) -> APIRouter:
    """What is asked of jobs that were submitted."""
    router = APIRouter(tags=["jobs"])

    @router.get("/jobs", response_model=models.Jobs, responses=responses(304, 400, 429, 503, 504))
    async def jobs(
        request: Request,
        state: Annotated[list[JobState] | None, Query(max_length=20, description="Only jobs in one of these; may be repeated.")] = None,
        name: Annotated[str, Query(max_length=255, description="Only jobs whose name has this in it.")] = "",
        task_manager: Annotated[str, Query(max_length=255, description="Only jobs of which an attempt is or was there.")] = "",
        since_ms: Annotated[int | None, Query(ge=0, le=TIME_MOST, description="Accepted at this time or later.")] = None,
        until_ms: Annotated[int | None, Query(ge=0, le=TIME_MOST, description="Accepted before this time.")] = None,
        sort: Annotated[Sort, Query(description="A field; with - before it from the greatest on.")] = "-accepted_ms",
        limit: Annotated[int, Query(ge=1, le=PAGE_MOST)] = 100,
        cursor: Annotated[str, Query(max_length=1000, description="`next` of the page before; all else as it was.")] = "",
        archived: Annotated[bool, Query(description="Also those that ended so long ago that only the cluster's store has them.")] = False,
    ) -> Response:
        """The jobs, page by page; newest first unless `sort` says otherwise. Jobs that come meanwhile move no page.

        With `archived` the Dispatcher is asked, by `sort=-accepted_ms` and for no `task_manager` alone. Each job then also has `silent`:
        its JobMaster, where that one does not answer."""
        if archived and not view.past:
            only = {"states": state or [], "name": name, "since_ms": since_ms, "until_ms": until_ms}
            return await _archived(view, commands, limit, cursor, only, sort, task_manager)
        listing = Listing(state or (), name, task_manager, since_ms, until_ms, sort, limit, cursor)

        def listed(view: View) -> dict[str, Any]:
            try:
                found, total, more = listing.page(view.jobs)
            except BadCursor as bad:
                raise wrong_parameter("cursor", str(bad)) from None
            return {"total": total, "jobs": found, "next": more}

        return shown(request, view, listed, Level.PROGRESS if task_manager else Level.LINE)

    @router.get("/jobs/{job}", response_model=models.Job, responses=responses(304, 400, 404, 429, 503, 504))
    async def job(request: Request, job: JobPath) -> Response:
        """A job with its tasks, subtasks and attempts. The cluster is asked for one that is too old, or too new, to be among those that
        are listed."""
        check_ready(view)
        older = None
        if view.ask(lambda view: view.jobs.row(job))[0] is None:
            older = row_of(await asked(job, commands))
        return shown(request, view, lambda view: {"job": view.jobs.described(job) or older}, job if older is None else None)

    @router.post(
        "/jobs/{job}/cancel",
        responses={202: {"description": "Accepted", "model": models.Canceled}, **responses(400, 403, 404, 409, 429, 503)},
    )
    async def cancel(job: JobPath, response: Response, wait_s: WaitS = WAIT) -> models.Canceled:
        """Asks for the job's end; a repeat is harmless. 409 for a job that FINISHED or FAILED; 202 where no answer came within `wait_s`:
        the job may still be canceled."""
        where = f"/api/v1/jobs/{job}"
        try:
            return models.Canceled(job=job, status=await commands.cancel(job, wait_s), url=where)
        except NotAnswered:
            response.status_code, response.headers["Location"] = 202, where
            return models.Canceled(job=job, status=None, url=where)

    add_requirements(router, commands)
    _add_failures(router, view, commands)
    return router


def _add_failures(router: APIRouter, view: View, commands: Commands) -> None:
    @router.get("/jobs/{job}/failures", response_model=models.Failures, responses=responses(304, 400, 404, 429, 503, 504))
    async def failures(request: Request, job: JobPath) -> Response:
        """What failed in a job and what followed, the newest first; below what made it restart or fail what failed meanwhile."""
        check_ready(view)
        older = None
        if view.ask(lambda view: view.jobs.row(job))[0] is None:
            older = row_of(await asked(job, commands))

        def listed(view: View) -> dict[str, Any]:
            found, omitted = failures_of(view.jobs.described(job) or older or {"tasks": []})
            return {"failures": found, "omitted": omitted}

        return shown(request, view, listed, job if older is None else None)


async def _archived(
    view: View, commands: Commands, limit: int, cursor: str, only: dict[str, Any], sort: str, task_manager: str
) -> Response:
    """A page of all jobs that the Dispatcher has, or finds in etcd. Raises Refusal for what it cannot be asked."""
    if sort != "-accepted_ms":
        raise wrong_parameter("sort", "with archived the order is -accepted_ms")
    if task_manager:
        raise wrong_parameter("task_manager", "it is not kept of jobs that ended long ago: ask without archived")
    if not re.fullmatch(CURSOR_PATTERN, cursor):
        raise wrong_parameter("cursor", "it is none of a listing with archived")
    check_ready(view)
    page = await commands.call(lambda client: client.list_details(limit, cursor, **only), ARCHIVED_WAIT_S)
    jobs = [{**each.model_dump(exclude={"archive"}), "since_ms": each.ended_ms, "state": each.state} for each in page.jobs]
    _, as_of = view.ask(lambda view: None)
    return JSONResponse({"as_of": as_of, "total": page.total, "jobs": jobs, "next": page.next})
