"""The screens of one TaskManager and of the services: what a process answers when it is asked, beside what the tables know of it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Annotated, Literal, TypeVar
from urllib.parse import quote

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from millrace.client import MillraceError
from millrace.io.storage.store import StorageError

from ..api.asking import known_alone
from ..problems import of_storage
from ..processes import Of, Processes
from ..view import View
from . import screens
from .refusals import refusals_as_pages
from .routes import Text, numbered
from .shell import PREFIX, Shell

WAIT_S = 3.0
"""For an answer. Within it the ResourceManager answers for a TaskManager that is silent."""
LOG_BYTES = 256 << 10
"""Of a log, from its end."""
NamePath = Annotated[str, Path(max_length=200)]
Slot = Annotated[int | None, Query(ge=0, le=1 << 31)]
Tab = Literal["process", "settings", "logs", "threads"]
T = TypeVar("T")


def process_pages(shell: Shell, view: View, processes: Processes) -> APIRouter:
    """Those of a TaskManager, of the list of services, and of one of them."""
    router = APIRouter(include_in_schema=False, route_class=refusals_as_pages(shell), dependencies=[Depends(known_alone)])

    @router.get(f"{PREFIX}/taskmanagers/{{name}}")
    async def member(
        request: Request, name: NamePath, tab: Tab = "process", log: Text = "", find: Text = "", slot: Slot = None
    ) -> Response:
        row, _ = view.ask(lambda view: screens.member_row(view, name))
        if row is None:
            headline, why = f"There is no TaskManager {name}", "It never registered, or it has been gone for long."
            return shell.page(request, "nothing.html", "taskmanagers", 404, headline=headline, why=why)
        now, missing = None, "it is gone"
        given = _nothing(tab, log, find, slot)
        if not row["gone_ms"]:
            now, missing = await _asked(processes.task_manager(name, WAIT_S))
            given = await _tab(processes, Of(name, False), tab, log, find, slot)
        given |= {"now": now, "missing": missing}

        def build(view: View, wall_ms: int) -> screens.Context:
            return {**screens.member_screen(view, wall_ms, row), **given}

        return await run_in_threadpool(shell.screen, request, "taskmanager.html", "taskmanagers", build, f"{given}")

    @router.get(f"{PREFIX}/services")
    async def services(request: Request) -> Response:
        found, missing = await _asked(processes.services(WAIT_S))
        given = {"found": found or [], "missing": missing}
        return await run_in_threadpool(shell.screen, request, "services.html", "services", lambda view, wall_ms: given, f"{given}")

    @router.get(f"{PREFIX}/services/{{name}}")
    async def service(request: Request, name: NamePath, tab: Tab = "process", log: Text = "", find: Text = "") -> Response:
        found, missing = await _asked(processes.services(WAIT_S))
        now = next((each for each in found or () if each.process == name), None)
        if now is None:
            why = missing or "It has ended, or it hangs: the list of services has those that answer."
            return shell.page(request, "nothing.html", "services", 404, headline=f"No process {name} of a service answers", why=why)
        given = {**await _tab(processes, Of(name, True), tab, log, find, None), "missing": "", "now": now}
        return await run_in_threadpool(shell.screen, request, "service.html", "services", lambda view, wall_ms: given, f"{given}")

    return router


async def _asked(answer: Awaitable[T]) -> tuple[T | None, str]:
    """The answer, or why there is none, in a sentence."""
    try:
        return await answer, ""
    except MillraceError as failure:
        return None, str(failure)
    except StorageError as failure:
        return None, str(of_storage(failure).detail)


def _nothing(tab: Tab, log: str, find: str, slot: int | None) -> screens.Context:
    return {
        "tab": tab, "logs": (), "chosen_log": log, "find": find, "lines": (), "log_size": 0, "raw": "", "slot": slot, "dumps": (),
        "settings": (), "tab_missing": "",
    }  # fmt: skip


async def _tab(processes: Processes, who: Of, tab: Tab, log: str, find: str, slot: int | None) -> screens.Context:
    """What the open tab alone needs."""
    given = _nothing(tab, log, find, slot)
    if tab == "threads":
        given["dumps"], given["tab_missing"] = await _asked(processes.threads(who, slot, WAIT_S))
    if tab == "settings":
        given["settings"], given["tab_missing"] = await _asked(processes.settings(who, WAIT_S))
    if tab == "logs":
        logs, given["tab_missing"] = await _asked(processes.logs(who, WAIT_S))
        chosen = log or next((each.log for each in logs or ()), "")
        given |= {"logs": logs or (), "chosen_log": chosen}
        if chosen and not given["tab_missing"]:
            kind = "services" if who.is_service else "taskmanagers"
            given["raw"] = f"/api/v1/{kind}/{quote(who.name, safe='')}/logs/{quote(chosen, safe='')}"
            end, given["tab_missing"] = await _asked(processes.end(who, chosen, LOG_BYTES))
            if end is not None:
                given |= {"lines": numbered(end[1], find), "log_size": end[2]}
    return given
