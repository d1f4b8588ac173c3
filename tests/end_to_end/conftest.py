"""One stack for nearly all end-to-end tests: two TaskManagers with a slot each."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local.stack import Options
from millrace.runtime.traces import ENDPOINTS
from tests.end_to_end.running import RUNNING, RunningStack, described, processes_of
from tests.io.of_traces import Collector


def pytest_itemcollected(item: pytest.Item) -> None:
    """Several waits with generous limits fit into a test."""
    if Path(__file__).parent in item.path.parents:
        item.add_marker(pytest.mark.timeout(900))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A test that fails shows the last events of its jobs and the ends of the services' logs."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.failed:
        for running in RUNNING:
            report.sections.append((f"stack {running.stack.name}", running.report()))


@pytest.fixture(scope="package")
def stacks_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """MILLRACE_HOME for all tests of this folder; no process that knows it outlives them."""
    logging.getLogger("millrace.client").setLevel(logging.CRITICAL)  # Kafka goes away under clients all the time here
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MILLRACE_HOME", str(home))
        yield home
    # What is ended by its parent's death ends a moment after it.
    deadline = time.monotonic() + 90
    while (left := processes_of(home)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left, "they live on, the oldest first:\n" + "\n".join(described(process) for process in left)


@pytest.fixture(scope="package")
def shared_stack(stacks_home: Path) -> Iterator[RunningStack]:
    """It ends with the last test of this folder, and has the name that commands take when none is given."""
    with RunningStack("default", Options(slots=1, task_managers=2, heap_mb=512)) as running:
        yield running


@pytest.fixture
def running(shared_stack: RunningStack) -> Iterator[RunningStack]:
    """The shared stack; a test finds all its slots free, and must leave them able to be so again."""
    shared_stack.quiesce()
    yield shared_stack
    shared_stack.quiesce()


@pytest.fixture(scope="package")
def collector() -> Iterator[Collector]:
    """Gets the traces of `standing`."""
    with Collector() as collector:
        yield collector


@pytest.fixture(scope="package")
def standing(collector: Collector, stacks_home: Path) -> Iterator[RunningStack]:
    """The other shared stack: two shards, a standby for each control service, traces, and one TaskManager with two slots."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ENDPOINTS[1], collector.url)
        with RunningStack("standing", Options(slots=2, task_managers=1, shards=2, standbys=1, heap_mb=512)) as running:
            yield running


@pytest.fixture
def replicated(standing: RunningStack) -> Iterator[RunningStack]:
    """`standing`, as `running` is of the shared one."""
    standing.quiesce()
    yield standing
    standing.quiesce()
