"""The screens of schedules, and what is done to one. etcd alone has them, so the Dispatcher is asked for each screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool

from millrace.client import Millrace, MillraceError, NotFound, new_id
from millrace.core.messages.audit import Verb
from millrace.core.messages.schedules import SCHEDULE_PATTERN

from ..api.asking import known_alone
from ..commands import UNKNOWN, Commands
from .forms import form_of
from .refusals import refusals_as_pages
from .shell import PREFIX, Shell

WAIT_S = 3.0
HOME = f"{PREFIX}/schedules"
NamePath = Annotated[str, Path(pattern=SCHEDULE_PATTERN)]
What = Literal["run", "pause", "resume", "remove"]


class Change(NamedTuple):
    """What is done to a schedule. verb: what the audit calls it. send: given the schedule, and the id of a job that is submitted."""

    word: str
    why: str
    verb: Verb
    send: Callable[[Millrace, str, str], object]
    danger: bool = False


CHANGES: dict[What, Change] = {
    "run": Change(
        "Run now", "Its graph is submitted once, beside its times.", "run_schedule",
        lambda client, name, job: client.run_schedule(name, job, False),
    ),
    "pause": Change(
        "Pause", "No run begins until it is resumed. Times that come meanwhile are not made up for.", "pause_schedule",
        lambda client, name, _: client.pause_schedule(name),
    ),
    "resume": Change(
        "Resume", "Its times count again from now on.", "resume_schedule",
        lambda client, name, _: client.pause_schedule(name, True),
    ),
    "remove": Change(
        "Remove", "It is forgotten, with its graph. A job of it that runs goes on.", "remove_schedule",
        lambda client, name, _: client.remove_schedule(name), danger=True,
    ),
}  # fmt: skip


def schedule_pages(shell: Shell, commands: Commands, stack: str) -> APIRouter:
    """The list, one of them, and the forms."""
    router = APIRouter(include_in_schema=False, route_class=refusals_as_pages(shell), dependencies=[Depends(known_alone)])

    @router.get(HOME)
    async def listed(request: Request) -> Response:
        given: dict[str, Any] = {"found": [], "missing": ""}
        try:
            given["found"] = await commands.call(lambda client: list(client.schedules()), WAIT_S)
        except MillraceError as failure:
            given["missing"] = str(failure)
        return await run_in_threadpool(shell.screen, request, "schedules.html", "schedules", lambda view, wall_ms: given, f"{given}")

    @router.get(f"{HOME}/{{schedule}}")
    async def one(request: Request, schedule: NamePath) -> Response:
        try:
            described = await commands.call(lambda client: client.schedule(schedule), WAIT_S)
        except MillraceError as failure:
            gone = isinstance(failure, NotFound)
            headline = f"There is no schedule {schedule}" if gone else f"Schedule {schedule} cannot be shown now"
            why = "It was removed, or it never was." if gone else str(failure)
            return await run_in_threadpool(
                lambda: shell.page(request, "nothing.html", "schedules", 404 if gone else 503, headline=headline, why=why)
            )
        given = {"it": described.schedule, "runs": described.runs}
        return await run_in_threadpool(shell.screen, request, "schedule.html", "schedules", lambda view, wall_ms: given, f"{given}")

    _changes(router, shell, commands, stack)
    return router


def _changes(router: APIRouter, shell: Shell, commands: Commands, stack: str) -> None:
    @router.get(f"{HOME}/{{schedule}}/{{what}}")
    async def ask(request: Request, schedule: NamePath, what: What) -> Response:
        change = CHANGES[what]
        return await run_in_threadpool(lambda: shell.page(
            request, "question.html", "schedules", headline=f"{change.word}: {schedule}?", verb=change.word, why=change.why,
            action=f"{HOME}/{schedule}/{what}", fields=[("schedule", schedule)], names=[], danger=change.danger, keep="Leave it",
            back=f"{HOME}/{schedule}", command=f"millrace schedule {what}{stack} {schedule}",
        ))  # fmt: skip

    @router.post(f"{HOME}/{{schedule}}/{{what}}")
    async def do(request: Request, schedule: NamePath, what: What) -> Response:
        await form_of(shell, request)
        change, job = CHANGES[what], new_id(schedule)
        try:
            await commands.schedule(change.verb, schedule, lambda client: change.send(client, schedule, job))
        except MillraceError as failure:
            unknown = isinstance(failure, UNKNOWN)
            headline = "It is not known yet whether it was done" if unknown else "It was not done"
            done = [(job if what == "run" else schedule, str(failure), "wait" if unknown else "bad")]
            return await shell.done(request, "schedules", headline, done, f"{HOME}/{schedule}")
        if what == "run":
            return RedirectResponse(f"{PREFIX}/jobs/{job}", 303)
        return RedirectResponse(HOME if what == "remove" else f"{HOME}/{schedule}", 303)
