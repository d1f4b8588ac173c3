"""A real etcd is restored from a backup while a job runs, and `millrace recover` puts back what happened since [R24]."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from deploy.local import etcd as local_etcd
from deploy.local.downloads import CHECKOUT
from deploy.local.etcd import EtcdServer
from deploy.local.kafka import KafkaBroker
from deploy.local.processes import Child, log_tail, spawn
from deploy.provision import provision
from millrace.client import Millrace
from millrace.core.topics import Topology
from millrace.io.etcd.store import EtcdStore
from millrace.io.interfaces import Entry, Unavailable
from millrace.io.kafka.admin import KafkaAdmin
from tests.end_to_end.running import Watched, until
from tests.task_manager.timed import query

PREFIX = "/millrace/default/"
CONTROL = ("dispatcher", "resource_manager", "job_master")
LOST_AFTER_MS = 30_000  # while etcd is away, a TaskManager ends if Kafka answers late, too: on a busy machine that is no wonder
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "shared")])}


class Cluster:
    """Kafka, etcd (PyPI's, which comes with the tools for backups) and services that nobody starts again, in a `with`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kafka = KafkaBroker(folder / "kafka")
        self.etcd = EtcdServer(folder / "etcd", etcd=local_etcd.packaged())
        self.settings = folder / "settings.yaml"
        self._children: dict[str, Child] = {}
        self._ends = ExitStack()

    def __enter__(self) -> Cluster:
        with ExitStack() as ends:
            ends.enter_context(self.kafka)
            ends.callback(lambda: self.etcd.stop())
            self.etcd.start()
            provision(KafkaAdmin(self.kafka.bootstrap), EtcdStore(self.etcd.endpoint, PREFIX), Topology())
            settings = {
                "kafka_bootstrap": self.kafka.bootstrap, "etcd_endpoint": self.etcd.endpoint,
                "storage_url": str(self.folder / "storage"), "dispatcher": {"blob_token": "t"},
                "resource_manager": {"lost_after_ms": LOST_AFTER_MS},
                "task_manager": {"work_folder": str(self.folder / "work"), "slots": 4, "id": "timed"},
            }  # fmt: skip
            YAML(typ="safe").dump(settings, self.settings)
            ends.callback(self.end)
            self.start(*(f"services.{name}" for name in CONTROL), "tests.task_manager.timed")
            self._ends = ends.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def start(self, *modules: str) -> None:
        for module in modules:
            command = [sys.executable, "-m", module, "--config", str(self.settings), "--instance", module.split(".")[1]]
            log = self.folder / f"{module}-{len(list(self.folder.glob('*.log')))}.log"
            self._children[module] = spawn(command, log=log, env=ENVIRONMENT, cwd=self.folder)

    def end(self, *modules: str) -> None:
        """SIGTERM; none named: all."""
        for module in modules or list(self._children):
            self._children.pop(module).stop()

    def fallen(self) -> dict[str, str]:
        """Services that have ended and were not asked to, with their last words."""
        ended = {module: child for module, child in self._children.items() if child.exit_code() is not None}
        return {module: f"ended with {child.exit_code()}: {log_tail([child.log], 1)}" for module, child in ended.items()}

    def tool(self, *arguments: object) -> None:
        """Runs etcdctl of the same package."""
        assert self.etcd.etcd is not None
        program = self.etcd.etcd.path.with_name("etcdctl")
        subprocess.run([program, *map(str, arguments)], check=True, capture_output=True, timeout=180)

    def restore(self, backup: Path) -> None:
        """In the way of etcd's own documents."""
        self.etcd.stop()
        data, peer = self.etcd.data_dir / "data", f"http://127.0.0.1:{self.etcd.meta()['ports']['peer']}"
        shutil.rmtree(data)
        self.tool("snapshot", "restore", backup, "--data-dir", data, "--name", "millrace", "--initial-cluster", f"millrace={peer}",
                  "--initial-advertise-peer-urls", peer)  # fmt: skip
        self.etcd.start()

    def recover(self) -> subprocess.CompletedProcess[str]:
        """As an operator: again while Kafka or etcd is busy for longer than it waits, which is its exit code 3."""
        command = [sys.executable, "-c", "from deploy.cli import main; main()", "recover"]
        command += ["--kafka-bootstrap", self.kafka.bootstrap, "--etcd-endpoint", self.etcd.endpoint]
        command += ["--storage-url", str(self.folder / "storage")]

        def done() -> subprocess.CompletedProcess[str] | None:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=120, env=ENVIRONMENT)
            return ended if ended.returncode != 3 else None

        return until("an answer of Kafka and etcd", done)

    def states(self) -> dict[str, str]:
        """Job -> its status, or "accepted", as etcd has it."""
        store = EtcdStore(self.etcd.endpoint, PREFIX)

        def listed() -> list[list[Entry]]:
            with suppress(Unavailable):  # a busy etcd may need more than the two seconds that a call has
                return [store.list("jobs/")[0]]
            return []

        try:
            [entries] = until("an answer of etcd", listed)
        finally:
            store.close()
        values = {entry.key.removeprefix("jobs/"): json.loads(entry.value) for entry in entries}
        return {job: value.get("status") or value["state"] for job, value in values.items()}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as running:
        yield running


@pytest.mark.long
def test_an_etcd_restored_from_a_backup(cluster: Cluster) -> None:
    with Millrace(cluster.kafka.bootstrap, timeout_s=60) as client:

        def submit(job: str, seconds: float) -> Watched:
            return Watched(client.submit({"name": job, "vertices": {"one": {"sql": query(seconds)}}}, job=job))

        assert submit("old", 0.01).end["type"] == "JobFinished"
        ends_later, stays = submit("ends-later", 3_600), submit("stays", 3_600)
        for each in (ends_later, stays):
            each.running()
        cluster.tool("--endpoints", cluster.etcd.endpoint, "snapshot", "save", cluster.folder / "backup")
        ends_later.job.cancel()
        assert ends_later.end["type"] == "JobCanceled"
        assert submit("new", 0.01).end["type"] == "JobFinished"
        new_stays = submit("new-stays", 3_600)
        new_stays.running()
        services = [f"services.{name}" for name in CONTROL]
        until("the clean end of all", lambda: set(cluster.states().values()) == {"FINISHED", "CANCELED", "accepted"})
        before = cluster.states()

        refused = cluster.recover()
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "dispatcher leads dispatcher: end all control services first" in refused.stderr
        cluster.end(*services)
        cluster.restore(cluster.folder / "backup")
        assert cluster.states() == {"old": "FINISHED", "ends-later": "accepted", "stays": "accepted"}
        done = cluster.recover()
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == "jobs: 1 are put back as accepted, 2 as ended"
        assert cluster.states() == before

        KafkaAdmin(cluster.kafka.bootstrap).delete_topics(["dispatcher.commands"])  # the proof: etcd alone tells the same
        provision(KafkaAdmin(cluster.kafka.bootstrap), EtcdStore(cluster.etcd.endpoint, PREFIX), Topology())
        cluster.start(*services)
        for each in (stays, new_stays):
            each.job.cancel()
            assert each.end["type"] == "JobCanceled"
            assert each.attempts("RUNNING") == [("one", 0, 1)], "it went on, and did not run again"
        assert client.status("ends-later").status == "CANCELED" and client.status("new").status == "FINISHED"
        assert ends_later.attempts("RUNNING") == [("one", 0, 1)]
        assert cluster.fallen() == {}, "nothing has ended by itself, so what ran went on"
        until("nothing runs", lambda: client.overview().free_slots == 4)
