"""All control services killed at once with 10,000 jobs queued or running, and how long the loop stands still for a snapshot."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

import psutil

from deploy.local.stack import Options, Stack
from millrace.client import Job, Millrace
from millrace.core.fold import Fold, ScopeState
from millrace.core.messages.records import Elected, Tick
from millrace.core.topics import Topology
from millrace.runtime.forked import forked
from millrace.runtime.snapshots import chunks, freeze
from services.dispatcher.core.machine import Dispatcher
from services.dispatcher.core.state import LiveJob
from tests.chaos.task_managers import TaskManagers
from tests.task_manager.timed import query

from .clusters import show_logs, sql_graph, wait_until
from .failover import LONG_S, restarts, until
from .figures import Row, Run, p50

SHARDS, TASK_MANAGERS, SLOTS = 2, 2, 50
RUNNING = TASK_MANAGERS * SLOTS
LEAST_S = 10.0
SNAPSHOT_JOBS, STILL_MOST_MS = 20_000, 50.0


def measure(run: Run) -> None:
    _snapshot(run)
    jobs, n = run.count(10_000, 500), run.count(3, 1)
    with _busy(run, jobs) as (stack, client, held, queued):
        samples = []
        for number in range(n):
            samples.append(_killed(stack, client, held[number], queued[number]))
            run.say(f"{number + 1} of {n}: {samples[-1]:.2f} s")
        restarted = sum(restarts(client, job) for job in held[n:])
        for job in [*queued, *held[n:]]:  # from behind, or each end would start another
            job.cancel()
        ended = {"CANCELED": jobs}
        wait_until("the end of all jobs", lambda: client.overview().jobs == ended, limit_s=600, every_s=0.5)
    run.samples |= {"recovered_s": samples, "restarted": restarted, "ended": ended}
    middle, worst = p50(samples), max(samples)
    run.rows.append(Row(
        f"all control services killed, {jobs:,} jobs queued or running -> all reconciled", n, f"{middle:.2f} s",
        f"max {worst:.2f} s", "", "", f"{LEAST_S:g} s", worst <= LEAST_S,
    ))  # fmt: skip
    run.rows.append(Row(
        "jobs lost, attempts restarted by that", jobs, f"0, {restarted}", "", "", "", "0, 0", restarted == 0
    ))  # fmt: skip


@contextmanager
def _busy(run: Run, jobs: int) -> Iterator[tuple[Stack, Millrace, list[Job], list[Job]]]:
    """A stack whose slots are all taken, with jobs queued behind those; none ends by itself."""
    stack = Stack("bench-recovery")
    stack.down(purge=True)
    try:
        facts = stack.up(Options(task_managers=0, shards=SHARDS), run.say, foreground=True)
        with (
            TaskManagers(stack, TASK_MANAGERS, SLOTS),
            Millrace(facts["kafka_bootstrap"], timeout_s=120) as client,
        ):
            try:
                wait_until("the slots", lambda: client.overview().free_slots == RUNNING)
                held = [client.submit(sql_graph(query(LONG_S))) for _ in range(RUNNING)]
                wait_until("jobs in all slots", lambda: client.overview().free_slots == 0)
                graph = sql_graph(query(LONG_S))
                sent = [client.begin_submit(graph, watch=number < 10) for number in range(jobs - RUNNING)]
                queued = [each.result() for each in sent]
                run.say(f"{jobs:,} jobs are accepted")
                yield stack, client, held, queued
            except BaseException:
                show_logs(stack.folder / "logs")
                raise
    finally:
        stack.down(purge=True)


def _killed(stack: Stack, client: Millrace, held: Job, queued: Job) -> float:
    """Seconds from the kill until every scope answers for all it had: no job and no slot is forgotten, and the first queued job runs in
    the slot of one that was canceled right after the kill."""
    before = client.overview()
    services = stack.facts()["services"]
    processes = [psutil.Process(each["pid"]) for each in services.values()]
    started = time.perf_counter()
    for process in processes:
        process.send_signal(signal.SIGKILL)
    held.cancel()
    until(queued.events(), "AttemptStateChanged", state="RUNNING")

    def is_whole() -> bool:
        now = client.overview()
        return sum(now.jobs.values()) == sum(before.jobs.values()) and now.slots == before.slots

    wait_until("all jobs and slots", is_whole)
    return time.perf_counter() - started


def _snapshot(run: Run) -> None:
    """The longest time between two records folded while a snapshot of a large state is made, beside making it in place."""
    core = Fold(Dispatcher(Topology()), Topology())
    folded = core.blank(1, 0)
    core.fold(folded, 0, 1, Elected(generation=1, epoch=1, build="bench", who="bench"))
    graph = '{"name": "bench", "vertices": {"query": {"sql": "SELECT 1 AS one, \'%s\' AS text"}}}' % ("x" * 400)
    for number in range(SNAPSHOT_JOBS):
        folded.state.live[f"job-{number}"] = LiveJob(f"1.{number}", "d" * 64, 0, number, "bench", graph + str(number))
    started = time.perf_counter()
    size = len(freeze(core.machine, folded))
    in_place_ms = (time.perf_counter() - started) * 1000
    still_ms = [_still_ms(core, folded) for _ in range(run.count(10, 3))]
    alone_ms = [_still_ms(core, folded, 0.5) for _ in range(run.count(10, 3))]
    run.samples |= {"snapshot_still_ms": still_ms, "without_ms": alone_ms, "snapshot_in_place_ms": in_place_ms, "snapshot_bytes": size}
    run.rows.append(Row(
        f"snapshot of {SNAPSHOT_JOBS:,} live jobs: the fold stands still", len(still_ms), f"{p50(still_ms):.1f} ms",
        f"max {max(still_ms):.1f} ms", f"made in place {in_place_ms:.0f} ms; without one {p50(alone_ms):.1f} ms",
        f"{p50(still_ms) / in_place_ms:.2f} x", f"{STILL_MOST_MS:g} ms", max(still_ms) <= STILL_MOST_MS,
    ))  # fmt: skip


def _still_ms(core: Fold, folded: ScopeState, without_s: float = 0.0) -> float:
    """The longest time between two records while a snapshot is made, or for so long without one."""
    done = Event()
    made: list[bytes | None] = []

    def collect(data: bytes | None) -> None:
        made.append(data)
        done.set()

    longest, last = 0.0, time.perf_counter()
    until_s = last + without_s
    if not without_s:
        forked(lambda: chunks(core.machine, folded), collect)
    while time.perf_counter() < until_s if without_s else not done.is_set():
        tick = Tick(epoch=1, n=folded.tick + 1, published_through=folded.said, digest=folded.ticked_digest)
        core.fold(folded, folded.next_offset, folded.stamp_ms + 100, tick)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
        time.sleep(0.001)
    if made == [None]:
        raise RuntimeError("the copy failed")
    return longest * 1000
