"""Which attempts are asked to end before they are killed: those whose job ends or rests, and none for whose end somebody waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from millrace.core.machine import Output, Say
from millrace.core.messages import blocklist, jobs, slots
from millrace.core.messages.requirements import Rescale
from tests.core.of_job_master import TWO, USER, Shard

Act = Callable[[Shard], list[Output]]
T2 = "task-manager/t2"
ONCE = {"restart": {"attempts": 0}}
DONE = {"outputs": {"a": {"schema": "{a}"}}}


class New(Shard):
    """Its TaskManagers are not of 0.1.0."""

    takes_runs = True


def canceled(said: list[Output]) -> list[slots.CancelTasks]:
    return [each.body for each in said if isinstance(each, Say) and isinstance(each.body, slots.CancelTasks)]


def begun(shard: Shard, **graph: Any) -> Shard:
    """Both subtasks of b run, on two TaskManagers."""
    shard.start({**TWO, **graph})
    shard.offer("a1")
    shard.told("a1", "FINISHED", report=DONE)
    shard.offer("a2", tm=T2)
    for allocation in ("a1", "a2"):
        shard.told(allocation, "RUNNING")
    return shard


def fails(shard: Shard) -> list[Output]:
    return shard.told("a1", "FAILED", error=USER)


def lost(shard: Shard) -> list[Output]:
    return shard(jobs.TaskManagerLost(task_manager="t1", incarnation=1, reason="silent"), "resource-manager")


def rescaled(shard: Shard) -> list[Output]:
    return shard(jobs.RescaleStartedJob(job="j", rescale=Rescale(log="log", offset=1, parallelism={"b": 3})))


def evacuated(shard: Shard) -> list[Output]:
    host = blocklist.BlockedTaskManagers(host="h", task_managers=["t1"], evacuate=True, reason="")
    return shard(blocklist.TaskManagersBlocked(hosts=[host]), "resource-manager")


@pytest.mark.parametrize("act", [
    pytest.param(lambda shard: shard(jobs.CancelStartedJob(job="j")), id="a user cancels the job"),
    pytest.param(lambda shard: shard(jobs.SuspendJobs()), id="the cluster is shut down"),
    pytest.param(fails, id="another subtask has failed for good"),
])  # fmt: skip
def test_where_the_job_ends_or_rests_attempts_have_two_seconds_to_end(act: Act) -> None:
    cancels = canceled(act(begun(New(), **ONCE)))
    assert cancels and [each.within_ms for each in cancels] == [2_000] * len(cancels)
    cancels = canceled(act(begun(Shard(), **ONCE)))
    assert cancels and [each.within_ms for each in cancels] == [0] * len(cancels), "a TaskManager of 0.1.0 refuses the field"


@pytest.mark.parametrize("act", [
    pytest.param(fails, id="a restart of all"),
    pytest.param(lost, id="a restart of all after the death of a TaskManager"),
    pytest.param(rescaled, id="another parallelism"),
    pytest.param(evacuated, id="a host that is evacuated"),
])  # fmt: skip
def test_what_runs_again_does_not_wait_for_attempts_that_do_not_react(act: Act) -> None:
    cancels = canceled(act(begun(New(), restart={"attempts": 3, "delay_ms": 0, "scope": "full"})))
    assert cancels and [each.within_ms for each in cancels] == [0] * len(cancels)
