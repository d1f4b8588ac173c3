"""The peer with a warm session: an ordinary PySpark process that keeps its SparkSession and does one thing after the other.

`python -m tests.bench.warm_session MASTER` reads JSON lines and answers each with {"seconds", "rows"}.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .clusters import environment
from .peers.workers.script import graph as run_graph


class WarmSession:
    """The process, from outside."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def sql(self, query: str) -> tuple[float, list[list[Any]]]:
        """Runs a query and collects its rows; seconds, as that process measured them."""
        return self._ask({"query": query})

    def graph(self, graph: dict[str, Any], modules: Path) -> tuple[float, list[list[Any]]]:
        """Runs the steps of a JobGraph as one would write them by hand: views, SQL, functions, one write."""
        return self._ask({"graph": graph, "modules": str(modules)})

    def _ask(self, what: dict[str, Any]) -> tuple[float, list[list[Any]]]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the warm PySpark session ended")
        answer = json.loads(line)
        return answer["seconds"], answer["rows"]


@contextmanager
def warm_session(master: str, folder: Path) -> Iterator[WarmSession]:
    """A session on `master`; its log goes into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "warm-session.log", "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.warm_session", master],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment(), cwd=folder,
        )  # fmt: skip
    try:
        session = WarmSession(process)
        session.sql("SELECT 1 AS one")
        yield session
    finally:
        assert process.stdin is not None
        process.stdin.close()  # it ends at the end of its input
        process.wait(60)


def serve(master: str) -> None:
    """The process's work: answers until its input ends."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master(master).config("spark.ui.enabled", "false").getOrCreate()
    for line in sys.stdin:
        what = json.loads(line)
        started = time.perf_counter()
        graph = what.get("graph")
        rows = run_graph(spark, graph, what["modules"]) if graph else spark.sql(what["query"]).collect()
        seconds = time.perf_counter() - started
        print(json.dumps({"seconds": seconds, "rows": [list(row) for row in rows]}, default=str), flush=True)
    spark.stop()


if __name__ == "__main__":
    serve(sys.argv[1])
