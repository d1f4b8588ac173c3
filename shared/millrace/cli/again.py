"""`millrace run-again`: the graph of a job that ended, once more."""

from __future__ import annotations

import typer

from .connection import StackOption, connected
from .options import FollowOption, JobArgument, NewJobOption, QuietOption
from .submit import follow, named_at_ctrl_c


def run_again(
    job: JobArgument,
    new: NewJobOption = None,
    wait: FollowOption = False,
    quiet: QuietOption = False,
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
        new = new or new_id(str(graph.get("name", "")))
        with named_at_ctrl_c(new):
            accepted = millrace.submit(graph, new, watch=wait)
        if not wait:
            typer.echo(accepted.id)
            return
        raise typer.Exit(follow(millrace, accepted, stack, graph=graph, quiet=quiet))
