"""A real Apache Kafka for a laptop: one KRaft node on the loopback interface, as a child process.

``python -m deploy.local.kafka fetch`` fills the cache; ``... tool CLASS ARGS`` runs a console tool from Kafka's jars,
such as ``org.apache.kafka.tools.ConsoleProducer``.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from deploy.local.downloads import cache_folder, fetched, only_one, read_pins
from deploy.local.errors import LocalError
from deploy.local.java import Java, find_java
from deploy.local.processes import LOOPBACK, log_tail, port_is_free
from deploy.local.server import LocalServer, Progress, silent
from millrace.io.kafka.client import AdminClient, end_left
from services.task_manager.slot.common import java_text

VERSION = "4.3.1"
HERE = Path(__file__).resolve().parent
MODULES = HERE / "kafka.ivy.xml"
PINS = HERE / "kafka.sha256"
LOGGING = HERE / "kafka.log4j2.properties"
# The client compiler alone and the serial collector: a stack takes jobs a second sooner, and 25 MB less. With the other compiler a broker
# that has been warm for minutes would take half the processor, a seventh of what a job costs: a laptop's stack starts too often for that.
# No stop of all threads each second: an eighth of what an idle broker costs. What a Java does not know of this, it leaves.
FLAGS = (
    *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xms64m", "-XX:-UsePerfData"),
    *("-XX:+IgnoreUnrecognizedVMOptions", "-XX:+UnlockDiagnosticVMOptions", "-XX:GuaranteedSafepointInterval=0"),
)

_quiet = logging.getLogger("millrace.local.kafka.probe")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False  # librdkafka reports each refused connection while we wait for the broker


@dataclass(frozen=True)
class Distribution:
    """Kafka's jars on disk and the Java to run them; ``archive`` holds their classes preparsed, if Java can do that."""

    folder: Path
    java: Java
    archive: Path | None = None

    def environment(self) -> dict[str, str]:
        """The child's environment; the class path is ordered, since an archive fits one order only."""
        jars = [str(self.folder / name) for name in sorted(read_pins(PINS))]
        return {**os.environ, **java_text.locale(os.environ), "CLASSPATH": os.pathsep.join(jars)}

    def flags(self) -> list[str]:
        return [*FLAGS, *([f"-XX:SharedArchiveFile={self.archive}"] if self.archive else [])]

    def tool(self, main_class: str, *arguments: str) -> list[str]:
        """A command line for a shell that runs one of Kafka's own tools, with no environment needed."""
        return [str(self.java.path), "-cp", f"{self.folder}/*", main_class, *arguments]

    def console_producer(self, bootstrap: str, topic: str) -> list[str]:
        """The command that publishes each line of its standard input as a record."""
        return self.tool("org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", bootstrap, "--topic", topic)

    def console_consumer(self, bootstrap: str, topic: str) -> list[str]:
        """The command that prints a topic's records from the first on."""
        return self.tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning"),
        )


def fetch_kafka(progress: Progress = silent, pins: Mapping[str, str] | None = None) -> Distribution:
    """Kafka in the cache: fetched once (44 MB, half a minute) by the Ivy that PySpark ships, verified by SHA-256."""
    java = find_java()
    folder = cache_folder() / f"kafka-{VERSION}"

    def fetch(files: Path, scratch: Path) -> None:
        progress(f"Kafka {VERSION}: fetching its jars (44 MB, once); log in {folder}.fetch.log")
        run_ivy(java, MODULES, files, scratch, log=folder.with_name(folder.name + ".fetch.log"))

    return Distribution(fetched(folder, read_pins(PINS) if pins is None else pins, fetch), java)


def prepare_kafka(progress: Progress = silent) -> Distribution:
    """``fetch_kafka``, and the class archive for this Java, made by one run of a broker (6 s, once)."""
    bare = fetch_kafka(progress)
    key = hashlib.sha256("\n".join([bare.java.text, str(bare.folder), *FLAGS, PINS.read_text()]).encode()).hexdigest()
    archive = bare.folder.with_name(f"{bare.folder.name}-classes-{key[:12]}.jsa")
    if not archive.exists():
        with only_one(archive.with_suffix(".lock")):
            if not archive.exists():
                progress(f"Kafka {VERSION}: preparing its classes for quick starts (once)")
                _make_archive(bare, archive)
    made = archive.stat().st_size > 0  # a Java that cannot make one leaves it empty
    return Distribution(bare.folder, bare.java, archive if made else None)


def run_ivy(java: Java, modules: Path, files: Path, scratch: Path, log: Path) -> None:
    """Retrieve the jars of an Ivy file into ``files``; Ivy's own cache goes to ``scratch``, its output to ``log``."""
    spark = importlib.util.find_spec("pyspark")
    ivy = sorted(Path(place, "jars") for place in (spark.submodule_search_locations or [])) if spark else []
    jars = [jar for folder in ivy for jar in folder.glob("ivy-*.jar")]
    if not jars:
        raise LocalError("PySpark, which ships the Ivy that fetches Kafka, is not installed: run 'make setup'.")
    command = [str(java.path), "-jar", str(jars[0]), "-cache", str(scratch), "-ivy", str(modules)]
    command += ["-confs", "default", "-types", "jar", "bundle"]
    command += ["-retrieve", f"{files}/[artifact]-[revision](-[classifier]).[ext]"]
    with open(log, "wb") as out:
        done = subprocess.run(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise LocalError(
            f"Kafka's jars could not be fetched: see {log}; is there a network, a proxy to name in JAVA_TOOL_OPTIONS?",
            detail=log_tail([log]),
        )


def _make_archive(bare: Distribution, archive: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=archive.stem + ".new-", dir=archive.parent) as temporary:
        new = Path(temporary, "classes.jsa")
        broker = KafkaBroker(Path(temporary, "data"))
        broker.distribution = bare
        broker.extra_flags = (f"-XX:ArchiveClassesAtExit={new}",)
        broker.start()
        try:
            _exercise(broker.bootstrap)
        finally:
            broker.stop(patience_s=120)
        if not new.exists():
            new.touch()
        new.replace(archive)


def _exercise(bootstrap: str) -> None:
    """What every stack does, so that the archive holds the classes for it."""
    with contextlib.suppress(KafkaException):
        admin = AdminClient({"bootstrap.servers": bootstrap}, logger=_quiet)
        admin.create_topics([NewTopic("training", 1, 1)])["training"].result(30)
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True}, logger=_quiet)
        producer.produce("training", b"{}")
        producer.flush(30)
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "training"}, logger=_quiet)
        consumer.assign([TopicPartition("training", 0, 0)])
        consumer.poll(10)
        consumer.close()


class KafkaBroker(LocalServer):
    """A Kafka broker and controller in one process. ``bootstrap`` is its address for clients."""

    NAME = "Kafka"
    PORT_NAMES = ("broker", "controller")

    def __init__(self, data_dir: Path | str, ports: Mapping[str, int] | None = None, heap_mb: int = 512) -> None:
        super().__init__(data_dir, ports)
        self.heap_mb = heap_mb
        self.distribution: Distribution | None = None
        self.extra_flags: Sequence[str] = ()
        self._probe: AdminClient | None = None

    @property
    def bootstrap(self) -> str:
        """``host:port`` for clients, also while the broker does not run but did."""
        port = self.ports.get("broker") or self.meta()["ports"]["broker"]
        return f"{LOOPBACK}:{port}"

    @property
    def logs(self) -> list[Path]:
        return [self.data_dir / "output.log", self.data_dir / "kafka.log"]

    def command(self, progress: Progress) -> tuple[list[str], dict[str, str]]:
        distribution = self.distribution = self.distribution or prepare_kafka(progress)
        properties = self.data_dir / "server.properties"
        properties.write_text(java_text.properties(self._properties()), encoding="ascii")
        (self.data_dir / "kafka.log").unlink(missing_ok=True)
        argv = [str(distribution.java.path), *distribution.flags(), *self.extra_flags, f"-Xmx{self.heap_mb}m"]
        argv += [f"-Dlog4j2.configurationFile={LOGGING.as_uri()}", f"-Dkafka.log={self.data_dir / 'kafka.log'}"]
        argv += [f"-Djava.io.tmpdir={self._temporary()}"]
        if not (self.data_dir / "log" / "meta.properties").exists():
            progress("Kafka: formatting its data folder")
            self._format(properties)
        self._probe = AdminClient(
            {"bootstrap.servers": self.bootstrap, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50},
            logger=_quiet,
        )
        return [*argv, "kafka.Kafka", str(properties)], distribution.environment()

    def _temporary(self) -> Path:
        """An empty folder for the libraries that the broker unpacks: one that was killed left its own."""
        folder = self.data_dir / "tmp"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(exist_ok=True)
        return folder

    def is_ready(self) -> bool:
        assert self._probe is not None
        if port_is_free(self.ports["broker"]):
            return False
        try:
            ready = len(self._probe.list_topics(timeout=0.5).brokers) == 1  # none while the broker is fenced
        except KafkaException:
            return False
        if ready:
            self._probe = None
            end_left()
        return ready

    def _format(self, properties: Path) -> None:
        distribution = self.distribution
        assert distribution is not None
        command = [str(distribution.java.path), *distribution.flags(), "kafka.tools.StorageTool", "format"]
        command += ["--cluster-id", f"millrace-{uuid4().hex[:8]}", "--config", str(properties), "--ignore-formatted"]
        with open(self.data_dir / "output.log", "wb") as out:
            done = subprocess.run(command, stdout=out, stderr=out, env=distribution.environment(), cwd=self.data_dir, check=False)
        if done.returncode != 0:
            raise self._explain(f"Kafka could not format its data folder (exit code {done.returncode})")

    def _properties(self) -> dict[str, object]:
        broker, controller = (f"{LOOPBACK}:{self.ports[name]}" for name in self.PORT_NAMES)
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{broker},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{broker}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": "log",  # below its working folder: a list parted by commas, which a folder's name may hold
            "auto.create.topics.enable": "false",
            "message.max.bytes": 2 * 1024 * 1024,
            **_ONE_REPLICA,
            **_SMALL,
        }


_ONE_REPLICA = {
    "default.replication.factor": 1,
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 1,
}
_SMALL = {
    # One thread each, whose caches stay warm: on two cores a submission is RUNNING sooner than with more.
    "num.network.threads": 1,
    "num.io.threads": 1,
    "background.threads": 2,
    "group.coordinator.threads": 1,
    "share.coordinator.threads": 1,
    "metric.reporters": "",
    "group.initial.rebalance.delay.ms": 0,
    "log.cleaner.dedupe.buffer.size": 4 * 1024 * 1024,
    "log.cleaner.io.buffer.size": 256 * 1024,
    "log.retention.check.interval.ms": 300_000,
    # No heartbeat records in the metadata log of a node that has nobody to convince: half of the idle processor time.
    "metadata.max.idle.interval.ms": 0,
    # A broker that was killed is taken back only when its old session has ended; shorter ones cost an idle machine more.
    "broker.session.timeout.ms": 1500,
    "broker.heartbeat.interval.ms": 700,
}


def main(arguments: Sequence[str]) -> int:
    """``fetch``, or ``tool CLASS ARGS...`` (which becomes that tool)."""
    try:
        if list(arguments) == ["fetch"]:
            prepare_kafka(print)
            return 0
        if len(arguments) >= 2 and arguments[0] == "tool":
            distribution = fetch_kafka(lambda line: print(line, file=sys.stderr))
            command = distribution.tool(*arguments[1:])
            os.execv(command[0], command)
    except LocalError as error:
        print(*filter(None, [str(error), error.detail]), sep="\n", file=sys.stderr)
        return 1
    print("usage: python -m deploy.local.kafka fetch | tool CLASS ARGS...", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
