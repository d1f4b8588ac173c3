"""A job gets another parallelism from the page: a number for each vertex that may have several subtasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool

from millrace.client import MillraceError
from millrace.core.messages.requirements import VertexRequirement

from ..commands import WAIT_S, Commands, may_be_done
from .actions import JobPath
from .forms import form_of
from .refusals import refusals_as_pages
from .shell import PREFIX, Shell

FIELD = "vertex:"


class Line(NamedTuple):
    """Vertices that have one parallelism: one field of the form."""

    field: str
    vertices: str
    parallelism: int
    most: int
    why: str


def rescaling(shell: Shell, commands: Commands, stack: str) -> APIRouter:
    router = APIRouter(include_in_schema=False, route_class=refusals_as_pages(shell))

    async def refused(request: Request, job: str, headline: str, failure: MillraceError) -> Response:
        tone = "wait" if may_be_done(failure) else "bad"
        return await shell.done(request, "jobs", headline, [(job, str(failure), tone)], f"{PREFIX}/jobs/{job}")

    @router.get(f"{PREFIX}/jobs/{{job}}/rescale")
    async def ask(request: Request, job: JobPath) -> Response:
        try:
            vertices = await commands.call(lambda client: client.requirements(job), WAIT_S)
        except MillraceError as failure:
            return await refused(request, job, "It cannot be rescaled", failure)
        lines = lines_of(vertices)
        return await run_in_threadpool(lambda: shell.page(
            request, "rescale.html", "jobs", job=job, lines=lines, may=any(each.most > 1 for each in lines),
            action=f"{PREFIX}/jobs/{job}/rescale", back=f"{PREFIX}/jobs/{job}", command=f"millrace rescale{stack} {job} --parallelism N",
        ))  # fmt: skip

    @router.post(f"{PREFIX}/jobs/{{job}}/rescale")
    async def rescale(request: Request, job: JobPath) -> Response:
        form = await form_of(shell, request)
        given = {name.removeprefix(FIELD): str(value).strip() for name, value in form.items() if name.startswith(FIELD)}
        numbers = {vertex: int(text) for vertex, text in given.items() if text.isascii() and text.isdigit() and 0 < len(text) < 7}
        if not numbers or len(numbers) < len(given) or 0 in numbers.values():
            return RedirectResponse(f"{PREFIX}/jobs/{job}/rescale", 303)
        try:
            await commands.rescale(job, None, numbers)
        except MillraceError as failure:
            headline = "It is not known yet whether it is rescaled" if may_be_done(failure) else "It was not rescaled"
            return await refused(request, job, headline, failure)
        return RedirectResponse(f"{PREFIX}/jobs/{job}", 303)

    return router


def lines_of(vertices: Sequence[VertexRequirement]) -> list[Line]:
    groups: dict[str, list[VertexRequirement]] = {}
    for each in vertices:
        groups.setdefault(each.group, []).append(each)
    return [
        Line(f"{FIELD}{name}", ", ".join(each.vertex for each in its), its[0].parallelism, its[0].most, its[0].why or "")
        for name, its in groups.items()
    ]
