"""A class-data archive of Spark's classes: a JVM that has one starts in half the time.

It costs one run of a JVM, and 165 MB of disk. Where there is none, a slot makes it when it is ready, in the background and at low priority;
for the stacks of a checkout `make setup` does. It is valid for one Java, one Spark and one set of flags, whose hash is its name. Without it
everything works the same.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable

from ..common import jvm, procs
from ..common.config import SlotConfig

_TRAINING_S = 1_800  # on a machine whose cores are busy; it has the least priority
_KEPT = 3
_CHEAPEST = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_EITHER_WAY = (*_CHEAPEST, "-XX:+UseParallelGC", "-XX:+UseG1GC")
"""Options of a JVM that an archive of classes fits with and without. So it is made with the cheapest of them."""


class Archive:
    """The archive for the JVMs of one slot; ``options`` are the JVM options that use it.

    ``path``: where it is or will be; None without an archive folder.
    """

    def __init__(self, config: SlotConfig, java: str, spark_home: str) -> None:
        self._config = config
        self._java = java
        self._spark_home = spark_home
        self._pid = 0
        self._done: asyncio.Future[int] | None = None
        self.path = os.path.join(config.archive_folder, self._key() + ".jsa") if config.archive_folder else None

    def _key(self) -> str:
        """The hash of what an archive depends on; the JVM checks the class path again and ignores one that does not fit."""
        jars = os.path.join(self._spark_home, "jars")
        java = os.path.realpath(self._java)
        facts = [
            (java, os.stat(java).st_size, os.stat(java).st_mtime_ns),
            sorted((entry.name, entry.stat().st_size) for entry in os.scandir(jars)),
            [jars, _that_matter(self._config)],
        ]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]

    def options(self) -> list[str]:
        """The options for a JVM that starts now, none while there is no archive."""
        if self.path is None or not os.path.exists(self.path):
            return []
        # One that does not fit is no error, and must not print: without -Xlog the JVM warns on stdout.
        return [f"-XX:SharedArchiveFile={self.path}", "-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr"]

    def pids(self) -> list[int]:
        """The process that makes the archive, while it does."""
        return [self._pid] if self._done is not None and not self._done.done() else []

    def make_in_background(self, watch: Callable[[int], asyncio.Future[int]]) -> None:
        """Starts to make the archive if there is none and this host has not tried yet."""
        if self.path is None or self._done is not None or os.path.exists(self.path):
            return
        path = self.path
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        except OSError as error:  # JVMs start slower, and that is all
            print(f"no class-data archive: {error}", file=sys.stderr)
            self.path = None
            return
        self._pid = procs.fork(lambda: make(path, self._config, self._java, self._spark_home))
        self._done = watch(self._pid)


def make(path: str, config: SlotConfig, java: str, spark_home: str) -> None:
    """Makes the archive at ``path`` unless another process is at it; a failure leaves none, and a line on stderr."""
    with open(path + ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        os.setsid()  # with a session's share, as the slot has: below one that is never idle it would never be made, and end with its host
        while not procs.lower_session():
            time.sleep(procs.TURN_S)
        os.nice(19)
        _make(path, config, java, spark_home)


def make_now(archive_folder: str, progress: Callable[[str], None]) -> None:
    """Makes the archive of slots with the settings that they have by themselves, before there is one. Who else is at it is waited for."""
    config = SlotConfig(slot="archive", folder=archive_folder, python=sys.executable, archive_folder=archive_folder)
    java, spark_home = jvm.find_java(None), jvm.find_spark(config.pyspark_version)
    path = Archive(config, java, spark_home).path
    assert path is not None
    if os.path.exists(path):
        return
    os.makedirs(archive_folder, exist_ok=True)
    with open(path + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(path):
            progress("Spark: preparing its classes for quick starts (once)")
            _make(path, config, java, spark_home)


def _make(path: str, config: SlotConfig, java: str, spark_home: str) -> None:
    # A name that is the same next time: one that was killed at this cannot clean up.
    folder = path + ".making"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        part = os.path.join(folder, "classes.jsa")
        driver = os.path.join(folder, "driver")  # beside it is what of a driver lies beside its folder
        os.makedirs(driver, mode=0o700)
        _train(part, driver, config, java, spark_home)
        os.replace(part, path)
        _forget_old(os.path.dirname(path))
    except (OSError, subprocess.SubprocessError) as error:
        print(f"no class-data archive: {error}", file=sys.stderr)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _that_matter(config: SlotConfig) -> list[str]:
    return [option for option in config.java_options if option not in _EITHER_WAY]


def _train(part: str, folder: str, config: SlotConfig, java: str, spark_home: str) -> None:
    """Runs a JVM through what attempts do, and has it write down at its end which classes that took."""
    options = [f"-XX:ArchiveClassesAtExit={part}", "-Xlog:disable", "-Xlog:all=error:stderr"]
    options_here = (*_that_matter(config), *_CHEAPEST)
    plain = SlotConfig(slot="archive", folder=folder, python=config.python, java_options=options_here)
    jvm.write_files(plain, jvm.spark_conf(plain, {}, folder), folder, options)
    script = os.path.join(os.path.dirname(os.path.abspath(jvm.__file__)), "training.py")
    command = jvm.command(spark_home, folder)[:-1] + [script, folder]
    env = jvm.environment(spark_home, java, folder, "")
    del env["_PYSPARK_DRIVER_CONN_INFO_PATH"]
    parent = os.getpid()
    process = subprocess.Popen(
        command, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        preexec_fn=lambda: procs.exec_dies_with(parent),
    )  # fmt: skip
    try:
        _, errors = process.communicate(timeout=_TRAINING_S)
    finally:
        process.kill()
    if not os.path.exists(part):
        raise OSError(errors.decode(errors="replace")[-500:] or f"exit code {process.returncode}")


def _forget_old(folder: str) -> None:
    """Removes all but the newest few archives: each Spark or Java that came and went left one."""
    archives = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".jsa")]
    for path in sorted(archives, key=os.path.getmtime)[:-_KEPT]:
        os.unlink(path)
