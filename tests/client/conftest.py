"""One control plane for all tests of the client and the command line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deploy.local.etcd import EtcdServer
from deploy.local.kafka import KafkaBroker
from millrace.client import Millrace
from tests.client.cluster import ControlPlane


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Has a Kafka and an etcd of its own: its topics have their real names."""
    folder = tmp_path_factory.mktemp("plane")
    with KafkaBroker(folder / "kafka") as kafka, EtcdServer(folder / "etcd") as etcd:
        plane = ControlPlane(folder, kafka, etcd)
        try:
            yield plane
        finally:
            plane.close()


@pytest.fixture
def millrace(plane: ControlPlane) -> Iterator[Millrace]:
    with Millrace(plane.kafka.bootstrap, token=plane.token, timeout_s=60) as client:
        yield client
