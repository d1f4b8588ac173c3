"""Five times as many submissions as the cluster can end, for a minute: what gets done, in how much memory, and how soon it is over.

The publisher waits for no answer and slows down for nobody: what the Dispatcher has no room for is refused, and becomes a dead letter.
"""

from __future__ import annotations

import time
from collections import Counter

import psutil
from confluent_kafka import Producer

from millrace.core.messages import client
from tests.chaos.run import topic_records

from .burst import graph
from .clusters import ENDS, Cluster, cluster
from .figures import Row, Run

TIMES = 5
AT_ONCE = 64
"""Jobs under way while the peak is measured: enough for all slots."""
GOODPUT_LEAST, RECOVERY_S, MEMORY_MB = 0.95, 5.0, 256.0
"""The last is what docker-compose.yml gives a control service."""
DRAIN_S = 900.0


def measure(run: Run) -> None:
    with cluster("overload", run.say, slots=16, simulated=True) as running:
        _closed(running, "warm", run.count(5, 2))
        run.say("looking for the peak")
        peak = _closed(running, "peak", run.count(20, 5))
        seconds = run.count(60, 10)
        run.say(f"{TIMES} x {peak:.0f} submissions a second for {seconds} s")
        began_ms = _now_ms()
        sent, memory = _flood(running, TIMES * peak, seconds)
        ended_ms, over = _now_ms(), time.perf_counter()
        running.client.submit(graph("after", 0), watch=False)
        recovery_s = time.perf_counter() - over
        run.say(f"accepted again after {recovery_s:.2f} s; what was accepted comes to its end")
        _drain(running, run)
        facts = topic_records(running.kafka, "job.events", 1)
        refused = len(topic_records(running.kafka, "dead-letters", 1))
    _account(Counter(each["type"] for each in facts), refused)
    goodput = sum(each["type"] == "JobFinished" and began_ms <= each["at_ms"] < ended_ms for each in facts) / seconds
    run.samples |= {"peak": peak, "goodput": goodput, "sent": sent, "refused": refused, "memory_mb": memory, "recovery_s": recovery_s}
    _rows(run, peak, goodput, sent, refused, recovery_s, memory)


def _rows(run: Run, peak: float, goodput: float, sent: int, refused: int, recovery_s: float, memory: dict[str, float]) -> None:
    largest = max(memory, key=lambda name: memory[name])
    run.rows.append(Row(
        f"overload, {sent:,} submissions at {TIMES} x the peak: jobs ended a second", 1, f"{goodput:.0f}", f"{refused:,} refused",
        f"peak {peak:.0f}", f"{goodput / peak:.2f} x", f"{GOODPUT_LEAST} x", goodput >= GOODPUT_LEAST * peak,
    ))  # fmt: skip
    run.rows.append(Row(
        "overload's end -> next submission accepted", 1, f"{recovery_s:.2f} s", "", "", "", f"{RECOVERY_S:g} s", recovery_s <= RECOVERY_S
    ))  # fmt: skip
    run.rows.append(Row(
        "overload: resident memory of a control service", 1, f"{memory[largest]:.0f} MB", largest, "", "", f"{MEMORY_MB:.0f} MB",
        memory[largest] <= MEMORY_MB,
    ))  # fmt: skip


def _closed(running: Cluster, label: str, seconds: int) -> float:
    """Jobs ended a second, by a client that has no more than some under way."""
    first, number, started = _ended(running), 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        for _ in range(AT_ONCE - (number - (_ended(running) - first))):
            running.client.begin_submit(graph(label, number), watch=False)
            number += 1
        time.sleep(0.05)  # the pace of a client that asks
    rate = (_ended(running) - first) / (time.perf_counter() - started)
    running.settle()
    return rate


def _ended(running: Cluster) -> int:
    return sum(count for status, count in running.client.overview().jobs.items() if status in ENDS.values())


def _flood(running: Cluster, rate: float, seconds: int) -> tuple[int, dict[str, float]]:
    """How many were sent, and each control service's largest resident memory in MB."""
    producer = Producer({"bootstrap.servers": running.kafka, "linger.ms": 5})
    services = {name: each for name, each in running.processes().items() if not name.startswith("task-manager")}
    memory, sent, looked, started = dict.fromkeys(services, 0.0), 0, 0.0, time.perf_counter()
    while (passed := time.perf_counter() - started) < seconds:
        for _ in range(int(passed * rate) - sent):
            request = client.SubmitJob(job=f"flood-{sent}", graph=graph("flood", sent))
            producer.produce("client.commands", request.model_dump_json().encode())
            sent += 1
        producer.poll(0.005)
        if passed - looked >= 1:
            looked = passed
            memory = {name: max(memory[name], _resident_mb(each)) for name, each in services.items()}
    if producer.flush(30):
        raise RuntimeError("Kafka did not take all submissions")
    return sent, memory


def _resident_mb(process: psutil.Process) -> float:
    return process.memory_info().rss / 1e6


def _drain(running: Cluster, run: Run) -> None:
    deadline = time.monotonic() + DRAIN_S
    while not running.is_idle():
        if time.monotonic() > deadline:
            raise TimeoutError(f"jobs that were accepted have not ended within {DRAIN_S:.0f} s: {running.client.overview().jobs}")
        run.say(", ".join(f"{status} {count:,}" for status, count in running.client.overview().jobs.items() if count))
        time.sleep(5)


def _account(told: Counter[str], refused: int) -> None:
    """A figure of a cluster that lost or doubled a job is none."""
    if told["JobAccepted"] != told["JobFinished"]:
        raise RuntimeError(f"{told['JobAccepted']} jobs were accepted, and {told['JobFinished']} finished; {refused} were refused")


def _now_ms() -> int:
    return int(time.time() * 1000)

