"""What was found, and how much it matters."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal


class Unreachable(Exception):
    """What is asked does not answer, so nothing more can be said of it."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `ok`: as it should be. `note`: good to know, and no fault. `problem`: to be mended."""

    check: str
    level: Literal["ok", "note", "problem"]
    what: str
    fix: str = ""
    """What to do; empty exactly for `ok`."""

    def shown(self) -> dict[str, Any]:
        return asdict(self)


def ok(check: str, what: str) -> Finding:
    return Finding(check, "ok", what)


def note(check: str, what: str, fix: str) -> Finding:
    return Finding(check, "note", what, fix)


def problem(check: str, what: str, fix: str) -> Finding:
    return Finding(check, "problem", what, fix)
