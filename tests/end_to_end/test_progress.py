"""How far running attempts are, and what they do at this moment, from the library and the command line."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.cli.inside import command
from tests.end_to_end.running import RunningStack, until

COUNTS = """
    import os, sys, time
    from pyspark.sql import SparkSession
    spark = SparkSession.builder.getOrCreate()
    go = sys.argv[1]

    def wait(rows):
        while not os.path.exists(go):
            time.sleep(0.02)
        return rows

    def count_slowly():
        spark.sparkContext.setJobDescription("counting slowly")
        return spark.range(0, 9, 1, 3).rdd.mapPartitions(wait).count()

    print(spark.range(1000).count(), count_slowly())
    """


def millrace(running: RunningStack, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = command(*arguments, "--stack", running.stack.name, COLUMNS="160")
    assert done.returncode == 0, done.stderr
    return done


def active(events: list[dict[str, Any]]) -> dict[str, int] | None:
    """The first progress that has the second job's stage as the only one that runs.

    Spark notes the end of the first job's last stage a moment after its last task's: a look in between finds the second job, which
    waits, beside a stage that is all but done.
    """
    found = [each["progress"] for event in events if event["type"] == "AttemptsProgressing" for each in event["attempts"]]
    return next((each for each in found if each["stages_active"] == 1 and each["stages_done"] == each["stages_total"] - 1
                 and each["tasks_total"] - each["tasks_done"] == 3), None)  # fmt: skip


def test_a_running_attempt_is_seen_and_says_what_it_does(running: RunningStack, tmp_path: Path) -> None:
    go = tmp_path / "go"
    job = running.script(COUNTS, [go])
    values = job.until("progress", active)
    assert (values["rows_read"], values["tasks_total"] >= 4) == (1000, True)
    words = "1.0 k rows", f"stages {values['stages_done']}/{values['stages_total']}"
    until("progress in `show`", lambda: all(word in shown for shown in [millrace(running, "show", job.id).stdout] for word in words))

    def told() -> dict[str, Any] | None:
        """None: the attempt has not answered in the two seconds that it has for it, which a busy machine may need."""
        [attempt] = json.loads(millrace(running, "inspect", job.id, "--subtask", "0", "--json").stdout)["attempts"]
        status: dict[str, Any] | None = attempt["status"] if attempt["no_answer"] is None else None
        return status

    status = until("its answer", told)
    assert status is not None and any(frame.endswith("count_slowly") for frame in status["stack"])
    answered = "counting slowly", "count_slowly", "innermost call last"
    until("its answer, in words", lambda: all(word in said for said in [millrace(running, "inspect", job.id).stdout] for word in answered))
    go.touch()
    assert job.end["type"] == "JobFinished", job.end
    assert "the job has ended: it is FINISHED" in millrace(running, "inspect", job.id).stderr
