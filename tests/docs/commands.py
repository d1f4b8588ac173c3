"""Commands that are written down somewhere."""

from __future__ import annotations

import re
import shlex
from typing import Any

import typer

from deploy.cli.app import app


def assert_taken(command: str) -> None:
    """There is such a command, with these options and so many words."""
    given = re.sub(r"\[([^]]*)\]", lambda may: may[1].replace(" | ", " "), command)  # also what may be left out
    words = shlex.split(given.partition(" | ")[0])[1:]
    found: Any = typer.main.get_command(app)
    while words and hasattr(found, "commands"):
        assert words[0] in found.commands, command
        found = found.commands[words.pop(0)]
    if words:
        _, left, _ = found.make_parser(found.context_class(found)).parse_args(words)  # raises for an option that there is not
        assert left == [], f"{command} has words that it does not take"
