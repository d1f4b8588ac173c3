"""The cluster of docker-compose.yml, from the host: started, reached, hurt, healed. Real images, or the stand-ins."""

from __future__ import annotations

import ast
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from deploy.local.downloads import CHECKOUT
from deploy.local.processes import free_port
from millrace.client import Job, Millrace, MillraceError, Unavailable, new_id
from millrace.core.topics import TOPICS, Topology
from millrace.io.etcd.store import EtcdStore
from millrace.io.interfaces import Unavailable as NoAnswer
from millrace.io.kafka.logs import KafkaLogs
from tests.chaos.history import History, judge

PORTS = (
    "KAFKA_PORT", "KAFKA_2_PORT", "KAFKA_3_PORT", "ETCD_PORT", "BLOB_PORT", "BLOB_2_PORT", "WEB_PORT", "PROMETHEUS_PORT", "GRAFANA_PORT",
    "JAEGER_PORT", "OTLP_PORT",
)  # fmt: skip
ONE_SHOT = ("check", "provision")
LIMIT_S = 600.0
SLOTS = 2
"""Of a cluster by default: one in each TaskManager."""
ASKER = """
import sys
from millrace.core.topics import TOPICS, Topology
from millrace.io.interfaces import Unavailable
from millrace.io.kafka.admin import KafkaAdmin

admin = KafkaAdmin("kafka:9092", timeout_s=1.4)
for _ in sys.stdin:
    unknown = []
    for topic in TOPICS:
        for partition in range(topic.count(Topology(shards=2))):
            try:
                admin.end(topic.name, partition)
            except Unavailable as failure:
                unknown.append(str(failure))
    print(unknown, flush=True)
"""
"""A process among the services: asked by a line, it says of which partitions it does not learn where they end."""
HEALTH = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8080/health').read().decode())"
T = TypeVar("T")


def no_engine() -> str | None:
    """Why compose cannot be run here, or None."""
    if shutil.which("docker") is None:
        return "there is no docker on PATH"
    said = subprocess.run(["docker", "info"], capture_output=True, text=True, check=False)
    if said.returncode:
        return f"no Docker engine answers: {(said.stderr.strip() or said.stdout.strip()).splitlines()[-1]}"
    return None if compose_command() else "Docker has no compose, neither as a plugin nor as docker-compose"


def compose_command() -> list[str] | None:
    for command in (["docker", "compose"], ["docker-compose"]):
        there = shutil.which(command[0])
        if there and subprocess.run([*command, "version"], capture_output=True, check=False).returncode == 0:
            return command
    return None


WHY_NOT = no_engine()
NEEDS_AN_ENGINE = [
    pytest.mark.long,
    pytest.mark.skipif(WHY_NOT is not None, reason=f"docker-compose.yml is not tested: {WHY_NOT}"),
    pytest.mark.timeout(1800),
]


def until(what: str, found: Callable[[], T], limit_s: float = LIMIT_S) -> T:
    """The first true value of `found`."""
    deadline = time.monotonic() + limit_s
    while not (value := found()):
        assert time.monotonic() < deadline, f"waited {limit_s:.0f} s in vain for: {what}"
        time.sleep(0.1)
    return value


class Cluster:
    """One compose project with ports of its own. `settings`: what stands in .env otherwise."""

    def __init__(self, name: str, **settings: object) -> None:
        self.name = name
        self.settings = {"COMPOSE_PROJECT_NAME": name, **{key: str(value) for key, value in settings.items()}}
        taken: list[int] = []
        for port in PORTS:
            taken.append(free_port(taken))
            self.settings[port] = str(taken[-1])
        self.bootstrap = f"127.0.0.1:{self.settings['KAFKA_PORT']}"
        if "ha" in self.settings.get("COMPOSE_PROFILES", ""):
            self.bootstrap = ",".join(f"127.0.0.1:{self.settings[port]}" for port in PORTS[:3])
        self._client: Millrace | None = None

    # the engine

    def compose(self, *arguments: str, check: bool = True, **settings: object) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **self.settings, **{key: str(value) for key, value in settings.items()}}
        done = subprocess.run(
            [*(compose_command() or []), *arguments],
            **{
                "cwd": CHECKOUT,
                "env": environment,
                "capture_output": True,
                "text": True,
                "check": False,
                "timeout": 900,
            },
        )
        assert not check or done.returncode == 0, f"compose {arguments}: {done.stdout}\n{done.stderr}\n{self.logs()}"
        return done

    def build(self) -> None:
        """The images as the code is now; what did not change is not made anew."""
        self.compose("build")

    def up(self) -> None:
        """Starts it; images are there."""
        self.compose("up", "--detach", "--no-build")

    def down(self, purge: bool = False) -> None:
        self.close()
        self.compose("down", "--remove-orphans", *(["--volumes"] if purge else []), check=False)

    def logs(self, lines: int = 25) -> str:
        done = subprocess.run(
            [*(compose_command() or []), "logs", "--no-color", f"--tail={lines}"],
            **{
                "cwd": CHECKOUT,
                "env": {**os.environ, **self.settings},
                "capture_output": True,
                "text": True,
                "check": False,
            },
        )
        return "\n".join(line[:400] for line in done.stdout.splitlines())

    def containers(self, service: str) -> list[str]:
        return self.compose("ps", "-q", service).stdout.split()

    def inspect(self, container: str) -> dict[str, Any]:
        found: list[dict[str, Any]] = json.loads(docker("inspect", container))
        return found[0]

    def leader(self, service: str) -> str:
        """The container whose process leads a scope; any one of a service that has no leader."""

        def found() -> str | None:
            containers = self.containers(service)
            if service not in ("dispatcher", "resource-manager", "job-master"):
                return containers[0]
            if service == "dispatcher":
                containers += self.containers("dispatcher-2")
            roles = {each: [scope["role"] for scope in self.health(each).get("scopes", ())] for each in containers}
            return next((each for each, its in roles.items() if "leader" in its), None)

        return until(f"a leader among {service}", found) or ""

    def health(self, container: str) -> dict[str, Any]:
        said = subprocess.run(
            ["docker", "exec", container, "python", "-c", HEALTH], capture_output=True, text=True, check=False
        )
        answer: dict[str, Any] = json.loads(said.stdout) if said.returncode == 0 else {}
        return answer

    def kill(self, container: str) -> None:
        """kill -9 to its main process, from the host."""
        os.kill(self.inspect(container)["State"]["Pid"], signal.SIGKILL)

    def started_again(self, container: str, count: int) -> None:
        """Docker has started it so often again."""
        until(
            f"start {count + 1} of {container}",
            lambda: self.inspect(container)["RestartCount"] >= count and self.inspect(container)["State"]["Running"],
        )

    @property
    def network(self) -> str:
        return f"{self.name}_default"

    def cut(self, container: str) -> None:
        docker("network", "disconnect", self.network, container)

    def heal(self, container: str, service: str) -> None:
        docker("network", "connect", "--alias", service, self.network, container)

    # the cluster

    @contextmanager
    def asker(self) -> Iterator[Callable[[], list[str]]]:
        """A process in a container that keeps its client from question to question; see `ASKER`."""
        container = self.containers("web")[0]
        process = subprocess.Popen(
            ["docker", "exec", "-i", container, "python", "-c", ASKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdin is not None and process.stdout is not None

        def ask() -> list[str]:
            print(file=process.stdin, flush=True)
            unknown: list[str] = ast.literal_eval(process.stdout.readline())
            return unknown

        try:
            yield ask
        finally:
            process.stdin.close()
            process.wait(LIMIT_S)

    @property
    def token(self) -> str:
        return self.compose("exec", "-T", "dispatcher", "cat", "/var/lib/millrace/secrets/blob-token").stdout.strip()

    @property
    def client(self) -> Millrace:
        if self._client is None:
            self._client = Millrace(self.bootstrap, token=self.token, timeout_s=LIMIT_S)
        return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def first_accepted(self) -> Job:
        """The answer to a submission that waits for the cluster to be there: brokers that start beside each other may take longer to
        agree on who leads than a client waits."""
        id = new_id("first")

        def submitted() -> Job | None:
            try:
                with Millrace(self.bootstrap, timeout_s=LIMIT_S) as client:
                    return client.submit({"name": "first", "vertices": {"one": {"sql": "SELECT 1 AS one"}}}, job=id)
            except Unavailable:
                return None

        job = until("a cluster that accepts a job", submitted)
        assert job is not None
        return job

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The command line on the host, told where the cluster is as the README says, with nothing shared."""
        environment = {**os.environ, "MILLRACE_KAFKA_BOOTSTRAP": self.bootstrap, "MILLRACE_TOKEN": self.token}
        command = [
            str(CHECKOUT / ".venv" / "bin" / "python"),
            "-c",
            "from deploy.cli import main; main()",
            *arguments,
        ]
        return subprocess.run(
            command, **{"env": environment, "capture_output": True, "text": True, "check": False, "timeout": 600}
        )

    def ready(self, slots: int) -> None:
        """All TaskManagers are there, and all slots are warm and free."""

        said: list[object] = []

        def free() -> bool:
            try:
                overview = self.client.overview()
            except MillraceError as failure:
                said[:] = [failure]
                return False
            said[:] = [overview]
            return overview.free_slots == slots

        try:
            until(f"{slots} free slots", free)
        except AssertionError as failure:
            raise AssertionError(f"{failure}; the last answer: {said}\n{self.logs()}") from None

    def whole(self) -> None:
        """Every container that should run does, and says that it is well."""

        def well() -> bool:
            ids = [each for each in self.compose("ps", "-q").stdout.split()]
            states = [self.inspect(each) for each in ids]
            running = [
                each["State"]
                for each in states
                if each["Config"]["Labels"]["com.docker.compose.service"] not in ONE_SHOT
            ]
            return bool(running) and all(each["Running"] for each in running)

        until("every container to run", well)

    def stored(self) -> dict[str, dict[str, Any]]:
        """Job -> the value of its key in etcd."""
        store = EtcdStore(f"127.0.0.1:{self.settings['ETCD_PORT']}", "/millrace/compose/")
        try:
            return {each.key.removeprefix("jobs/"): json.loads(each.value) for each in store.list("jobs/")[0]}
        finally:
            store.close()

    def topic(self, name: str) -> Iterator[dict[str, Any]]:
        """All that a public topic holds, partition by partition."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "tests", "enable.auto.commit": False})
        logs = KafkaLogs(self.bootstrap, client_id="tests")
        count = next(each for each in TOPICS if each.name == name).count(Topology())
        for partition in range(count):
            where = TopicPartition(name, partition, OFFSET_BEGINNING)
            at, end = logs.offsets(name, partition)
            consumer.assign([where])
            while at < end:
                message = consumer.poll(1.0)
                if message is not None and message.error() is None:
                    at = message.offset() + 1
                    yield json.loads(message.value())
        consumer.close()


def docker(*arguments: str) -> str:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=True).stdout


def sql(number: int) -> Mapping[str, Any]:
    """A job of one query that takes Spark a moment."""
    return {
        "name": f"job-{number}",
        "vertices": {"one": {"sql": f"SELECT count(*) + {number} AS n FROM range(300000)"}},
    }


def submit(client: Millrace, graphs: Sequence[Mapping[str, Any]]) -> list[Job]:
    """All at once; returns when all are accepted."""
    sent = [client.begin_submit(graph) for graph in graphs]
    return [each.result() for each in sent]


def data_folder(folder: Path) -> Path:
    """A folder that the containers' user may read and write."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)
    return folder


def finished_once(cluster: Cluster, jobs: list[Job]) -> None:
    """All of them FINISHED, and etcd and the topics know one end and one counted attempt of each."""
    assert [job.wait().status for job in jobs] == ["FINISHED"] * len(jobs)
    ids = {job.id for job in jobs}

    def cleaned_up() -> dict[str, dict[str, Any]] | None:
        try:
            found = {job: value for job, value in cluster.stored().items() if job in ids}
        except NoAnswer:  # a busy etcd may need more than the two seconds that a call has
            return None
        return found if all(value["state"] == "clean" for value in found.values()) else None

    stored = until("the end of all clean-up", cleaned_up) or {}
    events = [event for event in cluster.topic("job.events") if event["job"] in ids]
    # On a busy machine an attempt may be tried again; what must not happen is that two of them count.
    answers, tried_again = {job: "accepted" for job in ids}, {job: len(events) for job in ids}
    verdict = judge(History(answers, stored, events, tried_again, dead_letters=list(cluster.topic("dead-letters"))))
    assert verdict.violations == []
    assert verdict.accepted == len(jobs)
