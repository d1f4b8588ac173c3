"""One trivial query: a warm slot, and a cold `spark-submit`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pyspark

from .clusters import Cluster, cluster, environment
from .figures import Row, Run, p50, percentile

P50_MS, FASTER_LEAST = 180.0, 40.0
QUERY = "SELECT 40 + 2 AS answer"
SCRIPT = f"""
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
print(spark.sql({QUERY!r}).collect())
spark.stop()
"""


def measure(run: Run) -> None:
    n, peers = run.count(50, 8), run.count(3, 1)
    ours: list[float] = []
    submits: list[float] = []
    with cluster("sql", run.say) as running:
        for _ in range(5):
            _query(running)
        for turn in range(peers):
            run.say(f"spark-submit, {turn + 1} of {peers}")
            submits.append(_spark_submit(running.stack.folder) * 1000)
            running.settle()
            run.say(f"{len(ours)} of {n}")
            while len(ours) < n * (turn + 1) // peers:
                ours.append(_query(running) * 1000)
    run.samples |= {"ours_ms": ours, "spark_submit_ms": submits}
    times = p50(submits) / p50(ours)
    run.rows.append(Row(
        "one trivial sql job, submit -> result", n, f"{p50(ours):.0f} ms", f"p99 {percentile(ours, 99):.0f} ms",
        f"spark-submit {p50(submits):,.0f} ms (n = {peers})", f"{times:.0f} x faster",
        f"{P50_MS:.0f} ms, {FASTER_LEAST:.0f} x", p50(ours) <= P50_MS and times >= FASTER_LEAST,
    ))  # fmt: skip


def _query(running: Cluster) -> float:
    """Seconds to the rows; the slots are free again when it returns."""
    started = time.perf_counter()
    rows = running.sql(QUERY).result().rows
    took = time.perf_counter() - started
    if rows != [[42]]:
        raise RuntimeError(f"the answer is {rows}")
    running.settle()
    return took


def _spark_submit(folder: Path) -> float:
    """Seconds from the command's start to its end, as a user with this environment types it."""
    script = folder / "query.py"
    script.write_text(SCRIPT)
    binaries = os.path.dirname(sys.executable)
    env = {**environment(), "PATH": os.pathsep.join([binaries, os.environ.get("PATH", "")])}
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[1]", str(script)]
    started = time.perf_counter()
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=180, check=False)
    took = time.perf_counter() - started
    if "Row(answer=42)" not in done.stdout:
        raise RuntimeError(f"spark-submit ended with {done.returncode}: {done.stderr[-2000:]}")
    return took
