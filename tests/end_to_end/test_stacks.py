"""A second stack beside the first: told apart, its jobs survive down and up and the supervisor's death, nothing is left."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.stack import Options
from tests.cli.inside import command
from tests.end_to_end.running import Held, RunningStack, processes_of, until


@pytest.fixture(scope="module")
def other(stacks_home: Path) -> Iterator[RunningStack]:
    with RunningStack("other", Options(slots=1, task_managers=1, heap_mb=512)) as running:
        yield running


@pytest.fixture
def second(other: RunningStack) -> RunningStack:
    """The second stack, up."""
    if other.client is None:
        other.up()
    return other


def gone(running: RunningStack) -> bool:
    return processes_of(running.stack.folder) == []


@pytest.mark.long
def test_two_stacks_are_told_apart(running: RunningStack, second: RunningStack) -> None:
    """The same id in both, submitted as soon as the second is up, is two jobs."""
    graphs = [{"name": "same", "vertices": {"one": {"sql": f"SELECT {n} AS n"}}} for n in range(2)]
    jobs = [each.submit(graph, job="same") for each, graph in zip((running, second), graphs, strict=True)]
    assert [job.rows for job in jobs] == [[[0]], [[1]]]
    assert [job.job for job in second.client.list().jobs] == ["same"]
    assert len(second.client.task_managers()) == 1
    assert set(second.stack.status()["services"]) == {
        "dispatcher", "resource-manager", "job-master", "task-manager-1",
    }  # fmt: skip


def test_jobs_survive_down_and_up_and_nothing_runs_between(
    running: RunningStack, second: RunningStack, tmp_path: Path
) -> None:
    done = second.sql("SELECT 'before' AS a")
    assert done.rows == [["before"]]
    held = Held(second, tmp_path / "held", settings={"restart": {"strategy": "none"}})
    held.started()
    queued = [second.sql(f"SELECT {n} AS n") for n in range(3)]
    for job in queued:
        job.event("JobWaiting")
    second.down()
    assert gone(second)
    assert second.stack.status()["state"] == "stopped"
    assert running.sql("SELECT 1 AS a").rows == [[1]], "the first stack is not touched"

    second.up()
    held.started(2)
    held.let_go()
    assert second.client.wait(held.watched.id).status == "FINISHED"
    for n, job in enumerate(queued):
        assert second.client.wait(job.id).status == "FINISHED"
        assert second.client.result(job.id).rows == [[n]]
    assert second.client.result(done.id).rows == [["before"]]
    events = list(second.client.follow(held.watched.id))
    assert [event["attempt"] for event in events if event["type"] == "AttemptStateChanged"][-1] == 2


@pytest.mark.long
def test_a_cluster_is_shut_down_and_its_jobs_are_suspended_kept_and_go_on(second: RunningStack, tmp_path: Path) -> None:
    """`millrace shutdown`, as docs/operate.md has it."""
    held = Held(second, tmp_path / "held")
    [before] = held.started()
    waits = second.sql("SELECT 1 AS a")
    done = command("shutdown", "--yes", "--stack", second.stack.name)
    assert (done.returncode, done.stdout) == (0, "the cluster is shut down: 2 jobs are kept, 2 of them suspended\n"), done.stderr
    assert held.watched.event("JobStateChanged", status="SUSPENDED") and waits.event("JobStateChanged", status="SUSPENDED")
    until("the end of all processes", lambda: gone(second))
    seen = second.stack.status()
    assert (seen["state"], seen["shut_down"]) == ("stopped", "the cluster is shut down: 2 jobs kept, 2 suspended")
    second.down()
    second.up()
    assert before in held.started(2), "it runs again"
    held.let_go()
    assert second.client.wait(held.watched.id, 120).status == second.client.wait(waits.id, 120).status == "FINISHED"


def test_a_second_name_on_one_kafka_is_refused_when_it_is_provisioned(running: RunningStack) -> None:
    facts = running.stack.status()
    words = [sys.executable, "-m", "deploy.provision", "--cluster", "two", "--kafka-bootstrap", facts["kafka_bootstrap"]]
    done = subprocess.run([*words, "--etcd-endpoint", facts["etcd_endpoint"]], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "provision: this Kafka belongs to cluster 'default' (" in done.stderr and "name it 'default'" in done.stderr


@pytest.mark.long
def test_a_killed_supervisor_leaves_nothing_and_can_be_replaced_at_once(second: RunningStack, tmp_path: Path) -> None:
    held = Held(second, tmp_path / "held", settings={"restart": {"strategy": "none"}})
    held.started()
    second.kill_supervisor()
    second.up()  # while services of the first one may still be ending
    held.started(2)
    held.let_go()
    assert second.client.wait(held.watched.id).status == "FINISHED"
    second.kill_supervisor()
    until("the end of all that the supervisor started", lambda: gone(second))
