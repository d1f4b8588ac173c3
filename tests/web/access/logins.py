"""Logins for tests: a file with a token for each role."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from services.web.access import tokens
from services.web.access.login import Login
from services.web.access.settings import Access
from services.web.access.who import ROLES


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def tokens_of(folder: Path) -> dict[str, str]:
    """A token for each role, in `tokens.json` of the folder."""
    return {role: tokens.create(folder / "tokens.json", f"{role}-1", role, None, wall_ms()) for role in ROLES}


def access_of(folder: Path, **more: Any) -> Access:
    if not (folder / "tokens.json").exists():
        tokens_of(folder)
    return Access.model_validate({"tokens": folder / "tokens.json", **more})


def login_of(folder: Path, **more: Any) -> Login:
    return Login(access_of(folder, **more))
