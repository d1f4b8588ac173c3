"""TaskManagers that are killed, asked to end, or stopped and woken: their tasks run elsewhere, and only one result counts."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

import pandas as pd
import psutil
import pytest

from deploy.local.processes import is_running
from millrace.client import MillraceError, NotFound, Unavailable
from tests.end_to_end.running import Held, RunningStack, until
from tests.end_to_end.test_describe import ask
from tests.end_to_end.test_operating import Web, web, web_process  # noqa: F401  # fixtures

NO_RESTARTS = {"restart": {"strategy": "none"}}
"""So that a job fails as soon as something counts as a failure of its own."""


@pytest.mark.parametrize("number", [
    pytest.param(signal.SIGKILL, id="SIGKILL"), pytest.param(signal.SIGTERM, id="SIGTERM", marks=pytest.mark.long),
])  # fmt: skip
def test_its_task_runs_elsewhere_and_that_is_no_restart(
    running: RunningStack, tmp_path: Path, number: signal.Signals
) -> None:
    held = Held(running, tmp_path / "held", settings=NO_RESTARTS)
    first = psutil.Process(held.started()[0])
    place = held.watched.running(attempt=1)["task_manager"]
    old = running.pid(place)
    family = [psutil.Process(old), *psutil.Process(old).children(recursive=True)]
    assert first in family
    family[0].send_signal(number)

    assert held.watched.running(attempt=2)["task_manager"] != place
    held.started(2)
    until("the end of all its processes", lambda: not any(is_running(process) for process in family))
    running.started_again(place, old)
    assert held.let_go().end["type"] == "JobFinished"
    assert len(held.pids) == 2
    assert held.watched.attempts() == [("main", 0, 1), ("main", 0, 2)]


KEEP = """
    import os, pathlib, time
    import pandas as pd

    def rows(spark, parameters):
        folder = pathlib.Path(parameters["folder"])
        (folder / str(os.getpid())).touch()
        while not (folder / "go").exists():
            time.sleep(0.02)
        return spark.createDataFrame(pd.DataFrame({"pid": [os.getpid()]}))
"""


def no_answer_of(running: RunningStack, name: str) -> MillraceError | None:
    """Why a TaskManager gives none."""
    try:
        running.client.task_manager(name).describe()
    except MillraceError as failure:
        return failure
    return None


def looks_at_the_silent_one(running: RunningStack, web: Web, name: str) -> None:  # noqa: F811
    """For who asks it there is an answer all the same."""
    with pytest.raises((Unavailable, NotFound)) as refused:
        running.client.task_manager(name).logs()
    assert name in str(refused.value)
    assert ask(web, f"/api/v1/taskmanagers/{name}").status_code in (404, 503)
    assert ask(web, f"/page/taskmanagers/{name}").status_code == 200


@pytest.mark.long
@pytest.mark.parametrize("whole", [True, False], ids=["with all its processes", "alone"])
def test_one_that_is_stopped_and_woken_publishes_nothing(
    running: RunningStack, web: Web, tmp_path: Path, whole: bool  # noqa: F811
) -> None:
    """Stopped when its attempt is about to finish; the sink appends, so that a second publication would show."""
    folder, out = tmp_path / "held", tmp_path / "out"
    folder.mkdir()
    sha256, path = running.module(KEEP, "keep.py")
    job = running.submit(
        {
            "name": "stopped",
            "parameters": {"folder": str(folder)},
            "vertices": {
                "kept": {"python": "keep:rows"},
                "out": {"sink": {"format": "parquet", "path": str(out), "mode": "append"}, "inputs": {"kept": "forward"}},
            },
            "modules": [{"name": "keep.py", "sha256": sha256}],
            **NO_RESTARTS,
        },
        {sha256: path},
    )  # fmt: skip

    def pids() -> list[int]:
        return [int(each.name) for each in folder.iterdir() if each.name.isdigit()]

    first = psutil.Process(until("the first attempt at work", pids)[0])
    place = job.running(attempt=1)["task_manager"]
    old = running.pid(place)
    family = [psutil.Process(old), *(psutil.Process(old).children(recursive=True) if whole else ())]
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.suspend()
    try:
        if not whole:
            looks_at_the_silent_one(running, web, place)
        assert job.running(attempt=2)["task_manager"] != place
        until("the second attempt at work", lambda: len(pids()) == 2)
        if not whole:
            until("the first attempt to end, for its TaskManager is silent", lambda: not is_running(first))
            until("its loss", lambda: isinstance(no_answer_of(running, place), NotFound))
        (folder / "go").touch()
    finally:
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):  # a spare ends when its host does
                process.resume()
    assert job.end["type"] == "JobFinished"
    running.started_again(place, old)
    assert pd.read_parquet(out)["pid"].tolist() == [pid for pid in pids() if pid != first.pid]
    finished = [event for event in job.events if event["type"] == "AttemptStateChanged" and event["state"] == "FINISHED"]
    assert [event["attempt"] for event in finished] == [2]
    until("its return", lambda: no_answer_of(running, place) is None)
    running.quiesce()
    running.works(tmp_path / "works")
