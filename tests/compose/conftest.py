"""The images, the host's folder of data, and what the containers said, with each test that fails."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from pathlib import Path

import pytest

from deploy.local.flights import flights_folder
from tests.compose.cluster import Cluster, data_folder


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The host's folder that is /data in the containers."""
    folder = data_folder(tmp_path_factory.mktemp("compose") / "data")
    for parent in (folder.parent, folder.parent.parent):
        parent.chmod(0o755)
    for file in flights_folder().glob("*.csv"):
        shutil.copy(file, folder)
    return folder


@pytest.fixture(scope="session")
def images() -> None:
    Cluster("millrace-tests").build()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        for cluster in item.funcargs.values():
            if isinstance(cluster, Cluster):
                report.sections.append((f"containers of {cluster.name}", cluster.logs()))
    return report
