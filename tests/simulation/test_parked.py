"""Records that end processes [R26]: what they were about ends or is refused, and nothing else does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from millrace.core.machine import Envelope, Output, PassedOver
from millrace.core.messages import jobs, slots
from millrace.core.messages.jobs import JobEnded
from millrace.core.messages.records import Client
from millrace.runtime.metrics import PASSED_OVER
from services.dispatcher.core.machine import HANDLERS as DISPATCHER
from services.job_master.core.machine import HANDLERS as JOB_MASTER
from tests.io.of_metrics import value_of
from tests.simulation.cluster import Cluster
from tests.simulation.control import ControlProcess
from tests.simulation.trial import quiet_logs

GRAPH = {"name": "one", "vertices": {"one": {"sql": "SELECT 1 AS one"}}}


def new_cluster() -> Cluster:
    quiet_logs()
    return Cluster(task_managers=1)


def die_and_rise(cluster: Cluster, name: str, jobs: tuple[str, ...]) -> int:
    """Runs until these jobs have ended, with this process started again whenever it ended itself; how often that was."""
    for deaths in range(10):
        try:
            cluster.run(lambda: cluster.ended(*jobs), most_ms=60_000)
            return deaths
        except ZeroDivisionError:
            cluster.kill(name)
            cluster.start(name)
    raise AssertionError("it dies for ever")


def test_a_job_whose_handling_ends_processes_fails_and_takes_down_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    start = JOB_MASTER[jobs.StartJob]

    def poisoned(state: Any, body: Any, envelope: Envelope) -> Iterator[Output]:
        if body.job == "poison":
            raise ZeroDivisionError("poisoned")
        return start(state, body, envelope)

    monkeypatch.setitem(JOB_MASTER, jobs.StartJob, poisoned)
    cluster = new_cluster()
    for job in ("before", "poison", "behind"):
        cluster.client.submit(job, GRAPH)
    passed_over = value_of(PASSED_OVER, "job-master/0")
    assert die_and_rise(cluster, "job-master#1", ("before", "poison", "behind")) == 2
    assert value_of(PASSED_OVER, "job-master/0") == passed_over + 1, "though it did not lead yet"
    assert cluster.statuses() == {"before": "FINISHED", "poison": "FAILED", "behind": "FINISHED"}
    cause = cluster.client.events("poison")[-1].cause
    assert cause is not None and cause.message == "a fault of Millrace in handling a StartJob of this job: ZeroDivisionError: poisoned"
    process = cluster.processes["job-master#1"]
    assert isinstance(process, ControlProcess)
    (loop,) = (each for each in process.loops if each.scope == "job-master/0")
    loop.stale = True
    cluster.run(lambda: not loop.stale and loop.replica is not None and loop.replica.leads, most_ms=60_000)
    assert value_of(PASSED_OVER, "job-master/0") == passed_over + 1, "it is folded again, and counted once"


def test_a_job_ends_when_what_its_attempt_has_reported_ends_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    told = JOB_MASTER[slots.TaskStateChanged]

    def poisoned(state: Any, body: Any, envelope: Envelope) -> Iterator[Output]:
        if body.attempt.startswith("poison/") and body.state == "FINISHED":
            raise ZeroDivisionError("poisoned")
        return told(state, body, envelope)

    monkeypatch.setitem(JOB_MASTER, slots.TaskStateChanged, poisoned)
    cluster = new_cluster()
    for job in ("poison", "behind"):
        cluster.client.submit(job, GRAPH)
    assert die_and_rise(cluster, "job-master#1", ("poison", "behind")) == 2
    assert cluster.statuses() == {"poison": "FAILED", "behind": "FINISHED"}


def test_a_job_fails_when_its_end_ends_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = DISPATCHER[JobEnded]

    def poisoned(state: Any, body: JobEnded, envelope: Envelope) -> Iterator[Output]:
        if body.job == "poison" and body.status == "FINISHED":
            raise ZeroDivisionError("poisoned")
        return ended(state, body, envelope)

    monkeypatch.setitem(DISPATCHER, JobEnded, poisoned)
    cluster = new_cluster()
    for job in ("poison", "behind"):
        cluster.client.submit(job, GRAPH)
    assert die_and_rise(cluster, "dispatcher#1", ("poison", "behind")) == 2
    assert cluster.statuses() == {"poison": "FAILED", "behind": "FINISHED"}


def test_a_request_that_ends_processes_is_answered_and_takes_down_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    requested = DISPATCHER[Client]

    def poisoned(state: Any, record: Client, envelope: Envelope) -> Iterator[Output]:
        if record.request.job == "poison":
            raise ZeroDivisionError("poisoned")
        return requested(state, record, envelope)

    monkeypatch.setitem(DISPATCHER, Client, poisoned)
    cluster = new_cluster()
    asked = cluster.client.submit("poison", GRAPH)
    cluster.client.submit("behind", GRAPH)
    assert die_and_rise(cluster, "dispatcher#1", ("behind",)) == 2
    assert cluster.statuses() == {"behind": "FINISHED"}
    (answer,) = cluster.client.replies()[asked]
    assert (answer.kind, answer.reason) == ("internal", "a fault of Millrace in handling this request: ZeroDivisionError: poisoned")


def test_a_service_that_even_dies_of_hearing_of_a_bad_record_goes_on_without(monkeypatch: pytest.MonkeyPatch) -> None:
    start = JOB_MASTER[jobs.StartJob]

    def poisoned(state: Any, body: Any, envelope: Envelope) -> Iterator[Output]:
        if body.job == "poison":
            raise ZeroDivisionError("poisoned")
        return start(state, body, envelope)

    def hears(state: Any, body: Any, envelope: Envelope) -> Iterator[Output]:
        raise ZeroDivisionError("poisoned")

    monkeypatch.setitem(JOB_MASTER, jobs.StartJob, poisoned)
    monkeypatch.setitem(JOB_MASTER, PassedOver, hears)
    cluster = new_cluster()
    for job in ("poison", "behind"):
        cluster.client.submit(job, GRAPH)
    assert die_and_rise(cluster, "job-master#1", ("behind",)) == 3
    assert cluster.statuses() == {"poison": None, "behind": "FINISHED"}
