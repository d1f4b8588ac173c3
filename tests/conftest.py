"""The real Kafka and etcd, for the tests that ask for them: one of each in a worker, started at their first use. And which worker runs
which tests."""

from __future__ import annotations

import functools
import gc
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest
import structlog
import typer
import typer.testing
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from deploy.local.etcd import EtcdServer
from deploy.local.kafka import KafkaBroker
from tests.slot.lifecycle import FIRST_TIER

os.environ.setdefault("MILLRACE_JAVA_OPTIONS", ",".join(FIRST_TIER))  # of the stacks that tests start

structlog.configure(processors=[
    *structlog.get_config()["processors"][:-1],
    structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
])  # fmt: skip
"""Of what is logged in a test's own process. By itself it would show each local variable of each frame: of a web service, for a minute."""

typer.main.get_command = typer.testing._get_command = functools.cache(typer.main.get_command)
"""To make all commands of the program takes longer than most of them; they are the same each time."""

settings.register_profile("any machine", deadline=None)  # a busy one is no failure
settings.load_profile("any machine")

SHARED = {
    "a stack with standbys": tuple(f"tests/end_to_end/test_{name}.py" for name in ("repair", "standbys", "traces")),
    "a stack": ("tests/end_to_end/",),
    "a slot": ("tests/slot/test_lifecycle_", "tests/slot/test_running", "tests/slot/test_poison", "tests/slot/test_attaching"),
    "a Spark": ("tests/slot/test_vertices_", "tests/slot/test_errors", "tests/slot/test_spark_status", "tests/slot/test_warming"),
    "a broker": (
        "tests/contract/", "tests/deploy/test_etcd.py", "tests/deploy/test_fixtures.py", "tests/deploy/test_kafka.py",
        "tests/docs/test_messages.py",
    ),
    "a control plane": ("tests/client/",),
}  # fmt: skip
"""What takes long to start -> how the paths of the tests begin that share it. One worker runs them all, so that it starts once."""
OWN_STACKS = ("growing", "two_agents", "foreground", "chaos", "clusters", "restore", "upgrade", "settings")
ALONE = tuple(f"tests/end_to_end/test_{name}.py" for name in OWN_STACKS)
"""Whichever worker is free takes these: they start and break stacks of their own."""
FIRST = ("a stack", "a slot", "a broker", "a stack with standbys", "a Spark", "a control plane", *ALONE)
"""What takes longest, so that no worker is left alone with it at the end. The broker's tests wait for most of their time: beside them the
others have the cores."""
FOLDERS = ("tests/deploy/", "tests/web/", "tests/simulation/", "tests/")
"""Of the other files, those that wait begin before those that compute."""


def group(path: str) -> str:
    """What a test shares, else its file: one worker runs the tests of a group, one after the other."""
    fits = (shared for shared, prefixes in SHARED.items() if path.startswith(prefixes))
    return path if path in ALONE else next(fits, path)


class ByGroup(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return group(super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByGroup | None:
    return ByGroup(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write what the files of tests/transcripts and tests/mistakes say now")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In the order of `FIRST` and `FOLDERS`. The tests of a group stand together."""

    def order(item: pytest.Item) -> int:
        path = item.path.relative_to(config.rootpath).as_posix()
        name = group(path)
        if name in FIRST:
            return FIRST.index(name)
        return len(FIRST) + next((number for number, folder in enumerate(FOLDERS) if path.startswith(folder)), len(FOLDERS))

    items.sort(key=order)


def pytest_collection_finish() -> None:
    """Thousands of tests live as long as the run: the collector of garbage looks at them no more."""
    gc.collect()
    gc.freeze()


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


def stop(pid: int) -> None:
    """This child of the test's process stands still, every thread of it.

    The signal is only on its way when `kill` returns: on a busy machine, a thread of a server answered another request. The kernel
    tells the parent when the last one stands.
    """
    os.kill(pid, signal.SIGSTOP)
    _, status = os.waitpid(pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), f"process {pid} ended"


@contextmanager
def stopped(pid: int | None) -> Iterator[None]:
    """This child stands still meanwhile."""
    assert pid is not None
    try:
        stop(pid)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def stop_another(process: psutil.Process) -> None:
    """As `stop`, of a process that is no child of the test's."""
    process.suspend()
    while any(psutil.Process(thread.id).status() != psutil.STATUS_STOPPED for thread in process.threads()):
        time.sleep(0.01)


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
def of_no_root(tmp_path: Path) -> Iterator[Path]:
    """A folder of a user who may not do everything, whom this process is meanwhile."""
    if os.geteuid() != 0:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory() as folder:  # those of pytest are root's own
        os.chown(folder, 65534, 65534)
        os.seteuid(65534)
        try:
            yield Path(folder)
        finally:
            os.seteuid(0)


@pytest.fixture
def real_kafka(kafka: KafkaBroker) -> RealKafka:
    return RealKafka(kafka, f"t{uuid4().hex[:8]}.")


@pytest.fixture
def real_etcd(etcd: EtcdServer) -> RealEtcd:
    return RealEtcd(etcd, f"/test-{uuid4().hex[:8]}/")
