"""What standbys cost a job: the same jobs on a stack without them and on one with a standby for each service."""

from __future__ import annotations

import time

from .clusters import cluster
from .figures import Row, Run, p50, percentile
from .running import submit

TIMES_MOST = 1.25
WARM_UP = 10
PAUSE_S = 0.02


def measure(run: Run) -> None:
    """Turns of both, so that what the machine does meanwhile falls on either."""
    n, turns = run.count(60, 5), run.count(3, 1)
    running: dict[int, list[float]] = {0: [], 1: []}
    ended: dict[int, list[float]] = {0: [], 1: []}
    for turn in range(turns):
        for standbys in (0, 1):
            run.say(f"{'with' if standbys else 'without'} standbys, {turn + 1} of {turns}")
            with cluster("standbys", run.say, standbys=standbys) as stack:
                for number in range(WARM_UP + n):
                    started = time.perf_counter()
                    _, seen = submit(stack)
                    took = time.perf_counter() - started
                    stack.settle()
                    time.sleep(PAUSE_S)
                    if number >= WARM_UP:
                        running[standbys].append(seen * 1000)
                        ended[standbys].append(took * 1000)
    run.samples |= {"running_ms": running[1], "running_alone_ms": running[0], "ended_ms": ended[1], "ended_alone_ms": ended[0]}
    for what, samples in (("submit -> RUNNING", running), ("submit -> the end of a sql job", ended)):
        times = p50(samples[1]) / p50(samples[0])
        run.rows.append(Row(
            f"{what}, with standbys", len(samples[1]), f"{p50(samples[1]):.1f} ms", f"p99 {percentile(samples[1], 99):.1f} ms",
            f"without {p50(samples[0]):.1f} ms", f"{times:.2f} x", f"{TIMES_MOST:.2f} x", times <= TIMES_MOST,
        ))  # fmt: skip
