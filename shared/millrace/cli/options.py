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
