"""Without our client: any Kafka producer submits, any Kafka consumer follows."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from deploy.local.kafka import prepare_kafka
from millrace.client import new_id
from millrace.client.link import partition_of
from millrace.core.topics import Topology
from tests.end_to_end.running import EXAMPLES, RunningStack, Topic

PARTITIONS = Topology().job_event_partitions
ENDS = ("JobFinished", "JobFailed", "JobCanceled")
TOOLS = {
    "kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
}
STATES = ["DEPLOYING", "RUNNING", "FINISHED"]


def request(job: str, sql: str) -> str:
    graph = {"name": "published", "vertices": {"one": {"sql": sql}}}
    return json.dumps({"type": "SubmitJob", "version": 1, "job": job, "graph": graph})


def events_of(topic: Topic, jobs: set[str]) -> dict[str, list[dict[str, Any]]]:
    """The events of these jobs on this partition, in order, until all have ended."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    left = set(jobs)
    while left:
        message = topic.next(f"the ends of {sorted(left)}")
        job = message.key().decode()
        if job in jobs:
            found[job].append(json.loads(message.value()))
            if found[job][-1]["type"] in ENDS:
                left.discard(job)
    return found


def test_a_plain_producer_submits_and_a_plain_consumer_follows_in_order(running: RunningStack) -> None:
    """Thirty jobs at once, so that many events of many jobs stand side by side."""
    bootstrap = running.facts["kafka_bootstrap"]
    topics = [Topic(bootstrap, "job.events", number) for number in range(PARTITIONS)]
    starts = [topic.offset for topic in topics]
    jobs = {new_id("published"): n for n in range(30)}
    producer = Producer({"bootstrap.servers": bootstrap})
    for job, n in jobs.items():
        producer.produce("client.commands", request(job, f"SELECT {n} AS n"))
    assert producer.flush(60) == 0

    for number, topic in enumerate(topics):
        mine = {job for job in jobs if partition_of(job, PARTITIONS) == number}
        for job, events in events_of(topic, mine).items():
            types = [event["type"] for event in events]
            assert (types[0], types[-1]) == ("JobAccepted", "JobFinished"), events
            assert types.count("JobAccepted") == types.count("JobFinished") == 1
            states = [event["state"] for event in events if event["type"] == "AttemptStateChanged"]
            assert states == STATES, events
            assert events[-1]["result"]["rows"] == [[jobs[job]]]
        topic.close()
        if mine:
            again = Topic(bootstrap, "job.events", number, starts[number])
            events_of(again, mine)
            assert [m.value() for m in again.records] == [m.value() for m in topic.records], "a second reading differs"
            again.close()


@pytest.mark.long
def test_kafkas_console_tools_submit_and_follow(running: RunningStack) -> None:
    bootstrap, job = running.facts["kafka_bootstrap"], new_id("console")
    kafka, number = prepare_kafka(), partition_of(job, PARTITIONS)
    topic = Topic(bootstrap, "job.events", number)
    line = request(job, "SELECT 'from the console' AS a") + "\n"
    produce = kafka.console_producer(bootstrap, "client.commands")
    subprocess.run(produce, input=line.encode(), env=kafka.environment(), check=True, timeout=120)
    written = events_of(topic, {job})[job]
    topic.close()
    assert written[-1]["result"]["rows"] == [["from the console"]]

    first = topic.records[0].offset()
    consume = kafka.tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", bootstrap, "--topic", "job.events",
        "--partition", str(number), "--offset", str(first), "--max-messages", str(len(topic.records)),
    )  # fmt: skip
    read = subprocess.run(consume, capture_output=True, env=kafka.environment(), check=True, timeout=120)
    assert [json.loads(line) for line in read.stdout.splitlines() if json.loads(line)["job"] == job] == written


# ---- examples/publishers, each as it stands


def publish(command: list[str | Path], running: RunningStack, job: str, greeting: str, folder: Path) -> None:
    """Runs an example; it must tell the job's facts to its end. What it calls of Kafka's tools is found in `folder`."""
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    arguments = [*map(str, command), running.facts["kafka_bootstrap"], job]
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment, timeout=150, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    facts = [json.loads(line) for line in done.stdout.splitlines()]
    facts = [fact for fact in facts if fact["type"] != "JobAcceptedReply"]
    assert [fact["job"] for fact in facts] == [job] * len(facts)
    assert (facts[0]["type"], facts[-1]["type"]) == ("JobAccepted", "JobFinished")
    assert facts[-1]["result"]["rows"] == [[greeting]]
    again = subprocess.run(arguments, capture_output=True, text=True, env=environment, timeout=150, check=False)
    assert again.returncode == 0, again.stdout + again.stderr  # the same job, which has ended: nothing new is waited for


@pytest.mark.long
def test_the_example_for_kafkas_console_tools(running: RunningStack, tmp_path: Path) -> None:
    kafka = prepare_kafka()
    for name, main in TOOLS.items():  # in the place of an installation
        tool = tmp_path / name
        tool.write_text(f'#!/bin/sh\nexec {shlex.join(kafka.tool(main))} "$@"\n')
        tool.chmod(0o755)
    job = new_id("console")
    publish([EXAMPLES / "publishers" / "console.sh"], running, job, "Hello from the console", tmp_path)


def test_the_example_in_python(running: RunningStack, tmp_path: Path) -> None:
    command = [sys.executable, EXAMPLES / "publishers" / "publish.py"]
    publish(command, running, new_id("python"), "Hello from Python", tmp_path)


def test_the_example_in_java(running: RunningStack, tmp_path: Path) -> None:
    kafka = prepare_kafka()
    java = kafka.java.path
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=True, timeout=60).stdout
    if "jdk.compiler" not in modules:
        assert "CI" not in os.environ, f"{java} is no JDK: .ci/run installs one"
        pytest.skip(f"{java} runs programs and compiles none: the example in Java needs a JDK")
    command: list[str | Path] = [
        java,
        "-XX:TieredStopAtLevel=1",
        "-cp",
        f"{kafka.folder}/*",
        EXAMPLES / "publishers" / "Publish.java",
    ]
    publish(command, running, new_id("java"), "Hello from Java", tmp_path)
