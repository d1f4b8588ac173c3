"""A stack without a TaskManager at rest [R33]: they come with jobs, once each, and go when they are idle."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from deploy.local.processes import is_running
from deploy.local.stack import Options
from millrace.io.kafka.logs import KafkaLogs
from tests.contract.conftest import asked
from tests.end_to_end.running import Held, RunningStack, processes_of, until

IDLE_MS = 4_000
NO_RESTARTS = {"restart": {"strategy": "none"}}


@pytest.fixture(scope="module")
def growing(stacks_home: Path) -> Iterator[RunningStack]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MILLRACE_WORKER_IDLE_MS", str(IDLE_MS))
        options = Options(slots=1, task_managers=0, task_managers_most=2, heap_mb=512, standbys=1)
        with RunningStack("growing", options) as running:
            yield running


@pytest.fixture
def empty(growing: RunningStack) -> RunningStack:
    """No TaskManager is there, nor is one on its way, and the ResourceManager knows that: it gives their names again."""
    until("the last TaskManager to go", lambda: processes(growing) == [] and counts(growing) == (0, 0) and not provided(growing))
    return growing


def provided(running: RunningStack) -> set[str]:
    """Those that the provider was asked for and that the ResourceManager does not know to have ended, by the facts about them."""
    logs = KafkaLogs(running.facts["kafka_bootstrap"], client_id="tests")
    at, end = asked(lambda: logs.offsets("cluster.events", 0))
    found: set[str] = set()
    reader = logs.reader("cluster.events", 0, at)
    while at < end:
        for message in reader.scan(1_000, 1_000):
            fact = json.loads(message.value())
            if fact["type"] == "WorkerChanged":
                (found.discard if fact["state"] == "STOPPED" else found.add)(fact["worker"])
            at = message.offset() + 1
    reader.close()
    return found


def processes(running: RunningStack) -> list[str]:
    """The TaskManagers whose processes run, by name: two that are started at once stand there in any order."""
    return sorted(name for name in running.stack.facts()["services"] if name.startswith("task-manager-"))


def counts(running: RunningStack) -> tuple[int, int]:
    """TaskManagers that are registered, and that are being started."""
    seen = until("an answer of the ResourceManager", lambda: (it := running.client.overview()).silent is None and it)
    return seen.task_managers, seen.provided.starting


def test_the_first_job_starts_exactly_one_though_the_leader_dies_and_it_goes_when_it_is_idle(
    empty: RunningStack, tmp_path: Path
) -> None:
    leader = empty.leader("resource-manager")
    held = Held(empty, tmp_path / "held")
    waiting = held.watched.event("JobWaiting")
    assert waiting["reason"] == "no TaskManager is registered; task-manager-1 is being started"
    seen: set[tuple[str, int]] = set()

    def begun() -> bool:
        services = empty.stack.facts()["services"]
        seen.update((name, service["pid"]) for name, service in services.items() if name.startswith("task-manager-"))
        return bool(seen)

    until("one to be started", begun)
    empty.kill(leader)
    until("the job at work", lambda: begun() and held.pids)
    assert processes(empty) == ["task-manager-1"] and counts(empty) == (1, 0)
    family = [psutil.Process(empty.pid("task-manager-1")), *psutil.Process(empty.pid("task-manager-1")).children(recursive=True)]
    assert held.let_go().end["type"] == "JobFinished"
    begun()
    assert [name for name, _ in seen] == ["task-manager-1"], "no other came meanwhile"
    assert held.watched.attempts() == [("main", 0, 1)]
    until("it to go", lambda: processes(empty) == [] and counts(empty) == (0, 0))
    assert not any(is_running(process) for process in family)


@pytest.mark.long
def test_as_many_come_as_are_needed_and_one_that_is_killed_is_replaced(empty: RunningStack, tmp_path: Path) -> None:
    """Others have come and gone before. Then the stack is down, with two that its ResourceManager knows; it begins without any."""
    held = [Held(empty, tmp_path / str(number), settings=NO_RESTARTS) for number in range(3)]
    for each in held[:2]:
        each.started()
    why = "task_managers_max is 2"
    held[2].watched.until("why it waits", lambda events: any(why in each.get("reason", "") for each in events))
    assert processes(empty) == ["task-manager-1", "task-manager-2"]

    killed = held[0].watched
    place, other = (each.watched.running(attempt=1)["task_manager"] for each in held[:2])
    assert {place, other} == {"task-manager-1", "task-manager-2"}
    empty.kill(place)
    assert held[1].let_go().end["type"] == "JobFinished"
    held[0].started(2)
    held[2].started()
    places = {held[2].watched.running()["task_manager"], killed.running(attempt=2)["task_manager"]}
    assert other in places and processes(empty) == sorted(places) and len(places) == 2, "no more than may"
    for each in (held[0], held[2]):
        assert each.let_go().end["type"] == "JobFinished"
    assert [each.watched.attempts() for each in held] == [[("main", 0, 1), ("main", 0, 2)], [("main", 0, 1)], [("main", 0, 1)]]

    empty.down()
    assert processes_of(empty.stack.folder) == [], "with its standbys"
    empty.up()
    until("those of before to be forgotten", lambda: counts(empty) == (0, 0))
    assert processes(empty) == []
    assert empty.sql("SELECT 5 AS a").rows == [[5]]
