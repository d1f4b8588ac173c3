"""The page over the cluster of `seed`, at one moment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from .seed import Cluster
from .test_page import NOW


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr("services.web.page.shell.Shell.wall_ms", lambda self: NOW)
    return Cluster(NOW)


@pytest.fixture
def web(cluster: Cluster) -> Iterator[TestClient]:
    with TestClient(cluster.app(), base_url="http://127.0.0.1", follow_redirects=False) as client:
        yield client
