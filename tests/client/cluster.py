"""A cluster's control plane as real processes over a real Kafka and etcd, without TaskManagers: jobs are accepted and wait."""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from pathlib import Path

from deploy.local.etcd import EtcdServer
from deploy.local.kafka import KafkaBroker
from deploy.local.processes import Child, spawn
from deploy.provision import provision
from millrace.core.topics import Topology
from millrace.io.etcd.store import EtcdStore
from millrace.io.kafka.admin import KafkaAdmin

CHECKOUT = Path(__file__).resolve().parents[2]
READY_MOST_S = 90.0


class ControlPlane:
    """Dispatcher, ResourceManager and JobMaster; `stop` and `start` each by name."""

    SERVICES = ("resource_manager", "job_master", "dispatcher")

    def __init__(self, folder: Path, kafka: KafkaBroker, etcd: EtcdServer) -> None:
        self.folder, self.kafka, self.etcd = folder, kafka, etcd
        self.token = secrets.token_hex(16)
        self.children: dict[str, Child] = {}
        store = EtcdStore(etcd.endpoint, "/millrace/default/")
        provision(KafkaAdmin(kafka.bootstrap), store, Topology(shards=2))
        store.close()
        for name in self.SERVICES:
            self.start(name)

    @property
    def storage(self) -> Path:
        return self.folder / "storage"

    def start(self, name: str, **settings: object) -> None:
        """Starts a service, with further settings, and waits until it is up."""
        ready = self.folder / f"{name}.ready"
        ready.unlink(missing_ok=True)
        env = {
            **{name: value for name, value in os.environ.items() if name != "MILLRACE_HOME"},  # it is of no stack
            "PYTHONPATH": os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "shared")]),
            "MILLRACE_BLOB_TOKEN": self.token,
            "MILLRACE_KAFKA_BOOTSTRAP": self.kafka.bootstrap,
            "MILLRACE_ETCD_ENDPOINT": self.etcd.endpoint,
            "MILLRACE_STORAGE_URL": str(self.storage),
            "MILLRACE_LOG_FORMAT": "json",
            **{f"MILLRACE_{key.upper()}": str(value) for key, value in settings.items()},
        }
        command = [sys.executable, "-m", f"services.{name}", "--ready-file", str(ready)]
        self.children[name] = spawn(command, log=self.folder / f"{name}.log", env=env, cwd=self.folder)
        deadline = time.monotonic() + READY_MOST_S
        while not ready.exists():
            log = (self.folder / f"{name}.log").read_text()[-2000:]
            assert time.monotonic() < deadline, f"{name} is not up: {log}"
            assert self.children[name].popen.poll() is None, f"{name} ended: {log}"
            time.sleep(0.02)

    def stop(self, name: str) -> None:
        self.children.pop(name).stop(10)

    def close(self) -> None:
        for child in self.children.values():
            child.stop(10)


def archived(plane: ControlPlane, path: str) -> dict:
    return dict(json.loads((plane.storage / path).read_text()))
