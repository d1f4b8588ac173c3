"""What in the documents is made from the code: tables in ARCHITECTURE.md and docs, docs/schema and docs/asyncapi.yaml."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from . import asyncapi, schemas, slot_types
from .tables import TABLES

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SCHEMAS = ROOT / "docs" / "schema"
ASYNCAPI = ROOT / "docs" / "asyncapi.yaml"
SLOT_TYPES = ROOT / "services" / "task_manager" / "slot" / "attempt_wire.py"
COMMAND = "python -m tests.docs"

_PLACE = re.compile(r"(<!-- table: ([a-z ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def places(text: str) -> list[str]:
    """The names of the tables that a text has places for."""
    return [match.group(2) for match in _PLACE.finditer(text)]


def filled(text: str) -> str:
    """The text with every table as the code is now. Raises KeyError for a place without a table."""
    return _PLACE.sub(lambda match: f"{match.group(1)}\n{TABLES[match.group(2)]()}\n\n{match.group(3)}", text)


def paths() -> list[Path]:
    """The files of `documents`, without making them: each worker of a run asks for these."""
    tables = [path for path in DOCUMENTS if places(path.read_text())]
    return [*tables, ASYNCAPI, *(SCHEMAS / name for name in schemas.names()), SLOT_TYPES]


@cache
def documents() -> dict[Path, str]:
    """All generated files as they should be; a document with tables keeps its own words as they are."""
    made = {SCHEMAS / name: text for name, text in schemas.files()}
    made[SLOT_TYPES] = slot_types.text()
    texts = {path: path.read_text() for path in DOCUMENTS}
    return {**{path: filled(text) for path, text in texts.items() if places(text)}, ASYNCAPI: asyncapi.text(), **made}


def stale() -> list[Path]:
    """Files of docs/schema that no message has any more."""
    return sorted(set(SCHEMAS.rglob("*.json")) - set(documents()))
