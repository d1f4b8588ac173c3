"""An environment for each peer, made by the bench from pinned packages, and kept below its build folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyspark

from deploy.local.downloads import CHECKOUT, cache_folder, fetched, only_one
from deploy.local.errors import LocalError
from deploy.local.java import find_java
from deploy.local.kafka import run_ivy
from deploy.local.processes import log_tail, spawn

HERE = Path(__file__).resolve().parent
BUILD_LOCK = CHECKOUT / "requirements-build.lock"
INSTALL_LIMIT_S = 1800.0
FLINK_JARS = {"flink-sql-parquet-2.3.0.jar": "f30617f4a5a6d437750f155ff72178ab34439aec91df64d96621c260559ba5fd"}


class CannotTakePart(Exception):
    """A peer that is not installed, or broke; the text is the reason that the results list."""


def environment(peer: str, builds: Path, say: Callable[[str], None]) -> Path:
    """The Python of the peer's environment, installed at its first use: every package by version and hash."""
    lock = HERE / "locks" / f"{peer}.lock"
    key = hashlib.sha256(lock.read_bytes() + BUILD_LOCK.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = builds / f"{peer}-{key}"
    python, done = folder / "bin" / "python", folder / ".installed"
    with only_one(builds / f"{peer}.lock"):
        if done.exists():
            return python
        say(f"installing the environment of {peer}, once; log in {builds / peer}.log")
        for old in builds.glob(f"{peer}-*"):
            shutil.rmtree(old, ignore_errors=True)
        install = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--require-hashes", "--quiet"]
        _step([sys.executable, "-m", "venv", str(folder)], peer, builds)
        _step([*install, "--requirement", str(BUILD_LOCK)], peer, builds)
        _step([*install, "--no-build-isolation", "--requirement", str(lock)], peer, builds)
        done.touch()
    return python


def _step(command: list[str], peer: str, builds: Path) -> None:
    log = builds / f"{peer}.log"
    child = spawn(command, log=log, env={**os.environ}, cwd=builds)
    try:
        code = child.popen.wait(INSTALL_LIMIT_S)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        child.stop()
    if code != 0:
        raise CannotTakePart(f"cannot be installed on Python {sys.version.split()[0]}: {_last_line(log)}")


def _last_line(log: Path) -> str:
    lines = [line for line in log_tail([log], 20).splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["no output"])[-1][:300]


def flink_jars() -> list[Path]:
    """Flink's Parquet format from Maven Central, verified by hash, and the Hadoop classes it needs, which PySpark ships."""

    def fetch(files: Path, scratch: Path) -> None:
        run_ivy(find_java(), HERE / "flink.ivy.xml", files, scratch, log=cache_folder() / "flink-parquet.fetch.log")

    try:
        folder = fetched(cache_folder() / "flink-parquet-2.3.0", FLINK_JARS, fetch)
    except LocalError as error:
        raise CannotTakePart(f"its Parquet format cannot be fetched: see {cache_folder() / 'flink-parquet.fetch.log'}") from error
    hadoop = sorted((Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar"))
    return [*(folder / name for name in FLINK_JARS), *hadoop]


def version(peer: str) -> str:
    """What is pinned: the first package of its `.in` file."""
    return (HERE / "locks" / f"{peer}.in").read_text().split()[0]
