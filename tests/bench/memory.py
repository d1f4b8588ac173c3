"""Resident memory of each service: idle, and after many jobs."""

from __future__ import annotations

import time

from .burst import graph
from .clusters import Cluster, cluster, expect_finished
from .figures import Row, Run

IDLE_MB, LATER_MB = 120.0, 200.0
AT_ONCE = 500
REST_S = 5.0  # what is freed late is freed


def measure(run: Run) -> None:
    n = run.count(5000, 500)
    with cluster("memory", run.say, slots=16, simulated=True) as running:
        time.sleep(REST_S)
        idle = _resident(running)
        for first in range(0, n, AT_ONCE):
            run.say(f"{first} of {n} jobs")
            sent = [
                running.client.begin_submit(graph("memory", first + number), watch=False)
                for number in range(min(AT_ONCE, n - first))
            ]
            for each in sent:
                each.result()
            running.settle()
        expect_finished({status: count for status, count in running.client.overview().jobs.items() if count})
        time.sleep(REST_S)
        later = _resident(running)
    run.samples |= {"idle_mb": idle, "later_mb": later}
    for service, before in idle.items():
        after = later[service]
        run.rows.append(Row(
            f"resident memory: {service}", 1, f"idle {before:.0f} MB", f"after {n:,} jobs {after:.0f} MB", "",
            f"{after / before:.2f} x", f"{IDLE_MB:.0f} MB, {LATER_MB:.0f} MB", before <= IDLE_MB and after <= LATER_MB,
        ))  # fmt: skip


def _resident(running: Cluster) -> dict[str, float]:
    return {name: process.memory_info().rss / 1e6 for name, process in running.processes().items()}
