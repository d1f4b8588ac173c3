"""docs/restarts.md: a subtask whose first attempt hangs is finished by a second one on the other TaskManager [R38]."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.end_to_end.running import RunningStack, until
from tests.end_to_end.test_again import millrace

GRAPH = """
name: sums
modules: [summing.py]
speculative: {baseline_ratio: 0.5, baseline_lower_bound_ms: 1000}
restart: {strategy: none}
vertices:
  numbers: {sql: SELECT id FROM range(100)}
  sums:
    python: summing:sums
    schema: n LONG
    parallelism: 2
    inputs: {numbers: hash(id)}
"""
CODE = """
import os, time
def sums(numbers):
    try:
        os.mkdir(MARK)
    except FileExistsError:
        return numbers.groupBy().sum("id").toDF("n")
    time.sleep(3600)  # one attempt alone hangs
"""


def show(running: RunningStack, job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(millrace(running, "show", job, "--json").stdout)["detail"]["tasks"][-1]["subtasks"]
    return found


def test_the_second_attempt_finishes_what_the_first_one_hangs_in(running: RunningStack, tmp_path: Path) -> None:
    (tmp_path / "sums.yaml").write_text(GRAPH)
    (tmp_path / "summing.py").write_text(CODE.replace("MARK", repr(str(tmp_path / "hangs"))))
    done = millrace(running, "submit", tmp_path / "sums.yaml", "--job", "sums-hang", "--wait")
    assert done.returncode == 0, done.stderr
    assert sum(int(line) for line in done.stdout.split()[1:]) == sum(range(100)), done.stdout
    subtasks = show(running, "sums-hang")
    [slow] = [each for each in subtasks if each["attempt"] == 2]
    lines = millrace(running, "events", "sums-hang", "--json").stdout.splitlines()
    events = [event for event in map(json.loads, lines) if event["type"] == "AttemptStateChanged" and event["task"] == "sums"]
    its = [event for event in events if event["subtask"] == slow["subtask"]]
    told = [(event["attempt"], event["state"], event.get("beside")) for event in its]
    assert told == [
        (1, "DEPLOYING", None), (1, "RUNNING", None), (2, "DEPLOYING", 1), (2, "RUNNING", 1), (2, "FINISHED", None), (1, "CANCELED", 2),
    ], told  # fmt: skip
    assert its[0]["task_manager"] != its[2]["task_manager"]
    until("both slots to be free", running.idle)
