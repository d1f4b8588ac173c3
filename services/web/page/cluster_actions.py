"""What an admin does to the cluster from the page: a host is blocked or unblocked, TaskManagers are stopped, the cluster is shut down."""

from __future__ import annotations

import re
from typing import Annotated, Any, NamedTuple

import typer
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData

from millrace.cli.times import length_ms
from millrace.client import MillraceError
from millrace.core.messages.blocklist import HOST_PATTERN
from millrace.core.messages.client import ShutDown
from millrace.core.states import ENDED_JOB, ClosingStep

from ..api.asking import known_alone
from ..commands import Commands, may_be_done
from ..view import View
from .forms import form_of
from .refusals import refusals_as_pages
from .shell import PREFIX, Shell
from .words import count

HOME = f"{PREFIX}/taskmanagers"
REASON_MOST = 200
HostQuery = Annotated[str, Query(max_length=255)]
STEPS = {
    ClosingStep.SUSPENDING: "jobs are being suspended", ClosingStep.RELEASING: "TaskManagers are being stopped",
    ClosingStep.ENDING: "the services end now",
}  # fmt: skip


class Typed(NamedTuple):
    """The form of a blocked host, as somebody typed it."""

    host: str = ""
    length: str = ""
    reason: str = ""
    evacuate: bool = False


def cluster_actions(shell: Shell, view: View, commands: Commands, stack: str) -> APIRouter:
    """The forms, and the questions before them."""
    router = APIRouter(include_in_schema=False, route_class=refusals_as_pages(shell), dependencies=[Depends(known_alone)])
    _block(router, shell, view, commands, stack)
    _unblock(router, shell, view, commands, stack)
    _deregister(router, shell, view, commands, stack)
    _shut_down(router, shell, view, commands, stack)
    return router


def _block(router: APIRouter, shell: Shell, view: View, commands: Commands, stack: str) -> None:
    def screen(request: Request, typed: Typed, wrong: dict[str, str], status: int = 200) -> Response:
        def there(view: View) -> dict[str, Any]:
            members = view.cluster.task_managers()
            slots = view.cluster.slots(view.jobs.in_slots())
            names = {each["task_manager"] for each in members if each["host"] == typed.host}
            mine = [slot for slot in slots if slot["task_manager"] in names]
            busy = sum(slot["state"] == "ACTIVE" for slot in mine)
            return {
                "hosts": sorted({each["host"] for each in members}), "names": len(names), "its": len(mine), "busy": busy,
                "before": typed.host in view.cluster.blocked(),
            }  # fmt: skip

        found, _ = view.ask(there)
        given = {"typed": typed, "wrong": wrong, "command": f"millrace block{stack} {typed.host or 'HOST'}", "back": HOME, **found}
        return shell.page(request, "block.html", "taskmanagers", status, **given)

    @router.get(f"{PREFIX}/block")
    async def form(request: Request, host: HostQuery = "") -> Response:
        before = view.ask(lambda view: view.cluster.blocked().get(host))[0] or {"reason": "", "evacuate": False}
        return await run_in_threadpool(screen, request, Typed(host, "", before["reason"], before["evacuate"]), {})

    @router.post(f"{PREFIX}/block")
    async def block(request: Request) -> Response:
        typed = _typed(await form_of(shell, request))
        for_ms, wrong = _mistakes(typed)
        if wrong:
            return await run_in_threadpool(screen, request, typed, wrong, 400)
        try:
            await commands.block(typed.host, for_ms, typed.reason, typed.evacuate)
        except MillraceError as failure:
            return await _not_done(shell, request, "taskmanagers", typed.host, failure)
        return RedirectResponse(HOME, 303)


def _typed(form: FormData) -> Typed:
    host, length, reason = (str(form.get(name, "")).strip() for name in ("host", "length", "reason"))
    return Typed(host, length, reason, form.get("evacuate") == "yes")


def _mistakes(typed: Typed) -> tuple[int | None, dict[str, str]]:
    """How long the host is blocked, and what is wrong with what was typed, by field."""
    wrong: dict[str, str] = {}
    for_ms = None
    if not re.fullmatch(HOST_PATTERN, typed.host):
        mistake = f"{typed.host[:40]!r} is no name of a host: choose one of those that are registered"
        wrong["host"] = mistake if typed.host else "Name a host"
    if typed.length:
        try:
            for_ms = length_ms(typed.length)
        except typer.BadParameter as failure:
            wrong["length"] = str(failure)
    if len(typed.reason) > REASON_MOST:
        wrong["reason"] = f"it has {len(typed.reason):,} characters: {REASON_MOST} at most"
    return for_ms, wrong


def _unblock(router: APIRouter, shell: Shell, view: View, commands: Commands, stack: str) -> None:
    @router.get(f"{PREFIX}/unblock")
    async def ask(request: Request, host: Annotated[str, Query(pattern=HOST_PATTERN)]) -> Response:
        why = "Its slots are given to jobs again, from now on."
        if host not in view.ask(lambda view: view.cluster.blocked())[0]:
            why = "It is not among the blocked hosts now: somebody unblocked it, or its time is over. To unblock it again is harmless."
        return await run_in_threadpool(lambda: shell.page(
            request, "question.html", "taskmanagers", headline=f"Unblock {host}?", verb="Unblock", why=why, action=f"{PREFIX}/unblock",
            fields=[("host", host)], names=[], danger=False, keep="Leave it blocked", back=HOME, command=f"millrace unblock{stack} {host}",
        ))  # fmt: skip

    @router.post(f"{PREFIX}/unblock")
    async def unblock(request: Request) -> Response:
        host = str((await form_of(shell, request)).get("host", ""))
        try:
            await commands.unblock(host)
        except MillraceError as failure:
            return await _not_done(shell, request, "taskmanagers", host, failure)
        return RedirectResponse(HOME, 303)


def _deregister(router: APIRouter, shell: Shell, view: View, commands: Commands, stack: str) -> None:
    def question(request: Request, undo: bool) -> Response:
        provided = view.ask(lambda view: view.cluster.provider())[0]
        fields = [("undo", "yes" if undo else "no")]
        if provided["most"] is None:
            fields, why = [], "No provider starts and stops TaskManagers here. Those that were started by hand are stopped by hand."
        elif undo:
            why = f"The provider starts some when slots are short, {provided['most']} at most. Where it may do so now, nothing changes."
        else:
            why = _stopped(len(provided["workers"]))
        words: dict[str, Any] = {
            "headline": "Have TaskManagers started again?" if undo else "Stop all TaskManagers?",
            "verb": "Start again" if undo else "Stop all", "keep": "Leave it" if undo else "Keep them",
            "command": f"millrace deregister{stack}{' --undo' if undo else ''}" if fields else "",
        }  # fmt: skip
        return shell.page(
            request, "question.html", "taskmanagers", why=why, action=f"{PREFIX}/deregister", fields=fields, names=[],
            danger=not undo or not fields, back=HOME, **words,
        )  # fmt: skip

    @router.get(f"{PREFIX}/deregister")
    async def ask(request: Request, undo: bool = False) -> Response:
        return await run_in_threadpool(question, request, undo)

    @router.post(f"{PREFIX}/deregister")
    async def deregister(request: Request) -> Response:
        """A repeat is harmless."""
        undo = (await form_of(shell, request)).get("undo") == "yes"
        try:
            stopped = await commands.deregister(undo)
        except MillraceError as failure:
            return await _not_done(shell, request, "taskmanagers", "TaskManagers of the provider", failure)
        if undo:
            return RedirectResponse(HOME, 303)
        done = [
            (count(stopped, "TaskManager"), f"of the provider {'is' if stopped == 1 else 'are'} stopped, and none is started", "wait"),
            ("Jobs", "stay: what ran there waits", "ok"),
            ("To go on", f"have them started again, at TaskManagers or with `millrace deregister{stack} --undo`", "wait"),
        ]
        return await shell.done(request, "taskmanagers", "TaskManagers are being stopped", done, HOME)


def _stopped(workers: int) -> str:
    """What becomes of a provider's TaskManagers, and of what runs on them."""
    if not workers:
        return "The provider has none now, and starts none until that is undone here. Jobs stay, and wait for slots until then."
    its = f"The provider's {'TaskManager is' if workers == 1 else f'{workers} TaskManagers are'} stopped, and none is started"
    return (
        f"{its} until that is undone here. What runs there is ended, waits, and runs again then; what had finished of it is kept. "
        "TaskManagers that were started by hand stay."
    )


def _shut_down(router: APIRouter, shell: Shell, view: View, commands: Commands, stack: str) -> None:
    @router.get(f"{PREFIX}/shutdown")
    async def ask(request: Request) -> Response:
        statuses, _ = view.ask(lambda view: view.jobs.statuses())
        live = sum(number for status, number in statuses.items() if status not in ENDED_JOB)
        jobs = f"{count(live, 'job')} {'is' if live == 1 else 'are'} suspended and kept" if live else "No job is live"
        why = (
            f"{jobs}. No job is accepted any more, what runs is ended, and then the services end. "
            "Jobs go on when the cluster is started again; what had finished of them is kept."
        )
        return await run_in_threadpool(lambda: shell.page(
            request, "question.html", "services", headline="Shut the cluster down?", verb="Shut down", why=why,
            action=f"{PREFIX}/shutdown", fields=[("live", live)], names=[], danger=True, keep="Keep it running", back=f"{PREFIX}/services",
            command=f"millrace shutdown{stack}",
        ))  # fmt: skip

    @router.post(f"{PREFIX}/shutdown")
    async def shut_down(request: Request) -> Response:
        """A repeat tells how far it is."""
        await form_of(shell, request)
        try:
            seen = await commands.shut_down()
        except MillraceError as failure:
            return await _not_done(shell, request, "services", "the cluster", failure)
        done = [(what, outcome, tone) for what, outcome, tone in _far(seen, stack) if outcome]
        return await shell.done(request, "services", "The cluster is being shut down", done, f"{PREFIX}/")


def _far(seen: ShutDown, stack: str) -> list[tuple[str, str, str]]:
    """How far the cluster's end is, and what follows."""
    silent = f"of {', '.join(seen.silent)}: attempts of its jobs may still run" if seen.silent else ""
    waits = f"of the provider {'is' if seen.workers == 1 else 'are'} not stopped yet" if seen.workers else ""
    return [
        ("Now", STEPS[ClosingStep(seen.step)], "wait"),
        (count(seen.live, "job"), f"{'is' if seen.live == 1 else 'are'} kept, {seen.suspended} suspended so far", "ok"),
        (count(seen.workers, "TaskManager"), waits, "wait"),
        ("No answer", silent, "bad"),
        ("Then", f"this page ends, too. To go on: start the cluster again, as with `millrace up{stack} --web`", "wait"),
    ]


async def _not_done(shell: Shell, request: Request, active: str, what: str, failure: MillraceError) -> Response:
    unknown = may_be_done(failure)
    headline = "It is not known yet whether it was done" if unknown else "It was not done"
    done = [(what, str(failure), "wait" if unknown else "bad")]
    return await shell.done(request, active, headline, done, f"{PREFIX}/{active}")
