"""What a slot is started with."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

MEBIBYTE = 1 << 20

MODULES_FOLDER = "millrace-modules"
"""Below an attempt's own folder: the uploaded files of its job. What is sent to executors has a name that begins so."""


@dataclasses.dataclass(frozen=True)
class SlotConfig:
    """The settings of one slot, made by the TaskManager and sent to the host as its first line.

    ``folder``: the slot's own, absolute; made if missing, holds the JVM's log, its local directories and warehouses.
    ``python``: the interpreter that runs host, attempts and Python workers; it must have PySpark ``pyspark_version`` (a
    prefix of dotted numbers, "4.2"). ``java_home``: else ``JAVA_HOME``, else ``java`` on ``PATH``. ``conf`` and
    ``java_options`` go to the driver's JVM. ``archive_folder``: where class-data archives are kept (165 MB each; None: no
    archive, JVMs start 3 s slower). ``log_head_bytes`` and ``log_tail_bytes``: what is kept of each stream of an attempt.
    ``quiet_ms``: how long what an attempt left running may take to end before its JVM is replaced. Where tasks run on a
    cluster it is at least 5 s, because Python workers look for a cancel every 2 s there.
    ``attempts_per_jvm``: after so many the JVM is replaced while the slot is free. ``warming_rounds``: how often an idle JVM is
    led through what jobs do; 0: never.
    """

    slot: str
    folder: str
    python: str
    master: str = "local[*]"
    heap_mb: int = 1024
    conf: dict[str, str] = dataclasses.field(default_factory=dict)
    java_options: tuple[str, ...] = ("-XX:+UseParallelGC",)
    java_home: str | None = None
    archive_folder: str | None = None
    pyspark_version: str = "4.2"
    log_head_bytes: int = 8 * MEBIBYTE
    log_tail_bytes: int = 8 * MEBIBYTE
    quiet_ms: int = 1000
    attempts_per_jvm: int = 1000
    warming_rounds: int = 3

    def to_json(self) -> dict[str, Any]:
        """The wire shape: the fields by name."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> SlotConfig:
        """The inverse of ``to_json``."""
        return cls(**{**values, "java_options": tuple(values["java_options"])})


@dataclasses.dataclass(frozen=True)
class Dirs:
    """The folders of one attempt, absolute.

    ``work``: its current directory, its own. ``log``: receives ``stdout``, ``stderr``, ``report.json`` or ``error.json``.
    ``blobs``: its own copies of its job's files, by content hash. ``findings``: of attempts before it, see ``attempt/findings.py``.
    ``mark``: a file of the storage in which ``log`` lies, which is there as long as that is. Empty: there is none.
    """

    work: str
    log: str
    blobs: str
    findings: str
    mark: str = ""

    def have_storage(self) -> bool:
        """Whether what is written to ``log`` is in the storage, and not below the place of a missing mount. Raises OSError."""
        try:
            return not self.mark or bool(os.stat(self.mark))
        except (FileNotFoundError, NotADirectoryError):
            return False
