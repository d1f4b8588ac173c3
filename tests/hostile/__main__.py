"""What strangers, months and a second life do to a real stack, of this build or of another one.

`python -m tests.hostile [--checkout FOLDER] [NAME ...]` starts stacks of that checkout, which `make setup` has made ready, in a folder of
its own. It says for each attack what became of it; exit code 1 if one succeeded. Only the command line, Kafka, etcd and files are used,
so that one script speaks with any build.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

import etcd3
import psutil
import typer
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from deploy.local.downloads import CHECKOUT

CONTAINER_MB = 256
"""What docker-compose gives a deciding service."""
PATIENCE_S = 240.0
QUIET = {"log_level": 0}
"""The stack is ended while clients of it live."""
PREFIX = "/millrace/default/"


@dataclass
class Build:
    """A checkout, and a folder for its stacks."""

    checkout: Path
    home: Path

    def run(self, *words: str, ok: bool = True) -> str:
        """A command of its command line."""
        done = subprocess.run(
            [str(self.checkout / ".venv" / "bin" / "millrace"), *words],
            env={**os.environ, "MILLRACE_HOME": str(self.home)},
            capture_output=True, text=True, timeout=600, cwd=self.home,
        )  # fmt: skip
        if ok and done.returncode:
            raise RuntimeError(f"millrace {' '.join(words)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    @contextmanager
    def stack(self, name: str, *options: str) -> Iterator[LiveStack]:
        """A stack that is up, deleted afterwards."""
        try:
            self.run("up", "--detach", "--stack", name, *options)
            yield LiveStack(self, name)
        finally:
            self.run("down", "--purge", "--stack", name, ok=False)


class LiveStack:
    """A stack that is up."""

    def __init__(self, build: Build, name: str) -> None:
        self.build, self.name = build, name
        self.folder = build.home / "stacks" / name

    @property
    def facts(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "stack.json").read_text()))

    def millrace(self, *words: str, ok: bool = True) -> str:
        return self.build.run(*words, "--stack", self.name, ok=ok)

    def submit(self, graph: dict[str, Any], *flags: str, ok: bool = True) -> str:
        path = self.build.home / f"{uuid4().hex[:8]}.json"
        path.write_text(json.dumps(graph))
        return self.millrace("submit", str(path), *flags, ok=ok)

    def pid(self, service: str) -> int:
        return int(self.facts["services"][service]["pid"])

    def peak_mb(self, service: str) -> float:
        """The most memory that this process ever had."""
        with open(f"/proc/{self.pid(service)}/status") as status:
            line = next(line for line in status if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024

    def takes_jobs(self) -> bool:
        """A submission is accepted."""
        graph = {"name": "alive", "vertices": {"one": {"sql": "SELECT 1 AS a"}}}
        return bool(self.submit(graph, ok=False).strip())


def until(what: str, found: Callable[[], Any], limit_s: float = PATIENCE_S) -> Any:
    """The first true value of `found`. Raises TimeoutError."""
    deadline = time.monotonic() + limit_s
    while not (value := found()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {limit_s:.0f} s in vain for {what}")
        time.sleep(0.2)
    return value


def second_life(build: Build) -> tuple[bool, str]:
    """A fresh stack overwrites what jobs of one that was deleted have left."""
    sink = build.home / "sink"
    rows = {"sql": "SELECT '{day}' AS day"}

    def graph(day: str, path: Path, mode: str) -> dict[str, Any]:
        out = {"sink": {"format": "csv", "path": str(path), "mode": mode}, "inputs": {"rows": "forward"}}
        return {"name": day, "vertices": {"rows": {"sql": rows["sql"].format(day=day)}, "out": out}}

    def write(stack: LiveStack, graphs: list[dict[str, Any]]) -> list[bool]:
        jobs = [stack.submit(each).split()[0] for each in graphs]
        return ["FINISHED" in stack.millrace("show", job) for job in jobs if until(job, lambda job=job: _ended(stack, job))]

    with build.stack("monday") as monday:
        if not all(write(monday, [graph("monday", sink, "append") for _ in range(30)])):
            raise RuntimeError("Monday's jobs did not finish")
    copies = {mode: [shutil.copytree(sink, build.home / f"{mode}-{n}") for n in range(12)] for mode in ("overwrite", "error", "append")}
    with build.stack("tuesday") as tuesday:
        ends = {mode: write(tuesday, [graph("tuesday", path, mode) for path in paths]) for mode, paths in copies.items()}
    kept = [sorted(_lines(path)) for path in copies["overwrite"]]
    wrong = sum(lines != ["tuesday"] for lines in kept)
    unseen = sum(ends["error"])
    added = sum(sorted(_lines(path)) != ["monday"] * 30 + ["tuesday"] for path in copies["append"])
    said = f"overwrite: {wrong} of 12 paths hold Monday's rows; error: {unseen} of 12 were not refused; append: {added} of 12 are wrong"
    return bool(wrong or unseen or added), said


def _ended(stack: LiveStack, job: str) -> bool:
    shown = json.loads(stack.millrace("show", job, "--json"))
    return (shown.get("summary") or shown)["status"] in ("FINISHED", "FAILED", "CANCELED")


def _lines(folder: Path) -> list[str]:
    return [line for file in folder.rglob("*.csv") for line in file.read_text().split() if not file.name.startswith(".")]


def compressed(build: Build) -> tuple[bool, str]:
    """One record of zeros on client.commands, about 1 MB as it travels."""
    with build.stack("bomb", "--task-managers", "0") as stack:
        bootstrap = stack.facts["kafka_bootstrap"]
        before = stack.peak_mb("dispatcher")
        peaks = [before]
        producer = Producer({
            "bootstrap.servers": bootstrap, "compression.type": "gzip", "compression.level": 9, "message.max.bytes": 1_000_000_000, **QUIET,
        })  # fmt: skip
        errors: list[str] = []
        producer.produce("client.commands", bytes(900_000_000), on_delivery=lambda error, _: error and errors.append(str(error)))
        while producer.flush(1):
            peaks.append(_peak(stack))
        began = time.monotonic()
        while time.monotonic() < began + 30:
            peaks.append(_peak(stack))
            time.sleep(0.05)
        alive = stack.takes_jobs()
        peaks.append(_peak(stack))
    said = f"the Dispatcher took {before:.0f} MB before and {max(peaks):.0f} MB at most; jobs are {'' if alive else 'not '}taken afterwards"
    said += f"; Kafka refused it: {errors[0]}" if errors else "; Kafka took it"
    return max(peaks) > CONTAINER_MB or not alive, said


def _peak(stack: LiveStack) -> float:
    try:
        return stack.peak_mb("dispatcher")
    except (OSError, StopIteration, KeyError, psutil.Error):
        return 0.0  # it is being started again


def many_logs(build: Build) -> tuple[bool, str]:
    """A million old files below logs/: 330,000 attempts."""
    count = 1_000_000
    with build.stack("logs", "--task-managers", "0") as stack:
        stack.millrace("down")
        shape = stack.folder / "storage" / "logs"
        old = time.time() - 30 * 86400
        for n in range(count // 1000):
            folder = shape / f"job-{n}" / "1.1"
            folder.mkdir(parents=True)
            for file in range(1000):
                path = folder / f"{file}.stdout"
                path.touch()
                os.utime(path, (old, old))
        stack.millrace("up", "--detach")
        before = stack.peak_mb("dispatcher")
        seen = [before]

        def is_swept() -> bool:
            seen.append(_peak(stack))
            return not any(shape.glob("job-*/1.1/*"))

        try:
            until("the sweep", is_swept, 400)
            swept = "all are deleted"
        except TimeoutError:
            swept = "they are still there"
    said = f"the Dispatcher took {before:.0f} MB before and {max(seen):.0f} MB while it swept; {swept}"
    return max(seen) > CONTAINER_MB or swept != "all are deleted", said


def many_old_jobs(build: Build) -> tuple[bool, str]:
    """200,000 jobs that have ended stand in etcd, and the Dispatcher's log is lost."""
    with build.stack("old", "--task-managers", "0") as stack:
        facts = stack.facts
        host, _, port = facts["etcd_endpoint"].rpartition(":")
        etcd = etcd3.client(host=host, port=int(port))
        now = time.time_ns() // 1_000_000
        value = {
            "state": "clean", "digest": "0" * 64, "acceptance": "1.10", "shard": 0, "accepted_ms": now, "name": "old",
            "status": "FINISHED", "ended_ms": now, "archive": "archives/old/1.10.json",
        }  # fmt: skip
        for first in range(0, 200_000, 100):
            puts = [etcd.transactions.put(f"{PREFIX}jobs/old-{first + n:06d}", json.dumps(value)) for n in range(100)]
            etcd.transaction(compare=[], success=puts, failure=[])
        before = stack.peak_mb("dispatcher")
        stack.millrace("down")
        stack.millrace("up", "--detach")
        admin = AdminClient({"bootstrap.servers": stack.facts["kafka_bootstrap"], **QUIET})
        admin.delete_topics(["dispatcher.commands"])["dispatcher.commands"].result()
        peaks = [stack.peak_mb("dispatcher")]
        stack.millrace("down")
        stack.millrace("up", "--detach")
        alive = until("a job that is taken", stack.takes_jobs)
        until("old jobs that are listed", lambda: peaks.append(_peak(stack)) or "old-" in stack.millrace("list", "--json"))
        peak = max(*peaks, _peak(stack))
    return peak > CONTAINER_MB or not alive, f"the Dispatcher took {before:.0f} MB before and {peak:.0f} MB to recover"


def wide_graphs(build: Build) -> tuple[bool, str]:
    """60 submissions of 15 KB with 199 vertices of parallelism 128."""
    vertices: dict[str, Any] = {"v0": {"sql": "SELECT 1 AS a"}}
    for n in range(1, 199):
        vertices[f"v{n}"] = {"sql": f"SELECT * FROM v{n - 1}", "inputs": {f"v{n - 1}": "hash(a)"}, "parallelism": 128}
    with build.stack("wide", "--task-managers", "0") as stack:
        before = stack.peak_mb("job-master")
        producer = Producer({"bootstrap.servers": stack.facts["kafka_bootstrap"], **QUIET})
        for n in range(60):
            request = {"type": "SubmitJob", "version": 1, "job": f"wide-{n}", "graph": {"name": "wide", "vertices": vertices}}
            producer.produce("client.commands", json.dumps(request).encode())
        producer.flush()
        until("all to be read", lambda: _is_read(stack))
        alive = stack.takes_jobs()
        time.sleep(10)
        peak = stack.peak_mb("job-master")
        listed = json.loads(stack.millrace("list", "--json"))
        jobs = listed["jobs"] if isinstance(listed, dict) else listed
        taken = sum(str(job["job"]).startswith("wide-") for job in jobs)
    said = f"{taken} of 60 were taken; the JobMaster took {before:.0f} MB before and {peak:.0f} MB then"
    return peak > CONTAINER_MB or not alive, said


def _is_read(stack: LiveStack) -> bool:
    """client.commands was read to its end: the last of the 60 is answered, by an event or a dead letter."""
    bootstrap = stack.facts["kafka_bootstrap"]
    told = 0
    for topic in ("job.events", "dead-letters"):
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": uuid4().hex, "enable.auto.commit": False})
        for partition in consumer.list_topics(topic, timeout=10).topics[topic].partitions:
            where = TopicPartition(topic, partition)
            low, high = consumer.get_watermark_offsets(where, timeout=10)
            where.offset = low
            consumer.assign([where])
            while low < high:
                message = consumer.poll(10)
                low = message.offset() + 1 if message is not None else high
                value = (message.value() or b"") if message is not None else b""
                told += b'"JobAccepted"' in value or (topic == "dead-letters" and b"{" in value)
        consumer.close()
    return told >= 60


ATTACKS = {
    "second-life": second_life,
    "compressed": compressed,
    "many-logs": many_logs,
    "many-old-jobs": many_old_jobs,
    "wide-graphs": wide_graphs,
}


def main(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME ...]", help=f"Of {', '.join(ATTACKS)}; all without.")] = None,
    checkout: Annotated[Path, typer.Option(help="The build that is attacked.")] = CHECKOUT,
) -> None:
    """Attacks stacks of a build, and says which attacks succeed."""
    fell = []
    for name in names or ATTACKS:
        with tempfile.TemporaryDirectory(prefix="hostile-") as home:
            try:
                succeeded, said = ATTACKS[name](Build(checkout.absolute(), Path(home)))
            except (RuntimeError, TimeoutError, subprocess.TimeoutExpired) as failure:
                succeeded, said = True, str(failure)
        typer.echo(f"{name}: {'SUCCEEDS' if succeeded else 'holds'}: {said}")
        fell += [name] if succeeded else []
    raise typer.Exit(1 if fell else 0)


if __name__ == "__main__":
    sys.path.insert(0, str(CHECKOUT))
    typer.run(main)
