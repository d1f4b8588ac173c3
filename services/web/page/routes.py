"""The page's screens, by address. Each is whole without a script; with one it is renewed in place."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool

from millrace.client import MillraceError
from millrace.client.dead_letters import Letter
from millrace.core.messages.base import JOB_ID_PATTERN
from millrace.core.states import ENDED_JOB

from ..api.asking import known_alone
from ..view import View
from . import screens
from .reads import Known, Reads, redacted
from .refusals import refusals_as_pages
from .shell import PREFIX, Shell

LETTERS_MOST = 200
LINES_MOST = 2000
LOOK_AGAIN_S = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Between looks for a job whose first fact is on its way."""
JobPath = Annotated[str, Path(pattern=JOB_ID_PATTERN)]
Text = Annotated[str, Query(max_length=300)]
Tab = Literal["now", "result", "logs", "story", "work", "configuration"]
Stream = Literal["stdout", "stderr"]


def pages(shell: Shell, view: View, reads: Reads) -> APIRouter:
    """The screens that change nothing."""
    router = APIRouter(include_in_schema=False, route_class=refusals_as_pages(shell), dependencies=[Depends(known_alone)])
    _cluster(router, shell)
    _jobs(router, shell)
    _job(router, shell, view, reads)
    _letters(router, shell, reads)
    _static(router, shell)
    return router


def past_pages(shell: Shell, view: View, reads: Reads) -> APIRouter:
    """The screens of a history: what only a running cluster has is answered with that."""
    router = APIRouter(include_in_schema=False, route_class=refusals_as_pages(shell), dependencies=[Depends(known_alone)])
    _jobs(router, shell)
    _job(router, shell, view, reads)
    _static(router, shell)

    @router.get("/")
    @router.get(PREFIX)
    @router.get(f"{PREFIX}/")
    async def root() -> Response:
        return RedirectResponse(f"{PREFIX}/jobs", 307)

    @router.get(f"{PREFIX}/more")
    async def more(request: Request) -> Response:
        return await run_in_threadpool(shell.screen, request, "more.html", "more", lambda view, wall_ms: {})

    @router.api_route(f"{PREFIX}/{{rest:path}}", methods=["GET", "POST"])
    async def only_live(request: Request) -> Response:
        why = "This is a history: it shows jobs that ended, from their archives. Ask the page of a running cluster."
        return await run_in_threadpool(
            lambda: shell.page(request, "nothing.html", "", 404, headline="Only a running cluster has this", why=why)
        )

    return router


def _static(router: APIRouter, shell: Shell) -> None:
    @router.get(f"{PREFIX}/static/{{version}}/{{name}}")
    async def static(version: str, name: str) -> Response:
        return shell.static(name)


def _cluster(router: APIRouter, shell: Shell) -> None:
    @router.get("/")
    async def root() -> Response:
        return RedirectResponse(f"{PREFIX}/", 307)

    @router.get(PREFIX)
    @router.get(f"{PREFIX}/")
    async def overview(request: Request) -> Response:
        def build(view: View, wall_ms: int) -> screens.Context:
            return screens.overview_screen(view, wall_ms, PREFIX)

        return await run_in_threadpool(shell.screen, request, "overview.html", "overview", build)

    @router.get(f"{PREFIX}/queue")
    async def queue(request: Request) -> Response:
        return await run_in_threadpool(shell.screen, request, "queue.html", "queue", screens.queue_screen)

    @router.get(f"{PREFIX}/taskmanagers")
    async def members(request: Request) -> Response:
        return await run_in_threadpool(shell.screen, request, "taskmanagers.html", "taskmanagers", screens.members_screen)

    @router.get(f"{PREFIX}/leaders")
    async def leaders(request: Request) -> Response:
        return await run_in_threadpool(shell.screen, request, "leaders.html", "leaders", screens.leaders_screen)

    @router.get(f"{PREFIX}/more")
    async def more(request: Request) -> Response:
        return await run_in_threadpool(shell.screen, request, "more.html", "more", lambda view, wall_ms: {})


def _jobs(router: APIRouter, shell: Shell) -> None:
    @router.get(f"{PREFIX}/jobs")
    async def jobs(
        request: Request, q: Text = "", sort: Literal["accepted", "name", "state", "took"] = "accepted", up: bool = False,
        start: Annotated[int, Query(ge=0, le=10_000_000)] = 0, upto: Text = "",
    ) -> Response:  # fmt: skip
        ms, _, job = upto.partition(".")
        until = (int(ms), job) if ms.isdecimal() and len(ms) < 16 and job else None

        def build(view: View, wall_ms: int) -> screens.Context:
            return screens.jobs_screen(view, wall_ms, q, sort, not up, start, until)

        return await run_in_threadpool(shell.screen, request, "jobs.html", "jobs", build)


def _job(router: APIRouter, shell: Shell, view: View, reads: Reads) -> None:
    @router.get(f"{PREFIX}/jobs/{{job}}")
    async def job(
        request: Request, job: JobPath, task: Text | None = None, tab: Tab | None = None, attempt: Text | None = None,
        stream: Stream | None = None, find: Text = "",
    ) -> Response:  # fmt: skip
        row = await _awaited_row(view, reads, job)
        known = await reads.job(row) if row is not None else Known()
        ended = row is not None and row["status"] == "FINISHED"
        opened: Tab = tab or ("result" if ended else "story")
        given = await _tab(reads, known, opened, attempt, stream, find)
        if opened == "now" and row is not None and row["status"] not in ENDED_JOB:
            given["report"], given["result_missing"] = await reads.report(job)
        if row is not None and row["ended_ms"] is not None:
            with contextlib.suppress(MillraceError):  # without them the rest is shown
                given["spark"] = await reads.spark(job, known)

        def build(view: View, wall_ms: int) -> screens.Context:
            found = screens.job_screen(view, wall_ms, job, known, task, opened)
            if found is None and not view.caught_up:
                why = "The tables are being brought back, and not all is read yet. Look again in a moment."
                raise NotShown(f"Job {job} is not known yet", why, 503)
            if found is None:
                why = (
                    f"No archive among the newest is of it; /api/v1/jobs/{job} also looks among older ones." if view.past
                    else f"It was never accepted, or it ended long ago: millrace show{shell.stack} {job} knows older ones."
                )  # fmt: skip
                raise NotShown(f"There is no job {job} among those that are shown", why)
            return {**found, "tab": opened, **given}

        at_once = time.monotonic_ns() if given["report"] else given["result_missing"]
        version = f"{known.version}{given['log_size']}{given['stream']}{at_once}"
        return await _shown(shell, request, "job.html", "jobs", build, version)


async def _awaited_row(view: View, reads: Reads, job: str) -> Mapping[str, Any] | None:
    """Its row; None: no fact of it came. Who submits a job is sent to its page before its first fact has come."""
    row, _ = view.ask(lambda view: view.jobs.row(job))
    if row is None and await reads.comes(job):
        for wait_s in LOOK_AGAIN_S:
            await asyncio.sleep(wait_s)
            row, _ = view.ask(lambda view: view.jobs.row(job))
            if row is not None:
                break
    return row


async def _tab(reads: Reads, known: Known, tab: Tab, attempt: str | None, stream: Stream | None, find: str) -> screens.Context:
    """What the open tab alone needs."""
    failed = known.detail is not None and known.detail.status == "FAILED"
    streams: tuple[Stream, ...] = (stream,) if stream else ("stderr", "stdout") if failed else ("stdout", "stderr")
    given: screens.Context = {
        "spark": (), "report": None,
        "result": None, "result_missing": "", "logs": (), "lines": (), "log_size": 0, "chosen_log": None,
        "stream": streams[0], "find": find,
        "configuration": redacted(known.graph) if tab == "configuration" and known.graph else "",
    }  # fmt: skip
    try:
        if tab == "result":
            given["result"] = await reads.result(known)
        if tab == "logs" and known.detail is not None:
            logs = [
                (f"{task.task}/{each.subtask}/{log.attempt}", f"{task.task}[{each.subtask}] attempt {log.attempt}", log.path)
                for task in known.detail.tasks for each in task.subtasks for log in each.logs
            ]  # fmt: skip
            chosen = next((each for each in logs if each[0] == attempt), logs[-1] if logs else None)
            given |= {"logs": logs, "chosen_log": chosen[0] if chosen else None}
            if chosen:
                given |= await _lines(reads, chosen[2], known.detail.ended_ms is not None, streams, find)
    except MillraceError as failure:
        given["result_missing"] = str(failure)
    return given


async def _lines(reads: Reads, path: str, ended: bool, streams: Sequence[Stream], find: str) -> screens.Context:
    """The end of the first of these that is not empty, or of the first."""
    found: screens.Context = {}
    for each in streams:
        data, size = await reads.lines(path, each, ended)
        if size or not found:
            found = {"lines": numbered(data, find), "log_size": size, "stream": each}
        if size:
            break
    return found


def numbered(data: bytes, find: str) -> list[tuple[int, str, bool]]:
    """The last lines of a log, those with `find` alone if that is given; each with whether it tells of an error."""
    lines = list(enumerate(data.decode(errors="replace").splitlines(), 1))
    if find:
        lines = [(n, line) for n, line in lines if find.lower() in line.lower()]
    return [(n, line[:2000], " ERROR " in line or line.startswith(("ERROR", "Traceback"))) for n, line in lines[-LINES_MOST:]]


def _letters(router: APIRouter, shell: Shell, reads: Reads) -> None:
    @router.get(f"{PREFIX}/letters")
    async def letters(request: Request, letter: Annotated[int | None, Query(ge=0)] = None) -> Response:
        missing, found, more = "", list[Letter](), False
        try:
            page = await reads.letters()
            found, more = page.letters, page.more
            shell.letters = (len(found), sum(each.redriven is None for each in found))
        except MillraceError as failure:
            missing = str(failure)
        chosen = next((each for each in found if each.number == letter), None)
        fate, fate_missing = None, ""
        if chosen is not None:
            try:
                fate = await reads.fate(chosen)
            except MillraceError as failure:
                fate_missing = str(failure)
        given = {
            "found": found[:LETTERS_MOST], "total": len(found), "more": more, "missing": missing, "chosen": chosen, "fate": fate,
            "fate_missing": fate_missing, "open_total": sum(each.redriven is None for each in found),
        }  # fmt: skip
        version = f"{len(found)}{missing}{fate.fate if fate else ''}{fate_missing}"
        return await run_in_threadpool(shell.screen, request, "letters.html", "letters", lambda view, wall_ms: given, version)


class NotShown(Exception):
    """There is no such thing; the sentences say what that means."""

    def __init__(self, headline: str, why: str, status: int = 404) -> None:
        super().__init__(headline)
        self.headline, self.why, self.status = headline, why, status


async def _shown(
    shell: Shell, request: Request, template: str, active: str, build: Callable[[View, int], screens.Context], version: str = ""
) -> Response:
    try:
        return await run_in_threadpool(shell.screen, request, template, active, build, version)
    except NotShown as nothing:
        return shell.page(request, "nothing.html", active, nothing.status, headline=nothing.headline, why=nothing.why)
