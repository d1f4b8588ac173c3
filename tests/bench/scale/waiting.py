"""Ten thousand jobs that wait: what one more submission costs, and how the next job is chosen."""

from __future__ import annotations

from typing import Any

from ..figures import Row, Run, p50
from .cluster import SLOT_MB, Cluster, cluster
from .in_memory import cpu_of

WAITING = 10_000
TIMES_MOST, CHOSEN_MOST_MS = 2.0, 5.0
SLOTS = 4
AT_ONCE = 20  # submissions between two ticks: more are a flood


def graph(number: int) -> dict[str, Any]:
    """Of ten tenants, with five priorities and two sizes of slots, so that there are 20 queues."""
    return {
        "name": "waiting",
        "tenant": f"tenant-{number % 10}",
        "priority": number % 5,
        "resources": {"memory_mb": SLOT_MB // (1 + number % 2)},
        "vertices": {"query": {"sql": f"SELECT {number} AS number"}},
    }


def measure(run: Run) -> None:
    waiting, n = run.count(WAITING, 300), run.count(200, 20)
    with cluster(1, SLOTS, holds=True) as running:
        for number in range(SLOTS):
            running.submit(graph(number))
        running.tick(10)
        _stored(running, n)  # what is made at the first use is made
        idle = _stored(running, n)
        idle_ticks = _ticks(running, n // 4)
        while running.submitted < waiting:
            for _ in range(AT_ONCE):
                running.submit(graph(running.submitted))
            running.tick()
            if running.submitted % 2_000 == 0:
                run.say(f"{running.submitted:,} jobs")
        running.tick(waiting // AT_ONCE + 20)  # all have been notified that they wait
        busy = _stored(running, n)
        busy_ticks = _ticks(running, n // 4)
        chosen = [_chosen(running) for _ in range(n)]
    run.samples |= {"idle_ms": idle, "busy_ms": busy, "chosen_ms": chosen, "idle_ticks_ms": idle_ticks, "busy_ticks_ms": busy_ticks}
    for who, ms in busy.items():
        times = p50(ms) / p50(idle[who])
        run.rows.append(Row(
            f"one more submission beside {waiting:,} waiting jobs: CPU of the {who}", n, f"{p50(ms):.2f} ms", f"max {max(ms):.2f} ms",
            f"idle {p50(idle[who]):.2f} ms", f"{times:.2f} x", f"at most {TIMES_MOST:.0f} x", times <= TIMES_MOST,
        ))  # fmt: skip
    run.rows.append(Row(
        f"the next of {waiting:,} waiting jobs is chosen: CPU of the ResourceManager", n, f"{p50(chosen):.2f} ms",
        f"max {max(chosen):.2f} ms", "", "", f"at most {CHOSEN_MOST_MS:.0f} ms", p50(chosen) <= CHOSEN_MOST_MS,
    ))  # fmt: skip
    for who, ms in busy_ticks.items():
        run.rows.append(Row(
            f"a tick beside {waiting:,} waiting jobs: CPU of the {who}", len(ms), f"{p50(ms):.2f} ms", f"max {max(ms):.2f} ms",
            f"idle {p50(idle_ticks[who]):.2f} ms", f"{p50(ms) / p50(idle_ticks[who]):.1f} x",
        ))  # fmt: skip


def _stored(running: Cluster, n: int) -> dict[str, list[float]]:
    """CPU of each service for a submission, from its request until it is stored and its job waits."""
    found: dict[str, list[float]] = {"Dispatcher": [], "JobMaster": [], "ResourceManager": []}
    for number in range(n):
        running.submit(graph(running.submitted))
        before = _cpu_s(running)
        running.house.settle()
        for who, cpu_s in _cpu_s(running).items():
            found[who].append(1000 * (cpu_s - before[who]))
        if number % AT_ONCE == AT_ONCE - 1:
            running.tick()
    return found


def _ticks(running: Cluster, n: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"Dispatcher": [], "JobMaster": [], "ResourceManager": []}
    running.tick(20)
    for _ in range(n):
        before = _cpu_s(running)
        running.tick()
        for who, cpu_s in _cpu_s(running).items():
            found[who].append(1000 * (cpu_s - before[who]))
    return found


def _cpu_s(running: Cluster) -> dict[str, float]:
    return {
        "Dispatcher": running.dispatcher.cpu_s,
        "JobMaster": running.job_master.cpu_s,
        "ResourceManager": running.resource_manager.cpu_s,
    }


def _chosen(running: Cluster) -> float:
    """A job ends, and the next one is granted its slot: ms of the ResourceManager's CPU."""
    running.finish(next(iter(running.running)))
    took = 1000 * cpu_of(running.resource_manager, running.house.settle)
    assert len(running.running) == SLOTS, "no job has taken the slot"
    return took
