"""One hosted scope for the tests of rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.of_scope import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)
