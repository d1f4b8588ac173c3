"""A graph of 2 x 1,000 subtasks with a hash edge: what its JobMaster spends until all are deployed, and on one failure.

Beside it Flink's DefaultScheduler, with the same slots and the same messages of TaskManagers. Flink's serializes what it deploys, and sends
nothing; the JobMaster reads, folds and writes each record.
"""

from __future__ import annotations

import gc
import json
import subprocess
import time
from pathlib import Path
from typing import Any

from deploy.local.java import find_java
from millrace.core.faults import EXCHANGE_LOST, fault
from millrace.core.jobgraph.model import Limits
from millrace.core.messages.attempts import Fault
from services.job_master.core import resetting
from services.job_master.core.plans import running_plan
from tests.web.flink.tools import flink_home

from ..figures import Row, Run, p50
from .cluster import Cluster, cluster
from .in_memory import cpu_of

SUBTASKS = 1_000
SLOTS = 8
RESTART_MOST_MS = 10.0
FLINKS_ROUNDS, FLINKS_WARM = 8, 3
"""Of jobs in one JVM, and of these the last ones: by then Java has compiled the scheduler."""
FLINKS_LIMIT_S = 300.0


def graph(subtasks: int) -> dict[str, Any]:
    return {
        "name": "wide",
        "vertices": {
            "map": {"source": {"format": "csv", "path": "/data/x.csv", "schema": "x INT"}, "parallelism": subtasks},
            "reduce": {"sql": "SELECT x FROM map", "parallelism": subtasks, "inputs": {"map": "hash(x)"}},
        },
    }


def planned(subtasks: int) -> dict[str, Any]:
    """What the plan attempt reports: one file, of which each subtask reads a part."""
    file = ["file:///data/x.csv", 1 << 40, 1_700_000_000_000]
    pinned = {"schema": "{}", "files": [file], "splits": subtasks, "split_bytes": (1 << 40) // subtasks}
    return {"pinned": {"map": pinned}, "schemas": {"map": "{}", "reduce": "{}"}, "key_types": {}, "time_zone": "UTC"}


def measure(run: Run) -> None:
    subtasks, n = run.count(SUBTASKS, 100), run.count(3, 1)
    first, between, second, sets, handled = [], [], [], [], []
    for number in range(n):
        with cluster(-(-subtasks // SLOTS), SLOTS, holds=True) as running:
            running.submit(graph(subtasks), Limits(parallelism=subtasks))
            running.house.settle()
            running.finish(next(iter(running.running)), planned(subtasks))
            first.append(running.job_master.cpu_s + cpu_of(running.job_master, running.house.settle))
            assert len(running.running) == subtasks, len(running.running)
            for allocation in list(running.running)[1:]:
                running.finish(allocation)
            between.append(cpu_of(running.job_master, running.house.settle))
            running.finish(next(iter(running.running)))
            second.append(cpu_of(running.job_master, running.house.settle))
            assert len(running.running) == subtasks and not any("map" in each.spec.task for _, each in running.running.values())
            sets += [1000 * _restart_set_s(running, subtasks) for _ in range(run.count(20, 3))]
            handled.append(1000 * _fails(running, subtasks))
        run.say(f"{number + 1} of {n}")
    total = [sum(each) for each in zip(first, between, second, strict=True)]
    run.samples |= {"first_s": first, "finished_s": between, "second_s": second, "set_ms": sets, "handled_ms": handled}
    flinks = {} if run.quick else _flinks(run, subtasks)  # which is 350 MB
    seconds = flinks.get("seconds", [])
    warm = p50(seconds[-FLINKS_WARM:]) if seconds else 0.0
    run.rows.append(Row(
        f"2 x {subtasks:,} subtasks with a hash edge, all deployed: CPU of the JobMaster", n, f"{p50(total):.2f} s",
        f"first {p50(first):.2f} s, {subtasks:,} finished {p50(between):.2f} s, second {p50(second):.2f} s",
        f"Flink's DefaultScheduler {warm:.2f} s, of a new JVM {seconds[0]:.2f} s" if seconds else "",
        f"{p50(total) / warm:.1f} x" if seconds else "", "at most 1 x", p50(total) <= warm if seconds else None,
    ))  # fmt: skip
    run.rows.append(Row(
        f"the restart set of one failure, {subtasks + 1:,} subtasks: CPU", len(sets), f"{p50(sets):.2f} ms", f"max {max(sets):.2f} ms",
        f"Flink's {p50(flinks['set_ms'][-FLINKS_WARM:]):.2f} ms, of a new JVM {flinks['set_ms'][0]:.0f} ms" if flinks else "", "",
        f"at most {RESTART_MOST_MS:.0f} ms", p50(sets) <= RESTART_MOST_MS,
    ))  # fmt: skip
    run.rows.append(Row(
        f"that failure handled, {subtasks:,} attempts canceled: CPU of the JobMaster", n, f"{p50(handled):.1f} ms",
        f"max {max(handled):.1f} ms", "", "",
    ))  # fmt: skip


def _flinks(run: Run, subtasks: int) -> dict[str, list[float]]:
    """The same graph in Flink's scheduler, again and again in one JVM: seconds of its process until all are deployed, and of its thread
    for the restart set."""
    program = Path(__file__).parent / "FlinkScheduler.java"
    command = [str(find_java().path), "-cp", f"{flink_home()}/lib/*", str(program), str(subtasks), str(FLINKS_ROUNDS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=FLINKS_LIMIT_S, check=False)
    rounds = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or len(rounds) != FLINKS_ROUNDS:
        raise RuntimeError(done.stderr[-2000:])
    assert {each["set"] for each in rounds} == {subtasks + 1}, rounds
    run.samples["flinks"] = rounds
    return {
        "seconds": [(each["first_ms"] + each["second_ms"]) / 1000 for each in rounds],
        "set_ms": [each["set_ms"] for each in rounds],
    }


def _lost(running: Cluster) -> Fault:
    """What an attempt reports that does not find the rows of the first subtask."""
    (job,) = running.job_master.state.jobs.values()
    folder = f"file:///exchange/{job.acceptance}/{job.life}/0-map/0/1/0-map"
    return fault("infrastructure", "rows are gone", condition=EXCHANGE_LOST, lost=folder)


def _restart_set_s(running: Cluster, subtasks: int) -> float:
    """As when an attempt of the second task fails that misses rows of the first: that subtask runs again, and all that read of it."""
    state, error = running.job_master.state, _lost(running)
    (job,) = state.jobs.values()
    plan = running_plan(state, job)
    gc.collect()
    started = time.process_time()
    lost = resetting.lost_producers(job, plan, "reduce", 5, error)
    assert lost == [("map", 0)], lost
    places = resetting.readers_of(job, plan, [*lost, *resetting.gang(job, "reduce", 5)])
    took = time.process_time() - started
    assert len(places) == subtasks + 1
    return took


def _fails(running: Cluster, subtasks: int) -> float:
    running.fail(next(iter(running.running)), _lost(running))
    running.house.kafka.others.clear()
    took = cpu_of(running.job_master, lambda: running.job_master.turn())
    (job,) = running.job_master.state.jobs.values()
    states = [row.state.value for row in job.tasks["reduce"].rows.values()]
    assert states.count("CANCELING") == subtasks - 1, states[:3]
    return took
