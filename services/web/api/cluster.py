"""TaskManagers, slots, leaders, and how many there are of everything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from millrace.core.messages.blocklist import HOST_PATTERN, BlockedHostInfo

from .. import models
from ..changes import Level
from ..commands import Commands
from ..listing import BadCursor, part
from ..problems import responses
from ..view import View
from .asking import WAIT, WaitS, json_alone, only_live, shown, wrong_parameter

REFUSED = responses(304, 400, 429, 503)
PAGE_MOST = 1000
Limit = Annotated[int, Query(ge=1, le=PAGE_MOST)]
Cursor = Annotated[str, Query(max_length=1000, description="`next` of the page before; all else as it was.")]
HostPath = Annotated[str, Path(pattern=HOST_PATTERN, description="A host, as its TaskManagers name it.")]


class Part(models.Shape):
    as_of: models.AsOf
    total: int
    """How many there are on all pages."""
    next: str | None
    """The cursor of the next page; null: this is the last."""


class TaskManagers(Part):
    task_managers: list[models.TaskManagerRow]


class Slots(Part):
    slots: list[models.SlotRow]


class Deregistered(models.Shape):
    """TaskManagers of a provider are stopped, and none is started; with `undo` they are started again."""

    workers: int
    """TaskManagers that the provider has started, and that are to be stopped; with `undo`, that are not."""
    undo: bool


def cluster(view: View, commands: Commands) -> APIRouter:
    """The reads about the cluster, and its end."""
    router = APIRouter(tags=["cluster"], responses=REFUSED)
    now = [Depends(only_live(view))]

    @router.get("/taskmanagers", response_model=TaskManagers, dependencies=now)
    async def task_managers(
        request: Request,
        gone: Annotated[bool, Query(description="Those that are gone, instead of those that are registered.")] = False,
        limit: Limit = PAGE_MOST,
        cursor: Cursor = "",
    ) -> Response:
        """The TaskManagers, by name, page by page."""

        def listed(view: View) -> dict[str, Any]:
            return _page("task_managers", view.cluster.task_managers(gone), ("task_manager",), limit, cursor)

        return shown(request, view, listed, Level.LINE)

    @router.get("/slots", response_model=Slots, dependencies=now)
    async def slots(request: Request, limit: Limit = PAGE_MOST, cursor: Cursor = "") -> Response:
        """The slots of the registered TaskManagers, and what is in them; by TaskManager and number, page by page."""

        def listed(view: View) -> dict[str, Any]:
            return _page("slots", slots_of(view), ("task_manager", "slot"), limit, cursor)

        return shown(request, view, listed, Level.ATTEMPT)

    @router.get("/leaders", response_model=models.Leaders, dependencies=now)
    async def leaders(request: Request) -> Response:
        """Who was last elected for each scope."""
        return shown(request, view, lambda view: {"leaders": view.cluster.leaders()}, Level.LINE)

    @router.get("/overview", response_model=models.Overview)
    async def overview(request: Request) -> Response:
        """How many there are of everything."""
        return shown(request, view, overview_of, Level.ATTEMPT)

    @router.get("/blocklist", response_model=models.Blocklist, dependencies=now)
    async def blocklist(request: Request) -> Response:
        """The hosts that are blocked, by name: none of their slots is granted."""
        return shown(request, view, lambda view: {"hosts": view.cluster.blocklist(view.jobs.in_slots())}, Level.ATTEMPT)

    @router.put("/blocklist/{host}", responses=responses(403, 408, 409, 413, 415, 504), dependencies=[*now, Depends(json_alone)])
    async def block(host: HostPath, how: models.Block | None = None, wait_s: WaitS = WAIT) -> BlockedHostInfo:
        """Blocks a host: none of its slots is granted any more, and what runs there goes on. For one that is blocked already this replaces
        what was said before. Answered once it is stored."""
        given = how or models.Block()
        return await commands.block(host, given.for_ms, given.reason, given.evacuate, wait_s)

    @router.delete("/blocklist/{host}", responses=responses(403, 409, 504), dependencies=now)
    async def unblock(host: HostPath, wait_s: WaitS = WAIT) -> models.Unblocked:
        """Slots of the host are granted again. A repeat is harmless."""
        return models.Unblocked(host=host, was_blocked=await commands.unblock(host, wait_s))

    @router.post("/shutdown", status_code=202, responses=responses(403, 504), dependencies=now)
    async def shutdown(wait_s: WaitS = WAIT) -> models.ShutDownState:
        """Ends the cluster in order, and keeps its jobs; they go on when it is started again. A repeat tells how far that is."""
        return models.ShutDownState.model_validate((await commands.shut_down(wait_s)).model_dump())

    @router.post("/deregister", responses=responses(403, 504), dependencies=now)
    async def deregister(
        undo: Annotated[bool, Query(description="TaskManagers are started again when slots are short.")] = False, wait_s: WaitS = WAIT
    ) -> Deregistered:
        """Stops all TaskManagers that a provider has started, and starts none until `undo`. Jobs stay. A repeat is harmless."""
        return Deregistered(workers=await commands.deregister(undo, wait_s), undo=undo)

    return router


def _page(name: str, rows: list[dict[str, Any]], by: Sequence[str], limit: int, cursor: str) -> dict[str, Any]:
    """One page of a listing. Raises Refusal."""
    try:
        found, more = part(rows, by, limit, cursor)
    except BadCursor as bad:
        raise wrong_parameter("cursor", str(bad)) from None
    return {"total": len(rows), name: found, "next": more}


def slots_of(view: View) -> list[dict[str, Any]]:
    """The slots with what is in them."""
    return view.cluster.slots(view.jobs.in_slots())


def overview_of(view: View) -> dict[str, Any]:
    """The counts."""
    return counts_of(view, slots_of(view))


def counts_of(view: View, slots: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The counts, of these slots."""
    states: dict[str, int] = {}
    for slot in slots:
        states[slot["state"]] = states.get(slot["state"], 0) + 1
    provider = view.cluster.provider()
    return {
        "jobs": view.jobs.statuses(), "slots": states, "task_managers": len(view.cluster.task_managers()),
        "hosts_blocked": len(view.cluster.blocked()), "task_managers_starting": len(provider["starting"]),
        "task_managers_least": provider["least"], "task_managers_most": provider["most"], "leaders": len(view.cluster.leaders()),
    }  # fmt: skip
