"""Attempts run in the test's own process, on a local Spark of the test module's own."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from deploy.local.spark_classes import class_data_folder
from services.task_manager.slot.attempt import errors
from services.task_manager.slot.attempt import run as attempt_run
from services.task_manager.slot.attempt.own_time import SPENT
from services.task_manager.slot.common import jvm
from services.task_manager.slot.common.config import SlotConfig
from tests.slot.lifecycle import FIRST_TIER, archive_of

_OPTIONS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    jvm.BATCHES_TO_UDFS: jvm._DEFAULTS[jvm.BATCHES_TO_UDFS],
}


@contextmanager
def local_spark(folder: Path) -> Iterator[Any]:
    """A context of two cores in a JVM that ends with it."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    config = SlotConfig(slot="local", folder=str(folder), python=sys.executable, archive_folder=str(class_data_folder()))
    java_options = [jvm.STACK, *FIRST_TIER, *archive_of(config).options()]  # the archive of slots, if there is one
    for key, value in {**_OPTIONS, "spark.driver.extraJavaOptions": " ".join(map(jvm._quoted, java_options))}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    gateway = SparkContext._gateway
    try:
        yield session
    finally:
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=120)
        SparkContext._gateway = SparkContext._jvm = None


class Attempts:
    """Makes and runs attempts; each gets a fresh session and a folder of its own, as in a slot."""

    def __init__(self, session: Any, folder: Path) -> None:
        self.spark, self.folder = session, folder
        self.blobs, self.findings = folder / "blobs", folder / "findings"
        self.blobs.mkdir(parents=True, exist_ok=True)
        self._count = 0

    def module(self, name: str, content: str | bytes, kind: str = "py") -> dict[str, Any]:
        """Uploads a file."""
        raw = content.encode() if isinstance(content, str) else content
        digest = hashlib.sha256(raw).hexdigest()
        (self.blobs / digest).write_bytes(raw)
        return {"name": name, "sha256": digest, "kind": kind}

    def spec(self, *vertices: dict[str, Any], outputs: Any = (), **fields: Any) -> dict[str, Any]:
        """An AttemptSpec of these vertices."""
        return {
            "job": "job-1",
            "task": "+".join(v["id"] for v in vertices),
            "subtask": 0,
            "parallelism": 1,
            "attempt": 1,
            "kind": "run",
            "vertices": [{"schema": None, "inputs": {}, "parallelism": fields.get("parallelism", 1), **v} for v in vertices],
            "outputs": list(outputs),
            "pinned": {},
            "conf": {},
            "modules": [],
            "parameters": {},
            **fields,
        }

    def run(self, *vertices: dict[str, Any], outputs: Any = (), **fields: Any) -> dict[str, Any]:
        """The report of an attempt of these vertices."""
        return self.run_spec(self.spec(*vertices, outputs=outputs, **fields))

    def run_spec(self, spec: dict[str, Any]) -> dict[str, Any]:
        """The report of an attempt, run as in a process of its own: working folder, modules, session not shared."""
        from pyspark.sql import SparkSession

        self._count += 1
        work = self.folder / f"attempt-{self._count}"
        work.mkdir()
        session = self.spark.newSession()
        jsession = session._jsparkSession
        jvm = session._jvm.org.apache.spark.sql.classic.SparkSession
        cwd, path, argv, main, known = Path.cwd(), list(sys.path), sys.argv, sys.modules["__main__"], set(sys.modules)
        before = SparkSession._instantiatedSession
        SparkSession._instantiatedSession = session
        jvm.setDefaultSession(jsession)
        jvm.setActiveSession(jsession)
        os.chdir(work)
        try:
            SPENT.begin()
            dirs = SimpleNamespace(work=str(work), blobs=str(self.blobs), findings=str(self.findings))
            return attempt_run.run(spec, session, dirs)
        finally:
            os.chdir(cwd)
            sys.path[:], sys.argv, sys.modules["__main__"] = path, argv, main
            for name in set(sys.modules) - known:
                if str(getattr(sys.modules[name], "__file__", "")).startswith(str(work)):
                    del sys.modules[name]
            self._forget_files()
            SparkSession._instantiatedSession = before
            jvm.setDefaultSession(self.spark._jsparkSession)

    def _forget_files(self) -> None:
        """What the reset of a slot does between attempts."""
        context = self.spark.sparkContext
        context._jsc.sc().addedFiles().clear()
        context._jsc.sc().addedArchives().clear()
        context._python_includes.clear()
        for path in Path(context._jvm.org.apache.spark.SparkFiles.getRootDirectory()).iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def fail(self, *vertices: dict[str, Any], outputs: Any = (), **fields: Any) -> dict[str, Any]:
        """The error JSON of an attempt that must fail."""
        spec = self.spec(*vertices, outputs=outputs, **fields)
        try:
            report = self.run_spec(spec)
        except BaseException as error:
            return errors.describe(error, spec)
        raise AssertionError(f"the attempt did not fail but reported {report}")

    def rows(self, *vertices: dict[str, Any], of: str | None = None, **fields: Any) -> list[list[Any]]:
        """The result rows of a vertex, by default the last."""
        result = {"vertex": of or vertices[-1]["id"], "edge": "result", "rows": 100_000}
        return self.run(*vertices, outputs=[result], **fields)["result"]["rows"]


def chained(*names: str) -> dict[str, Any]:
    """Inputs within the attempt."""
    return {name: {"edge": "chained"} for name in names}
