"""From a submission to RUNNING, as a connected client sees it."""

from __future__ import annotations

import time

from .chain import chain
from .clusters import ENDS, Cluster, cluster
from .figures import Row, Run, p50, percentile

P50_MS, P99_MS, TIMES_MOST = 8.0, 30.0, 2.0
WARM_UP = 30
PAUSE_S = 0.02  # what follows a job's end (archive, clean-up) is over when the next one is measured


def measure(run: Run) -> None:
    """Simulated slots, then real ones, alternating with the bare chain on the same cluster."""
    _simulated(run, run.count(500, 50))
    _real(run, run.count(100, 10))


def _simulated(run: Run, n: int) -> None:
    ours, accepted, bare = [], [], []
    with cluster("running", run.say, simulated=True) as running, chain(running) as hops:
        for number in range(WARM_UP + n):
            if number >= WARM_UP and (number - WARM_UP) % 100 == 0:
                run.say(f"{number - WARM_UP} of {n}, simulated slots")
            took = submit(running)
            time.sleep(PAUSE_S)
            hop = hops.turn()
            if number >= WARM_UP:
                accepted.append(took[0] * 1000)
                ours.append(took[1] * 1000)
                bare.append(hop * 1000)
    run.samples |= {"simulated_ms": ours, "accepted_ms": accepted, "bare_chain_ms": bare}
    _row(run, "submit -> RUNNING, simulated slots", ours, bare)


def _real(run: Run, n: int) -> None:
    ours, bare = [], []
    with cluster("running", run.say) as running, chain(running) as hops:
        for number in range(WARM_UP + n):
            if number >= WARM_UP and (number - WARM_UP) % 25 == 0:
                run.say(f"{number - WARM_UP} of {n}, real slots")
            took = submit(running)
            running.settle()
            time.sleep(PAUSE_S)
            hop = hops.turn()
            if number >= WARM_UP:
                ours.append(took[1] * 1000)
                bare.append(hop * 1000)
    run.samples |= {"real_ms": ours, "real_bare_chain_ms": bare}
    _row(run, "submit -> RUNNING, real slots", ours, bare)


def submit(running: Cluster) -> tuple[float, float]:
    """Seconds from the call to the answer, and to the event that says RUNNING; returns after the job's end."""
    started = time.perf_counter()
    job = running.sql("SELECT 1 AS one")
    accepted = time.perf_counter() - started
    seen = 0.0
    for event in job.events():
        if event["type"] == "AttemptStateChanged" and event["state"] == "RUNNING":
            seen = time.perf_counter() - started
        elif event["type"] in ENDS and event["type"] != "JobFinished":
            raise RuntimeError(f"the job ended with {event}")
    if not seen:
        raise RuntimeError("the job ended before its RUNNING was said")
    return accepted, seen


def _row(run: Run, what: str, ours: list[float], bare: list[float]) -> None:
    middle, late, times = p50(ours), percentile(ours, 99), p50(ours) / p50(bare)
    run.rows.append(Row(
        what, len(ours), f"{middle:.1f} ms", f"p99 {late:.1f} ms",
        f"bare chain {p50(bare):.1f} ms, p99 {percentile(bare, 99):.1f} ms", f"{times:.2f} x",
        f"{P50_MS:.0f} ms, p99 {P99_MS:.0f} ms, {TIMES_MOST:.0f} x",
        middle <= P50_MS and late <= P99_MS and times <= TIMES_MOST,
    ))  # fmt: skip
