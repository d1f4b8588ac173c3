"""Sinks on a real file system: what a job is told to write stands there, or the job says that it does not."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pandas as pd

from tests.end_to_end.running import RunningStack, until

WAITS = """
    import pathlib, time

    def rows(spark, parameters):
        while not (pathlib.Path(parameters["folder"]) / "go").exists():
            time.sleep(0.02)
        return spark.range(1)
"""


def sink(path: Path, mode: str, of: str) -> dict[str, Any]:
    return {"sink": {"format": "parquet", "path": str(path), "mode": mode}, "inputs": {of: "forward"}}


def test_two_that_append_to_one_path_from_one_task_are_both_there(running: RunningStack, tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    vertices = {
        "a": {"sql": "SELECT 1 AS x"},
        "b": {"sql": "SELECT x + 1 AS x FROM a", "inputs": {"a": "forward"}},
        "first": sink(out, "append", "a"),
        "second": sink(out, "append", "b"),
    }
    assert running.submit({"name": "two", "vertices": vertices}).end["type"] == "JobFinished"
    assert sorted(pd.read_parquet(out)["x"]) == [1, 2]
    until("the staging folder to go", lambda: [each.name for each in out.parent.iterdir()] == ["out"])


def test_a_job_may_overwrite_what_it_reads(running: RunningStack, tmp_path: Path) -> None:
    out = tmp_path / "out"
    made = {"a": {"sql": "SELECT 1 AS x"}, "o": sink(out, "error", "a")}
    assert running.submit({"name": "made", "vertices": made}).end["type"] == "JobFinished"
    again = {
        "read": {"source": {"format": "parquet", "path": str(out)}},
        "more": {"sql": "SELECT x * 2 AS x FROM read", "inputs": {"read": "forward"}},
        "o": sink(out, "overwrite", "more"),
    }
    for _ in range(2):
        assert running.submit({"name": "again", "vertices": again}).end["type"] == "JobFinished"
    assert pd.read_parquet(out)["x"].tolist() == [4]


def test_a_job_whose_staged_rows_are_gone_does_not_finish(running: RunningStack, tmp_path: Path) -> None:
    """Somebody cleans up beside the sink while another task runs; so it is where JobMasters have another disk under its path."""
    sha256, path = running.module(WAITS, "waits.py")
    graph = {
        "name": "gone",
        "parameters": {"folder": str(tmp_path)},
        "vertices": {
            "a": {"sql": "SELECT 1 AS x"},
            "out": sink(tmp_path / "out", "overwrite", "a"),
            "held": {"python": "waits:rows"},
        },
        "modules": [{"name": "waits.py", "sha256": sha256}],
        "result": "held",
    }
    job = running.submit(graph, {sha256: path})
    job.event("AttemptStateChanged", task="a+out", state="FINISHED")
    shutil.rmtree(tmp_path / ".out.staging")
    (tmp_path / "go").touch()
    assert job.end["type"] == "JobFailed"
    assert "is not there" in job.cause["message"]
    assert not (tmp_path / "out").exists()
