"""A standalone Spark cluster on loopback, of PySpark's own jars: a master and workers, and what runs below them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pyspark

from deploy.local.processes import free_port
from tests.slot.lifecycle import below, wait_until

REGISTERED = "Successfully registered with master"
EXECUTOR = "CoarseGrainedExecutorBackend"


class Standalone:
    """A running one."""

    def __init__(self, folder: Path, url: str, workers: list[subprocess.Popen[bytes]]) -> None:
        self.folder, self.url, self._workers = folder, url, workers

    def executors(self) -> dict[str, psutil.Process]:
        """Those that live, as application/number."""
        found = {}
        for process in (each for worker in self._workers for each in below(worker.pid)):
            try:
                words = process.cmdline()
            except psutil.Error:
                continue
            if any(word.endswith(EXECUTOR) for word in words):
                found["/".join(words[words.index(option) + 1] for option in ("--app-id", "--executor-id"))] = process
        return found

    def started(self) -> list[str]:
        """Each that there ever was."""
        return [_name(log) for log in self._logs()]

    def begun(self, after: int) -> list[str]:
        """Those that have begun a task of a stage behind this one."""
        found = []
        for log in self._logs():
            stages = re.findall(r"Running task \S+ in stage (\d+)", log.read_text(errors="replace"))
            if any(int(stage) > after for stage in stages):
                found.append(_name(log))
        return found

    def _logs(self) -> list[Path]:
        return sorted(self.folder.glob("worker-*/app-*/*/stderr"))


def _name(log: Path) -> str:
    return f"{log.parent.parent.name}/{log.parent.name}"


@contextmanager
def standalone(folder: Path, workers: int = 1, cores: int = 2, before: Sequence[str] = ()) -> Iterator[Standalone]:
    """Starts it and waits for all workers; ends it with all that runs below it. `before`: words before the command of each worker."""
    home, port = Path(pyspark.__file__).parent, free_port()
    env = {**os.environ, "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13", "SPARK_NO_DAEMONIZE": "1"}
    env.update(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable, SPARK_DAEMON_JAVA_OPTS="-XX:TieredStopAtLevel=1")
    url = f"spark://127.0.0.1:{port}"
    loopback = ["--host", "127.0.0.1", "--webui-port", "0"]
    commands = {"master": ["master.Master", *loopback, "--port", str(port)]}
    for number in range(workers):
        sizes = ["--cores", str(cores), "--memory", "1g", "--work-dir", str(folder / f"worker-{number}")]
        commands[f"worker-{number}"] = ["worker.Worker", *loopback, *sizes, url]
    processes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, (main, *arguments) in commands.items():
            command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}", *arguments]
            command = command if name == "master" else [*before, *command]
            with (folder / f"{name}.log").open("w") as log:
                processes[name] = subprocess.Popen(command, env=env, stdout=log, stderr=log, cwd=folder)
        for name in list(commands)[1:]:
            wait_until(lambda name=name: REGISTERED in (folder / f"{name}.log").read_text(), f"{name} is there")
        yield Standalone(folder, url, [process for name, process in processes.items() if name != "master"])
    finally:
        executors = [process for started in processes.values() for process in below(started.pid)]
        for started in processes.values():
            started.kill()
            started.wait()
        for executor in executors:
            with suppress(psutil.NoSuchProcess):
                executor.kill()
