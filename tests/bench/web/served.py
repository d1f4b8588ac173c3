"""A web process over Kafka and etcd of its own, and the facts that are published to it: no other service is in the way of a figure."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import psutil
from confluent_kafka import Producer

from deploy.local.processes import Child, spawn
from deploy.local.stack import home
from deploy.provision import provision
from millrace.core.topics import Topology
from millrace.io.etcd.store import EtcdStore
from millrace.io.kafka.admin import KafkaAdmin

from ..clusters import environment, servers, show_logs, wait_until

TOPIC = "job.events"
LIFE = "job-master/0/1"
"""Who says the facts, and in which of its lives."""
TASKS: tuple[tuple[str, int], ...] = (("read", 2), ("report", 1))
QUEUE_FULL_S = 0.01


class Publisher:
    """Says facts about jobs as their services do: one record each, with the number of its kind for its subject."""

    def __init__(self, bootstrap: str, first: int = 0) -> None:
        """`first`: of the numbers in the ids of its records, which are its own."""
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 2, "log_level": 0})
        self._topology, self._numbers = Topology(), itertools.count(first)
        self._counts: Counter[tuple[Any, ...]] = Counter()
        self.said = 0

    def record(self, kind: str, job: str, *part: Any, **body: Any) -> tuple[int, bytes, list[tuple[str, bytes]]]:
        """Partition, value and headers of the next fact of its kind about a job, or a part of it."""
        key = (kind, job, *part)
        self._counts[key] += 1
        self.said += 1
        at_ms = time.time_ns() // 1_000_000
        value = json.dumps({"type": kind, "version": 1, "at_ms": at_ms, "count": self._counts[key], "job": job, **body})
        return self._topology.events_partition(job), value.encode(), [("ce_id", f"{LIFE}/{next(self._numbers)}".encode())]

    def say(self, kind: str, job: str, *part: Any, **body: Any) -> None:
        partition, value, headers = self.record(kind, job, *part, **body)
        while True:
            try:
                self._producer.produce(TOPIC, value, key=job, partition=partition, headers=headers)
                self._producer.poll(0)
                return
            except BufferError:
                self._producer.poll(QUEUE_FULL_S)

    def begin(self, job: str, tasks: Sequence[tuple[str, int]] = TASKS, ended: bool = False) -> None:
        """A job that runs, with an attempt of each subtask in a slot; `ended`: and they have finished."""
        inputs = [{"task": tasks[0][0], "edge": "hash"}]
        outlines = [
            {"task": task, "vertices": [task], "parallelism": n, "inputs": inputs if number else []}
            for number, (task, n) in enumerate(tasks)
        ]
        self.say("JobAccepted", job, name=job.rpartition("-")[0], tasks=outlines)
        self.say("JobStateChanged", job, status="RUNNING", cause=None)
        for task, n in tasks:
            for subtask in range(n):
                for state in ("DEPLOYING", "RUNNING", *(["FINISHED"] if ended else [])):
                    where = {"task": task, "subtask": subtask, "attempt": 1, "task_manager": "task-manager-1", "slot": subtask}
                    self.say("AttemptStateChanged", job, task, subtask, state=state, error=None, **where)

    def end(self, job: str) -> None:
        self.say("JobFinished", job, archive=f"archives/{job}", result=None, spent=None)

    def progress(self, job: str, rows: int) -> None:
        """What a running attempt of it reports."""
        told = {"tasks_done": rows % 200, "tasks_total": 200, "rows_read": rows, "bytes_read": 40 * rows}
        self.say("AttemptsProgressing", job, attempts=[{"task": TASKS[0][0], "subtask": 0, "attempt": 1, "progress": told}])

    def wait(self, seconds: float) -> None:
        """Sends meanwhile."""
        self._producer.poll(0)
        time.sleep(seconds)
        self._producer.poll(0)

    def flush(self) -> None:
        if left := self._producer.flush(120):
            raise RuntimeError(f"Kafka did not take {left} facts")


class Web:
    """The process, from outside. `said`: the publishers whose facts it is to have."""

    def __init__(self, kafka: str, etcd: str, child: Child, port: int) -> None:
        self.kafka, self.etcd, self.child, self.port = kafka, etcd, child, port
        self.url = f"http://127.0.0.1:{port}"
        self.process = psutil.Process(child.pid)
        self.http = httpx.Client(base_url=self.url, trust_env=False, timeout=30)

    def folded(self) -> int:
        """How many records of the jobs' topic it has taken in."""
        answer = self.http.get("/api/v1/overview")
        return sum(offset + 1 for offset in answer.json()["as_of"]["offsets"]["job.events"].values()) if answer.is_success else 0

    def await_folded(self, facts: int, say: Callable[[str], None], limit_s: float = 3600.0) -> None:
        """Until it has taken in so many."""
        told_s = time.monotonic()

        def has_all() -> bool:
            nonlocal told_s
            found = self.folded()
            if time.monotonic() - told_s > 15:
                told_s = time.monotonic()
                say(f"{found:,} of {facts:,} facts are taken in")
            return found >= facts

        wait_until(f"{facts:,} facts to be taken in", has_all, limit_s, every_s=0.2)

    def resident_mb(self) -> float:
        return self.process.memory_info().rss / 1e6


@contextlib.contextmanager
def web_alone(name: str, retained: int = 10_000, dashboard: Path | None = None) -> Iterator[Web]:
    """Kafka, etcd and the web service, without anybody who says something."""
    with servers(f"web-{name}") as (kafka, etcd):
        kafka.start()
        etcd.start()
        folder = home() / f"alone-web-{name}"
        provision(KafkaAdmin(kafka.bootstrap), EtcdStore(etcd.endpoint, "/millrace/default/"), Topology())
        options = ["--retained-jobs", str(retained), "--storage-url", str(folder / "storage")]
        options += ["--flink-dashboard", str(dashboard)] if dashboard else []
        with started(kafka.bootstrap, etcd.endpoint, folder, options) as web:
            yield web


@contextlib.contextmanager
def started(kafka: str, etcd: str, folder: Path, options: Sequence[str] = ()) -> Iterator[Web]:
    """The web service on a cluster."""
    ready, log = folder / "web.ready.json", folder / "web.log"
    ready.unlink(missing_ok=True)
    command = [sys.executable, "-m", "services.web", "--kafka-bootstrap", kafka, "--etcd-endpoint", etcd]
    child = spawn([*command, "--ready-file", str(ready), *options], log=log, env=environment(), cwd=folder)
    try:
        wait_until("the web service", lambda: ready.exists() or child.exit_code() is not None)
        if child.exit_code() is not None:
            raise RuntimeError("the web service ended")
        web = Web(kafka, etcd, child, json.loads(ready.read_text())["port"])
        try:
            wait_until("the web service's tables", lambda: web.http.get("/healthz").status_code == 200)
            yield web
        finally:
            web.http.close()
    except BaseException:
        show_logs(folder)
        raise
    finally:
        child.stop()


@contextlib.contextmanager
def helper(what: str, folder: Path, *arguments: str) -> Iterator[Child]:
    """A process of `tests.bench.web.load`, ended with the `with`."""
    command = [sys.executable, "-m", "tests.bench.web.load", what, *arguments]
    child = spawn(command, log=folder / f"load-{what}.log", env=environment(), cwd=folder)
    try:
        yield child
    finally:
        child.stop(3.0)


def told(child: Child) -> Any:
    """What a process of `tests.bench.web.load` has printed last, as JSON; None: nothing yet."""
    lines = [line for line in child.log.read_text(errors="replace").splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else None


def parted_cores() -> tuple[set[int], set[int]] | None:
    """The first core, for a server, and the others, for who loads it. None: there is one, or no affinity."""
    if not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2:
        return None
    first, *rest = sorted(os.sched_getaffinity(0))
    return {first}, set(rest)


def keep_to(pid: int, cores: set[int]) -> None:
    """The process, with all threads that it has now and later, uses these cores alone."""
    for thread in psutil.Process(pid).threads():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(thread.id, cores)
