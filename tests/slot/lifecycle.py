"""A real slot for tests: its host, JVM and attempts, and everything they say."""

from __future__ import annotations

import hashlib
import json
import queue
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from services.task_manager.slot import wire
from services.task_manager.slot.client import SlotProcess
from services.task_manager.slot.common.config import SlotConfig
from services.task_manager.slot.common.jvm import find_java, find_spark
from services.task_manager.slot.host.archive import Archive

PATIENCE_S = 180
FIRST_TIER = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""A JVM that runs a few small queries ends before the full JIT compiler has paid for itself, and takes the cores of other tests."""
SPENT = {"start_ms", "plan_ms", "compute_ms", "exchange_ms"}
"""What each report of an attempt says of its time."""
SESSION = "from pyspark.sql import SparkSession\nspark = SparkSession.builder.getOrCreate()\nsc = spark.sparkContext\n"


class Attempt:
    """An attempt that was ordered; ``ended`` is what the host said of its end."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.work, self.log = folder / "work", folder / "log"
        self.ended: dict[str, Any] = {}

    @property
    def stdout(self) -> str:
        return self._written("stdout")

    @property
    def stderr(self) -> str:
        return self._written("stderr")

    def _written(self, name: str) -> str:
        """Until now: the first write makes the file."""
        try:
            return (self.log / name).read_text()
        except FileNotFoundError:
            assert not self.ended, f"an attempt that has ended left no {name}"
            return ""

    @property
    def value(self) -> Any:
        """The JSON that the script printed on its last line."""
        assert self.ended["status"] == "finished", (self.ended, self.stderr)
        return json.loads(self.stdout.splitlines()[-1])

    def file(self, name: str, text: str | None = None) -> Path:
        """A file of the attempt's log folder, a place where test and script both look."""
        path = self.log / name
        if text is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return path


class Slot:
    """A slot that was started; ``close`` it."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.blobs = folder / "blobs"
        self.blobs.mkdir(parents=True)
        self.events: queue.Queue[dict[str, Any]] = queue.Queue()
        self.seen: list[dict[str, Any]] = []
        self.mark = ""
        self._count = 0
        # Not warmed, which takes more of a processor than the start: `test_lifecycle_foreign.py` and the stacks are.
        # Patient: a machine that is busy must not look like an attempt that would not end.
        values = {"slot": "slot-1", "folder": str(folder / "slot"), "python": sys.executable, "quiet_ms": 15_000, "warming_rounds": 0,
                  "java_options": FIRST_TIER, **settings}  # fmt: skip
        self.config = SlotConfig(**values)
        self.process = SlotProcess(self.config, self.events.put)

    def until(self, what: str) -> dict[str, Any]:
        """The next message that is a ``what``; the messages before it are in ``seen``."""
        while True:
            event = self.events.get(timeout=PATIENCE_S)
            self.seen.append(event)
            if event["is"] == what:
                return event
            assert event["is"] not in ("gone", "broken"), (event, self.logs())

    def logs(self) -> str:
        return "\n".join(path.read_text()[-4000:] for path in sorted((self.folder / "slot").glob("*.log*")))

    def start(self, code: str, *, conf: dict[str, str] | None = None, files: dict[str, bytes] | None = None,
              args: list[str] | None = None, env: dict[str, str] | None = None,
              spec: dict[str, Any] | None = None) -> Attempt:  # fmt: skip
        """Orders an attempt that runs ``code`` as a PySpark script. ``spec``: what is otherwise in it."""
        self._count += 1
        attempt = Attempt(f"attempt-{self._count}", self.folder / f"attempt-{self._count}")
        modules = {"script.py": textwrap.dedent(code).encode(), **(files or {})}
        whole = {
            "job": "job-1", "task": "script", "subtask": 0, "parallelism": 1, "attempt": self._count, "kind": "run",
            "vertices": [{"id": "script", "spark_app": {"script": "script.py", "args": args or []}, "parallelism": 1, "inputs": {}}],
            "outputs": [], "pinned": {}, "conf": conf or {}, "parameters": {},
            "modules": [self._blob(name, content) for name, content in modules.items()], **({"env": env} if env else {}),
            **(spec or {}),
        }  # fmt: skip
        dirs: wire.RunDirs = {"work": str(attempt.work), "log": str(attempt.log), "blobs": str(self.blobs),
                              "findings": str(self.folder / "findings"), "mark": self.mark}  # fmt: skip
        self.process.order({"do": "run", "attempt": attempt.name, "spec": whole, "dirs": dirs})
        return attempt

    def kill(self, attempt: Attempt, why: str, within_ms: int = 0) -> None:
        self.process.order({"do": "kill", "attempt": attempt.name, "why": why, "within_ms": within_ms})

    def _blob(self, name: str, content: bytes) -> dict[str, str]:
        sha256 = hashlib.sha256(content).hexdigest()
        (self.blobs / sha256).write_bytes(content)
        kind = {".jar": "jar", ".py": "py", ".zip": "py"}.get(Path(name).suffix, "file")
        return {"name": name, "sha256": sha256, "kind": kind}

    def end(self, attempt: Attempt) -> Attempt:
        """Waits until ``attempt`` has ended and the slot is ready again; one that does not end is killed: the next test needs the slot."""
        try:
            attempt.ended = self.until("ended")
        except queue.Empty:
            self.kill(attempt, "it does not end")
            self.until("ready")
            raise AssertionError(f"{attempt.name} does not end: {attempt.stderr}") from None
        assert attempt.ended["attempt"] == attempt.name
        self.until("ready")
        return attempt

    def run(self, code: str, **options: Any) -> Attempt:
        """Runs a script to its end; see ``start``."""
        return self.end(self.start(SESSION + textwrap.dedent(code), **options))

    def value(self, code: str, **options: Any) -> Any:
        """The value of the expression that ends ``code``, run as a script that must finish."""
        *lines, last = textwrap.dedent(code).strip().splitlines()
        return self.run("\n".join([*lines, f"import json; print(json.dumps({last}))"]), **options).value

    def until_gone(self) -> int:
        """The exit code of the host, which ends."""
        while (event := self.events.get(timeout=PATIENCE_S))["is"] != "gone":
            pass
        return int(event["code"])

    def close(self) -> None:
        self.process.close()


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    """Waits for a condition of the outside world, which nobody tells us of."""
    pause = queue.Queue()
    for _ in range(PATIENCE_S * 100):
        if found := condition():
            return found
        try:
            pause.get(timeout=0.01)
        except queue.Empty:
            continue
    raise AssertionError(f"in vain: {what}")


def below(pid: int) -> list[psutil.Process]:
    """All living descendants of a process."""
    try:
        found = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [process for process in found if lives(process.pid)]


def lives(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def archive_of(config: SlotConfig) -> Archive:
    """Of the classes for a slot's JVMs."""
    return Archive(config, find_java(None), find_spark(config.pyspark_version))


def jvm_of(slot: Slot) -> int:
    """The process id of the slot's JVM."""
    return next(process.pid for process in below(slot.process.pid) if "java" in process.name())
