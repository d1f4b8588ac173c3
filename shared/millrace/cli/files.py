"""`millrace files`: what the attempts of a job have left in their folders."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .connection import StackOption, connected
from .options import JobArgument, JsonOption
from .words import one_line, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millrace.client import Millrace
    from millrace.client.files import Files, KeptFile


def files(
    job: JobArgument,
    get: Annotated[str | None, typer.Option("--get", metavar="NAME", help="Write this file to stdout.", show_default=False)] = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FOLDER", help="Download all of them into a new or empty folder.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
    stack: StackOption = "default",
) -> None:
    """List the files that a job's scripts and functions wrote by relative paths, or download them.

    They are kept as long as logs are. Of a graph with several tasks, a name begins with task/subtask/.

    millrace files JOB --to results
    """
    if to is not None and _is_taken(to):
        raise typer.BadParameter(f"{printable(str(to))} is there, and is no empty folder", param_hint="--to")
    with connected(stack) as millrace:
        found = millrace.files(job)
        names = named(found)
        if get is not None:
            if get not in names:
                known = ", ".join(list(names)[:20]) or "none"
                raise typer.BadParameter(one_line(f"job {job} has kept no {get}; it has: {known}"), param_hint="--get")
            sys.stdout.buffer.write(millrace.file(names[get].path))
            return
        if to is not None:
            _download(millrace, names, to)
    if to is None:
        _print(names, as_json)
    elif names:
        print(f"{len(names)} file{'s' * (len(names) != 1)} in {to}")
    for line in left_out(found):
        print(line, file=sys.stderr)
    if not names and not found.left_out_in_all:
        print(f"job {job} has left no files", file=sys.stderr)


def _is_taken(to: Path) -> bool:
    try:
        return to.is_symlink() and not to.exists() or to.exists() and (not to.is_dir() or any(to.iterdir()))
    except OSError as error:
        raise _not_written(to, error) from None


def _not_written(to: Path, error: OSError) -> typer.BadParameter:
    return typer.BadParameter(one_line(f"{to} cannot be written: {error.strerror}"), param_hint="--to")


def _download(millrace: Millrace, names: Mapping[str, KeptFile], to: Path) -> None:
    """All of them. A file is written beside its place and then renamed: what is there is whole."""
    for name, file in names.items():
        content = millrace.file(file.path)
        target = to / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".millrace-", delete=False) as part:
                try:
                    part.write(content)
                    part.close()
                    os.chmod(part.name, 0o644)
                    os.replace(part.name, target)
                except OSError:
                    os.unlink(part.name)
                    raise
        except OSError as error:
            raise _not_written(target, error) from None


def named(found: Files) -> dict[str, KeptFile]:
    """Each file by its own name; with its task and subtask before it where several have left some."""
    several = len({(file.task, file.subtask) for file in found.kept}) > 1
    return {f"{file.task}/{file.subtask}/{file.name}" if several else file.name: file for file in found.kept}


def _print(names: Mapping[str, KeptFile], as_json: bool) -> None:
    from .tables import print_json, table

    if as_json:
        fields = ("task", "subtask", "attempt", "bytes")
        print_json([{"name": name, **{each: getattr(file, each) for each in fields}} for name, file in names.items()])
    elif names:
        table(("name", "bytes"), [(name, file.bytes) for name, file in names.items()])


def left_out(found: Files) -> list[str]:
    """What is said of files that are gone."""
    lines = [one_line(f"NOT kept: {name}: {why}") for name, why in found.left_out]
    more = found.left_out_in_all - len(lines)
    return [*lines, f"NOT kept: {more} more"] if more > 0 else lines
