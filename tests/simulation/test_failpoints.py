"""Every failpoint, before and after, with a kill, an error and a long sleep: every accepted job ends once, and nothing is left."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation import workload
from tests.simulation.audit import audit
from tests.simulation.cluster import Cluster
from tests.simulation.failpoints import POINTS, Failpoint, What, When
from tests.simulation.trial import quiet_logs

CONTROL = tuple(f"{service}#{n}" for service in ("dispatcher", "resource-manager", "job-master") for n in (1, 2))
LIMIT_MS = 120_000
SLEPT_IN = "slot: an attempt is launched"
"""A TaskManager that is stopped right before it starts an attempt, and wakes, has that attempt for an instant beside its successor: what
is promised of one that was stopped, and no more."""
CASES = [
    (point, when, what)
    for point in POINTS
    for when in ("before", "after")
    for what in ("kill", "error", "sleep")
    if (what != "error" or POINTS[point].error is not None) and (point, when, what) != (SLEPT_IN, "before", "sleep")
]


@pytest.fixture(autouse=True)
def _quiet() -> None:
    quiet_logs()


@pytest.mark.parametrize(
    "point, when, what",
    [pytest.param(*case, id=", ".join(case), marks=pytest.mark.long if number % 7 else []) for number, case in enumerate(CASES)],
)
def test_every_job_ends_once(monkeypatch: pytest.MonkeyPatch, point: str, when: When, what: What) -> None:
    cluster = Cluster(task_managers=2, slots=2, seed=len(point), control=CONTROL, snapshot_records=40)
    workload.upload_module(cluster.world)
    failpoint = Failpoint(monkeypatch, cluster, POINTS[point], when, what, number=2)
    jobs = {"one": workload.joined("one"), "two": workload.sink("two"), "three": workload.joined("three")}
    run(failpoint, cluster.ready)
    for job, graph in jobs.items():
        cluster.client.submit(job, graph)
    run(failpoint, lambda: failpoint.fired is not None)
    run(failpoint, lambda: cluster.ended(*jobs) and all(each.alive for each in cluster.processes.values()))
    cluster.run(cluster.ready, most_ms=20_000)
    cluster.run(most_ms=3_000)
    assert set(cluster.statuses().values()) == {"FINISHED"}
    audit(cluster, deleted=(point, what) != ("storage: the clean-up", "error"))


def test_a_write_that_slept_is_refused_for_its_epoch_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader sleeps right before it stores a submission. Its successor finds it too late and says so; nothing stands in the way of the
    sleeper's write when it wakes, but that it leads no more [R17]."""
    cluster = Cluster(task_managers=1, seed=1, control=CONTROL)
    failpoint = Failpoint(monkeypatch, cluster, POINTS["etcd: the graph of a job"], "before", "sleep", number=1)
    run(failpoint, cluster.ready)
    asked = cluster.client.submit("late", workload.single("late"), accept_before_ms=cluster.world.clock.now_ms() + 400)
    run(failpoint, lambda: failpoint.fired is not None)
    cluster.run(most_ms=3_000)
    [reply] = cluster.client.replies()[asked]
    assert reply.type == "JobRejected"
    assert cluster.stored("late") is None
    audit(cluster)


def run(failpoint: Failpoint, until: Callable[[], bool]) -> None:
    """The same as `Cluster.run`, with what the failpoint does."""
    cluster = failpoint.cluster
    end_ms = cluster.world.clock.now_ms() + LIMIT_MS
    while not until():
        assert cluster.world.clock.now_ms() < end_ms, f"not within {LIMIT_MS} ms: {cluster.describe()}"
        failpoint.step()
