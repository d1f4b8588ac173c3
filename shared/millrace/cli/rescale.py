"""The command that gives a running job another parallelism."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from .connection import StackOption, connected
from .options import JobArgument, JsonOption

if TYPE_CHECKING:
    from millrace.core.messages.requirements import VertexRequirement


def rescale(
    job: JobArgument,
    parallelism: Annotated[
        list[str] | None,
        typer.Option(
            "--parallelism", "-p", metavar="N|VERTEX=N",
            help="Of each vertex that may have several subtasks, or of one; may be repeated. Without: print what there is.",
        ),
    ] = None,
    as_json: JsonOption = False,
    stack: StackOption = "default",
) -> None:  # fmt: skip
    """Give a job that runs another parallelism, or print what it has and may have.

    What runs of it is canceled and begins again. What has finished stays, where it does and hands on the same as before; what a reader by
    hash with another parallelism needs is made anew. No restart of the job is spent. Vertices joined by forward have one parallelism: the
    others follow. The same numbers again change nothing.

    millrace rescale flights-7 --parallelism 8

    millrace rescale flights-7 -p joined=4 -p ranked=1

    Exit codes: 0 done or nothing to do, 1 refused (it has ended, or there is no such job), 2 a number that cannot be, 3 the cluster is
    silent, 4 outcome unknown.
    """
    every, vertices = _numbers(parallelism or [])
    changed: dict[str, int] = {}
    with connected(stack) as millrace:
        if parallelism:
            done = millrace.rescale(job, every, vertices)
            changed, found = done.changed, done.vertices
        else:
            found = millrace.requirements(job)
    if as_json:
        from .tables import print_json

        print_json({"job": job, **({"changed": changed} if parallelism else {}), "vertices": [each.model_dump() for each in found]})
        return
    _print(found, changed)
    if parallelism:
        count = len(changed)
        summary = f"job {job} is rescaled: {count} vert{'ex has' if count == 1 else 'ices have'} another parallelism"
        print(summary if changed else f"job {job} has these numbers already: nothing changes", file=sys.stderr)


def _numbers(given: list[str]) -> tuple[int | None, dict[str, int]]:
    """(of all, vertex -> number). Raises typer.BadParameter."""
    every, vertices = None, {}
    for each in given:
        vertex, equals, number = each.rpartition("=")
        if not re.fullmatch("[1-9][0-9]{0,5}", number) or (equals and not vertex):
            raise typer.BadParameter(f"--parallelism takes N or VERTEX=N, N from 1 on, not {each!r}")
        if equals:
            vertices[vertex] = int(number)
        else:
            every = int(number)
    return every, vertices


def _print(vertices: list[VertexRequirement], changed: dict[str, int]) -> None:
    from .tables import table

    groups = [each.group for each in vertices]
    rows = [
        (each.vertex, f"{each.parallelism}{' (new)' if each.vertex in changed else ''}", each.most,
         each.group if groups.count(each.group) > 1 else "", each.why or "")
        for each in vertices
    ]  # fmt: skip
    table(("vertex", "parallelism", "at most", "as", "why not more"), rows)
