"""Commands about jobs: list, show, result, logs, cancel, events."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from millrace.core.clocks import TIME_MOST_MS
from millrace.core.states import ENDED_BY, ENDED_JOB, JobStatus

from .connection import StackOption, connected
from .options import JobArgument, JsonOption
from .process import print_logs

if TYPE_CHECKING:
    from millrace.client import LogPiece, Millrace
    from millrace.core.messages.client import JobDetails
    from millrace.core.messages.execution import JobDetail



class Form(str, Enum):
    table = "table"
    json = "json"
    csv = "csv"


class Stream(str, Enum):
    both = "both"
    stdout = "stdout"
    stderr = "stderr"


def list_jobs(
    name: Annotated[str | None, typer.Option(metavar="TEXT", help="Only jobs with this in their name.")] = None,
    state: Annotated[
        list[str] | None, typer.Option("--state", metavar="STATE", help="Only in this state, such as QUEUED; may be repeated.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only accepted since: 30m, 2h, 3d ago, 14:30, or 2026-01-31T12:00.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Only accepted before that time.")] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", "--most", min=1, help="How many.")] = 20,
    all_of_them: Annotated[bool, typer.Option("--all", help="All of them, however many there are.")] = False,
    cursor: Annotated[str, typer.Option(metavar="CURSOR", help="Go on behind the jobs that an earlier list ended with.")] = "",
    as_json: JsonOption = False,
    stack: StackOption = "default",
) -> None:
    """List the newest jobs, newest first: how each is, how long it waited for a slot, how long it ran.

    Ended jobs are listed for as long as the cluster keeps their names, days after their end. Where more are left, the last line on
    standard error has a cursor to go on with; jobs that come meanwhile move nothing.

    QUEUED is a job that waits for its first slot; it has the status RUNNING in JSON, beside its state.

    millrace list --state QUEUED --state RUNNING

    millrace list --name nightly --since 2d -n 100 --json

    millrace list --all --state FAILED
    """
    only = _only(name, state, since, until)
    jobs: list[JobDetails] = []
    following: str | None = cursor
    with connected(stack) as millrace:
        while following is not None and (all_of_them or len(jobs) < limit):
            listed = millrace.list_details(1_000 if all_of_them else min(1_000, limit - len(jobs)), following, **only)
            following = listed.next
            jobs += listed.jobs
    from .tables import print_json, summary_row, table

    if as_json:
        print_json([{**job.model_dump(), "state": job.state} for job in jobs])
    else:
        table(("job", "name", "state", "accepted", "waited", "ran", "waits for"), map(summary_row, jobs))
    silent = sorted({job.silent for job in jobs if job.silent})
    if silent:
        print(f"{', '.join(silent)}: no answer; its jobs are shown as the Dispatcher knows them", file=sys.stderr)
    if following is not None:
        count = f"{len(jobs)} of {listed.total}" if listed.total is not None else f"{len(jobs)} jobs, and there are more"
        print(f"{count}; all with --all, the next with --cursor {following}", file=sys.stderr)


def queue(
    most: Annotated[int, typer.Option("-n", "--most", min=1, max=1000, help="How many.")] = 20,
    as_json: JsonOption = False,
    stack: StackOption = "default",
) -> None:
    """Show the jobs that wait for slots, in the order in which they get them: place, how long yet, and why.

    A job without a place wants what no registered slot has, or more than a hundred go before it.
    """
    with connected(stack) as millrace:
        listed = millrace.list(most, in_queue=True)
    from .tables import print_json, queue_row, table

    if as_json:
        print_json([{**job.model_dump(), "state": job.state} for job in listed.jobs])
    else:
        table(("place", "job", "name", "accepted", "expected in", "why"), map(queue_row, listed.jobs))
    if listed.total > len(listed.jobs):
        print(f"{len(listed.jobs)} of {listed.total}; more with -n", file=sys.stderr)


def _only(name: str | None, states: list[str] | None, since: str | None, until: str | None) -> dict[str, Any]:
    """Fields of ListJobs. Raises typer.BadParameter."""
    from .times import past_ms

    only: dict[str, Any] = {}
    if name:
        only["name"] = name
    if states:
        from millrace.core.states import JobState

        known = get_args(JobState)
        only["states"] = [each.upper() for each in states]
        wrong = [each for each, state in zip(states, only["states"], strict=True) if state not in known]
        if wrong:
            raise typer.BadParameter(f"{wrong[0]!r} is no state of a job; there are: {', '.join(known)}", param_hint="--state")
    for field, text in (("since_ms", since), ("until_ms", until)):
        if text is not None:
            only[field] = past_ms(text)
    return only


@contextmanager
def _or_refused(millrace: Millrace, job: str) -> Iterator[None]:
    """Where there is no such job, because its submission was refused and nobody was told, the letter that says so is named."""
    from millrace.client import NotFound, Unavailable

    try:
        yield
    except NotFound as failure:
        try:
            letter = millrace.dead_letters().last_about(job)
        except Unavailable:
            letter = None
        if letter is None:
            raise
        from .tables import when

        raise NotFound(
            f"{failure}: its submission was refused at {when(letter.letter.at_ms)}; why, and what to do: millrace dlq show {letter.number}"
        ) from None


def show(
    job: JobArgument,
    as_json: JsonOption = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also what Spark has done in each attempt.")] = False,
    stack: StackOption = "default",
) -> None:
    """Show a job: its state, tasks, attempts, why it waits or failed, and why there is a further attempt.

    --verbose adds a table with what the Spark of each attempt has done: its tasks, rows and bytes, memory and time.
    Shuffle is between Spark's stages; spilled is what found no room in memory; gc is time that went into garbage collection.
    docs/metrics.md has what each column means. --json always has these figures.
    """
    with connected(stack) as millrace, _or_refused(millrace, job):
        shown = millrace.show(job)
    from .tables import print_job, print_json

    if as_json:
        summary = {**shown.summary.model_dump(), "state": shown.summary.state}
        cause, detail = (part.json_value() if part is not None else None for part in (shown.cause, shown.detail))
        print_json({"summary": summary, "cause": cause, "detail": detail, "silent": shown.silent})
    else:
        print_job(shown.summary, shown.detail, shown.cause, verbose)
    if shown.silent:
        print(f"{shown.silent} does not answer: this is what the Dispatcher knows; running attempts go on meanwhile", file=sys.stderr)


def result(
    job: JobArgument,
    form: Annotated[Form, typer.Option("--format", help="How to print the rows.")] = Form.table,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait for the job's end first.")] = False,
    stack: StackOption = "default",
) -> None:
    """Print the rows of a FINISHED job (the first 1,000).

    millrace result JOB --wait --format csv > rows.csv
    """
    with connected(stack) as millrace, _or_refused(millrace, job):
        if wait:
            millrace.wait(job)
        found = millrace.result(job)
    from .tables import print_result

    print_result(found, form.value)


def logs(
    job: Annotated[
        str | None, typer.Argument(metavar="JOB", help="The job's id, as submit and list print it.", show_default=False)
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until the job's end.")] = False,
    stream: Annotated[Stream, typer.Option(help="Which of the two.")] = Stream.both,
    task: Annotated[str | None, typer.Option(metavar="VERTEX", help="Only the task with this vertex.")] = None,
    every_attempt: Annotated[
        bool, typer.Option("--every-attempt", help="Failed attempts too, not only each subtask's last.")
    ] = False,
    process: Annotated[
        str | None, typer.Option(metavar="NAME", help="In place of JOB a TaskManager, or a process of a service: which logs it has itself.")
    ] = None,
    log: Annotated[str | None, typer.Option(metavar="ID", help="With --process: the end of this one of them.")] = None,
    whole: Annotated[bool, typer.Option("--whole", help="With --log: all of it, not only the last 64 KiB.")] = False,
    stack: StackOption = "default",
) -> None:
    """Print what a job's attempts wrote to stdout and stderr; or the own logs of a TaskManager or a service.

    millrace logs JOB --follow

    millrace logs --process task-manager-1 --log slot-0.jvm.log
    """
    if (job is None) == (process is None) or (process is None and (log is not None or whole)):
        raise typer.BadParameter("give either a JOB or --process NAME; --log and --whole go with the second")
    if whole and log is None:
        raise typer.BadParameter("it is of one log: give --log ID, too", param_hint="--whole")
    if job is None:
        if follow or every_attempt or task is not None or stream is not Stream.both:
            raise typer.BadParameter("--follow, --stream, --task and --every-attempt are of a JOB's logs")
        print_logs(process or "", log, whole, stack)
        return
    printer = _LogPrinter()
    with connected(stack) as millrace, _or_refused(millrace, job):
        if task is not None:
            _check_vertex(job, task, millrace.show(job).detail)
        for piece in millrace.logs(job, follow, every_attempt):
            wanted = stream is Stream.both or piece.stream == stream.value
            if wanted and (task is None or task in piece.task.split("+")):
                printer.print(piece)
    printer.end()
    if not printer.has_printed:
        print(f"job {job} has written nothing" + (" to this" * (stream is not Stream.both or task is not None)), file=sys.stderr)


def _check_vertex(job: str, vertex: str, detail: JobDetail | None) -> None:
    """Raises typer.BadParameter, if it is known which ones the job has."""
    vertices = [each for task in (detail.tasks if detail is not None else ()) for each in task.task.split("+")]
    if vertices and vertex not in vertices:
        raise typer.BadParameter(f"job {job} has no vertex {vertex!r}; it has: {', '.join(vertices)}", param_hint="--task")


class _LogPrinter:
    """Writes pieces as they are; a line before says whose they are, whenever that changes."""

    def __init__(self) -> None:
        self._last: tuple[Any, ...] | None = None
        self._open = False  # the last piece did not end its line

    def print(self, piece: LogPiece) -> None:
        source = (piece.task, piece.subtask, piece.attempt, piece.stream)
        if source != self._last:
            self.end()
            self._last = source
            print(
                f"--- {piece.task}[{piece.subtask}] attempt {piece.attempt} {piece.stream}", file=sys.stderr, flush=True
            )
        sys.stdout.buffer.write(piece.data)
        sys.stdout.buffer.flush()
        self._open = not piece.data.endswith(b"\n")

    @property
    def has_printed(self) -> bool:
        return self._last is not None

    def end(self) -> None:
        if self._open:
            sys.stdout.buffer.write(b"\n")
            sys.stdout.buffer.flush()
            self._open = False


def cancel(
    jobs: Annotated[
        list[str], typer.Argument(metavar="JOB...", help="Their ids, as submit and list print them.", show_default=False)
    ],
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Return when they have ended.")] = False,
    stack: StackOption = "default",
) -> None:
    """Cancel jobs. A repeat is harmless; a job that FINISHED or FAILED stays so.

    All of them are asked for, whatever becomes of one. Exit codes: that of the worst, 0 canceled or being canceled, 1 refused (it has ended
    otherwise, or there is no such job), 3 the cluster does not answer, 4 outcome unknown (ask millrace show).
    """
    from millrace.client import MillraceError

    from .exits import code_of, message_of

    worst = 0
    with connected(stack) as millrace:
        asked = []
        for job in dict.fromkeys(jobs):
            try:
                asked.append((job, millrace.cancel(job)))
            except MillraceError as failure:
                worst = max(worst, code_of(failure) or 0)
                print(message_of(failure), file=sys.stderr)
        for job, status in asked:
            if wait:
                status = millrace.wait(job).status
            still = "" if status == JobStatus.CANCELED or (wait and status in ENDED_JOB) else "; it is being canceled"
            print(f"job {job} is {status}{still}")
    if worst:
        raise typer.Exit(worst)


def events(
    job: Annotated[
        str | None, typer.Argument(metavar="JOB", help="Only of this job [all].", show_default=False)
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As they are, one JSON object a line.")] = False,
    stack: StackOption = "default",
) -> None:
    """Print what has happened to jobs, as far back as it is kept; with -f also what happens from now on.

    Without JOB, -f prints only what happens from now on. Anybody may read the same from the Kafka topic job.events.
    """
    from .progress import View
    from .tables import when

    with connected(stack) as millrace, _or_refused(millrace, job or ""):
        if job is None:
            found = millrace.events(history=not follow, go_on=follow)
        else:
            found = millrace.follow(job) if follow else millrace.events(job, history=True, go_on=False)
            status = millrace.status(job).status  # says so if there is none
        views: dict[str, View] = {}
        ended = False
        for event in found:
            ended = event["type"] in ENDED_BY
            if as_json:
                print(json.dumps(event, ensure_ascii=False), flush=True)
                continue
            if not _is_fact(event):
                continue
            line = views.setdefault(event["job"], View(event["job"])).add(event) or event["type"]
            print(f"{when(event['at_ms'])}  {event['job']}  {line}", flush=True)
            if line in ENDED_JOB:
                views.pop(event["job"])
        if job is not None and follow and not ended:
            print(f"job {job} is {status}; not all of its events are kept any more", file=sys.stderr)


def _is_fact(event: dict[str, Any]) -> bool:
    """Whether it can be told: strangers write what they like to the topic."""
    at_ms = event.get("at_ms")
    return isinstance(event.get("job"), str) and isinstance(at_ms, int) and 0 <= at_ms <= TIME_MOST_MS
