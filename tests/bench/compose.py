"""`docker compose up`, images being there: to the first job accepted, and to the first result of Spark."""

from __future__ import annotations

import time

from millrace.client import Millrace
from tests.compose.cluster import LIMIT_S, Cluster, no_engine

from .clusters import sql_graph
from .figures import Row, Run, p50

ACCEPTED_S = 30.0


def measure(run: Run) -> None:
    """Each time with new volumes, then after a `down` that keeps them."""
    why_not = no_engine()
    if why_not:
        run.say(f"not measured: {why_not}")
        return
    Cluster("millrace-bench").build()
    fresh: list[tuple[float, float]] = []
    again: list[tuple[float, float]] = []
    alone: list[float] = []
    for number in range(run.count(3, 1)):
        run.say(f"{number + 1} of {run.count(3, 1)}")
        cluster = Cluster("millrace-bench")
        try:
            alone.append(_alone(cluster))
            cluster.down(purge=True)
            fresh.append(_up(cluster))
            cluster.down()
            again.append(_up(cluster))
        finally:
            cluster.down(purge=True)
    run.samples |= {"fresh_accepted_result_s": fresh, "again_accepted_result_s": again, "servers_alone_s": alone}
    for what, samples in (("new volumes", fresh), ("after a down", again)):
        for index, kind in enumerate(("first job accepted", "first Spark result")):
            took = [sample[index] for sample in samples]
            asked = ACCEPTED_S if index == 0 else None
            run.rows.append(Row(
                f"docker compose up, {what}: {kind}", len(took), f"{p50(took):.1f} s", f"most {max(took):.1f} s",
                f"its Kafka and etcd alone {p50(alone):.1f} s", f"{p50(took) / p50(alone):.1f} x",
                f"{asked:.0f} s" if asked else "", max(took) <= asked if asked else None,
            ))  # fmt: skip


def _up(cluster: Cluster) -> tuple[float, float]:
    """Seconds from the command to the answer to a submission, and to the rows of that job."""
    started = time.perf_counter()
    cluster.up()
    with Millrace(cluster.bootstrap, timeout_s=LIMIT_S) as client:
        job = client.submit(sql_graph("SELECT 1 AS one"))
        accepted = time.perf_counter() - started
        rows = job.result().rows
        result = time.perf_counter() - started
    if rows != [[1]]:
        raise RuntimeError(f"the answer is {rows}")
    return accepted, result


def _alone(cluster: Cluster) -> float:
    """Seconds until topics and topology are made: what `up` does before any service of ours."""
    started = time.perf_counter()
    cluster.compose("up", "--detach", "--no-build", "kafka", "etcd")
    cluster.compose("run", "--rm", "-T", "provision")
    return time.perf_counter() - started
