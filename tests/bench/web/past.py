"""A history over very many archives: until all is shown, its memory, and how long who looks at it waits."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil

from deploy.local.processes import Child, spawn
from deploy.local.stack import home

from ..clusters import environment, show_logs, wait_until
from ..figures import Row, Run, p50

SHOWN = 10_000
"""Archives that are shown where nobody says how many."""
JOB = "nightly-7"
STATES = ("FINISHED", "FINISHED", "FINISHED", "FAILED", "CANCELED")
PAGE = "a job's page"
READS = {
    "the page's list": "/page/jobs", "its next page": "/page/jobs?start=50", "a search": "/page/jobs?q=nightly-7+state:failed",
    "a search for a TaskManager": "/page/jobs?q=tm:tm-2", PAGE: f"/page/jobs/{JOB}", "the list": "/api/v1/jobs",
    "a job": f"/api/v1/jobs/{JOB}", "one in Flink's shape": f"/jobs/{JOB}",
}  # fmt: skip
TIMES = 5
LIMIT_S = 1800.0


def measure(run: Run) -> None:
    """As many as are shown where nobody says how many, of all that there are; then all of them."""
    n = run.count(100_000, 500)
    folder = home() / "alone-history"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        _write(run, folder / "storage", n)
        for shown in (min(SHOWN, n // 2), n):
            with _history(folder, shown) as (child, http, first_s):
                process = psutil.Process(child.pid)
                memory_mb = process.memory_info().rss / 1e6
                run.say(f"{shown:,} of {n:,} are shown after {first_s:.1f} s, with {memory_mb:.0f} MB")
                http.get("/overview")  # Flink's paths are put together at the first question
                paths = {name: path.replace(JOB, f"nightly-{n - 1}") for name, path in READS.items()}
                waits = {name: [_took_ms(http, path) for _ in range(TIMES)] for name, path in paths.items()}
                flinks = [_took_ms(http, "/jobs/overview") for _ in range(TIMES)]
                later_mb = process.memory_info().rss / 1e6
            run.samples[f"history_{shown}"] = {"first_look_s": first_s, "memory_mb": memory_mb, "memory_after_mb": later_mb,
                                               "reads_ms": waits, "flinks_overview_ms": flinks}  # fmt: skip
            slowest = max(waits, key=lambda name: max(waits[name]))  # a page that is asked for again at once is kept: the first tells
            of = f"{shown:,} of {n:,} archives"
            run.rows += [
                Row(f"history, {of}: until they are shown", 1, f"{first_s:.0f} s", f"{memory_mb:.0f} MB", "", ""),
                Row(f"history, {of}: its slowest read, {slowest}", TIMES, f"{p50(waits[slowest]):.0f} ms",
                    f"max {max(waits[slowest]):.0f} ms", f"a job's page max {max(waits[PAGE]):.0f} ms", ""),
                Row(f"history, {of}: Flink's overview of all", TIMES, f"{p50(flinks):.0f} ms", f"the first {flinks[0]:.0f} ms",
                    f"then {later_mb:.0f} MB", ""),
            ]  # fmt: skip
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write(run: Run, storage: Path, n: int) -> None:
    """A job has ended each second, the last one now."""
    from tests.web.history.scene import archive  # it brings a client for tests along, which no other figure needs

    run.say(f"writes {n:,} archives")
    began_ms = time.time_ns() // 1_000_000 - n * 1000
    for number in range(n):
        job, at_ms = f"nightly-{number}", began_ms + number * 1000
        found = storage / "archives" / job / f"c.1.{number}" / "1.0.json"
        found.parent.mkdir(parents=True)
        found.write_text(archive(job, STATES[number % len(STATES)], at_ms).model_dump_json())
        os.utime(found, (at_ms / 1000, at_ms / 1000))


@contextmanager
def _history(folder: Path, shown: int) -> Iterator[tuple[Child, httpx.Client, float]]:
    """The process, a client, and the seconds from its start until all is shown."""
    ready, log = folder / "ready.json", folder / "history.log"
    ready.unlink(missing_ok=True)
    command = [sys.executable, "-m", "services.web.history", "--storage-url", str(folder / "storage"), "--retained-jobs", str(shown)]
    started = time.perf_counter()
    child = spawn([*command, "--ready-file", str(ready)], log=log, env=environment(), cwd=folder)
    try:
        wait_until("the history", lambda: ready.exists() or child.exit_code() is not None)
        if child.exit_code() is not None:
            raise RuntimeError("the history ended")
        with httpx.Client(base_url=f"http://127.0.0.1:{json.loads(ready.read_text())['port']}", trust_env=False, timeout=120) as http:
            wait_until("its archives", lambda: http.get("/healthz").status_code == 200, LIMIT_S)
            yield child, http, time.perf_counter() - started
    except BaseException:
        show_logs(folder)
        raise
    finally:
        child.stop()


def _took_ms(http: httpx.Client, path: str) -> float:
    began = time.perf_counter()
    http.get(path).raise_for_status()
    return (time.perf_counter() - began) * 1000
