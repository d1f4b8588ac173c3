"""`millrace up`: to the first job accepted, and to the first result of Spark."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from deploy.local.stack import Stack
from millrace.client import Millrace

from .clusters import environment, servers, sql_graph
from .figures import Row, Run, p50

ACCEPTED_S, RESULT_S = 8.0, 20.0
PROGRAM = [sys.executable, "-c", "from deploy.cli import main; main()"]


def measure(run: Run) -> None:
    n = run.count(3, 1)
    fresh: list[tuple[float, float]] = []
    again: list[tuple[float, float]] = []
    alone: list[float] = []
    for number in range(n):
        run.say(f"{number + 1} of {n}")
        alone.append(_alone())
        stack = Stack("bench-up")
        stack.down(purge=True)
        try:
            fresh.append(_up(stack))
            stack.down()
            again.append(_up(stack))
        finally:
            stack.down(purge=True)
    run.samples |= {"fresh_accepted_result_s": fresh, "again_accepted_result_s": again, "servers_alone_s": alone}
    _rows(run, "up, a new stack", fresh, alone, asked=True)
    _rows(run, "up, after a down", again, alone, asked=False)


def _up(stack: Stack) -> tuple[float, float]:
    """Seconds from the command to the answer to a submission, and to the rows of that job."""
    started = time.perf_counter()
    command = [*PROGRAM, "up", "--detach", "--stack", stack.name]
    subprocess.run(command, env=environment(), check=True, capture_output=True, timeout=300)
    with Millrace(stack.facts()["kafka_bootstrap"], token=stack.token_file.read_text(), timeout_s=60) as client:
        job = client.submit(sql_graph("SELECT 1 AS one"))
        accepted = time.perf_counter() - started
        rows = job.result().rows
        result = time.perf_counter() - started
    if rows != [[1]]:
        raise RuntimeError(f"the answer is {rows}")
    return accepted, result


def _alone() -> float:
    """Seconds until both servers, started at once on empty folders, answer."""
    with servers("up") as both, ThreadPoolExecutor(2) as pool:
        started = time.perf_counter()
        for start in [pool.submit(server.start) for server in both]:
            start.result()
        return time.perf_counter() - started


def _rows(run: Run, what: str, samples: list[tuple[float, float]], alone: list[float], asked: bool) -> None:
    for index, (kind, most) in enumerate((("first job accepted", ACCEPTED_S), ("first Spark result", RESULT_S))):
        took = [sample[index] for sample in samples]
        run.rows.append(Row(
            f"{what}: {kind}", len(took), f"{p50(took):.1f} s", f"most {max(took):.1f} s",
            f"Kafka and etcd alone {p50(alone):.1f} s", f"{p50(took) / p50(alone):.1f} x",
            f"{most:.0f} s" if asked else "", p50(took) <= most if asked else None,
        ))  # fmt: skip
