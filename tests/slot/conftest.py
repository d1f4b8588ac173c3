"""One real slot, and one Spark in the test's own process, for all tests of a run that leave them as they were."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local.spark_classes import class_data_folder
from tests.slot.attempts import Attempts, local_spark
from tests.slot.lifecycle import Slot


@pytest.fixture(scope="session")
def archives() -> str:
    """The folder for class-data archives, that of all stacks here: it stays from run to run, so that JVMs start fast."""
    return str(class_data_folder())


@pytest.fixture(scope="session")
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


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session of a Spark in this process, whose JVM is warm after the first tests."""
    with local_spark(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture
def attempts(spark: Any, tmp_path: Path) -> Attempts:
    return Attempts(spark, tmp_path / "attempts")
