"""What nobody may be blamed for: Kafka and etcd killed, the broker paused for a minute, all cores busy for ten.

A leader of each kind has a standby, and attempts without Spark run on. How long the cluster takes to answer again is measured; TaskManagers
declared lost, attempts started again and leaders replaced meanwhile are counted, and must be none.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

from deploy.local.etcd import find_etcd
from deploy.local.processes import is_running
from millrace.client import Job
from millrace.core.topics import JOB_MASTER
from millrace.io.interfaces import Entry
from tests.chaos.faults import server_of
from tests.chaos.run import topic_records
from tests.task_manager.timed import query

from .clusters import sql_graph, wait_until
from .failover import LONG_S, SCOPES, SHARDS, Replicated, replicated, restarts, until
from .figures import Row, Run, p50

HELD = 4
"""Attempts that run on through everything."""


class Witness:
    """What may not change: leaders, TaskManagers, attempts."""

    def __init__(self, cluster: Replicated, held: list[Job]) -> None:
        self._cluster, self._held = cluster, held
        wait_until("an even share of shards for each JobMaster", self._is_even)  # else one is given away meanwhile, unasked
        self._leaders, self._gone, self._again = self._lead(), self._declared_lost(), self._restarts()

    def _entries(self) -> dict[str, Entry]:
        entries = {scope: self._cluster.store.get(f"leaders/{scope}") for scope in SCOPES}
        return {scope: entry for scope, entry in entries.items() if entry is not None}

    def _is_even(self) -> bool:
        leaders = [entry.value for scope, entry in self._entries().items() if scope.startswith(JOB_MASTER)]
        return len(set(leaders)) == SHARDS

    def _lead(self) -> dict[str, int]:
        return {scope: entry.mod_revision for scope, entry in self._entries().items()}

    def _restarts(self) -> int:
        return sum(restarts(self._cluster.client, job) for job in self._held)

    def _declared_lost(self) -> int:
        records = topic_records(self._cluster.stack.facts()["kafka_bootstrap"], "cluster.events", SHARDS)
        return sum(each["type"] == "TaskManagerGone" for each in records)

    def changes(self) -> dict[str, int]:
        after = self._lead()
        return {
            "TaskManagers declared lost": self._declared_lost() - self._gone,
            "attempts started again": self._restarts() - self._again,
            "leaders replaced": sum(after.get(scope) != before for scope, before in self._leaders.items()),
        }


def measure(run: Run) -> None:
    with replicated(run) as cluster:
        held = [cluster.submit(LONG_S) for _ in range(HELD)]
        for job in held:
            until(job.events(), "AttemptStateChanged", state="RUNNING")
        _paused(run, cluster, held, run.count(60, 10))
        _busy(run, cluster, held, run.count(600, 20))
        n = run.count(10, 2)
        number = signal.SIGKILL if find_etcd().crash_safe else signal.SIGTERM
        _killed(run, cluster, "etcd", number, n)
        _killed(run, cluster, "kafka.Kafka", signal.SIGKILL, n)
        again = sum(restarts(cluster.client, job) for job in held)
        run.samples["restarted"] = again
        run.rows.append(Row("attempts started again by all of them", HELD, str(again), "", "", "", "0", again == 0))


def graph() -> dict[str, Any]:
    return sql_graph(query(0.01))


def _paused(run: Run, cluster: Replicated, held: list[Job], seconds: int) -> None:
    """SIGSTOP to the broker; a submission that is sent meanwhile is accepted when it is back."""
    witness = Witness(cluster, held)
    broker = server_of(cluster.stack, "kafka.Kafka")
    assert broker is not None
    broker.suspend()
    run.say(f"the broker is stopped for {seconds} s")
    try:
        time.sleep(seconds)  # what is tested, not a wait
        waiting = cluster.client.begin_submit(graph(), watch=False)
    finally:
        broker.resume()
    resumed_s = time.perf_counter()
    waiting.result()
    _quiet(run, f"broker paused {seconds} s", witness, cluster, time.perf_counter() - resumed_s, 2.0)


def _busy(run: Run, cluster: Replicated, held: list[Job], seconds: int) -> None:
    """A process for each core that does nothing but count; a job every second meanwhile."""
    witness = Witness(cluster, held)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    took = []
    with burning(cores):
        run.say(f"{cores} cores are kept busy for {seconds} s")
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            started = time.perf_counter()
            job = cluster.submit(0.01)
            took.append(time.perf_counter() - started)
            job.wait()
            time.sleep(1.0)
    run.samples["busy_accepted_s"] = took
    _quiet(run, f"{cores} cores busy {seconds} s", witness, cluster, p50(took), None)


@contextlib.contextmanager
def burning(count: int) -> Iterator[None]:
    """Processes that keep a core busy each."""
    processes = [multiprocessing.Process(target=_burn, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def _burn() -> None:
    while True:
        pass


def _quiet(
    run: Run, what: str, witness: Witness, cluster: Replicated, accepted_s: float, least_s: float | None
) -> None:
    cluster.settle()
    changes = witness.changes()
    run.samples[what] = {"accepted_s": accepted_s, **changes}
    for each, count in changes.items():
        run.rows.append(Row(f"{what}: {each}", 1, str(count), "", "", "", "0", count == 0))
    asked = f"{least_s:g} s" if least_s else ""
    reached = accepted_s <= least_s if least_s else None
    run.rows.append(Row(f"{what}: submission -> accepted", 1, f"{accepted_s:.3f} s", "", "", "", asked, reached))


def _killed(run: Run, cluster: Replicated, word: str, number: signal.Signals, n: int) -> None:
    """Until a submission that was sent right after the kill is accepted; beside it, when the server itself was ready again."""
    accepted, ready = [], []
    name = "Kafka" if "kafka" in word else word
    for index in range(n):
        cluster.settle()
        accepted_s, ready_s = _kill_once(cluster, word, name, number)
        accepted.append(accepted_s)
        ready.append(ready_s)
        run.say(f"{name} {number.name} {index + 1} of {n}: ready after {ready_s:.2f} s, accepted after {accepted_s:.2f} s")
    run.samples |= {f"{name}_accepted_s": accepted, f"{name}_ready_s": ready}
    run.rows.append(Row(
        f"{name} ended ({number.name}) -> next accepted", n, f"{p50(accepted):.2f} s", f"max {max(accepted):.2f} s",
        f"{name} itself ready after {p50(ready):.2f} s", f"{p50(accepted) / p50(ready):.2f} x",
    ))  # fmt: skip


def _kill_once(cluster: Replicated, word: str, name: str, number: signal.Signals) -> tuple[float, float]:
    process = server_of(cluster.stack, word)
    assert process is not None
    said = len(cluster.stack.facts()["steps"])
    started = time.perf_counter()
    process.send_signal(number)
    wait_until(f"the end of {name}", lambda: not is_running(process), every_s=0.005)
    waiting = cluster.client.begin_submit(graph(), watch=False)
    ready_s = 0.0

    def ready() -> bool:
        return any(step.startswith(f"{name}: ready") for step in cluster.stack.facts()["steps"][said:])

    wait_until(f"{name} to be ready", ready, every_s=0.02)
    ready_s = time.perf_counter() - started
    waiting.result()
    return time.perf_counter() - started, ready_s
