"""SIGKILL to control services while a job runs: the job does not notice, and nothing is lost or doubled."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from millrace.client import new_id
from tests.end_to_end.running import Held, RunningStack

CONTROL = ("dispatcher", "resource-manager", "job-master")


@pytest.mark.parametrize("victims", [CONTROL, *(pytest.param((each,), marks=pytest.mark.long) for each in CONTROL)], ids="+".join)
def test_a_running_attempt_goes_on_and_submissions_are_accepted_once(
    running: RunningStack, tmp_path: Path, victims: tuple[str, ...]
) -> None:
    held = Held(running, tmp_path / "held", settings={"restart": {"strategy": "none"}})
    pids = held.started()
    held.watched.running()
    old = {victim: running.pid(victim) for victim in victims}
    running.kill(*victims)

    graphs = {
        new_id("meanwhile"): {"name": "meanwhile", "vertices": {"one": {"sql": f"SELECT {n} AS a"}}} for n in range(3)
    }
    begun = [running.client.begin_submit(graph, job) for _ in range(2) for job, graph in graphs.items()]
    accepted = [running.watch(each.result()) for each in begun]
    for victim, pid in old.items():
        running.started_again(victim, pid)
    for n, job in enumerate(accepted):
        assert job.rows == [[n % 3]]
        events = list(running.client.follow(job.id))
        assert [event["type"] for event in events].count("JobAccepted") == 1, events
        assert {event["attempt"] for event in events if event["type"] == "AttemptStateChanged"} == {1}

    assert held.pids == pids, "its process is still the first"
    assert psutil.pid_exists(pids[0])
    assert held.let_go().end["type"] == "JobFinished"
    assert held.pids == pids
    assert held.watched.attempts() == [("main", 0, 1)]


@pytest.mark.long
def test_a_service_killed_again_and_again_loses_no_submission(running: RunningStack) -> None:
    """Ten jobs, with a kill of one of the three after every second one."""
    jobs = []
    for n in range(10):
        jobs.append(running.client.begin_submit({"name": "n", "vertices": {"n": {"sql": f"SELECT {n} AS n"}}}))
        if n % 2:
            victim = CONTROL[(n // 2) % 3]
            old = running.pid(victim)
            running.kill(victim)
            running.started_again(victim, old)
    assert [running.watch(job.result()).rows for job in jobs] == [[[n]] for n in range(10)]
