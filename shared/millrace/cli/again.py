"""`millrace run-again`: the graph of a job that ended, once more."""

from __future__ import annotations

from typing import Annotated

import typer

from .connection import StackOption, connected
from .options import JobArgument
from .submit import follow


def run_again(
    job: JobArgument,
    new: Annotated[
        str | None, typer.Option("--job", metavar="ID", help="The new job's id: a repeat with it is the same job (default: a new one).")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", "-w", "--follow", "-f", help="Show progress and what it writes, wait for the end, print the result.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="With --wait: neither progress nor what it writes, only the result and errors.")
    ] = False,
    stack: StackOption = "default",
) -> None:
    """Submit the graph of a job that ended once more, under a new id.

    It is submitted as it was stored, with its parameters and modules. It reads what its sources have now, and its sinks write again.

    Exit codes: as of submit; 1 also where there is no such job, it has not ended, or nothing is kept of it.

    millrace run-again nightly-3f2a9c1d --wait
    """
    from millrace.client import new_id

    with connected(stack) as millrace:
        graph = millrace.graph_of(job)
        accepted = millrace.submit(graph, new or new_id(str(graph.get("name", ""))), watch=wait)
        if not wait:
            typer.echo(accepted.id)
            return
        raise typer.Exit(follow(millrace, accepted, stack, graph=graph, quiet=quiet))
