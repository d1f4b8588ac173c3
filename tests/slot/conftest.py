"""One real slot per test module that asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.slot.lifecycle import Slot


@pytest.fixture(scope="module")
def slot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slot]:
    """A slot that is ready; a test leaves it ready."""
    slot = Slot(tmp_path_factory.mktemp("slot"))
    try:
        slot.until("ready")
        yield slot
    finally:
        slot.close()
