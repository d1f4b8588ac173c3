"""What changes a job: it is canceled. Savepoints and checkpoints answer as Flink does for a job that has none, which is any batch job."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Header, Query, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from millrace.client import NotFound, Refused

from . import shapes
from .commands import Commands
from .errors import Refusal, Reply
from .ids import job_id
from .source import Source
from .throwables import throwable

M = TypeVar("M", bound=BaseModel)
KEPT_S = 300.0  # as Flink keeps the result of an operation
KEPT_MOST = 1000
NO_CHECKPOINTS = "Checkpointing was not enabled for job {job}."


class Body(BaseModel):
    """Of a request. Flink ignores fields that it does not know."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    trigger: Annotated[str | None, Field(alias="triggerId", pattern="^[0-9a-fA-F]{32}$")] = None
    """The id of the operation, so that a repeat is known as one."""


class SavepointBody(Body):
    target: Annotated[str | None, Field(alias="target-directory")] = None
    cancels: Annotated[bool | None, Field(alias="cancel-job")] = None


class StopBody(Body):
    target: Annotated[str | None, Field(alias="targetDirectory")] = None
    drain: bool | None = None


class CheckpointBody(Body):
    kind: Annotated[str | None, Field(alias="checkpointType", pattern="^(CONFIGURED|FULL|INCREMENTAL)$")] = None


class DisposalBody(Body):
    path: Annotated[str, Field(alias="savepoint-path")]


def body_of(kind: type[M]) -> Callable[[Request], Awaitable[M]]:
    """The body of a request, whatever its content type says: Flink goes by the content, and takes none for `{}`."""

    async def parsed(request: Request) -> M:
        try:
            return kind.model_validate_json(await request.body() or b"{}")
        except ValidationError as error:
            mistakes = "; ".join(f"{'.'.join(map(str, each['loc'])) or 'the body'}: {each['msg']}" for each in error.errors())
            raise Refusal(400, f"Request did not match expected format {kind.__name__}: {mistakes}") from None

    return parsed


def described(kind: type[BaseModel]) -> dict[str, Any]:
    """That body in the OpenAPI document."""
    schema = kind.model_json_schema()
    return {"requestBody": {"content": {"application/json": {"schema": _whole(schema, schema.pop("$defs", {}))}}}}


def _whole(schema: Any, parts: Mapping[str, Any]) -> Any:
    """A schema with its parts in their places: the document has no others."""
    if isinstance(schema, dict):
        name = schema.get("$ref", "").rpartition("/")[2]
        return _whole(parts[name], parts) if name else {key: _whole(each, parts) for key, each in schema.items()}
    return [_whole(each, parts) for each in schema] if isinstance(schema, list) else schema


@dataclass(frozen=True)
class Operation:
    """One that was triggered. It has failed: there is none that could succeed."""

    subject: str
    cause: shapes.Throwable
    expires_s: float


class Operations:
    """Those of the last five minutes, by their id and kind."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._kept: OrderedDict[tuple[str, str], Operation] = OrderedDict()

    def trigger(self, kind: str, subject: str, trigger: str | None, cause: shapes.Throwable) -> shapes.Triggered:
        """Takes one in; a repeat changes nothing."""
        trigger = (trigger or secrets.token_hex(16)).lower()
        self._forget_old()
        self._kept.setdefault((kind, trigger), Operation(subject, cause, self._now_s() + KEPT_S))
        return {"request-id": trigger}

    def cause(self, kind: str, subject: str, trigger: str) -> shapes.Throwable:
        """Why it failed. Raises Refusal where there is none of this id."""
        self._forget_old()
        found = self._kept.get((kind, trigger.lower()))
        if found is None or found.subject != subject:
            raise Refusal(404, f"Operation not found under key: {trigger[:100]}")
        return found.cause

    def _forget_old(self) -> None:
        while self._kept:
            oldest = next(iter(self._kept.values()))
            if len(self._kept) < KEPT_MOST and oldest.expires_s > self._now_s():
                return
            self._kept.popitem(last=False)


def router(source: Source, commands: Commands) -> APIRouter:
    api = APIRouter(tags=["operations"])
    _add_cancel(api, source, commands)
    _add_savepoints(api, source, Operations())
    return api


async def cancel(source: Source, commands: Commands, job: str) -> Reply:
    try:
        await commands.cancel(source.own_id(job))
    except NotFound:
        raise Refusal(404, f"Job could not be found: {job[:100]}") from None
    except Refused as refused:
        reason = "Job cancellation failed because the job has already reached another terminal state"
        raise Refusal(409, f"{reason} ({refused}).") from None
    return Reply({}, 202)


def _add_cancel(api: APIRouter, source: Source, commands: Commands) -> None:
    @api.patch("/jobs/{job}", response_model=shapes.Empty, status_code=202)
    async def terminate(
        job: str, mode: Annotated[str, Query(description="cancel", pattern="^(cancel|stop|CANCEL|STOP)$")] = "cancel"
    ) -> Reply:
        """Cancels a job."""
        if mode.lower() == "stop":
            raise Refusal(
                308,
                'The termination mode "stop" has been removed. For an ungraceful shutdown, please use "cancel" instead. '
                'For a graceful shutdown, please use "jobs/:jobid/stop" instead.',
            )
        return await cancel(source, commands, job)

    @api.get("/jobs/{job}/yarn-cancel", response_model=shapes.Empty, status_code=202)
    @api.get("/jobs/{job}/yarn-stop", response_model=shapes.Empty, status_code=202, include_in_schema=False)
    async def terminate_by_get(
        job: str,
        site: Annotated[str, Header(alias="Sec-Fetch-Site", include_in_schema=False)] = "same-origin",
        dest: Annotated[str, Header(alias="Sec-Fetch-Dest", include_in_schema=False)] = "empty",
    ) -> Reply:
        """Cancels a job; the dashboard asks so. A GET could be a picture in anybody's page, or a link in a mail: so a browser must say that
        a script of this origin asks. Who sends no such headers is none."""
        if (site, dest) != ("same-origin", "empty"):
            raise Refusal(403, "with a browser only a script of this service's own pages may change something here")
        return await cancel(source, commands, job)

    @api.post("/applications/{application}/cancel", response_model=shapes.Empty, status_code=202)
    async def cancel_application(application: str) -> Reply:
        """Cancels the one job of an application."""
        if (await source.job(application)).has_ended:
            raise Refusal(404, f"Application {application[:100]} has ended")
        return await cancel(source, commands, application)

    @api.patch("/jobs/{job}/clientHeartbeat", response_model=shapes.Empty, status_code=202)
    async def heartbeat(job: str) -> Reply:
        """A client that is attached says that it lives. Jobs here go on without."""
        await source.job(job)
        return Reply({}, 202)


def _add_savepoints(api: APIRouter, source: Source, operations: Operations) -> None:
    async def trigger(kind: str, job: str, body: Body) -> Reply:
        own = source.own_id(job)
        return Reply(operations.trigger(kind, own, body.trigger, await _refused(source, own, job)), 202)

    @api.post(
        "/jobs/{job}/savepoints", response_model=shapes.Triggered, status_code=202, openapi_extra=described(SavepointBody)
    )
    async def savepoint(job: str, body: Annotated[SavepointBody, Depends(body_of(SavepointBody))]) -> Reply:
        """Triggers a savepoint, which fails."""
        return await trigger("savepoint", job, body)

    @api.post("/jobs/{job}/stop", response_model=shapes.Triggered, status_code=202, openapi_extra=described(StopBody))
    async def stop(job: str, body: Annotated[StopBody, Depends(body_of(StopBody))]) -> Reply:
        """Stops a job with a savepoint, which fails; the job goes on."""
        return await trigger("savepoint", job, body)

    @api.post(
        "/jobs/{job}/checkpoints", response_model=shapes.Triggered, status_code=202, openapi_extra=described(CheckpointBody)
    )
    async def checkpoint(job: str, body: Annotated[CheckpointBody, Depends(body_of(CheckpointBody))]) -> Reply:
        """Triggers a checkpoint, which fails."""
        return await trigger("checkpoint", job, body)

    @api.get("/jobs/{job}/savepoints/{trigger_id}", response_model=shapes.SavepointStatus)
    async def savepoint_status(job: str, trigger_id: str) -> Reply:
        """What came of a savepoint."""
        cause = operations.cause("savepoint", source.own_id(job), trigger_id)
        body: shapes.SavepointStatus = {"status": {"id": "COMPLETED"}, "operation": {"failure-cause": cause}}
        return Reply(body)

    @api.post("/savepoint-disposal", response_model=shapes.Triggered, openapi_extra=described(DisposalBody))
    async def dispose(body: Annotated[DisposalBody, Depends(body_of(DisposalBody))]) -> Reply:
        """Deletes a savepoint, which fails: there is none."""
        cause = throwable("java.io.FileNotFoundException", f"Cannot find checkpoint or savepoint file/directory '{body.path}'")
        return Reply(operations.trigger("disposal", "", body.trigger, cause))

    @api.get("/savepoint-disposal/{trigger_id}", response_model=shapes.SavepointStatus)
    async def disposal_status(trigger_id: str) -> Reply:
        """What came of it."""
        cause = operations.cause("disposal", "", trigger_id)
        body: shapes.SavepointStatus = {"status": {"id": "COMPLETED"}, "operation": {"failure-cause": cause}}
        return Reply(body)

    @api.get("/jobs/{job}/checkpoints/details/{checkpoint_id}", response_model=shapes.Empty)
    @api.get("/jobs/{job}/checkpoints/details/{checkpoint_id}/subtasks/{vertex}", response_model=shapes.Empty)
    @api.get("/jobs/{job}/checkpoints/config", response_model=shapes.Empty)
    @api.get("/jobs/{job}/checkpoints", response_model=shapes.Empty)
    async def checkpoints(job: str) -> Reply:
        """There are none."""
        raise Refusal(404, NO_CHECKPOINTS.format(job=(await source.job(job)).id))

    @api.get("/jobs/{job}/checkpoints/{trigger_id}", response_model=shapes.CheckpointStatus)
    async def checkpoint_status(job: str, trigger_id: str) -> Reply:
        """What came of a checkpoint."""
        cause = operations.cause("checkpoint", source.own_id(job), trigger_id)
        body: shapes.CheckpointStatus = {"status": {"id": "COMPLETED"}, "operation": {"failureCause": cause}}
        return Reply(body)


async def _refused(source: Source, own: str, asked: str) -> shapes.Throwable:
    try:
        await source.job(asked)
    except Refusal as unknown:
        if unknown.status != 404:
            raise
        return throwable("org.apache.flink.runtime.messages.FlinkJobNotFoundException", f"Could not find Flink job ({asked})")
    message = f"Job {job_id(own)} is not a streaming job: it has no savepoints and no checkpoints. `flink cancel` ends it."
    return throwable("java.lang.IllegalStateException", message)
