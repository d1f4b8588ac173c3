"""What a death costs: leaders of every kind with a standby each, and TaskManagers, killed, asked to end, or stopped.

Each time goes from the signal to what a client sees of the cluster's being whole again; the client asks at once after the signal.
Attempts last as long as they are told and have no Spark: what is measured is how soon a death is noticed and made good.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil

from deploy.local.stack import Options, Stack
from millrace.client import Job, Millrace
from millrace.core.topics import Topology
from millrace.io.etcd.store import EtcdStore
from millrace.io.interfaces import Put, Txn
from millrace.runtime.beat import LEASE_TTL_S
from services.resource_manager.settings import ResourceManagerSettings
from tests.chaos.task_managers import TaskManagers
from tests.task_manager.timed import query

from .clusters import show_logs, sql_graph, wait_until
from .figures import Row, Run, p50

SHARDS, TASK_MANAGERS, SLOTS = 2, 2, 4
SCOPES = ("dispatcher", "resource-manager", *(f"job-master/{shard}" for shard in range(SHARDS)))
LONG_S = 36_000.0
LOST_AFTER_MS: int = ResourceManagerSettings.model_fields["lost_after_ms"].default


class Replicated:
    """A stack with a standby for each service, two TaskManagers with timed slots, and a client."""

    def __init__(self, stack: Stack, task_managers: TaskManagers) -> None:
        self.stack, self.task_managers = stack, task_managers
        facts = stack.facts()
        self.client = Millrace(facts["kafka_bootstrap"], timeout_s=60)
        self.store = EtcdStore(facts["etcd_endpoint"], "/millrace/default/")

    def close(self) -> None:
        self.client.close()
        self.store.close()

    def submit(self, seconds: float) -> Job:
        return self.client.submit(sql_graph(query(seconds)))

    def leader(self, scope: str) -> psutil.Process:
        entry = self.store.get(f"leaders/{scope}")
        if entry is None:
            raise RuntimeError(f"nobody leads {scope}")
        return psutil.Process(self.stack.facts()["services"][entry.value.decode()]["pid"])

    def is_whole(self) -> bool:
        """Each scope has its leader and a standby, and all TaskManagers are there, with their slots ready."""
        health = [each["health"] or {} for each in self.stack.status()["services"].values()]
        roles = sorted((scope["scope"], scope["role"]) for each in health for scope in each.get("scopes", ()))
        if roles != sorted((scope, role) for scope in SCOPES for role in ("leader", "standby")):
            return False
        found = self.client.task_managers()
        states = [slot.state for each in found for slot in each.slots]
        return len(found) == TASK_MANAGERS and set(states) <= {"FREE", "ALLOCATED", "ACTIVE"}

    def settle(self) -> None:
        wait_until("a cluster with all its leaders and standbys", self.is_whole, 60, every_s=0.1)


@contextmanager
def replicated(run: Run) -> Iterator[Replicated]:
    stack = Stack("bench-failover")
    stack.down(purge=True)
    # A cluster's patience; a laptop's stack is told of a little more, for a laptop does other work too.
    os.environ["MILLRACE_LOST_AFTER_MS"] = str(LOST_AFTER_MS)
    try:
        stack.up(Options(task_managers=0, shards=SHARDS, standbys=1), run.say, foreground=True)
        with TaskManagers(stack, TASK_MANAGERS, SLOTS) as task_managers:
            cluster = Replicated(stack, task_managers)
            try:
                cluster.settle()
                yield cluster
            except BaseException:
                show_logs(stack.folder / "logs")
                raise
            finally:
                cluster.close()
    finally:
        stack.down(purge=True)
        del os.environ["MILLRACE_LOST_AFTER_MS"]


def until(events: Iterator[dict[str, Any]], type_: str, **fields: Any) -> float:
    """When the event came."""
    for event in events:
        if event["type"] == type_ and fields.items() <= event.items():
            return time.perf_counter()
        if event["type"] in ("JobFinished", "JobFailed", "JobCanceled"):
            raise RuntimeError(f"the job ended with {event}")
    raise RuntimeError(f"no {type_} {fields} came")


def measure(run: Run) -> None:
    n = run.count(20, 3)
    with replicated(run) as cluster:
        lease_s = [_lease_alone(cluster) for _ in range(run.count(3, 1))]
        peer = f"its lease's end alone {p50(lease_s):.2f} s"
        held = [cluster.submit(LONG_S) for _ in range(2)]
        for job in held:
            until(job.events(), "AttemptStateChanged", state="RUNNING")
        control: tuple[tuple[str, str, Callable[[Replicated], float], float, float | None], ...] = (
            ("Dispatcher's leader killed -> next accepted", "dispatcher_killed_s", _dispatcher_killed, 0.7, 1.5),
            ("JobMaster's leader killed -> a cancel carried out", "job_master_killed_s", _job_master_killed, 0.7, 1.5),
            ("ResourceManager's leader killed -> a slot given", "resource_manager_killed_s", _manager_killed, 0.7, 1.5),
            ("Dispatcher's leader asked to end -> next accepted", "dispatcher_stopped_s", _dispatcher_stopped, 0.15, None),
        )
        for what, name, once, least, most in control:
            samples = _series(run, cluster, name, n, once)
            _row(run, what, samples, peer, p50(lease_s), least, most)
        restarted = sum(restarts(cluster.client, job) for job in held)
        run.samples |= {"lease_alone_s": lease_s, "restarted": restarted}
        run.rows.append(Row(
            "attempts restarted by all of them", len(held), str(restarted), "", "", "", "0", restarted == 0
        ))  # fmt: skip
        for job in held:
            job.cancel()
        lost_s = LOST_AFTER_MS / 1000
        peer = f"declared lost after {lost_s:.2f} s of silence"
        samples = _series(run, cluster, "task_manager_killed_s", n, lambda each: _moved(each, signal.SIGKILL))
        _row(run, "TaskManager killed -> RUNNING elsewhere", samples, peer, lost_s, 0.6, 1.2)
        samples = _series(run, cluster, "task_manager_hung_s", n, lambda each: _moved(each, signal.SIGSTOP))
        _row(run, "TaskManager stopped (SIGSTOP) -> RUNNING elsewhere", samples, peer, lost_s, 1.5, None)


def _series(run: Run, cluster: Replicated, name: str, n: int, once: Callable[[Replicated], float]) -> list[float]:
    samples = []
    for number in range(n):
        cluster.settle()
        samples.append(once(cluster))
        run.say(f"{name} {number + 1} of {n}: {samples[-1]:.3f}")
    run.samples[name] = samples
    return samples


def _row(
    run: Run, what: str, samples: list[float], peer: str, peer_s: float, least: float, most: float | None
) -> None:
    middle, worst = p50(samples), max(samples)
    asked = f"{least:g} s" + (f", max {most:g} s" if most else "")
    run.rows.append(Row(
        what, len(samples), f"{middle:.3f} s", f"max {worst:.3f} s", peer, f"{middle / peer_s:.2f} x", asked,
        middle <= least and (most is None or worst <= most),
    ))  # fmt: skip


def _lease_alone(cluster: Replicated) -> float:
    """Seconds from the last renewal of a lease to the end of its key: what a takeover would wait for without ticks."""
    lease = cluster.store.grant(LEASE_TTL_S)
    cluster.store.txn(Txn([], [Put("bench", b"", lease)]))
    cluster.store.keep_alive(lease)
    started = time.perf_counter()
    wait_until("the lease's end", lambda: cluster.store.get("bench") is None, every_s=0.01)
    return time.perf_counter() - started


def _dispatcher_killed(cluster: Replicated, number: signal.Signals = signal.SIGKILL) -> float:
    leader = cluster.leader("dispatcher")
    started = time.perf_counter()
    leader.send_signal(number)
    job = cluster.submit(0.01)
    took = time.perf_counter() - started
    job.wait()
    return took


def _dispatcher_stopped(cluster: Replicated) -> float:
    return _dispatcher_killed(cluster, signal.SIGTERM)


def _job_master_killed(cluster: Replicated) -> float:
    """Until a job of that shard, whose cancel was asked right after the kill, is CANCELED."""
    job = cluster.submit(LONG_S)
    events = job.events()
    until(events, "AttemptStateChanged", state="RUNNING")
    leader = cluster.leader(f"job-master/{Topology(shards=SHARDS).shard_of(job.id)}")
    started = time.perf_counter()
    leader.kill()
    job.cancel()
    until(events, "AttemptStateChanged", state="CANCELED")
    return time.perf_counter() - started


def _manager_killed(cluster: Replicated) -> float:
    """Until a job that was submitted right after the kill has its slot and runs."""
    leader = cluster.leader("resource-manager")
    started = time.perf_counter()
    leader.kill()
    job = cluster.submit(0.01)
    took = until(job.events(), "AttemptStateChanged", state="RUNNING") - started
    job.wait()
    return took


def restarts(client: Millrace, job: Job) -> int:
    """Attempts after the first ones."""
    _, detail, _ = client.show(job.id)
    if detail is None:
        raise RuntimeError(f"nothing is known of the tasks of {job.id}")
    return sum(subtask.attempt - 1 for task in detail.tasks for subtask in task.subtasks)


def _moved(cluster: Replicated, number: signal.Signals) -> float:
    job = cluster.submit(LONG_S)
    events = job.events()
    place = ""
    for event in events:
        if event["type"] == "AttemptStateChanged" and event["state"] == "RUNNING":
            place = event["task_manager"]
            break
    process = psutil.Process(cluster.task_managers.pid(place))
    started = time.perf_counter()
    process.send_signal(number)
    try:
        took = until(events, "AttemptStateChanged", state="RUNNING", attempt=2) - started
    finally:
        if number is signal.SIGSTOP:
            process.send_signal(signal.SIGCONT)
    job.cancel()
    job.wait()
    return took
