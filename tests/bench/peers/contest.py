"""Who takes part: Millrace's stack, and the peers' processes, each started at its first work and ended with the run."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark

from deploy.local.flights import flights_folder
from deploy.local.processes import log_tail, spawn
from millrace.client import Millrace, MillraceError
from millrace.core.jobgraph.model import dump
from millrace.edge.graph_file import Loaded, load_graph, load_script

from ..clusters import Cluster, cluster
from ..pipeline import FILE
from . import data
from .environments import CannotTakePart, environment, flink_jars, version
from .turns import Figure
from .worker import Answer, Worker, own_environment, worker
from .works import QUERIES

WORKERS = Path(__file__).resolve().parent / "workers"
SCRIPT = WORKERS / "script.py"
SUBMIT_LIMIT_S = 900.0


@dataclass(frozen=True)
class Peer:
    """A worker process. `lock`: of its environment; without one it is the checkout's own, which pins the Spark that Millrace runs."""

    title: str
    script: str = "on_spark.py"
    arguments: tuple[str, ...] = ()
    lock: str | None = None


PEERS = {
    "session": Peer("warm session local[2]", arguments=("local[2]",)),
    "submit": Peer("spark-submit local[2]"),
    "connect": Peer("Spark Connect local[2]", arguments=("connect",), lock="connect"),
    "flink": Peer("Flink, mini cluster", "on_flink.py", lock="flink"),
    "ray": Peer("Ray, tasks with pandas", "on_ray.py", ("{scratch}",), lock="ray"),
    "dask": Peer("Dask, data frames", "on_dask.py", lock="dask"),
}
"""Beside Millrace; `submit` is no worker: it starts and ends with each run."""


@dataclass(frozen=True)
class Plan:
    """What a run was asked for."""

    peers: tuple[str, ...]
    rounds: int
    rows: int
    jobs: int
    folder: Path
    builds: Path
    say: Callable[[str], None]


class Contest(contextlib.ExitStack):
    """All that takes part in one run."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan, self.say = plan, plan.say
        self._workers: dict[str, Worker | CannotTakePart] = {}
        self._cluster: Cluster | None = None
        shutil.rmtree(plan.folder, ignore_errors=True)  # of an earlier run
        plan.folder.mkdir(parents=True)
        plan.builds.mkdir(parents=True, exist_ok=True)

    # peers

    def start(self, peer: str) -> contextlib.AbstractContextManager[Worker]:
        """A process of its own."""
        known = PEERS[peer]
        python = environment(known.lock, self.plan.builds, self.say) if known.lock else Path(sys.executable)
        jars = [str(jar) for jar in flink_jars()] if peer == "flink" else []
        self.say(f"starting {known.title}")
        return worker(peer, python, WORKERS / known.script, [*known.arguments, *jars], self.plan.folder)

    def worker(self, peer: str) -> Worker:
        """The peer's one process of the run. Raises CannotTakePart, each time for the same reason."""
        if peer not in self._workers:
            try:
                self._workers[peer] = self.enter_context(self.start(peer))
            except CannotTakePart as reason:
                self._workers[peer] = reason
        found = self._workers[peer]
        if isinstance(found, CannotTakePart):
            raise found
        return found

    def present(self, figure: Figure, reasons: Mapping[str, str]) -> list[str]:
        """The workers that can do a work; the others are left out of its figure, with the reason."""
        self.cluster()  # first: an archive of classes, if it has to be made, waits until nobody else uses the processor
        able = []
        for peer in self.plan.peers:
            try:
                if reason := reasons.get(peer):
                    figure.leave_out(PEERS[peer].title, reason)
                elif peer != "submit":
                    self.worker(peer)
                    able.append(peer)
            except CannotTakePart as reason:
                self.say(f"{peer}: {reason}")
                figure.leave_out(PEERS[peer].title, str(reason))
        return able

    def submit(self, request: dict[str, Any]) -> Answer:
        """Seconds from the start of `spark-submit` to its end."""
        command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2]", str(SCRIPT)]
        command += self.script_arguments("submit", request)
        log = self.plan.folder / "submit.log"
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        started = time.perf_counter()
        child = spawn(command, log=log, env={**own_environment(self.plan.folder), "PATH": path}, cwd=self.plan.folder)
        try:
            code: int | None = child.popen.wait(SUBMIT_LIMIT_S)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            seconds = time.perf_counter() - started
            child.stop()
        if code != 0:
            raise CannotTakePart(f"it ended with {code}: {log_tail([log], 3)[-300:]}")
        return Answer(seconds, json.loads(Path(command[-1]).read_text()))

    def script_arguments(self, who: str, request: dict[str, Any]) -> list[str]:
        """The script's command line; its rows go into the file that comes last."""
        given, rows = (self.plan.folder / f"{who}-{part}.json" for part in ("request", "rows"))
        given.write_text(json.dumps(request))
        rows.unlink(missing_ok=True)
        return [str(given), str(rows)]

    # Millrace

    def cluster(self) -> Cluster:
        """The run's stack, with two slots."""
        if self._cluster is None:
            self._cluster = self.enter_context(cluster("peers", self.say, slots=2))
        return self._cluster

    def query(self, graph: dict[str, Any], running: Cluster) -> Answer:
        """Seconds from the submission to the rows; the slots are free again when it returns."""
        return _finished(running, lambda client: client.submit(graph).result().rows)

    def flights(self, parallelism: int) -> Answer:
        loaded = self.loaded("millrace", parallelism)
        parameters = dict(loaded.raw["parameters"])
        return _finished(
            self.cluster(),
            lambda client: client.submit(loaded.raw, parameters=parameters, uploads=loaded.uploads).result().rows,
        )

    def script(self, request: dict[str, Any]) -> Answer:
        arguments = self.script_arguments("millrace", request)
        loaded = load_script(SCRIPT, arguments)
        if loaded.errors:
            raise RuntimeError("\n".join(loaded.rendered()))

        def run(client: Millrace) -> list[list[Any]]:
            ending = client.submit(loaded.raw, uploads=loaded.uploads).wait()
            if ending.status != "FINISHED":
                raise CannotTakePart(f"the job is {ending.status}: {ending.cause.message if ending.cause else ''}")
            return list(json.loads(Path(arguments[-1]).read_text()))

        return _finished(self.cluster(), run)

    # requests

    def loaded(self, who: str, parallelism: int = 2) -> Loaded:
        """The flights pipeline as a graph, with a folder for its report."""
        file = self.plan.folder / f"flights-{parallelism}" / FILE.name
        if not file.exists():
            file.parent.mkdir()
            shutil.copy(FILE.parent / "ranking.py", file.parent)
            file.write_text(FILE.read_text().replace("parallelism: 2", f"parallelism: {parallelism}"))
        out = self.plan.folder / f"report-{who}"
        loaded = load_graph(file, {"data": str(flights_folder()), "out": str(out)})
        if loaded.errors or loaded.graph is None:
            raise RuntimeError("\n".join(loaded.rendered()))
        return loaded

    def flights_request(self, peer: str) -> dict[str, Any]:
        graph = self.loaded(peer).graph
        assert graph is not None
        out = str(self.plan.folder / f"report-{peer}")
        return {"work": "flights", "graph": dump(graph), "modules": str(FILE.parent), "data": str(flights_folder()), "out": out}

    def tables(self, rows: int) -> dict[str, str]:
        self.say(f"tables with {rows:,} lines")
        return data.tables(data.generate(self.plan.builds.parent / "data", rows))

    @staticmethod
    def query_request(query: str, tables: dict[str, str]) -> dict[str, Any]:
        return {"work": "query", "name": query, "sql": QUERIES[query], "tables": tables}


def _finished(running: Cluster, run: Callable[[Millrace], list[list[Any]]]) -> Answer:
    try:
        started = time.perf_counter()
        rows = run(running.client)
        seconds = time.perf_counter() - started
        running.settle()
    except (MillraceError, TimeoutError) as error:
        raise CannotTakePart(f"{type(error).__name__}: {error}"[:300]) from error
    return Answer(seconds, rows)


def versions(peers: tuple[str, ...]) -> dict[str, str]:
    return {peer: version(lock) if (lock := PEERS[peer].lock) else f"pyspark=={pyspark.__version__}" for peer in peers}
