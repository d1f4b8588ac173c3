"""Arguments and options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

JobArgument = Annotated[
    str, typer.Argument(metavar="JOB", help="The job's id, as submit and list print it.", show_default=False)
]
ParallelismOption = Annotated[
    list[str] | None,
    typer.Option(metavar="VERTEX=N", help="Another parallelism of a vertex than the graph's file has; may be repeated."),
]
ResourceOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=N",
        help="What each slot must have at least: memory_mb=4096, cores=2, or what TaskManagers name: gpu=1; may be repeated.",
    ),
]
NewJobOption = Annotated[
    str | None, typer.Option("--job", metavar="ID", help="The new job's id: a repeat with it is the same job (default: a new one).")
]
FollowOption = Annotated[
    bool, typer.Option("--wait", "-w", "--follow", "-f", help="Show progress and what it writes, wait for the end, print the result.")
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="With --wait: neither progress nor what it writes, only the result and errors.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="As JSON.")]


def pairs(given: list[str] | None, flag: str) -> dict[str, str]:
    """NAME=VALUE of an option that may be repeated. Raises typer.BadParameter."""
    found = {}
    for each in given or []:
        key, equals, value = each.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{flag} takes NAME=VALUE, not {each!r}")
        found[key] = value
    return found
