"""What is done from the page. Each goes to Kafka as anyone's command does, and shows the command that does the same."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool

from millrace.cli.fates import Fate, Found, fate_of
from millrace.client import Millrace, MillraceError, NotFound, Refused, new_id
from millrace.client.dead_letters import Letter
from millrace.client.queries import AGAIN_WHEN, REPAIR_WHEN
from millrace.core.messages.base import JOB_ID_PATTERN, JOB_ID_RULE
from millrace.core.origins import again as run_again
from millrace.core.states import ENDED_JOB

from ..commands import UNKNOWN, Commands, KafkaAway, NoLeader
from ..threads import TooMany
from ..view import View
from .checking import Checked, checked
from .forms import FILES_MOST, form_of, uploads_of
from .reads import Reads
from .refusals import refusals_as_pages
from .shell import PREFIX, Shell
from .words import count

JOBS_MOST = 1000
"""Jobs that one form cancels."""
LETTERS_MOST = 200
FATES_S = 4.0
"""For so long one request looks at letters: each is a read of Kafka."""
SENDING_S = 10.0
"""... and for so long it sends them."""
NOT_REACHED = "was not reached in the time of one request: ask again"
NOT_SENT = "was not sent, for the one before was not answered: try again"
EXAMPLE = """\
name: hello

vertices:
  numbers:
    sql: SELECT id, id * id AS square FROM range(1, 11)

  big:
    sql: SELECT * FROM numbers WHERE square > 20
    inputs: {numbers: forward}
"""
JobPath = Annotated[str, Path(pattern=JOB_ID_PATTERN)]


def actions(shell: Shell, view: View, commands: Commands, reads: Reads, stack: str) -> APIRouter:
    """The forms, and the questions before them."""
    router = APIRouter(include_in_schema=False, route_class=refusals_as_pages(shell))
    _cancel(router, shell, view, commands, stack)
    _again(router, shell, view, commands, reads, stack)
    _submit(router, shell, commands)
    _redrive(router, shell, commands, reads, stack)
    return router


def _cancel(router: APIRouter, shell: Shell, view: View, commands: Commands, stack: str) -> None:
    def ask(request: Request, jobs: Sequence[str]) -> Response:
        live = [job for job in jobs if (row := view.jobs.row(job)) is not None and row["status"] not in ENDED_JOB]
        what = count(len(live), "job") if len(live) != 1 else live[0]
        return shell.page(
            request, "question.html", "jobs", headline=f"Cancel {what}?" if live else "Nothing of it can be canceled",
            verb=f"Cancel {what}",
            why="What runs of it is ended, and what has not begun does not begin. Rows that a sink has not published are lost."
            if live else "It has ended already, or is not known here.", action=f"{PREFIX}/cancel", fields=[("job", job) for job in live],
            names=live, danger=True, keep="Keep it" if len(live) == 1 else "Keep them", back=f"{PREFIX}/jobs",
            command=f"millrace cancel{stack} {' '.join(live[:20])}{' ...' if len(live) > 20 else ''}" if live else "",
        )  # fmt: skip

    @router.get(f"{PREFIX}/jobs/{{job}}/cancel")
    async def cancel_one(request: Request, job: JobPath) -> Response:
        return await run_in_threadpool(ask, request, [job])

    @router.post(f"{PREFIX}/cancel")
    async def cancel(request: Request) -> Response:
        """Without `sure` it asks first."""
        form = await form_of(shell, request)
        jobs = list(dict.fromkeys(str(job) for job in form.getlist("job") if re.fullmatch(JOB_ID_PATTERN, str(job))))[:JOBS_MOST]
        if form.get("sure") != "yes":
            return await run_in_threadpool(ask, request, jobs)

        async def canceled(job: str) -> str:
            return f"is {await commands.cancel(job)}"

        done = await _one_by_one([(job, partial(canceled, job)) for job in jobs])
        if len(done) == 1 and done[0][2] == "ok":
            return RedirectResponse(f"{PREFIX}/jobs/{done[0][0]}", 303)
        worked = sum(tone == "ok" for _, _, tone in done)
        return await shell.done(request, "jobs", f"{worked} of {count(len(done), 'job')} canceled", done, f"{PREFIX}/jobs")


async def _one_by_one(
    commands: Sequence[tuple[str, Callable[[], Awaitable[str]]]], for_s: float = float("inf")
) -> list[tuple[str, str, str]]:
    """What became of each. When nobody answers, no other is sent: each would wait as long for the same. After `for_s` none begins."""
    done: list[tuple[str, str, str]] = []
    stopped, until = False, time.monotonic() + for_s
    for what, command in commands:
        if not stopped and time.monotonic() > until:
            done.append((what, NOT_REACHED, "wait"))
            continue
        if stopped:
            done.append((what, NOT_SENT, "bad"))
            continue
        try:
            done.append((what, await command(), "ok"))
        except MillraceError as failure:
            done.append((what, str(failure), "wait" if isinstance(failure, UNKNOWN) else "bad"))
            stopped = isinstance(failure, (NoLeader, KafkaAway, TooMany, *UNKNOWN))
    return done


@dataclass(frozen=True)
class _Again:
    """A way to run an ended job again."""

    path: str
    command: str
    headline: str
    verb: str
    done: str
    why: str
    repair: bool = False


AGAIN = _Again(
    "again", "run-again", "Run {job} again?", "Run again", "run again",
    "Its graph is submitted as it was stored, under a new id. It reads what its sources have now, and its sinks write again.",
)  # fmt: skip
REPAIR = _Again(
    "repair", "repair", "Repair {job}?", "Repair", "repaired",
    "Its graph is submitted as it was stored, under a new id. What had finished is kept, all else runs. With files that were mended, "
    "use the command line.", repair=True,
)  # fmt: skip


def _again(router: APIRouter, shell: Shell, view: View, commands: Commands, reads: Reads, stack: str) -> None:
    async def graph_of(job: str, repair: bool) -> tuple[Mapping[str, Any], str]:
        row, _ = view.ask(lambda view: view.jobs.row(job))
        if row is None:
            raise NotFound(f"there is no job {job} among those that are shown")
        if row["status"] not in ENDED_JOB:
            raise Refused(f"job {job} is {row['status']}: {REPAIR_WHEN if repair else AGAIN_WHEN}")
        if repair and row["status"] == "FINISHED":
            raise Refused(f"job {job} is FINISHED: there is nothing to repair, for only what FAILED or was CANCELED is; run it again")
        known = await reads.job(row)
        if not known.graph:
            raise NotFound(f"the graph of job {job} is not known now: {known.missing or 'etcd has not answered'}")
        return known.graph, row["name"]

    async def ask(request: Request, job: str, how: _Again) -> Response:
        try:
            _, name = await graph_of(job, how.repair)
        except MillraceError as failure:
            return await shell.done(request, "jobs", f"It cannot be {how.done} from here", [(job, str(failure), "bad")], f"{PREFIX}/jobs")
        return await run_in_threadpool(lambda: shell.page(
            request, "question.html", "jobs", headline=how.headline.format(job=job), verb=how.verb, danger=False, keep="Leave it",
            why=how.why, action=f"{PREFIX}/jobs/{job}/{how.path}", fields=[], names=[], back=f"{PREFIX}/jobs/{job}",
            command=f"millrace {how.command}{stack} {job}", name=name,
        ))  # fmt: skip

    async def submit(request: Request, job: str, how: _Again) -> Response:
        await form_of(shell, request)
        id = ""
        try:
            graph, name = await graph_of(job, how.repair)
            id = new_id(name)
            await commands.submit(run_again(graph, job, repair=how.repair), id)
        except UNKNOWN as failure:
            headline = "It is not known yet whether it runs"
            return await shell.done(request, "jobs", headline, [(id, str(failure), "wait")], f"{PREFIX}/jobs")
        except MillraceError as failure:
            return await shell.done(request, "jobs", "It was not submitted", [(job, str(failure), "bad")], f"{PREFIX}/jobs/{job}")
        return RedirectResponse(f"{PREFIX}/jobs/{id}", 303)

    @router.get(f"{PREFIX}/jobs/{{job}}/again")
    async def ask_again(request: Request, job: JobPath) -> Response:
        return await ask(request, job, AGAIN)

    @router.post(f"{PREFIX}/jobs/{{job}}/again")
    async def again(request: Request, job: JobPath) -> Response:
        return await submit(request, job, AGAIN)

    @router.get(f"{PREFIX}/jobs/{{job}}/repair")
    async def ask_repair(request: Request, job: JobPath) -> Response:
        return await ask(request, job, REPAIR)

    @router.post(f"{PREFIX}/jobs/{{job}}/repair")
    async def repair(request: Request, job: JobPath) -> Response:
        return await submit(request, job, REPAIR)


def _submit(router: APIRouter, shell: Shell, commands: Commands) -> None:
    def screen(request: Request, found: Checked, job: str, failure: str = "", status: int = 200) -> Response:
        return shell.page(request, "submit.html", "submit", status, checked=found, job=job, failure=failure)

    @router.get(f"{PREFIX}/submit")
    async def form(request: Request) -> Response:
        return await run_in_threadpool(lambda: screen(request, checked(EXAMPLE), ""))

    @router.post(f"{PREFIX}/submit")
    async def submit(request: Request) -> Response:
        """With `check` it is looked at, and nothing is sent."""
        given = await form_of(shell, request)
        text, job = str(given.get("graph", "")), str(given.get("id", "")).strip()
        if given.get("check"):
            names = [str(name)[:255] for name in given.getlist("name")][:FILES_MOST]
            return await run_in_threadpool(lambda: screen(request, checked(text, names), job))
        uploads, files = await uploads_of(given)
        found = await run_in_threadpool(checked, text, files)
        if job and not re.fullmatch(JOB_ID_PATTERN, job):
            return await run_in_threadpool(lambda: screen(request, found, job, f"{job[:100]!r} is no id of a job: {JOB_ID_RULE}", 400))
        if found.errors or not found.raw:
            mistakes = "1 mistake" if found.errors == 1 else f"{found.errors} mistakes"
            instruction = f"Mend {mistakes} first" if found.errors else "Type a graph first"
            return await run_in_threadpool(lambda: screen(request, found, job, instruction, 400))
        id = job or new_id(found.name)
        try:
            await commands.submit(found.raw, id, None, uploads, found.env)
        except MillraceError as failure:
            reason, status = str(failure), 202 if isinstance(failure, UNKNOWN) else 409
            return await run_in_threadpool(lambda: screen(request, found, id, reason, status))
        return RedirectResponse(f"{PREFIX}/jobs/{id}", 303)


def _redrive(router: APIRouter, shell: Shell, commands: Commands, reads: Reads, stack: str) -> None:
    @router.post(f"{PREFIX}/redrive")
    async def redrive(request: Request) -> Response:
        """Without `sure` it shows what would become of each, and asks. What would come to nothing is never sent. `all`: those that were not
        sent again, of them those before letter `below` where it is given. `then`: what the next request is to look at."""
        form = await form_of(shell, request)
        numbers = {n for each in form.getlist("letter") if (n := _number(each)) is not None}
        every, below = form.get("all") == "yes", _number(form.get("below"))
        try:
            chosen = [
                each for each in (await reads.letters(anew=True)).letters
                if (each.redriven is None and (below is None or each.number < below) if every else each.number in numbers)
            ]  # fmt: skip
            fates = await commands.call(partial(_fates, chosen[:LETTERS_MOST]))
        except MillraceError as failure:
            return await shell.done(request, "letters", "They cannot be read now", [("", str(failure), "bad")], f"{PREFIX}/letters")
        letters, beyond = chosen[:len(fates)], chosen[len(fates):]
        then = str(form.get("then", ""))
        if beyond:  # what would come to nothing stays: looked at from the front, it would hide what is behind it
            then = f"below {letters[-1].number}" if every else " ".join(str(each.number) for each in beyond[:LETTERS_MOST])
        going = [letter for letter, found in zip(letters, fates, strict=True) if found.fate is Fate.SEND]
        if form.get("sure") != "yes":
            asked = _preview(letters, fates, len(beyond), then, stack)
            return await run_in_threadpool(lambda: shell.page(request, "question.html", "letters", **asked))
        done = [(f"letter {letter.number}", f"was left: {_left(found)}", "wait")
                for letter, found in zip(letters, fates, strict=True) if found.fate is not Fate.SEND]  # fmt: skip

        async def sent(letter: Letter) -> str:
            await commands.redrive(letter.number, partial(_sent, letter))
            return "was sent again"

        done += await _one_by_one([(f"letter {letter.number}", partial(sent, letter)) for letter in going], SENDING_S)
        done += [(f"letter {letter.number}", NOT_REACHED, "wait") for letter in beyond[:LETTERS_MOST]]
        if len(beyond) > LETTERS_MOST:
            done.append((f"{len(beyond) - LETTERS_MOST:,} more", NOT_REACHED, "wait"))
        worked = sum(tone == "ok" for _, _, tone in done)
        headline = f"{worked} of {count(len(chosen), 'letter')} sent again"
        return await shell.done(request, "letters", headline, done, f"{PREFIX}/letters", _next(then))


def _number(text: object) -> int | None:
    """That a field of a form holds; None: it holds none."""
    return int(digits) if (digits := str(text)).isascii() and digits.isdecimal() and len(digits) < 19 else None


def _next(then: str) -> list[tuple[str, int | str]]:
    """The fields of the form that goes on with the letters that `then` tells of; none: there are no more."""
    word, _, number = then.partition(" ")
    if word == "below":
        return [("all", "yes"), ("below", below)] if (below := _number(number)) is not None else []
    return [("letter", n) for each in then.split()[:LETTERS_MOST] if (n := _number(each)) is not None]


def _fates(letters: Sequence[Letter], client: Millrace) -> list[Found]:
    """What would become of the first of them: of as many as can be looked at in the time of one request, and of one at least."""
    until, found = time.monotonic() + FATES_S, []
    for each in letters:
        found.append(fate_of(client.dead_letters(), each))
        if time.monotonic() > until:
            break
    return found


def _preview(letters: Sequence[Letter], fates: Sequence[Found], beyond: int, then: str, stack: str) -> dict[str, Any]:
    """The question before letters are sent: what would become of them, by fate. `beyond`: how many more were not looked at; `then`: what
    the next request is to look at."""
    going = [letter for letter, found in zip(letters, fates, strict=True) if found.fate is Fate.SEND]
    groups: dict[tuple[str, str], list[str]] = {}
    for letter, found in zip(letters, fates, strict=True):
        would = "sent" if found.fate is Fate.SEND else f"left: {found.fate.value}"
        groups.setdefault((would, letter.kind), []).append(f"letter {letter.number}" + (f": {found.why}" if found.why else ""))
    shown = sorted(groups.items(), key=lambda each: each[0][0] != "sent")
    named = " ".join(str(each.number) for each in going[:20]) + (" ..." if len(going) > 20 else "")
    left = len(letters) - len(going)
    why = "Nothing was sent yet. They go as they were, with their own ids: a job that was accepted meanwhile stays one job."
    more = f" {count(beyond, 'older letter')} {'was' if beyond == 1 else 'were'} not looked at yet." if beyond else ""
    return {
        "headline": f"Send {count(len(going), 'letter')} again?" if going else "None of them would be accepted now",
        "why": (why + (f" {count(left, 'letter')} would come to nothing, and {'stays' if left == 1 else 'stay'}." if left else "")
        if going else "Nothing was sent, and nothing would be gained by it: below is why.") + more,
        "groups": [(len(some), would, kind, some[0]) for (would, kind), some in shown],
        "danger": not going, "verb": f"Send {count(len(going), 'letter')} again", "action": f"{PREFIX}/redrive", "keep": "Leave them",
        "back": f"{PREFIX}/letters", "names": [], "more": _next(then),
        "fields": [*(("letter", each.number) for each in going), *([("then", then)] if going and then else [])],
        "command": f"millrace dlq redrive{stack} {named} --yes" if going else "",
    }  # fmt: skip


def _left(found: Found) -> str:
    return found.fate.value + (f", {found.why}" if found.why else "")


def _sent(letter: Letter, client: Millrace, by: str) -> None:
    letters = client.dead_letters()
    letters.redrive(letter, letters.original(letter), by)
