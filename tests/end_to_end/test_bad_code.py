"""Code that exits, kills, hangs, loops and floods: the job ends as it should, and the next job on that slot is unaffected."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.end_to_end.running import Held, RunningStack, Watched, run_at_once, until

NO_RESTARTS = {"restart": {"strategy": "none"}}
SPARK = """
    import os, sys, time
    from pathlib import Path
    from pyspark.sql import SparkSession
    spark = SparkSession.builder.getOrCreate()
    jvm = spark._jvm
"""


@pytest.fixture(autouse=True)
def slots_work_afterwards(running: RunningStack, tmp_path: Path) -> Iterator[None]:
    yield
    running.quiesce()
    running.works(tmp_path)


def run(running: RunningStack, code: str, *args: object, **settings: Any) -> Watched:
    return running.script(SPARK + code, args, settings={**NO_RESTARTS, **settings})


ENDS = {
    "sys.exit(3)": ("sys.exit(3)", "exit", "sys.exit(3)"),
    "an exception": ("spark.range(3).count()\n    raise ValueError('no such thing')", "user", "ValueError: no such thing"),
    "os._exit(5)": ("os._exit(5)", "exit", "5"),
    "a signal": ("os.kill(os.getpid(), 11)", "killed", "SIGSEGV"),
    "the JVM halted": ("jvm.java.lang.Runtime.getRuntime().halt(1)", "jvm", "exit code 1"),
    "half of a surrogate pair": ("sys.exit('no \\udc80 text')", "exit", "no ? text"),
    "a UDF that exits": (
        "from pyspark.sql.functions import udf\n    spark.range(1).select(udf(lambda x: os._exit(7))('id')).collect()", None, ""
    ),
}  # fmt: skip


def behind(running: RunningStack, folder: Path, n: int) -> tuple[Watched, list[Held]]:
    """A query, and a job for each slot that holds it: the queue keeps the order, so the next bad job begins when all slots have worked."""
    return running.sql(f"SELECT {n} AS n"), running.hold_slots(folder / f"behind-{n}")


@pytest.mark.parametrize("names", [
    pytest.param(("an exception", "the JVM halted", "a UDF that exits"), id="some"),
    pytest.param((*ENDS,), id="all", marks=pytest.mark.long),
])  # fmt: skip
def test_scripts_that_end_badly_fail_with_their_cause_and_the_next_query_is_answered(
    running: RunningStack, tmp_path: Path, names: tuple[str, ...]
) -> None:
    """All are submitted at once; the slots take one after the other, each followed by a query, and by a job for each slot."""
    jobs = [(run(running, f"    {ENDS[name][0]}\n"), behind(running, tmp_path, n)) for n, name in enumerate(names)]
    for n, ((job, (query, held)), name) in enumerate(zip(jobs, names, strict=True)):
        _, kind, words = ENDS[name]
        cause = job.cause
        assert kind is None or cause["kind"] == kind, (name, cause)
        assert words in cause["message"], (name, cause)
        assert cause["message"] and "\n" not in cause["message"], (name, cause)
        assert query.rows == [[n]], name
        run_at_once(held)


@pytest.mark.long
def test_a_script_whose_jvm_is_killed_begins_again_and_that_is_no_failure(running: RunningStack) -> None:
    job = run(running, "    os.kill(jvm.java.lang.ProcessHandle.current().pid(), 9)\n    time.sleep(600)\n")
    error = job.event("AttemptStateChanged", state="FAILED", attempt=1)["error"]
    assert error["kind"] == "infrastructure" and "signal 9" in error["message"] and "\n" not in error["message"], error
    job.running(attempt=2)  # it has no restarts
    job.job.cancel()
    assert job.end["type"] == "JobCanceled", job.end


def test_a_script_that_stops_spark_has_finished_and_may_go_on(running: RunningStack) -> None:
    job = run(running, """
    spark.stop()
    again = SparkSession.builder.getOrCreate()
    print("rows", again.range(5).count())
    again.sparkContext.stop()
    """)  # fmt: skip
    assert job.end["type"] == "JobFinished", job.end
    assert b"".join(piece.data for piece in running.client.logs(job.id) if piece.stream == "stdout") == b"rows 5\n"


LOOPS = {
    "a script": "(folder / str(os.getpid())).touch()\n    while True: time.sleep(1)",
    "a script that ignores SIGTERM": (
        "import signal\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    (folder / str(os.getpid())).touch()\n    while True: pass"
    ),
    "a child in a session of its own": (
        "import subprocess\n    child = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "    (folder / str(child.pid)).touch()\n    child.wait()"
    ),
    "the JVM": "(folder / str(os.getpid())).touch()\n    jvm.java.util.stream.LongStream.range(0, 2**62).sum()",
    "a Spark job": (
        "import threading\n    job = threading.Thread(target=lambda: spark.range(10**15).selectExpr('sum(id % 7)').collect())\n"
        "    job.start()\n    while not spark.sparkContext.statusTracker().getActiveJobsIds(): assert job.is_alive()\n"
        "    (folder / str(os.getpid())).touch()"
    ),
    "a UDF": (
        "from pyspark.sql.functions import udf\n    def stay(x):\n        (folder / str(os.getpid())).touch()\n"
        "        while True: time.sleep(1)\n    spark.range(1).select(udf(stay)('id')).collect()"
    ),
}  # fmt: skip


def looping(running: RunningStack, folder: Path, code: str, **settings: Any) -> Watched:
    """A job that never ends; `looped` tells that it is at it."""
    folder.mkdir(parents=True)
    return run(running, f"    folder = Path(sys.argv[1])\n    {code}\n", folder, **settings)


def looped(folder: Path) -> list[int]:
    """The id of the process that is at it, or was, once it has begun."""
    return [int(path.name) for path in folder.iterdir() if path.name.isdigit()]


@pytest.mark.long
def test_what_never_returns_is_cancelled_and_the_next_query_is_answered(running: RunningStack, tmp_path: Path) -> None:
    """All are submitted at once; the slots take one after the other, each followed by a query, and by a job for each slot."""
    jobs = {}
    for n, (name, code) in enumerate(LOOPS.items()):
        jobs[name] = looping(running, tmp_path / name, code), behind(running, tmp_path, n)
    for n, (name, (job, (query, held))) in enumerate(jobs.items()):
        process = psutil.Process(until(name, lambda name=name: looped(tmp_path / name))[0])
        job.running()
        job.job.cancel()
        assert job.end["type"] == "JobCanceled", name
        until(f"the end of the process of {name}", lambda process=process: not process.is_running())
        assert query.rows == [[n]], name
        run_at_once(held)


@pytest.mark.parametrize("left", [["a script"], pytest.param(["a UDF", "the JVM"], marks=pytest.mark.long)], ids=", ".join)
def test_what_never_returns_meets_its_run_timeout(running: RunningStack, tmp_path: Path, left: list[str]) -> None:
    left = list(left)
    for run_ms in (4_000, 20_000, 80_000):  # a busy machine may not come to the loop in the first of them
        folders = {what: tmp_path / f"{what}-{run_ms}" for what in left}
        jobs = [looping(running, folder, LOOPS[what], timeouts={"run_ms": run_ms}) for what, folder in folders.items()]
        for job in jobs:
            assert job.cause["kind"] == "timeout", job.cause
            assert f"{run_ms} ms" in job.cause["message"], job.cause
        for what, folder in folders.items():
            if found := looped(folder):
                until(f"the end of the process of {what}", lambda found=found: not psutil.pid_exists(found[0]))
                left.remove(what)
        if not left:
            return
    raise AssertionError(f"none of these began its loop: {left}")


def test_a_hundred_megabytes_of_output_keep_their_head_and_their_tail(running: RunningStack) -> None:
    job = run(running, """
    print("the first line")
    for n in range(100):
        print("x" * 1_000_000)
    print("the last line")
    """)  # fmt: skip
    assert job.end["type"] == "JobFinished", job.end
    pieces = [piece.data for piece in running.client.logs(job.id) if piece.stream == "stdout"]
    text = b"".join(pieces)
    assert text.startswith(b"the first line\nxxx")
    assert text.endswith(b"xxx\nthe last line\n")
    assert 15 << 20 < len(text) < 17 << 20
