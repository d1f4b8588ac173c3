"""What an upgrade costs: every leader asked to end while replicas of another build wait, with 100 tasks running."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.local.stack import Options, Stack
from millrace.client import Job, Millrace
from millrace.core.topics import Topology
from tests.chaos.task_managers import TaskManagers
from tests.end_to_end.builds import OtherBuild, TwoBuilds, copy_with_version
from tests.task_manager.timed import query

from .clusters import show_logs, sql_graph, wait_until
from .failover import LONG_S, restarts, until
from .figures import Row, Run, p50

SHARDS, TASK_MANAGERS, SLOTS = 2, 2, 52
RUNNING = 100
TOPOLOGY = Topology(shards=SHARDS)
LEAST_S = 2.0


@contextmanager
def two_builds(run: Run) -> Iterator[tuple[Millrace, TwoBuilds, float]]:
    """A client of a stack with another build beside it, and how long those took to start and to wait."""
    stack = Stack("bench-handover")
    stack.down(purge=True)
    try:
        facts = stack.up(Options(task_managers=0, shards=SHARDS), run.say, foreground=True)
        with tempfile.TemporaryDirectory() as folder, TaskManagers(stack, TASK_MANAGERS, SLOTS):
            code = copy_with_version(Path(folder) / "code", "99.0")
            started = time.perf_counter()
            with OtherBuild(stack, code) as other, Millrace(facts["kafka_bootstrap"], timeout_s=60) as client:
                builds = TwoBuilds(stack, other)
                wait_until("another build that waits", builds.is_settled)
                took = time.perf_counter() - started
                wait_until("the slots", lambda: client.overview().free_slots == TASK_MANAGERS * SLOTS)
                try:
                    yield client, builds, took
                except BaseException:
                    show_logs(stack.folder / "logs")
                    raise
    finally:
        stack.down(purge=True)


def measure(run: Run) -> None:
    n = run.count(20, 2)
    with two_builds(run) as (client, builds, start_s):
        held = [client.submit(sql_graph(query(LONG_S))) for _ in range(RUNNING)]
        for job in held:
            until(job.events(), "AttemptStateChanged", state="RUNNING")
        samples = []
        for number in range(n):
            samples.append(_handed_over(client, builds))
            run.say(f"{number + 1} of {n}: {samples[-1]:.3f}")
        restarted = sum(restarts(client, job) for job in held)
    run.samples |= {"handover_s": samples, "start_s": start_s, "restarted": restarted}
    middle, worst = p50(samples), max(samples)
    run.rows.append(Row(
        f"planned handover to another build, {RUNNING} tasks running -> next jobs RUNNING", n, f"{middle:.3f} s",
        f"max {worst:.3f} s", f"start of its processes {start_s:.2f} s", f"{middle / start_s:.2f} x", f"{LEAST_S:g} s",
        worst <= LEAST_S,
    ))  # fmt: skip
    run.rows.append(Row(
        "attempts restarted by all of them", RUNNING, str(restarted), "", "", "", "0", restarted == 0
    ))  # fmt: skip


def _handed_over(client: Millrace, builds: TwoBuilds) -> float:
    """Seconds from the signal until jobs of both shards, submitted right after it, have their slots and run."""
    wait_until("one build that leads, and one that waits", builds.is_settled)
    before = builds.leaders()
    started = time.perf_counter()
    builds.end_leaders(before)
    jobs: dict[int, Job] = {}
    while len(jobs) < SHARDS:
        job = client.submit(sql_graph(query(0.01)))
        jobs[TOPOLOGY.shard_of(job.id)] = job
    took = max(until(job.events(), "AttemptStateChanged", state="RUNNING") for job in jobs.values()) - started
    for job in jobs.values():
        job.wait()
    wait_until("the handover", builds.is_settled)
    after = builds.leaders()
    if any(after[scope][0] == build for scope, (build, _) in before.items()):
        raise RuntimeError(f"the same build leads again: {before}, then {after}")
    return took
