"""The JVM of a real slot is looked at: how it is, where its threads are. That harms no attempt and leaves nothing behind."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from millrace.core.messages.processes import JvmStatus
from services.task_manager.slot import wire
from tests.conftest import stop_another
from tests.slot.lifecycle import SESSION, Slot, wait_until

pytestmark = pytest.mark.timeout(600)
BINDINGS = """
from py4j.java_gateway import JavaObject
server = JavaObject("GATEWAY_SERVER", sc._gateway._gateway_client)
server.getGateway().getBindings().size()
"""


def look(slot: Slot, *, threads: bool = False, question: str = "q") -> dict[str, Any]:
    slot.process.order({"do": "look", "question": question, "threads": threads})
    seen = slot.until("looked")
    assert seen["question"] == question
    return seen


def look_at_rest(slot: Slot, *, threads: bool = False) -> dict[str, Any]:
    """The first look that is allowed and answered: after it is ready, and after each attempt, a slot warms up and cleans; beside other
    work a JVM at rest may not answer in time."""
    seen: dict[str, Any] = {}

    def allowed() -> bool:
        seen.update(look(slot, threads=threads))
        return not re.search("ask again|has not answered", seen["no_answer"] or "")

    wait_until(allowed, "its JVM is at rest")
    return seen


def jvm_of(slot: Slot) -> psutil.Process:
    [jvm] = [each for each in psutil.Process(slot.process.pid).children() if "java" in each.name()]
    return jvm


def test_a_jvm_at_rest_says_how_it_is(slot: Slot) -> None:
    seen = look_at_rest(slot)
    assert (seen["no_answer"], seen["threads"]) == (None, None)
    jvm = JvmStatus.model_validate(seen["jvm"])
    assert re.match(r"\d+\.", jvm.version) and jvm.uptime_ms > 0 and jvm.threads > 10
    assert jvm.heap.max is not None and 0 < jvm.heap.used <= jvm.heap.committed <= jvm.heap.max
    assert 800 << 20 < jvm.heap.max <= 1024 << 20, "the slot's heap"
    assert jvm.non_heap.used > 1 << 20 and jvm.collectors and all(each.count >= 0 for each in jvm.collectors)
    assert jvm.metaspace is not None and 1 << 20 < jvm.metaspace.used < jvm.non_heap.used
    assert jvm.cpu_ms is not None and jvm.cpu_ms > 100
    assert sum(each.count for each in jvm.collectors) > 0 and jvm.direct.used <= max(jvm.direct.capacity, jvm.direct.used)


def test_a_running_attempts_threads_are_seen_and_it_goes_on(slot: Slot, tmp_path: Path) -> None:
    go = tmp_path / "go"
    attempt = slot.start(SESSION + f"""
import os, time
def turns(rows):
    while not os.path.exists({str(go)!r}): time.sleep(0.02)
    return rows
print('begun', flush=True)
print(spark.range(0, 9, 1, 1).rdd.mapPartitions(turns).count())
""")  # fmt: skip
    slot.until("running")
    wait_until(lambda: "begun" in attempt.stdout, "the script began")

    def working() -> dict[str, Any] | None:
        seen = look(slot, threads=True)
        return seen if "Executor task launch worker" in (seen["threads"] or "") else None

    seen = wait_until(working, "a task runs")
    paragraphs = seen["threads"].split("\n\n")
    assert any(each.startswith('"main" ') for each in paragraphs) and len(paragraphs) >= seen["jvm"]["threads"] - 5
    slot.seen.clear()
    go.touch()
    slot.end(attempt)
    assert attempt.ended["status"] == "finished" and attempt.stdout.splitlines()[-1] == "9"
    assert "replacing" not in [each["is"] for each in slot.seen], "and its JVM stays"


def test_looks_leave_nothing_in_the_jvm_and_no_process(slot: Slot) -> None:
    before = slot.value(BINDINGS)
    family = len(psutil.Process(slot.process.pid).children(recursive=True))
    look_at_rest(slot)
    answers: list[bool] = []

    def enough() -> bool:
        answers.append(look(slot, threads=True)["no_answer"] is None)
        return sum(answers) == 20

    wait_until(enough, "twenty looks are answered")
    late = len(answers) - 20  # beside other work: such a one is ended
    wait_until(lambda: len(psutil.Process(slot.process.pid).children(recursive=True)) <= family, "all looks have ended")
    assert slot.value(BINDINGS) - before < 20 + 60 * late, "each look had some forty objects"


def test_a_jvm_that_hangs_is_reported_and_goes_on_when_it_wakes(slot: Slot) -> None:
    jvm = jvm_of(slot)
    look_at_rest(slot)
    stop_another(jvm)
    try:
        seen = look(slot)
    finally:
        jvm.send_signal(signal.SIGCONT)
    assert seen["jvm"] is None and f"has not answered for {wire.LOOK_S:g} s" in seen["no_answer"]
    slot.seen.clear()
    assert slot.value("1 + 1") == 2
    assert jvm_of(slot).pid == jvm.pid and look_at_rest(slot)["no_answer"] is None


def test_more_looks_than_a_few_at_once_are_refused(slot: Slot) -> None:
    jvm = jvm_of(slot)
    look_at_rest(slot)
    stop_another(jvm)
    try:
        for number in range(6):
            slot.process.order({"do": "look", "question": str(number), "threads": False})
        seen = {each["question"]: each["no_answer"] for each in (slot.until("looked") for _ in range(6))}
    finally:
        jvm.send_signal(signal.SIGCONT)
    assert [seen[str(number)] for number in (4, 5)] == ["its JVM is looked at 4 times already"] * 2
    assert slot.value("1 + 1") == 2
