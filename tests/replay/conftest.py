"""One simulated run for all tests: some jobs, and the death of the JobMaster's leader while they are deployed."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from services.replay.exporting import export
from tests.replay.simulated import Simulated, incident
from tests.simulation.cluster import Cluster

Change = Callable[..., Path]


def silent(what: str, done: int, total: int) -> None:
    """Progress that nobody sees."""


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """See `incident`."""
    return incident()


@pytest.fixture(scope="session")
def recording(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run, exported."""
    path = tmp_path_factory.mktemp("recordings") / "run.zip"
    assert export(Simulated(cluster), path, None, False, silent).unfolded == []
    return path


@pytest.fixture
def change(tmp_path: Path) -> Change:
    """Makes a copy of a recording in which something in one of its parts is replaced, once."""

    def changed(path: Path, part: str, old: str, new: str) -> Path:
        copy = tmp_path / f"changed-{len(list(tmp_path.iterdir()))}.zip"
        with zipfile.ZipFile(path) as read, zipfile.ZipFile(copy, "w") as written:
            for name in read.namelist():
                data = read.read(name)
                if name == part:
                    text, n = re.subn(old.encode(), new.encode(), data, count=1, flags=re.MULTILINE)
                    assert n == 1, f"{old} is not in {part}"
                    data = text
                written.writestr(name, data)
        return copy

    return changed


