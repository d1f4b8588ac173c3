"""`--env` and `--env-file`: environment variables for a job. No message here tells a value, nor what may be a part of one: what stands
where a name should be is quoted only if it can be a name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

EnvOption = Annotated[
    list[str] | None,
    typer.Option(
        "--env", metavar="NAME[=VALUE]", help="An environment variable of the job; without =VALUE as it is here. May be repeated.",
    ),
]  # fmt: skip
EnvFileOption = Annotated[
    list[Path] | None,
    typer.Option("--env-file", metavar="FILE", help="Environment variables, one NAME=VALUE or NAME a line; # begins a comment."),
]


def variables(given: list[str] | None, files: list[Path] | None) -> dict[str, str]:
    """The variables that the options name; a flag goes before a file. Raises typer.BadParameter."""
    found: dict[str, str] = {}
    for file in files or ():
        try:
            lines = file.read_bytes().decode("utf-8-sig").split("\n")  # no other character ends a line: a value may hold it
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise typer.BadParameter(f"{file} cannot be read: {reason}", param_hint="--env-file") from None
        for number, line in enumerate(lines, 1):
            line = line.strip(" \t\r")
            if line and not line.startswith("#"):
                found.update(_one(line, f"{file}:{number}", "--env-file"))
    for each in given or ():
        found.update(_one(each, None, "--env"))
    return found


def _one(text: str, line: str | None, option: str) -> dict[str, str]:
    from millrace.core.jobgraph.model import ENV_RULE, is_env_name  # which take a while to build

    name, equals, value = text.partition("=")
    if not is_env_name(name):
        raise typer.BadParameter(f"{line or 'it'} has no name before an =; {ENV_RULE}", param_hint=option)
    if not equals and name not in os.environ:
        asked = f"{name} is not set here; give {name}=VALUE, or set it"
        raise typer.BadParameter(f"{line} has no =, and is no variable that is set here" if line else asked, param_hint=option)
    return {name: value if equals else os.environ[name]}
