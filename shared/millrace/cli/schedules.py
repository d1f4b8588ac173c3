"""`millrace schedule`: jobs by cron."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.core.states import ENDED_JOB

from .connection import StackOption, connected, is_named
from .environment import EnvFileOption, EnvOption, variables
from .exits import Exit
from .options import FollowOption, JsonOption, NewJobOption, QuietOption, pairs
from .submit import GRAPH_SUFFIXES, check_loaded, follow, named_at_ctrl_c, print_problems
from .words import minute

if TYPE_CHECKING:
    from millrace.client import Millrace
    from millrace.core.messages.schedules import ScheduleDescribed, ScheduleRun, ScheduleSummary

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.", show_default=False)]
OPTIONS = ("cron", "time_zone")
"""Where a problem may be that is not in the graph's file."""


class Missed(str, Enum):
    skip = "skip"
    latest = "latest"
    all = "all"


class Overlap(str, Enum):
    skip = "skip"
    wait = "wait"


schedule = typer.Typer(
    name="schedule",
    help="""Run jobs by cron.

    A schedule submits a graph at each of its times, as a job of its own. The cluster keeps it, whatever dies.""",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@schedule.command("set")
def set_schedule(
    name: NameArgument,
    graph: Annotated[Path, typer.Argument(metavar="GRAPH.yaml", help="The graph's file.", show_default=False)],
    cron: Annotated[
        str,
        typer.Option(
            metavar="CRON", help="Minute, hour, day of the month, month, day of the week; or @hourly, @daily, @weekly, @monthly, @yearly.",
            show_default=False,
        ),
    ],
    time_zone: Annotated[str, typer.Option(metavar="ZONE", help="The cron's local time, as Europe/Berlin.")] = "UTC",
    missed: Annotated[
        Missed, typer.Option(help="Which times are run that came while the cluster was down: none, the latest, or all (at most 1,000).")
    ] = Missed.latest,
    overlap: Annotated[Overlap, typer.Option(help="A time at which the run before still goes on is left out, or waits.")] = Overlap.skip,
    parameter: Annotated[
        list[str] | None, typer.Option("-p", "--parameter", "--param", metavar="NAME=VALUE", help="A value for ${NAME}; may be repeated.")
    ] = None,
    paused: Annotated[bool, typer.Option("--paused", help="Begin no run before millrace schedule resume.")] = False,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Times since then were missed: 2h, 3d ago, or 2026-01-31T12:00 (default: none).")
    ] = None,
    env: EnvOption = None,
    env_file: EnvFileOption = None,
    stack: StackOption = "default",
) -> None:
    """Make a schedule, or replace the one of this name. Prints when it runs next.

    A graph that declares one of the parameters scheduled_time, scheduled_date, previous_time or previous_date has there the time of the
    run, or of the run before it, in the schedule's time zone.

    millrace schedule set nightly nightly.yaml --cron "0 3 * * *" --time-zone Europe/Berlin

    millrace schedule set hourly load.yaml --cron @hourly --missed all --overlap wait -p region=eu
    """
    if graph.suffix not in GRAPH_SUFFIXES:
        raise typer.BadParameter(f"{graph} is no graph's file ({', '.join(GRAPH_SUFFIXES)})")
    from millrace.client import Rejected
    from millrace.edge.graph_file import load_graph

    from .times import past_ms

    policy: dict[str, Any] = {"missed": missed.value, "overlap": overlap.value, "paused": paused}
    if since is not None:
        policy["since_ms"] = past_ms(since)
    parameters, given = pairs(parameter, "-p"), variables(env, env_file)
    loaded = load_graph(graph, parameters, same_machine=not is_named(), sent=True, env=given)
    check_loaded(loaded)
    with connected(stack) as millrace:
        try:
            made = millrace.set_schedule(name, loaded.raw, cron, time_zone, parameters, loaded.uploads, loaded.env, **policy)
        except Rejected as rejected:
            if not rejected.problems or any(each.place[:1] == [option] for each in rejected.problems for option in OPTIONS):
                raise
            print_problems(loaded, rejected.problems)
            raise typer.Exit(Exit.INVALID) from None
    for line in _next_lines(made):
        print(line)


@schedule.command("list")
def list_schedules(as_json: JsonOption = False, stack: StackOption = "default") -> None:
    """List all schedules: when each has run last, and runs next, in its own time zone.

    millrace schedule list
    """
    from .tables import print_json, table

    with connected(stack) as millrace:
        found = list(millrace.schedules())
    if as_json:
        print_json([each.model_dump() for each in found])
        return
    heads = ("schedule", "name", "cron", "time zone", "last", "next", "state")
    table(heads, ((each.schedule, each.name, each.cron, each.time_zone, minute(each.last), _next(each), _state(each)) for each in found))


@schedule.command()
def show(name: NameArgument, as_json: JsonOption = False, stack: StackOption = "default") -> None:
    """Show a schedule: its next times, its last runs with their states, and which times were left out, and why.

    millrace schedule show nightly
    """
    from .tables import print_json, table

    with connected(stack) as millrace:
        shown = millrace.schedule(name)
        why = _reason(millrace, shown) if shown.schedule.due is not None else ""
    if as_json:
        print_json({"schedule": shown.schedule.model_dump(), "runs": [each.model_dump() for each in shown.runs]})
        return
    from .tables import when

    its = shown.schedule
    print(f"schedule  {its.schedule}", f"name      {its.name}", f"cron      {its.cron} ({its.time_zone})", sep="\n")
    print(f"missed    {its.missed}", f"overlap   {its.overlap}", f"set       {when(its.set_ms)}", f"state     {_state(its)}", sep="\n")
    for line in _next_lines(its):
        print(line)
    if its.due is not None:
        print(f"due       {minute(its.due)}: {why}")
    if shown.runs:
        print()
        table(("for", "job", "state", "accepted"), map(_run_row, shown.runs))


@schedule.command()
def pause(name: NameArgument, stack: StackOption = "default") -> None:
    """Begin no further run. One that runs goes on; times that come meanwhile are not made up for."""
    with connected(stack) as millrace:
        millrace.pause_schedule(name)
    print(f"schedule {name} is paused; go on: millrace schedule resume {name}")


@schedule.command()
def resume(name: NameArgument, stack: StackOption = "default") -> None:
    """Go on with a paused schedule, from now on."""
    with connected(stack) as millrace:
        resumed = millrace.pause_schedule(name, undo=True)
    for line in _next_lines(resumed):
        print(line)


@schedule.command()
def remove(name: NameArgument, stack: StackOption = "default") -> None:
    """Delete a schedule. Its jobs stay, also one that runs."""
    with connected(stack) as millrace:
        millrace.remove_schedule(name)
    print(f"schedule {name} is removed")


@schedule.command()
def run(
    name: NameArgument,
    job: NewJobOption = None,
    wait: FollowOption = False,
    quiet: QuietOption = False,
    stack: StackOption = "default",
) -> None:
    """Run a schedule's graph now, beside its times: also while it is paused, or another run goes on.

    Its time is now, for parameters as scheduled_date. Exit codes: as of submit.

    millrace schedule run nightly --wait
    """
    from millrace.client import new_id

    job = job or new_id(name)
    with connected(stack) as millrace:
        with named_at_ctrl_c(job):
            accepted = millrace.run_schedule(name, job, wait)
        if not wait:
            typer.echo(accepted.id)
            return
        raise typer.Exit(follow(millrace, accepted, stack, quiet=quiet))


def _next(each: ScheduleSummary) -> str:
    return minute(each.next[0]) if each.next else ""


def _state(each: ScheduleSummary) -> str:
    if each.problem is not None:
        return f"cannot run: {each.problem}"
    return "paused" if each.paused else f"due: {minute(each.due)}" if each.due is not None else "active"


def _next_lines(each: ScheduleSummary) -> Iterator[str]:
    if each.problem is not None:
        yield f"problem   {each.problem}"
    elif each.paused:
        yield f"next      none while it is paused; millrace schedule resume {each.schedule}"
    for number, text in enumerate(each.next):
        yield f"{'next' if number == 0 else '':8}  {minute(text)} {each.time_zone}"


def _run_row(run: ScheduleRun) -> tuple[object, ...]:
    from .tables import when

    times = f" ({run.times} times up to this one)" if run.times > 1 else ""
    return minute(run.due) or "by hand", run.job or "", run.state or f"left out: {run.left_out}{times}", when(run.accepted_ms)


def _reason(millrace: Millrace, shown: ScheduleDescribed) -> str:
    """Why a job that is due is not accepted yet."""
    from millrace.client import Unavailable

    from .tables import when

    job, last = shown.schedule.due_job or "", next((each for each in shown.runs if each.job == shown.schedule.last_job), None)
    if last is not None and last.state not in ENDED_JOB:
        return f"it waits for the end of {last.job}"
    try:
        letter = millrace.dead_letters().last_about(job)
    except Unavailable:
        letter = None
    refused = f"; refused at {when(letter.letter.at_ms)}: millrace dlq show {letter.number}" if letter is not None else ""
    return f"job {job} is submitted, and not accepted yet{refused}"
