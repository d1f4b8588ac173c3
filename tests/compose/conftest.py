"""What the containers said, with each test that fails."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.compose.cluster import Cluster


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        for cluster in item.funcargs.values():
            if isinstance(cluster, Cluster):
                report.sections.append((f"containers of {cluster.name}", cluster.logs()))
    return report
