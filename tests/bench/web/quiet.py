"""How soon the web service shows what has happened: from an event at its service to the JSON, beside a connected client."""

from __future__ import annotations

import time

import httpx
import psutil

from ..clusters import Cluster, cluster
from ..figures import Row, Run, p50, percentile

P50_MS, P99_MS = 100.0, 500.0
WARM_UP = 20
LOOK_S = 0.003
PAUSE_S = 0.02
IDLE_S = 20


def measure(run: Run) -> None:
    """Jobs one after the other on simulated slots. The event is a job's end, its moment the broker's stamp of the record that led to
    it (`at_ms`); seen is the first answer of /api/v1/jobs/{job} that has it. All on one machine, so on one clock."""
    n = run.count(300, 30)
    shown, told = [], []
    with cluster("web", run.say, simulated=True, web=True) as running:
        url = running.stack.facts()["web_url"]
        with httpx.Client(base_url=f"{url}/api/v1", trust_env=False, timeout=10) as http:
            for number in range(WARM_UP + n):
                at_client, in_json = _job(running, http)
                if number >= WARM_UP:
                    told.append(at_client)
                    shown.append(in_json)
                time.sleep(PAUSE_S)
        percent, memory_mb = _cost(running)
    run.samples |= {"shown_ms": shown, "client_ms": told, "idle_percent_of_a_core": percent, "memory_mb": memory_mb}
    ours, theirs = p50(shown), p50(told)
    tail = percentile(shown, 99)
    run.rows.append(Row(
        "event at its service -> in the web service's JSON", n, f"{ours:.0f} ms", f"p99 {tail:.0f} ms",
        f"at a connected client {theirs:.0f} ms, p99 {percentile(told, 99):.0f}", f"{ours / max(theirs, 1.0):.1f} x",
        f"{P50_MS:.0f} / {P99_MS:.0f} ms", ours <= P50_MS and tail <= P99_MS,
    ))  # fmt: skip
    run.rows.append(Row("the web service: idle, % of a core", 1, f"{percent:.1f} %", f"{memory_mb:.0f} MB", "", ""))


def _job(running: Cluster, http: httpx.Client) -> tuple[float, float]:
    """Milliseconds from a job's end at the Dispatcher to a connected client, and to the JSON."""
    job = running.sql("SELECT 1 AS one")
    at_ms, seen_ms = 0, 0.0
    for event in job.events():
        at_ms, seen_ms = event["at_ms"], time.time() * 1000
    while True:
        answer = http.get(f"/jobs/{job.id}")
        if answer.status_code == 200 and answer.json()["job"]["ended_ms"] is not None:
            return seen_ms - at_ms, time.time() * 1000 - at_ms
        time.sleep(LOOK_S)


def _cost(running: Cluster) -> tuple[float, float]:
    """Of the web process with nothing to do: % of a core, resident MB."""
    process = psutil.Process(running.stack.facts()["services"]["web"]["pid"])
    time.sleep(5)
    before, started = sum(process.cpu_times()[:2]), time.monotonic()
    time.sleep(IDLE_S)
    used = sum(process.cpu_times()[:2]) - before
    return 100 * used / (time.monotonic() - started), process.memory_info().rss / 1e6
