"""What the metrics of a whole cluster show, and count, while its leaders live and die."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.runtime import metrics
from millrace.runtime.metrics import Metric
from millrace.runtime.readings import of_scopes
from services.task_manager.metrics import readings as of_task_manager
from tests.io.of_metrics import value_of
from tests.simulation import workload
from tests.simulation.behaviour import Behaviour
from tests.simulation.cluster import Cluster
from tests.simulation.control import ControlProcess
from tests.simulation.trial import quiet_logs

CONTROL = tuple(f"{service}#{n}" for service in ("dispatcher", "resource-manager", "job-master") for n in (1, 2))


def behave(spec: dict[str, Any]) -> Behaviour:
    return Behaviour("hang" if spec["job"].startswith("held") else "finish")


@pytest.fixture
def cluster() -> Cluster:
    quiet_logs()
    cluster = Cluster(task_managers=2, slots=1, seed=5, control=CONTROL, script=behave)
    workload.upload_module(cluster.world)
    cluster.run(cluster.ready, most_ms=20_000)
    return cluster


def shown(cluster: Cluster, metric: Metric) -> dict[tuple[str, ...], float]:
    """Labels -> the sum over all control services that live."""
    found: dict[tuple[str, ...], float] = {}
    for process in cluster.processes.values():
        for sample in of_scopes(process.loops) if isinstance(process, ControlProcess) and process.alive else ():
            if sample.metric is metric:
                found[sample.labels] = found.get(sample.labels, 0) + sample.value
    return found


def test_jobs_slots_and_the_queue_are_those_of_the_leaders(cluster: Cluster) -> None:
    for job in ("held-1", "held-2", "held-3"):
        cluster.client.submit(job, workload.single(job))
    cluster.run(lambda: len(cluster.world.book.living) == 2 and shown(cluster, metrics.JOBS)["QUEUED",] == 1)
    cluster.run(most_ms=3_000)
    jobs, slots = shown(cluster, metrics.JOBS), shown(cluster, metrics.SLOTS)
    assert (jobs["RUNNING",], jobs["QUEUED",], sum(jobs.values())) == (2, 1, 3)
    assert (slots["ACTIVE",] + slots["ALLOCATED",], sum(slots.values())) == (2, 2)
    assert shown(cluster, metrics.TASK_MANAGERS) == {(): 2} and shown(cluster, metrics.QUEUE_JOBS) == {(): 1}
    assert 2 < shown(cluster, metrics.QUEUE_SECONDS)[()] < 60
    assert shown(cluster, metrics.SHARD_JOBS) == {("job-master/0",): 3} and shown(cluster, metrics.SHARD_SLOTS) == {("job-master/0",): 2}
    assert shown(cluster, metrics.SUBTASKS)[()] == 3 and shown(cluster, metrics.GRAPH_BYTES)[()] > 0
    assert set(shown(cluster, metrics.LEADS).values()) == {1}
    (own, _) = [{sample.metric: sample.value for sample in of_task_manager(each.shell)} for each in cluster.task_managers()]
    assert own[metrics.REGISTERED] == 1 and own[metrics.BEHIND] == 0


def test_a_job_is_counted_once_with_its_phases_and_its_attempts(cluster: Cluster) -> None:
    phases = metrics.JOB_SECONDS.labels["phase"]
    before = {phase: value_of(metrics.JOB_SECONDS, phase, suffix="_count") for phase in phases}
    accepted, ended = value_of(metrics.JOBS_ACCEPTED), value_of(metrics.JOBS_ENDED, "FINISHED")
    attempts = value_of(metrics.ATTEMPTS_ENDED, "finished"), value_of(metrics.ATTEMPTS_STARTED)
    cluster.client.submit("one", workload.single("one"))
    cluster.run(lambda: cluster.ended("one"))
    cluster.run(most_ms=1_000)
    assert value_of(metrics.JOBS_ACCEPTED) - accepted == value_of(metrics.JOBS_ENDED, "FINISHED") - ended == 1
    assert {phase: value_of(metrics.JOB_SECONDS, phase, suffix="_count") - before[phase] for phase in phases} == dict.fromkeys(phases, 1)
    assert (value_of(metrics.ATTEMPTS_ENDED, "finished") - attempts[0], value_of(metrics.ATTEMPTS_STARTED) - attempts[1]) == (1, 1)


def test_after_a_failover_another_shows_the_same_and_it_is_counted(cluster: Cluster) -> None:
    cluster.client.submit("held-1", workload.single("held-1"))
    cluster.run(lambda: shown(cluster, metrics.JOBS).get(("RUNNING",)) == 1)
    terms = value_of(metrics.TERMS, "dispatcher")
    (leader,) = (name for name, each in cluster.processes.items() if isinstance(each, ControlProcess) and each.leads("dispatcher"))
    cluster.kill(leader)
    assert shown(cluster, metrics.LEADS)["dispatcher",] == 0
    cluster.run(lambda: shown(cluster, metrics.LEADS)["dispatcher",] == 1, most_ms=30_000)
    cluster.run(lambda: shown(cluster, metrics.JOBS).get(("RUNNING",)) == 1)
    assert value_of(metrics.TERMS, "dispatcher") == terms + 1


def test_a_term_is_lost_whatever_ends_it_but_a_stop_or_a_handover(cluster: Cluster) -> None:
    """One that ended with its log, or because of a record that could not be read, was none."""

    def leading() -> ControlProcess:
        found = [each for each in cluster.processes.values() if isinstance(each, ControlProcess) and each.leads("dispatcher")]
        (only,) = found
        return only

    lost = value_of(metrics.TERMS_LOST, "dispatcher")
    (loop,) = (each for each in leading().loops if each.scope == "dispatcher")
    loop.stale = True
    cluster.run(lambda: not loop.stale and loop.terms.now is None)
    assert value_of(metrics.TERMS_LOST, "dispatcher") == lost + 1
    cluster.run(lambda: shown(cluster, metrics.LEADS)["dispatcher",] == 1, most_ms=30_000)
    cluster.stop(leading().name)
    cluster.run(lambda: shown(cluster, metrics.LEADS)["dispatcher",] == 1, most_ms=30_000)
    assert value_of(metrics.TERMS_LOST, "dispatcher") == lost + 1
