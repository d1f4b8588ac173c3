"""Many real jobs at once on few slots: every one of them finishes."""

from __future__ import annotations

import time
from collections import Counter

from .clusters import cluster, end_of, sql_graph
from .figures import Row, Run, p50
from .warm_session import warm_session

SLOTS = 2


def measure(run: Run) -> None:
    n = run.count(500, 20)
    with cluster("many", run.say, slots=SLOTS) as running:
        started = time.perf_counter()
        sent = [running.client.begin_submit(sql_graph(f"SELECT {number} AS number")) for number in range(n)]
        jobs = [each.result() for each in sent]
        accepted = time.perf_counter() - started
        run.say(f"{n} jobs accepted in {accepted:.1f} s")
        ends: Counter[str] = Counter()
        for number, job in enumerate(jobs):
            ends[end_of(job)] += 1
            if number % 50 == 49:
                run.say(f"{number + 1} of {n} ended after {time.perf_counter() - started:.0f} s: {dict(ends)}")
        total = time.perf_counter() - started
        right = sum(
            running.client.result(job.id).rows == [[number]]
            for number, job in enumerate(jobs)
            if running.client.status(job.id).status == "FINISHED"
        )
        folder = running.stack.folder / "bench"
        with warm_session("local[2]", folder) as session:
            single = [session.sql(f"SELECT {number} AS number")[0] for number in range(n)]
    run.samples |= {
        "total_s": total,
        "accepted_s": accepted,
        "ends": dict(ends),
        "right": right,
        "warm_session_s": single,
    }
    failed = n - ends["FINISHED"]
    run.rows.append(Row(
        f"{n} real one-task jobs at once, {SLOTS} slots", n, f"{n / total:.1f} a second",
        f"total {total:.0f} s; {ends['FINISHED']} FINISHED, {failed} failed, {right} right",
        f"the queries alone, one warm session: {sum(single):.0f} s, p50 {p50(single) * 1000:.0f} ms",
        f"{total / sum(single):.1f} x", f"{n} FINISHED, 0 failed", failed == 0 and right == n,
    ))  # fmt: skip
