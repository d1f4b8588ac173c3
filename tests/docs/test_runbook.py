"""Pages for users name what there is: commands with their options; the runbook also messages that the code has."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

from .commands import assert_taken

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "runbook.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = sorted(
    {
        command
        for page in PAGES
        for command in re.findall(
            r"(?:^    (?:\$ )?|^\$ |`)(millrace [^`#;>\n]+?)(?:`|\s*[#;>]|\s*$)", page.read_text(), re.MULTILINE
        )
    }
)
HEADS = re.findall(r"^### (.+)$", TEXT, re.MULTILINE)
MESSAGES = [(head, quoted) for head in HEADS for quoted in re.findall(r"`([^`]+)`", head)]


@functools.cache
def said() -> str:
    """All text constants of the code, each on a line of its own."""
    found = []
    for top in ("shared", "services", "deploy"):
        for path in sorted((ROOT / top).rglob("*.py")):
            nodes = ast.walk(ast.parse(path.read_text()))
            found += [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return "\n".join(found)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_exists_with_its_options(command: str) -> None:
    assert_taken(command)


def test_the_commands_are_found() -> None:
    assert {"millrace doctor", "millrace bundle", "millrace show JOB", "millrace up --detach"} <= set(COMMANDS)


@pytest.mark.parametrize(("head", "quoted"), MESSAGES)
def test_a_message_is_one_that_the_code_says(head: str, quoted: str) -> None:
    parts = [part.strip() for part in quoted.split("…") if part.strip()]
    assert parts and all(part in said() for part in parts), [part for part in parts if part not in said()]


def test_every_entry_says_what_to_do() -> None:
    entries = re.split(r"^### ", TEXT, flags=re.MULTILINE)[1:]
    assert len(entries) > 30
    assert [entry.splitlines()[0] for entry in entries if "Do: " not in entry] == []
