"""One simulated run for all tests: some jobs, and the death of the JobMaster's leader while they are deployed."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from millrace.core.topics import JOB_MASTER
from services.replay.exporting import export
from tests.replay.simulated import Simulated
from tests.simulation import workload
from tests.simulation.cluster import CONTROL, Cluster
from tests.simulation.trial import quiet_logs

STANDBY = f"{JOB_MASTER}#2"
Change = Callable[..., Path]


def silent(what: str, done: int, total: int) -> None:
    """Progress that nobody sees."""


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """Two jobs are done; one is canceled; the leader died when the first was being deployed. At rest."""
    quiet_logs()
    made = Cluster(task_managers=2, slots=2, seed=7, snapshot_records=10**9, control=(*CONTROL, STANDBY))
    made.run(made.ready)
    made.client.submit("wide", workload.wide())
    made.client.submit("single", workload.single())
    deployed = made.world.topology.events_partition("wide")
    made.run(lambda: any(b'"DEPLOYING"' in each.value for each in made.world.broker.log("job.events", deployed).records))
    made.kill(next(name for name in (f"{JOB_MASTER}#1", STANDBY) if made.processes[name].leads(f"{JOB_MASTER}/0")))
    made.client.submit("late", workload.wide())
    made.run(lambda: made.stored("late") is not None)
    made.client.cancel("late")
    made.run(lambda: made.ended("wide", "single", "late"))
    made.run(made.at_rest)
    made.run(most_ms=500)
    return made


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


