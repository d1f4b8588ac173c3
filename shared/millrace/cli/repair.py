"""`millrace repair`: a job that failed goes on, as a new job, with what had finished."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.core.origins import again

from .connection import StackOption, connected, is_named
from .environment import EnvFileOption, EnvOption, variables
from .options import FollowOption, JobArgument, NewJobOption, QuietOption, pairs
from .submit import GRAPH_SUFFIXES, check_loaded, follow, named_at_ctrl_c, send

if TYPE_CHECKING:
    from millrace.edge.graph_file import Loaded


def repair(
    job: JobArgument,
    graph: Annotated[
        Path | None, typer.Option("--graph", metavar="FIXED.yaml", help="The mended graph's file, in place of the stored graph.")
    ] = None,
    parameter: Annotated[
        list[str] | None, typer.Option("-p", "--parameter", metavar="NAME=VALUE", help="With --graph: a value for ${NAME}; repeatable.")
    ] = None,
    files: Annotated[
        list[Path] | None, typer.Option("--file", metavar="FIXED.py", help="Takes the place of the job's file of that name; repeatable.")
    ] = None,
    keep_changed: Annotated[
        bool, typer.Option("--keep-changed", help="Keep also what was made with files that are others now: the change does not touch it.")
    ] = False,
    new: NewJobOption = None,
    wait: FollowOption = False,
    quiet: QuietOption = False,
    env: EnvOption = None,
    env_file: EnvFileOption = None,
    stack: StackOption = "default",
) -> None:
    """Go on with a job that FAILED or was CANCELED, as a new job: what had finished is not run again.

    A vertex is kept with its rows if its definition, its files and all that it reads are as they were. All else runs, and sinks are
    written as by any job. What writes a sink, or gives the result, always runs again.

    The file of a Python vertex is the one that it names; a file that no vertex names belongs to all of them. Where one file has the
    functions of several vertices and only that of a failed one was mended, say so with --keep-changed.

    Exit codes: as of submit; 1 also where there is no such job or it has not ended, 2 where it cannot be repaired.

    millrace repair nightly-3f2a9c1d --file ranking.py --wait
    """
    if graph is not None and (files or graph.suffix not in GRAPH_SUFFIXES):
        why = "give --graph or --file: a graph's file brings its modules" if files else f"{graph} is no graph's file (.yaml, .yml, .json)"
        raise typer.BadParameter(why)
    if graph is None and (parameter or env or env_file):
        raise typer.BadParameter("-p, --env and --env-file go with --graph: the stored graph has its own")
    parameters, loaded = pairs(parameter, "-p"), None
    if graph is not None:
        loaded = _loaded(graph, parameters, variables(env, env_file), job, keep_changed)
    replacing = {path.name: path for path in files or ()}
    missing = [path for path in replacing.values() if not path.is_file()]
    if missing:
        raise typer.BadParameter(f"{missing[0]} is no file")
    from millrace.client import new_id

    with connected(stack) as millrace:
        if loaded is not None:
            millrace.graph_of(job, repair=True)  # no such job, or one that lives: said in one way, whatever is given
            accepted, of = send(millrace, loaded, parameters, new, wait), loaded.raw
        else:
            of = millrace.graph_of(job, repair=True)
            new = new or new_id(str(of.get("name", "")))
            with named_at_ctrl_c(new):
                accepted = millrace.repair(job, new, files=replacing, keep_changed=keep_changed, watch=wait)
        if not wait:
            typer.echo(accepted.id)
            return
        raise typer.Exit(follow(millrace, accepted, stack, graph=of, quiet=quiet))


def _loaded(graph: Path, parameters: dict[str, str], env: dict[str, str], job: str, keep_changed: bool) -> Loaded:
    from millrace.edge.graph_file import load_graph

    loaded = load_graph(graph, parameters, same_machine=not is_named(), sent=True, env=env)
    check_loaded(loaded)
    loaded.raw = again(loaded.raw, job, repair=True, keep_changed=keep_changed)
    return loaded
