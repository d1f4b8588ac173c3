"""`--env` and `--env-file`: environment variables for a job. No message here tells a value."""

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
            lines = file.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise typer.BadParameter(f"{file} cannot be read: {reason}", param_hint="--env-file") from None
        for number, line in enumerate(lines, 1):
            if line.strip() and not line.lstrip().startswith("#"):
                found.update(_one(line.strip(), f"{file}:{number}", "--env-file"))
    for each in given or ():
        found.update(_one(each, "it", "--env"))
    return found


def _one(text: str, where: str, option: str) -> dict[str, str]:
    name, equals, value = text.partition("=")
    if not name:
        raise typer.BadParameter(f"{where} has no name before its =", param_hint=option)
    if not equals and name not in os.environ:
        raise typer.BadParameter(f"{name} is not set here; give {name}=VALUE, or set it", param_hint=option)
    return {name: value if equals else os.environ[name]}
