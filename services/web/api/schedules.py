"""Schedules: jobs by cron. The cluster alone knows them, so each request asks it."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request, Response

from millrace.client import Invalid, Rejected, new_id
from millrace.core.messages.base import JOB_ID_PATTERN
from millrace.core.messages.schedules import SCHEDULE_PATTERN, Missed, Overlap

from .. import models
from ..commands import Commands, NotAnswered
from ..parcel import CONTENT, receive
from ..problems import of_failure, responses
from .asking import WAIT, WaitS
from .submissions import Key, Parameters, chosen_id, loaded_of

ScheduleName = Annotated[str, Path(pattern=SCHEDULE_PATTERN, description="A schedule's name.")]
ANSWERED = responses(400, 404, 409, 429, 503, 504)
CHANGED = responses(400, 403, 404, 409, 429, 503, 504)


def schedules(commands: Commands) -> APIRouter:
    """What there is, and what changes it."""
    router = APIRouter(tags=["schedules"])
    _add_set(router, commands)
    _add_run(router, commands)

    @router.get("/schedules", responses=responses(400, 429, 503, 504))
    async def list_schedules(wait_s: WaitS = WAIT) -> models.Schedules:
        """All schedules, by their names."""
        found = await commands.call(lambda client: list(client.schedules()), wait_s)
        return models.Schedules(schedules=found, total=len(found))

    @router.get("/schedules/{schedule}", responses=ANSWERED)
    async def show_schedule(schedule: ScheduleName, wait_s: WaitS = WAIT) -> models.ScheduleShown:
        """When it runs next, and its last runs, newest first: their jobs with their states, and times that were left out."""
        found = await commands.call(lambda client: client.schedule(schedule), wait_s)
        return models.ScheduleShown(schedule=found.schedule, runs=found.runs)

    @router.delete("/schedules/{schedule}", status_code=204, responses=CHANGED)
    async def remove_schedule(schedule: ScheduleName, wait_s: WaitS = WAIT) -> Response:
        """Deletes it. Its jobs stay, also one that runs."""
        await commands.schedule("remove_schedule", schedule, lambda client: client.remove_schedule(schedule), wait_s)
        return Response(status_code=204)

    @router.post("/schedules/{schedule}/pause", responses=CHANGED)
    async def pause_schedule(schedule: ScheduleName, wait_s: WaitS = WAIT) -> models.ScheduleShown:
        """Begins no further run; times that come meanwhile are not made up for. A repeat is harmless."""
        made = await commands.schedule("pause_schedule", schedule, lambda client: client.pause_schedule(schedule), wait_s)
        return models.ScheduleShown(schedule=made, runs=[])

    @router.post("/schedules/{schedule}/resume", responses=CHANGED)
    async def resume_schedule(schedule: ScheduleName, wait_s: WaitS = WAIT) -> models.ScheduleShown:
        """Goes on with a paused one, from now on. A repeat is harmless."""
        made = await commands.schedule("resume_schedule", schedule, lambda client: client.pause_schedule(schedule, True), wait_s)
        return models.ScheduleShown(schedule=made, runs=[])

    return router


def _add_set(router: APIRouter, commands: Commands) -> None:
    @router.put(
        "/schedules/{schedule}",
        responses=responses(400, 403, 408, 409, 413, 415, 429, 503, 504, 507),
        openapi_extra={"requestBody": {"required": True, "content": CONTENT}},
    )
    async def set_schedule(
        request: Request,
        schedule: ScheduleName,
        cron: Annotated[str, Query(max_length=200, description="Minute, hour, day of the month, month, day of the week; or @daily, ...")],
        time_zone: Annotated[str, Query(max_length=64, description="The cron's local time, as Europe/Berlin.")] = "UTC",
        missed: Annotated[Missed, Query(description="Which times are run that came while nothing could be submitted.")] = "latest",
        overlap: Annotated[Overlap, Query(description="A time at which the run before goes on is left out, or waits.")] = "skip",
        paused: Annotated[Literal["true", "false"], Query(description="Begin no run before it is resumed.")] = "false",
        parameter: Parameters = None,
        wait_s: WaitS = WAIT,
    ) -> models.ScheduleShown:
        """Makes a schedule, or replaces the one of this name. The body is that of a submission."""
        parcel = await receive(request, parameter or (), commands.load)
        loaded = await parcel.on(commands.load, lambda: loaded_of(parcel))
        policy = {"missed": missed, "overlap": overlap, "paused": paused == "true"}
        try:
            made = await commands.schedule(
                "set_schedule", schedule,
                lambda client: client.set_schedule(
                    schedule, loaded.raw, cron, time_zone, parcel.parameters(), loaded.uploads, loaded.env, **policy
                ),
                wait_s, parcel.close,
            )  # fmt: skip
        except NotAnswered:  # the parcel is still read
            raise
        except BaseException as failure:
            parcel.close()
            if isinstance(failure, Invalid):
                raise of_failure(failure, parcel.as_mistakes(loaded, failure.problems)) from None
            raise
        return models.ScheduleShown(schedule=made, runs=[])


def _add_run(router: APIRouter, commands: Commands) -> None:
    @router.post(
        "/schedules/{schedule}/run",
        status_code=201,
        responses={202: {"description": "Accepted", "model": models.Submitted}, **CHANGED},
    )
    async def run_schedule(
        schedule: ScheduleName,
        response: Response,
        job: Annotated[str | None, Query(pattern=JOB_ID_PATTERN, description="The job's id; a repeat with it is the same job.")] = None,
        idempotency_key: Key = None,
        wait_s: WaitS = WAIT,
    ) -> models.Submitted:
        """Runs its graph now, beside its times. 202: no answer came within `wait_s`; it is asked for at `url`."""
        id = chosen_id("job", job, idempotency_key) or new_id(schedule)
        response.headers["Location"] = where = f"/api/v1/jobs/{id}"
        try:
            accepted = await commands.schedule("run_schedule", schedule, lambda client: client.run_schedule(schedule, id, False), wait_s)
        except NotAnswered:
            response.status_code = 202
            return models.Submitted(job=id, status=None, url=where, warnings=[])
        except Rejected as failure:
            raise of_failure(failure) from None
        return models.Submitted(job=id, status=accepted.status, url=where, warnings=[])
