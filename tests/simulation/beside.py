"""Two clusters over one storage and the same sinks [R29]: of one seed, so that their logs give the same generations and offsets."""

from __future__ import annotations

import posixpath
import random
from collections.abc import Callable

import fsspec

from millrace.runtime.identity import OtherCluster, Owner, take
from tests.simulation import workload
from tests.simulation.audit import assert_endings, assert_epochs, assert_generations, assert_replay, replay_all
from tests.simulation.cluster import CONTROL, Cluster, Stuck

MODES = ("append", "error", "overwrite")
SUBTASKS = 2  # of each sink
JOBS = {**{mode: workload.sink(mode, SUBTASKS, mode) for mode in MODES}, "joined": workload.joined(), "plain": workload.single()}
STEPS_MOST = 60_000

Meanwhile = Callable[[], None]


def beside(seed: int) -> None:
    """One cluster works; a second one is refused its storage, is given it, and does the same. The first one may go on meanwhile: nobody
    looks again whose the storage is. AssertionError when something does not hold."""
    chance = random.Random(f"beside {seed}")
    snapshot_records, both = chance.choice((5, 40)), chance.random() < 0.5
    first = Cluster(seed=seed, slots=3, snapshot_records=snapshot_records, control=(), task_managers=0)
    _work(first, lambda: None)
    assert set(first.statuses().values()) == {"FINISHED"}, first.statuses()
    if not both:
        for name, process in first.processes.items():
            if process.alive:
                first.stop(name)
    second = Cluster(
        seed=seed, slots=3, snapshot_records=snapshot_records, control=(), task_managers=0, beside=first
    )  # fmt: skip
    _assert_refused(second)
    assert take(second.world.storage, Owner(second.world.cluster, "simulated")) is not None
    _work(second, first.step if both else lambda: None)
    _assert_sinks(first, second)
    for cluster in (first, second) if both else (second,):
        cluster.run(cluster.at_rest, most_ms=60_000)
        assert_endings(cluster)
        assert_epochs(cluster)
        assert_generations(cluster)
        assert_replay(cluster, replay_all(cluster))


def _assert_refused(cluster: Cluster) -> None:
    for name in (*CONTROL, "task-manager/1"):
        try:
            cluster.start(name)
        except OtherCluster:
            continue
        raise AssertionError(f"[R29]: {name} starts over the storage of another cluster")


def _work(cluster: Cluster, meanwhile: Meanwhile) -> None:
    """Starts the cluster, and does its jobs one after the other; somewhere between them each leader begins anew from its snapshot."""
    for name in (*CONTROL, "task-manager/1"):
        cluster.start(name)
    workload.upload_module(cluster.world)
    _until(cluster, cluster.ready, meanwhile)
    for job, graph in JOBS.items():
        cluster.client.submit(job, graph)
        _until(cluster, lambda job=job: cluster.ended(job), meanwhile)
    for name in CONTROL:
        cluster.stop(name)
        cluster.start(name)
    _until(cluster, cluster.ready, meanwhile)


def _until(cluster: Cluster, done: Callable[[], bool], meanwhile: Meanwhile) -> None:
    for _ in range(STEPS_MOST):
        if done():
            return
        cluster.step()
        meanwhile()
    raise Stuck(f"I10: {cluster.describe()}")


def _assert_sinks(first: Cluster, second: Cluster) -> None:
    """Each job's rows are where its mode says, whoever wrote there before."""
    statuses = {**dict.fromkeys(JOBS, "FINISHED"), "error": "FAILED"}
    assert second.statuses() == statuses, f"[R29]: over the sinks of another cluster jobs end {second.statuses()}"
    standing = {"append": (first, second), "error": (first,), "overwrite": (second,)}
    for job, clusters in standing.items():
        stored = [cluster.stored(job) for cluster in clusters]
        fs, path = fsspec.core.url_to_fs(f"memory://out/{job}")
        names = [posixpath.basename(file) for file in fs.find(path)]
        counts = [sum(name.startswith(f"{each.acceptance}-") for name in names) for each in stored if each is not None]
        assert counts == [SUBTASKS] * len(clusters) and len(names) == sum(counts), f"[R29]: {job} leaves {names}"
