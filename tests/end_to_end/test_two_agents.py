"""A cluster whose TaskManagers run on two hosts, by an agent on each (docs/growing.md): one of the hosts is gone at once."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from deploy.local.downloads import CHECKOUT
from deploy.local.processes import free_port, is_running
from deploy.local.spark_classes import class_data_folder
from deploy.local.stack import Options
from tests.cli.inside import command
from tests.end_to_end.running import Held, RunningStack, processes_of, until

pytestmark = pytest.mark.long
AWAY_MS = 5_000
SQUARES = {
    "name": "squares",
    "vertices": {
        "numbers": {"sql": "SELECT id, id % 10 AS rest FROM range(0, 1000, 1, 4)"},
        "rests": {"sql": "SELECT rest, count(*) AS n FROM numbers GROUP BY rest", "inputs": {"numbers": "hash(rest)"}, "parallelism": 2},
        "all": {"sql": "SELECT sum(n) AS n FROM rests", "inputs": {"rests": "broadcast"}},
    },
}


class Host:
    """One of the two: an agent, in a folder of its own."""

    def __init__(self, folder: Path, token_file: Path) -> None:
        self.folder, self.port = folder, free_port()
        folder.mkdir()
        self.config = folder / "task-manager.yaml"
        self.config.touch()
        command = [sys.executable, "-c", "from deploy.cli import main; main()", "agent", "--config", self.config]
        command += ["--token-file", token_file, "--port", self.port, "--logs", folder / "logs", "--most", 2]
        env = {name: value for name, value in os.environ.items() if not name.startswith("MILLRACE_")}
        with (folder / "agent.log").open("w") as log:
            self.process = psutil.Popen([str(word) for word in command], cwd=CHECKOUT, env=env, stdout=log, stderr=log)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def configure(self, facts: dict[str, Any], storage: Path) -> None:
        """What its TaskManagers need to know of the cluster."""
        own = {"slots": 1, "heap_mb": 512, "work_folder": str(self.folder / "work"), "class_data_folder": str(class_data_folder())}
        self.config.write_text(json.dumps({
            "cluster": "default", "kafka_bootstrap": facts["kafka_bootstrap"], "etcd_endpoint": facts["etcd_endpoint"],
            "storage_url": str(storage), "log_format": "json",
            "task_manager": own,
        }))  # fmt: skip

    @property
    def family(self) -> list[psutil.Process]:
        """The agent, and all below it that runs."""
        found = [self.process, *self.process.children(recursive=True)] if self.process.is_running() else []
        return [process for process in found if is_running(process)]

    def kill(self) -> None:
        """The host is gone: SIGKILL to all that runs on it."""
        family = self.family
        for sent in (signal.SIGSTOP, signal.SIGKILL):  # none of them sees another one end
            for process in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(sent)
        self.process.wait(60)
        until("the end of all that ran there", lambda: not any(is_running(process) for process in family))

    def stop(self) -> list[psutil.Process]:
        """SIGTERM, as Ctrl-C. What lives all the same."""
        family = self.family
        if family:
            self.process.terminate()
            self.process.wait(60)
        return [process for process in family if is_running(process)]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[Host]]:
    token_file = tmp_path / "agent-token"
    token_file.write_text("a token of both agents, which is long enough")
    made = [Host(tmp_path / name, token_file) for name in ("a", "b")]
    yield made
    for host in made:
        if host.family:
            host.kill()


@pytest.fixture
def spread(hosts: list[Host], stacks_home: Path) -> Iterator[RunningStack]:
    """A stack that starts no TaskManager itself. Of each test another one: a cluster that was deregistered stays so."""
    settings = {
        "PROVIDER": "process", "AGENTS": json.dumps([host.url for host in hosts]), "AGENT_AWAY_MS": AWAY_MS, "TASK_MANAGERS_MIN": 2,
        "AGENT_TOKEN": hosts[0].folder.with_name("agent-token").read_text(), "TASK_MANAGERS_MAX": 3, "WORKER_SLOTS": 1,
        "WORKER_MEMORY_MB": 512,
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(f"MILLRACE_{name}", str(value))
        with RunningStack(f"spread-{hosts[0].port}", Options(slots=1, task_managers=0, heap_mb=512)) as running:
            for host in hosts:
                host.configure(running.facts, running.stack.folder / "storage")
            yield running


def runs_on(host: Host, pid: int) -> bool:
    return pid in [process.pid for process in host.family]


def test_a_host_that_is_gone_costs_the_attempts_on_it_alone(spread: RunningStack, hosts: list[Host], tmp_path: Path) -> None:
    until("a TaskManager on each host", lambda: spread.client.overview().free_slots == 2)
    assert [sum(is_running(process) for process in host.process.children()) for host in hosts] == [1, 1]
    both = spread.submit(SQUARES)
    assert both.rows == [[1000]]
    assert len({event["task_manager"] for event in both.events if event.get("state") == "RUNNING" and event.get("task") == "rests"}) == 2

    held = [Held(spread, tmp_path / name) for name in ("one", "two")]
    pids = [each.started()[0] for each in held]
    [gone] = [index for index, pid in enumerate(pids) if runs_on(hosts[0], pid)]
    hosts[0].kill()
    moved = held[gone].started(2)
    assert held[1 - gone].pids == [pids[1 - gone]], "the other one goes on"
    assert all(runs_on(hosts[1], pid) for pid in moved if pid != pids[gone])
    for each in held:
        assert each.let_go().end["type"] == "JobFinished"
    assert held[gone].watched.attempts("RUNNING")[-1][2] == 2

    spread.client.deregister()
    until("its TaskManagers to be stopped", lambda: hosts[1].family == [hosts[1].process])
    assert hosts[1].stop() == [], "and an agent that is ended leaves nothing"


def test_a_cluster_that_is_shut_down_leaves_nothing_on_its_hosts_and_goes_on(
    spread: RunningStack, hosts: list[Host], tmp_path: Path
) -> None:
    """`millrace shutdown`: the agents stay, as nothing of the cluster's, and begin with it again."""
    until("a TaskManager on each host", lambda: spread.client.overview().free_slots == 2)
    held = Held(spread, tmp_path / "held")
    [before] = held.started()
    done = command("shutdown", "--yes", "--stack", spread.stack.name)
    assert (done.returncode, done.stdout) == (0, "the cluster is shut down: 1 job is kept, 1 of them suspended\n"), done.stderr
    until("the end of all its processes", lambda: processes_of(spread.stack.folder) == [])
    assert [host.family for host in hosts] == [[host.process] for host in hosts]
    spread.down()
    spread.up()
    for host in hosts:
        host.configure(spread.facts, spread.stack.folder / "storage")
    assert before in held.started(2), "it runs again"
    held.let_go()
    assert spread.client.wait(held.watched.id, 120).status == "FINISHED"
    assert [host.stop() for host in hosts] == [[], []]
