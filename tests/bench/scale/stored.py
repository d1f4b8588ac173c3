"""Submit until stored on two whole stacks, by turns: one has nothing to do, and in the other ten thousand jobs wait."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from deploy.local.stack import Options, Stack
from millrace.client import Millrace

from ..burst import graph
from ..clusters import show_logs, wait_until
from ..figures import Row, Run, p50, percentile
from .waiting import TIMES_MOST, WAITING

WARM_UP = 30
PAUSE_S = 0.02
REST_S = 10.0
AT_ONCE = 500


def measure(run: Run) -> None:
    waiting, n = run.count(WAITING, 100), run.count(300, 20)
    with _stack("idle", run) as (_, idle), _stack("waiting", run) as (stack, full):
        for first in range(0, waiting, AT_ONCE):
            sent = [full.begin_submit(graph("waiting", first + number), watch=False) for number in range(min(AT_ONCE, waiting - first))]
            for each in sent:
                each.result()
        wait_until("all to wait", lambda: sum(full.overview().jobs.values()) == waiting)
        run.say(f"{waiting:,} jobs wait")
        time.sleep(run.count(int(3 * REST_S), 1))  # each has been notified that it waits, at most 20 at a tick
        rest = _percent(stack, run.count(int(REST_S), 1))
        took: dict[str, list[float]] = {"idle": [], "waiting": []}
        for number in range(WARM_UP + n):
            for name, client in (("idle", idle), ("waiting", full)):
                started = time.perf_counter()
                client.begin_submit(graph("more", number), watch=False).result()
                if number >= WARM_UP:
                    took[name].append(1000 * (time.perf_counter() - started))
                time.sleep(PAUSE_S)
    run.samples |= {"stored_ms": took, "rest_percent": rest}
    times = p50(took["waiting"]) / p50(took["idle"])
    run.rows.append(Row(
        f"submit -> stored beside {waiting:,} waiting jobs, whole stacks", n, f"{p50(took['waiting']):.1f} ms",
        f"p99 {percentile(took['waiting'], 99):.1f} ms",
        f"an idle stack {p50(took['idle']):.1f} ms, p99 {percentile(took['idle'], 99):.1f} ms",
        f"{times:.2f} x", f"at most {TIMES_MOST:.0f} x", times <= TIMES_MOST,
    ))  # fmt: skip
    run.rows.append(Row(
        f"{waiting:,} jobs wait and nothing else happens: % of a core", 1, f"{sum(rest.values()):.0f} %",
        ", ".join(f"{name} {percent:.0f}" for name, percent in rest.items()), "", "",
    ))  # fmt: skip


@contextmanager
def _stack(name: str, run: Run) -> Iterator[tuple[Stack, Millrace]]:
    """Without a TaskManager: what is submitted waits."""
    stack = Stack(f"bench-stored-{name}")
    stack.down(purge=True)
    try:
        facts = stack.up(Options(task_managers=0), run.say, foreground=True)
        with Millrace(facts["kafka_bootstrap"], token=stack.token_file.read_text(), timeout_s=120) as client:
            try:
                yield stack, client
            except BaseException:
                show_logs(stack.folder / "logs")
                raise
    finally:
        stack.down(purge=True)


def _percent(stack: Stack, seconds: int) -> dict[str, float]:
    """Of a core, by service."""
    processes = {name: psutil.Process(service["pid"]) for name, service in stack.facts()["services"].items()}
    before = {name: sum(each.cpu_times()[:2]) for name, each in processes.items()}
    started = time.monotonic()
    time.sleep(seconds)
    took_s = time.monotonic() - started
    return {name: 100 * (sum(each.cpu_times()[:2]) - before[name]) / took_s for name, each in processes.items()}
