"""The flights pipeline with a Spark cluster underneath: a standalone master and two workers, one of whose executors is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from deploy.local.flights import flights_folder
from millrace.edge.graph_file import load_graph
from tests.end_to_end.running import EXAMPLES, LIMIT_S, RunningStack, until
from tests.end_to_end.test_flights import COLUMNS, by_pandas
from tests.slot.standalone import Standalone, standalone

pytestmark = pytest.mark.long
EXECUTORS = {"spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.cores.max": "2"}
BEFORE_WORK = 1
"""The stages of a slot's own: the first Python worker, and whether executors see the storage."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("spark"), workers=2) as running:
        yield running


def one_plan(graph: dict[str, Any]) -> dict[str, Any]:
    """Every vertex once, no exchange: one attempt, whose Spark has the whole pipeline."""
    for vertex in graph["vertices"].values():
        vertex.pop("parallelism", None)
        vertex["inputs"] = dict.fromkeys(vertex.get("inputs", {}), "forward")
    return graph


def test_an_executor_that_is_killed_changes_no_cell(running: RunningStack, cluster: Standalone, tmp_path: Path) -> None:
    data, out = flights_folder(), tmp_path / "out"
    loaded = load_graph(EXAMPLES / "flights.yaml", {"data": str(data), "out": str(out)}, master=cluster.url)
    assert loaded.errors == []
    job = running.submit({**one_plan(loaded.raw), "conf": EXECUTORS, "timeouts": {"start_ms": None}}, loaded.uploads)

    def kill_one_at_work() -> str | None:
        living = cluster.executors()
        for name in cluster.begun(BEFORE_WORK):
            if name in living:
                living[name].kill()
                return name
        assert not any(event["type"].startswith(("JobF", "JobC")) for event in job.events), "it ended before any executor was killed"
        return None

    until("an executor at work", kill_one_at_work)
    job.until("its end", lambda _: any(event["type"].startswith("JobF") for event in job.events), 2 * LIMIT_S)
    assert job.rows == by_pandas(data)
    written = pd.read_parquet(out).sort_values(["weather", "rank"])
    assert written.columns.tolist() == COLUMNS
    assert written.to_numpy().tolist() == by_pandas(data)
    assert {attempt for _, _, attempt in job.attempts()} == {1}, "Spark itself replaces an executor"
    assert len(cluster.started()) > 2, "two were wanted at any time"
    until("the end of all executors", lambda: not cluster.executors())


COMES_AND_GOES = """
    import os, sys, time
    from pyspark.sql import SparkSession
    sc = SparkSession.builder.getOrCreate().sparkContext
    both, again = sys.argv[1:]

    def wait_for(path):
        def wait(rows):
            while not os.path.exists(path):
                time.sleep(0.05)
            return rows
        return sc.parallelize(range(2), 2).mapPartitions(wait).count()

    print(wait_for(both))
    while not os.path.exists(again):
        time.sleep(0.05)
    print(wait_for(again))
    """
DYNAMIC = {
    **EXECUTORS, "spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0", "spark.dynamicAllocation.executorIdleTimeout": "1s",
}  # fmt: skip


def test_executors_come_with_the_work_and_go_without_it(running: RunningStack, cluster: Standalone, tmp_path: Path) -> None:
    both, again = tmp_path / "both", tmp_path / "again"
    before = len(cluster.started())
    job = running.script(COMES_AND_GOES, [both, again], settings={"timeouts": {"start_ms": None}}, master=cluster.url, conf=DYNAMIC)
    until("an executor for each task", lambda: len(cluster.executors()) == 2, 2 * LIMIT_S)
    both.touch()
    until("no executor without work", lambda: not cluster.executors(), 2 * LIMIT_S)
    gone = len(cluster.started())
    again.touch()
    assert job.end["type"] == "JobFinished", job.end
    assert (gone - before >= 2, len(cluster.started()) > gone) == (True, True)
