"""`python -m tests.task_manager.timed`: a TaskManager process whose attempts have no Spark and last as long as their query says:
`SELECT 0.5 AS seconds, 2 AS failures` lasts half a second and fails twice before it finishes; any other one is over at once.

Takes the settings of `python -m services.task_manager`. In the folder of the environment's TIMED_LIVES each attempt leaves a
mark while it lives, and one that finds another one of its subtask alive says so there, in `two-at-once`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

from services.task_manager.__main__ import main
from tests.task_manager.simulated_slot import OnEvent, SimulatedSlot, empty_report

ASKED = re.compile(r"SELECT ([0-9.]+) AS seconds, ([0-9]+) AS failures")
TWO_AT_ONCE = "two-at-once"


def query(seconds: float, failures: int = 0) -> str:
    return f"SELECT {seconds:.3f} AS seconds, {failures} AS failures"


class TimedSlot(SimulatedSlot):
    """A slot whose attempts take their time."""

    def __init__(self, number: int, on_event: OnEvent) -> None:
        self._lock = threading.Lock()
        self._living: str | None = None  # the attempt that nobody has begun to end
        self._mark: Path | None = None
        super().__init__(number, on_event, prompt=False)
        self.ready()

    def run(self, attempt: str, spec: dict[str, Any], work: str, log: str, blobs: str) -> None:
        asked = ASKED.search(json.dumps(spec["vertices"]))
        super().run(attempt, spec, work, log, blobs)
        self._mark = mark_life(spec)
        self.start()
        self._living = attempt
        seconds, failures = (float(asked[1]), int(asked[2])) if asked is not None else (0.0, 0)
        timer = threading.Timer(seconds, self._over, (attempt, spec, failures))
        timer.daemon = True
        timer.start()

    def kill(self, attempt: str, why: str) -> None:
        if self._ends(attempt):
            self.killed(why)
            self.ready()

    def end(self, status: str, report: Any = None, error: Any = None) -> None:
        if self._mark is not None:
            self._mark.unlink(missing_ok=True)
        super().end(status, report, error)

    def _over(self, attempt: str, spec: dict[str, Any], failures: int) -> None:
        if not self._ends(attempt):
            return  # it was killed
        if spec["attempt"] <= failures:
            self.end("failed", error={"kind": "user", "retryable": True, "message": "as it was asked to"})
        else:
            self.end("finished", report=empty_report(spec))
        self.ready()

    def _ends(self, attempt: str) -> bool:
        """Whether it is the caller who ends this attempt. No lock is held while the end is told: who is told has a lock of its own, and
        holds it while it kills."""
        with self._lock:
            mine = attempt == self._living
            if mine:
                self._living = None
        return mine


def mark_life(spec: dict[str, Any]) -> Path | None:
    """Says that this attempt lives, and whether others of its subtask do."""
    lives = os.environ.get("TIMED_LIVES")
    if not lives:
        return None
    subtask = f"{spec['job']}.{spec['task']}.{spec['subtask']}"  # a task's name is as long as its vertices are many
    folder = Path(lives) / hashlib.sha256(subtask.encode()).hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    for other in folder.iterdir():
        pid = int(other.name.rpartition("-")[2])
        if is_awake(pid) and other.exists():
            said = {"at_s": time.monotonic(), "job": spec["job"], "attempt": spec["attempt"], "other": other.name}
            with open(Path(lives) / TWO_AT_ONCE, "a") as file:
                file.write(json.dumps({**said, "other_pid": pid}) + "\n")
    mark = folder / f"{spec['attempt']}-{os.getpid()}"
    mark.touch()
    return mark


def is_awake(pid: int) -> bool:
    """Whether a process lives and is not stopped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "TtZX"
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main(factory=TimedSlot))
