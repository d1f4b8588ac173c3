"""Stacks to measure: real ones, in a folder of their own, ended with the `with` or with this process."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from deploy.local.downloads import CHECKOUT
from deploy.local.etcd import EtcdServer
from deploy.local.kafka import KafkaBroker
from deploy.local.processes import Child, log_tail, spawn
from deploy.local.stack import Options, Stack, home
from millrace.client import Job, Millrace

ENDS = {"JobFinished": "FINISHED", "JobFailed": "FAILED", "JobCanceled": "CANCELED"}
PATIENCE_S = 180.0
REST_S = 3.0
REST_SHARE = 0.2
"""Of one core: what the services of a stack use that has nothing to do, and some more."""


def environment() -> dict[str, str]:
    """Of processes of this checkout."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "shared")])}


def wait_until(what: str, found: Callable[[], Any], limit_s: float = PATIENCE_S, every_s: float = 0.05) -> Any:
    """The first true value of `found`. Raises TimeoutError."""
    deadline = time.monotonic() + limit_s
    while not (value := found()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {limit_s:.0f} s in vain for {what}")
        time.sleep(every_s)
    return value


class Cluster:
    """A stack that is up, and a client of it. `slots` are those of its one TaskManager."""

    def __init__(self, stack: Stack, slots: int, task_manager: Child | None) -> None:
        facts = stack.facts()
        self.stack, self.slots, self._task_manager = stack, slots, task_manager
        self.kafka, self.etcd = facts["kafka_bootstrap"], facts["etcd_endpoint"]
        self.client = Millrace(self.kafka, token=stack.token_file.read_text(), timeout_s=120)

    def is_idle(self) -> bool:
        """No job lives, and all slots are free."""
        seen = self.client.overview()
        lives = any(count for status, count in seen.jobs.items() if status not in ENDS.values())
        return not lives and (seen.slots, seen.free_slots) == (self.slots, self.slots)

    def settle(self) -> None:
        wait_until("an idle cluster", self.is_idle)

    def await_archive(self) -> None:
        """The first slot that has time makes the class-data archive, in one JVM more: for a minute, for many on busy cores."""
        supervisor = self.stack.supervisor()
        assert supervisor is not None
        jvms = self.slots + 1  # and Kafka

        def is_made() -> bool:
            with contextlib.suppress(psutil.NoSuchProcess):
                return sum(child.name() == "java" for child in supervisor.children(recursive=True)) == jvms
            return False

        wait_until("the class-data archive", is_made, limit_s=5 * PATIENCE_S, every_s=0.5)

    def await_rest(self) -> None:
        """The slots have been led through what jobs do, which they are while nobody else needs the processor: all of the stack rests."""
        supervisor = self.stack.supervisor()
        assert supervisor is not None
        used_s = [0.0]

        def rests() -> bool:
            before_s, used_s[0] = used_s[0], sum(sum(_processor_times(each)) for each in supervisor.children(recursive=True))
            warming = next(self.stack.folder.glob("work/*/slots/*/driver-*/warming"), None)  # on a busy machine it waits, and rests
            return warming is None and used_s[0] - before_s < REST_SHARE * REST_S

        wait_until("a stack that rests", rests, limit_s=5 * PATIENCE_S, every_s=REST_S)

    def sql(self, query: str) -> Job:
        """Submits a job of one query."""
        return self.client.submit(sql_graph(query))

    def families(self) -> dict[str, list[psutil.Process]]:
        """All processes of the stack: servers, services, and what TaskManagers started apart."""
        found: dict[str, list[psutil.Process]] = {}
        services = {process.pid: name for name, process in self.processes().items()}
        supervisor = self.stack.supervisor()
        assert supervisor is not None
        found["supervisor"] = [supervisor]
        for child in supervisor.children():
            below = child.children(recursive=True)
            name = services.get(child.pid) or ("Kafka" if child.name() == "java" else child.name())
            found[name] = [child]
            if below:
                found[f"{name}'s slots"] = below
        return found

    def processes(self) -> dict[str, psutil.Process]:
        """The services' processes by their names."""
        pids = {name: service["pid"] for name, service in self.stack.facts()["services"].items()}
        if self._task_manager is not None:
            pids["task-manager"] = self._task_manager.pid
        return {name: psutil.Process(pid) for name, pid in pids.items()}


def processor_seconds(families: Mapping[str, list[psutil.Process]]) -> dict[str, dict[int, float]]:
    """Processor time that each process used so far, user's and system's."""
    return {name: {each.pid: sum(each.cpu_times()[:2]) for each in processes} for name, processes in families.items()}


def _processor_times(process: psutil.Process) -> tuple[float, float]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.cpu_times()[:2]
    return 0.0, 0.0


def sql_graph(query: str, name: str = "bench") -> dict[str, Any]:
    return {"name": name, "vertices": {"query": {"sql": query}}}


@contextlib.contextmanager
def cluster(
    name: str, say: Callable[[str], None], slots: int = 2, simulated: bool = False, standbys: int = 0, web: bool = False
) -> Iterator[Cluster]:
    """A fresh stack with one TaskManager, deleted afterwards. `simulated`: its slots have no Spark, and end what they are given
    at once."""
    stack = Stack(f"bench-{name}")
    stack.down(purge=True)
    try:
        stack.up(Options(slots=slots, task_managers=0 if simulated else 1, standbys=standbys, web=web), say, foreground=True)
        with simulated_slots(stack, slots) if simulated else contextlib.nullcontext() as task_manager:
            running = Cluster(stack, slots, task_manager)
            try:
                running.settle()
                if not simulated:
                    running.await_archive()
                yield running
            except BaseException:
                show_logs(stack.folder / "logs")
                raise
            finally:
                running.client.close()
    finally:
        stack.down(purge=True)


@contextlib.contextmanager
def simulated_slots(stack: Stack, slots: int) -> Iterator[Child]:
    """A TaskManager process with simulated slots."""
    command = [sys.executable, "-m", "tests.task_manager.simulated", "--config", str(stack.settings_file)]
    command += ["--id", "simulated", "--slots", str(slots)]
    log = stack.folder / "logs" / "simulated.log"
    child = spawn(command, log=log, env=environment(), cwd=stack.folder)
    try:
        yield child
    finally:
        child.stop()


@contextlib.contextmanager
def servers(name: str) -> Iterator[tuple[KafkaBroker, EtcdServer]]:
    """Kafka and etcd alone, fresh, not started yet."""
    folder = home() / f"alone-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    both = KafkaBroker(folder / "kafka"), EtcdServer(folder / "etcd")
    folder.mkdir(parents=True)
    try:
        yield both
    finally:
        for server in both:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def end_of(job: Job) -> str:
    """The status that a job ended with, by its events."""
    return next(ENDS[event["type"]] for event in job.events() if event["type"] in ENDS)


def expect_finished(counts: Mapping[str, int]) -> None:
    """A figure about jobs that failed is none."""
    if set(counts) - {"FINISHED"}:
        raise RuntimeError(f"jobs did not finish: {dict(counts)}")


def show_logs(folder: Path) -> None:
    """The last lines of each service's log, for a measuring that broke off."""
    for log in sorted(folder.glob("*.log")):
        print(f"-- {log.name}", log_tail([log], 8)[-2000:], sep="\n", file=sys.stderr)
