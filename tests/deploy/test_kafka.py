"""What is Kafka's alone."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.local import kafka
from deploy.local.downloads import read_pins
from deploy.local.kafka import KafkaBroker

ROOT = Path(__file__).parents[2]


def test_every_wanted_module_is_pinned():
    wanted = ElementTree.parse(kafka.MODULES).getroot().iter("dependency")
    names = {f"{module.get('name')}-{module.get('rev')}.jar" for module in wanted}
    assert len(names) == 3
    assert names <= set(read_pins(kafka.PINS))
    assert f"kafka_2.13-{kafka.VERSION}.jar" in names


def test_every_pin_is_a_sha256():
    assert all(re.fullmatch("[0-9a-f]{64}", pin) for pin in read_pins(kafka.PINS).values())


def test_the_classes_are_prepared_once():
    said: list[str] = []
    first = kafka.prepare_kafka()
    assert kafka.prepare_kafka(said.append) == first
    assert said == []
    assert first.archive is not None
    assert first.archive.stat().st_size > 10_000_000


def test_the_archive_is_used(kafka):
    """The broker's classes come out of it: a Java that cannot use it would go on in silence."""
    distribution = kafka.distribution
    command = [str(distribution.java.path), *distribution.flags(), "-Xshare:on", "-Xlog:class+load", "kafka.Kafka"]
    done = subprocess.run(command, env=distribution.environment(), capture_output=True, text=True, check=False)
    assert re.search(r"kafka\.Kafka\$? source: shared objects file \(top\)", done.stdout), done.stdout[-2000:]


def test_what_a_broker_unpacks_goes_with_its_data(kafka):
    """A broker that is killed leaves the libraries it unpacked: not where every program of the machine leaves things."""
    assert f"-Djava.io.tmpdir={kafka.data_dir / 'tmp'}" in psutil.Process(kafka.pid).cmdline()


def test_a_brokers_settings_are_read_as_they_were_written(tmp_path):
    """A properties file is Latin-1 to Java: the log of a broker in /home/josé was formatted in another folder, and outlived a purge."""
    broker = KafkaBroker(tmp_path / "josé, müller")
    broker.distribution = kafka.Distribution(tmp_path, kafka.find_java())
    broker.ports = {"broker": 1, "controller": 2}
    (broker.data_dir / "log").mkdir(parents=True)
    (broker.data_dir / "log" / "meta.properties").touch()  # formatted already
    broker.command(print)
    written = (broker.data_dir / "server.properties").read_bytes()
    assert written.isascii()
    assert b"\nlog.dirs=log\n" in written, "below its working folder: in a list of folders a comma would part the name"


def test_the_console_tools_publish_and_read(real_kafka):
    topic = real_kafka.topic("console")
    admin = AdminClient({"bootstrap.servers": real_kafka.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(120)
    distribution = real_kafka.broker.distribution
    publish = distribution.console_producer(real_kafka.bootstrap, topic)
    subprocess.run(publish, input='{"type": "SubmitJob"}\n', text=True, check=True, capture_output=True, timeout=150)
    follow = [*distribution.console_consumer(real_kafka.bootstrap, topic), "--max-messages", "1"]
    assert subprocess.run(follow, text=True, check=True, capture_output=True, timeout=150).stdout == (
        '{"type": "SubmitJob"}\n'
    )


def test_the_tool_command_becomes_the_tool(real_kafka):
    arguments = ["org.apache.kafka.tools.TopicCommand", "--bootstrap-server", real_kafka.bootstrap, "--list"]
    command = [sys.executable, "-m", "deploy.local.kafka", "tool", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=150)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", line) for line in done.stdout.splitlines())
    wrong = subprocess.run([*command[:3], "tol"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=150)
    assert (wrong.returncode, wrong.stderr) == (2, "usage: python -m deploy.local.kafka fetch | tool CLASS ARGS...\n")


def test_topics_are_not_made_by_chance(real_kafka):
    admin = AdminClient({"bootstrap.servers": real_kafka.bootstrap})
    admin.list_topics(real_kafka.topic("nobody-made-it"), timeout=60)
    assert real_kafka.topic("nobody-made-it") not in admin.list_topics(timeout=60).topics


def test_an_idle_broker_writes_nothing(real_kafka):
    """A stack that rests must not fill the disk: no heartbeat records in the metadata log."""
    assert "metadata.max.idle.interval.ms=0\n" in (real_kafka.broker.data_dir / "server.properties").read_text()
