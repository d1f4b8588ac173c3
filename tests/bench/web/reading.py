"""Reads of one running job a second, beside Flink's JobManager: by the same client over the same connections, each server on one core.

Also for each second that the server's process used the processor: others on the machine take nothing from that figure.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil

from deploy.local.java import find_java
from deploy.local.processes import free_port, log_tail, spawn
from deploy.local.stack import home
from tests.web.flink.tools import flink_home

from ..clusters import environment, wait_until
from ..figures import Row, Run, p50
from .served import Publisher, keep_to, parted_cores, web_alone

TIMES_LEAST = 5.0
TURNS = 5
CONNECTIONS = 8
WARM_S = 10.0
"""Of reads: by then Java has compiled what answers them."""
JOB = "running-0"
HERE = Path(__file__).parent


def measure(run: Run) -> None:
    turns, seconds = run.count(TURNS, 1), run.count(3, 1)
    with ExitStack() as started:
        web = started.enter_context(web_alone("reading"))
        facts = Publisher(web.kafka)
        facts.begin(JOB)
        facts.flush()
        web.await_folded(facts.said, run.say)
        port, pid, job = started.enter_context(flink_job(home() / "alone-web-reading"))
        parted = parted_cores()
        for each in (web.child.pid, pid) if parted else ():
            keep_to(each, parted[0])
        lanes = {
            "ours": (web.port, f"/api/v1/jobs/{JOB}"), "flinks": (port, f"/jobs/{job}"), "as_flink": (web.port, f"/jobs/{JOB}"),
        }  # fmt: skip
        others = ",".join(map(str, parted[1])) if parted else ""
        found: dict[str, list[float]] = {name: [] for name in lanes}
        a_core: dict[str, list[float]] = {name: [] for name in lanes}
        servers = {"ours": web.process, "flinks": psutil.Process(pid), "as_flink": web.process}
        sizes: dict[str, int] = {}
        for turn in range(turns + 1):
            for name, lane in lanes.items():
                before = sum(servers[name].cpu_times()[:2])
                told = reads(*lane, seconds if turn else run.count(int(WARM_S), 1), others)
                sizes[name] = told["bytes"]
                if turn:
                    found[name].append(told["reads"] / told["seconds"])
                    a_core[name].append(told["reads"] / (sum(servers[name].cpu_times()[:2]) - before))
            if turn:
                run.say(f"{turn} of {turns}: " + ", ".join(f"{name} {each[-1]:,.0f} a second" for name, each in found.items()))
    cores = [sorted(each) for each in parted or ()]
    run.samples["reading"] = {"a_second": found, "a_core_second": a_core, "answer_bytes": sizes, "cores": cores}
    for name, what in (("ours", "reads of a job a second, warm"), ("as_flink", "the same in Flink's shape")):
        for of, samples in (("", found), (", of its processor", a_core)):
            times, asked = p50(samples[name]) / p50(samples["flinks"]), name == "ours" and not of
            run.rows.append(Row(
                what + of, turns, f"{p50(samples[name]):,.0f}", f"{sizes[name]:,} bytes each",
                f"Flink's JobManager {p50(samples['flinks']):,.0f}, {sizes['flinks']:,} bytes", f"{times:.1f} x",
                f"{TIMES_LEAST:.0f} x" if asked else "", times >= TIMES_LEAST if asked else None,
            ))  # fmt: skip


def reads(port: int, path: str, seconds: float, cores: str) -> dict[str, Any]:
    """By a process of its own, on these cores."""
    command = [sys.executable, "-m", "tests.bench.web.load", "rate", str(port), path, str(seconds), str(CONNECTIONS), cores]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=seconds + 60, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@contextmanager
def flink_job(folder: Path) -> Iterator[tuple[int, int, str]]:
    """Flink's REST port, its process, and the id of a job that runs there."""
    port, java = free_port(), find_java().path
    command = [str(java), "-cp", f"{flink_home()}/lib/*", str(HERE / "FlinkServed.java"), str(port)]
    child = spawn(command, log=folder / "flink.log", env={**os.environ}, cwd=folder)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=5) as http:
            yield port, child.pid, wait_until("Flink's job", lambda: _running(http, child.exit_code(), folder))
    finally:
        child.stop()


def _running(http: httpx.Client, ended: int | None, folder: Path) -> str:
    """The id of its job once all of that runs; empty: not yet."""
    if ended is not None:
        raise RuntimeError(f"Flink ended: {log_tail([folder / 'flink.log'], 20)}")
    try:
        (job,) = http.get("/jobs").raise_for_status().json()["jobs"]
        vertices = http.get(f"/jobs/{job['id']}").raise_for_status().json()["vertices"]
    except (httpx.HTTPError, ValueError):
        time.sleep(0.5)
        return ""
    return str(job["id"]) if vertices and all(each["status"] == "RUNNING" for each in vertices) else ""
