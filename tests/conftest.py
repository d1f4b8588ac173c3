"""The real Kafka and etcd, for the tests that ask for them: one of each per run, started at their first use."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

import pytest

from deploy.local.etcd import EtcdServer
from deploy.local.kafka import KafkaBroker


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write what the files of tests/transcripts and tests/mistakes say now")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes minutes comes last, all of it together: two of its files are under way at once to the end. What comes before minds a busy
    machine less, and CI's is busy with images then."""
    items.sort(key=lambda item: "end_to_end" in item.path.parts)


@dataclass(frozen=True)
class RealKafka:
    """The run's broker, and names that no other test has."""

    broker: KafkaBroker
    prefix: str

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def topic(self, name: str) -> str:
        """A topic's name for this test alone; the topic is not made."""
        return self.prefix + name


@dataclass(frozen=True)
class RealEtcd:
    """The run's etcd, and a prefix for keys that no other test has; it ends with a slash."""

    server: EtcdServer
    prefix: str

    @property
    def endpoint(self) -> str:
        return self.server.endpoint

    @property
    def host(self) -> str:
        return self.endpoint.split(":")[0]

    @property
    def port(self) -> int:
        return int(self.endpoint.split(":")[1])


@contextmanager
def stopped(pid: int | None) -> Iterator[None]:
    """This child of the test's process stands still, every thread of it.

    The signal is only on its way when `kill` returns: on a busy machine, a thread of a server answered another request. The kernel
    tells the parent when the last one stands.
    """
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        _, status = os.waitpid(pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"process {pid} ended"
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker that lives as long as the test run."""
    broker = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    with broker:
        yield broker


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """An etcd that lives as long as the test run."""
    server = EtcdServer(tmp_path_factory.mktemp("etcd"))
    with server:
        yield server


@pytest.fixture
def real_kafka(kafka: KafkaBroker) -> RealKafka:
    return RealKafka(kafka, f"t{uuid4().hex[:8]}.")


@pytest.fixture
def real_etcd(etcd: EtcdServer) -> RealEtcd:
    return RealEtcd(etcd, f"/test-{uuid4().hex[:8]}/")
