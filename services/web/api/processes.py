"""TaskManagers and the processes of services, each asked itself: how it is, where its threads are, its logs, its settings."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from .. import models
from ..problems import responses
from ..processes import Of, Processes
from ..view import View
from .asking import WAIT, WaitS, only_live

NamePath = Annotated[str, Path(min_length=1, max_length=200)]
LogPath = Annotated[str, Path(min_length=1, max_length=200, description="Its id in the list of logs.")]
Slot = Annotated[int | None, Query(ge=0, le=1 << 31, description="Of this slot alone: an answer has a bound, which the slots share.")]
REFUSED = responses(400, 404, 409, 429, 503, 504)


def processes(view: View, asked: Processes) -> APIRouter:
    """The questions to one process. 404: it is not there; 503: it does not answer."""
    router = APIRouter(tags=["processes"], responses=REFUSED, dependencies=[Depends(only_live(view))])

    @router.get("/taskmanagers/{name}")
    async def task_manager(name: NamePath, wait_s: WaitS = WAIT) -> models.TaskManagerNow:
        """One TaskManager: its process, its slots with what is in them, memory and garbage collection of their JVMs."""
        return models.TaskManagerNow.model_validate(_fields(await asked.task_manager(name, wait_s)))

    @router.get("/services")
    async def services() -> models.Services:
        """The processes of the control services and of the web service, leaders and standbys, that answer."""
        return models.Services(services=[models.ServiceNow.model_validate(_fields(each)) for each in await asked.services()])

    _about(router, asked, "/taskmanagers", is_service=False)
    _about(router, asked, "/services", is_service=True)
    return router


def _about(router: APIRouter, asked: Processes, prefix: str, *, is_service: bool) -> None:
    text = {"content": {"text/plain": {"schema": {"type": "string"}}}}
    kind = "service" if is_service else "task manager"

    @router.get(f"{prefix}/{{name}}/thread-dump", name=f"threads of a {kind}")
    async def threads(name: NamePath, slot: Slot = None, wait_s: WaitS = WAIT) -> models.ThreadDumps:
        """Where its threads are, without values; of a TaskManager also those of its slots' JVMs and of running attempts."""
        return models.ThreadDumps(dumps=await asked.threads(Of(name, is_service), slot, wait_s))

    @router.get(f"{prefix}/{{name}}/logs", name=f"logs of a {kind}")
    async def logs(name: NamePath, wait_s: WaitS = WAIT) -> models.OwnLogs:
        """Its own logs. What attempts write is among the logs of their job."""
        where = f"/api/v1{prefix}/{quote(name, safe='')}/logs"
        return models.OwnLogs(logs=[
            models.OwnLogRow(**each.model_dump(), url=f"{where}/{quote(each.log, safe='')}")
            for each in await asked.logs(Of(name, is_service), wait_s)
        ])  # fmt: skip

    @router.get(f"{prefix}/{{name}}/settings", name=f"settings of a {kind}")
    async def settings(name: NamePath, wait_s: WaitS = WAIT) -> models.Settings:
        """What it runs with, and where each is from: a file, a variable, a flag, or by default. Secrets are stars."""
        return models.Settings(settings=await asked.settings(Of(name, is_service), wait_s))

    @router.get(
        f"{prefix}/{{name}}/logs/{{log}}", name=f"log of a {kind}", response_class=Response,
        responses={200: text, 206: {"description": "Partial Content", **text}, **responses(416)},
    )  # fmt: skip
    async def log(request: Request, name: NamePath, log: LogPath) -> Response:
        """One of them; `Range: bytes=N-` reads on from N, `bytes=-N` the last N. What looks like a secret is stars."""
        return await asked.answer(Of(name, is_service), log, request.headers.get("range", ""))


def _fields(reply: Any) -> dict[str, Any]:
    return {name: value for name, value in reply if name not in ("type", "version", "correlation")}
