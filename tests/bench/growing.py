"""Slots are short -> the first attempt RUNNING on a TaskManager that comes for it, beside one that is started by hand at that moment."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable

from deploy.local.downloads import CHECKOUT
from deploy.local.processes import end_tree
from deploy.local.stack import Options, Stack
from millrace.client import Millrace

from .clusters import sql_graph
from .figures import Row, Run, p50

MOST = 1.1  # times as long as by hand


def measure(run: Run) -> None:
    n = run.count(5, 1)
    took: dict[str, list[float]] = {"provided": [], "by_hand": []}
    for number in range(n):
        run.say(f"{number + 1} of {n}")
        took["by_hand"].append(_once(Options(slots=1, task_managers=0), _by_hand))
        took["provided"].append(_once(Options(slots=1, task_managers=0, task_managers_most=1), lambda stack: None))
    run.samples |= {f"{name}_s": samples for name, samples in took.items()}
    provided, by_hand = took["provided"], took["by_hand"]
    ratio = p50(provided) / p50(by_hand)
    run.rows.append(Row(
        "slots short -> RUNNING on a new TaskManager", n, f"{p50(provided):.2f} s", f"most {max(provided):.2f} s",
        f"started by hand {p50(by_hand):.2f} s", f"{ratio:.2f} x", f"{MOST} x", ratio <= MOST,
    ))  # fmt: skip


def _once(options: Options, start: Callable[[Stack], subprocess.Popen[bytes] | None]) -> float:
    """Seconds from the submission to a stack without TaskManagers until the job's attempt runs. `start`: what is done at that moment."""
    stack = Stack("bench-growing")
    stack.down(purge=True)
    started = None
    try:
        facts = stack.up(options, lambda step: None, foreground=True)
        with Millrace(facts["kafka_bootstrap"], token=stack.token(), timeout_s=60) as client:
            client.overview()  # connected
            began = time.perf_counter()
            started = start(stack)
            job = client.submit(sql_graph("SELECT 1 AS one"))
            for event in job.events():
                if event["type"] == "AttemptStateChanged" and event["state"] == "RUNNING":
                    return time.perf_counter() - began
        raise RuntimeError("the job has ended, and never ran")
    finally:
        if started is not None:
            end_tree(started.pid, 6.0, started)
        stack.down(purge=True)


def _by_hand(stack: Stack) -> subprocess.Popen[bytes]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "shared")])}
    command = [sys.executable, "-m", "services.task_manager", "--config", str(stack.settings_file), "--id", "by-hand"]
    with open(stack.folder / "logs" / "by-hand.log", "wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=env, cwd=stack.folder, start_new_session=True)
