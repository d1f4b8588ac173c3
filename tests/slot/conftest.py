"""One real slot per test module that asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.slot.lifecycle import Slot


@pytest.fixture(scope="session")
def archives(pytestconfig: pytest.Config) -> str:
    """The folder for class-data archives; it stays from run to run, so that the JVMs of all but the first start fast."""
    return str(pytestconfig.cache.mkdir("class-data-archives"))


@pytest.fixture(scope="module")
def slot(tmp_path_factory: pytest.TempPathFactory, archives: str) -> Iterator[Slot]:
    """A slot that is ready; a test leaves it ready."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MILLRACE_KAFKA_PASSWORD", "not for user code")
        slot = Slot(tmp_path_factory.mktemp("slot"), archive_folder=archives)
    try:
        slot.until("ready")
        yield slot
    finally:
        slot.close()
