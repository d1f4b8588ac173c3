"""Settings of a TaskManager process."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, field_validator

from millrace.core.profile import ExtraCounts
from millrace.runtime.logs import tells_of_secret
from millrace.runtime.machine_limits import memory_bytes, usable_cores
from millrace.runtime.settings import BadSettings, ServiceSettings

from .core.state import State
from .kept_files import Keep
from .ports.blob_cache import CacheLimits
from .slot.common.config import MEBIBYTE, SlotConfig
from .slot.common.jvm import CannotStart, find_java, find_spark

PYSPARK = SlotConfig.pyspark_version
CACHE = CacheLimits()
MOST_HEAP_MB = 4096  # where nobody chose: a collection of a larger heap takes longer
LEAST_HEAP_MB = 512  # Spark refuses less than 450 MiB, and of 480 some collectors keep more than 30 for themselves
_ASK_PYSPARK = "import pyspark, sys; print(pyspark.__version__, sys.version_info >= (3, 10))"


class TaskManagerSettings(ServiceSettings):
    """Runs tasks on this machine: keeps slots, each a warm Spark driver, and gives them to jobs."""

    service: ClassVar[str] = "task_manager"
    id: str = Field(
        "",
        pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,99})?$",
        description="Name of this TaskManager in the cluster; empty: the host's name and a suffix of the work folder.",
    )
    slots: int = Field(2, ge=1, le=1000, description="How many tasks run at once; each slot is a JVM of its own.")
    cores: int | None = Field(
        None, ge=1, description="Cores that a slot may use: its Spark runs as local[cores]. Empty: all of its machine or container, "
        "which slots share. A job may ask for them as cores."
    )
    heap_mb: int | None = Field(
        None,
        ge=LEAST_HEAP_MB,
        description="Heap of each slot's JVM; what a job may ask for as memory_mb. Empty: half of the machine's memory over its slots,"
        f" {MOST_HEAP_MB} at most.",
    )
    slot_extras: ExtraCounts = Field(
        {},
        description="What each slot has beside memory and cores, by name, and how many: {gpu: 1}. A job asks for it by that name, and gets "
        "no slot without it. Millrace counts it, and knows nothing else of it.",
    )
    master: str | None = Field(
        None, description="Spark master of the slots instead of local[cores]: spark://host:port."
    )
    conf: dict[str, str] = Field({}, description="Spark settings of all slots.")
    java_home: str | None = Field(None, description="Java for the slots; else JAVA_HOME, else java on PATH.")
    java_options: list[str] = Field(list(SlotConfig.java_options), description="Options of the slots' JVMs.")
    python: str | None = Field(
        None, description=f"Python of the slots, with PySpark {PYSPARK} and your packages; else this service's."
    )
    work_folder: str = Field("data/work", min_length=1, description="Folder for working files, JVM logs, journals.")
    class_data_folder: str = Field(
        "", description="Folder for class-data archives, with which JVMs start in half of the time. Those of a machine may share it. "
        "Empty: archives, in the work folder."
    )
    attempts_per_jvm: int = Field(1000, ge=1, description="After so many attempts a slot's JVM is replaced.")
    log_head_mb: int = Field(8, ge=0, description="What is kept of each stream of an attempt: so much of its start,")
    log_tail_mb: int = Field(8, ge=0, description="and so much of its end.")
    files_most: int = Field(1000, ge=0, description="Of the files that an attempt leaves in its folder, so many are kept with its job,")
    files_mb: int = Field(64, ge=0, description="and so much; the rest is named in `show`.")
    blob_cache_mb: int = Field(
        CACHE.bytes // MEBIBYTE, ge=0, description="What the cache of jobs' files holds: above it those go that were not used for longest."
    )
    blob_cache_hours: float = Field(CACHE.keep_s / 3600, gt=0, description="So long after its last use a file stays in that cache.")
    blob_fetch_retries: int = Field(
        CACHE.retries, ge=0, le=100, description="So often a file of a job is fetched again from storage before its attempt fails."
    )
    allocation_timeout_ms: int = Field(
        State.allocation_timeout_ms, ge=100, description="A slot that its job does not use within this time is given back."
    )

    @field_validator("work_folder")
    @classmethod
    def _absolute_folder(cls, folder: str) -> str:
        return str(Path(folder).expanduser().absolute())

    @property
    def name(self) -> str:
        """The id, or what stands for it: the same for every start in this work folder."""
        if self.id:
            return self.id
        host = re.sub(r"[^A-Za-z0-9.-]+", "-", socket.gethostname()).strip(".-")[:60] or "host"
        return f"{host}-{zlib.crc32(self.work_folder.encode()):08x}"

    @property
    def folder(self) -> Path:
        """This TaskManager's own folder."""
        return Path(self.work_folder) / self.name

    @property
    def keep(self) -> Keep:
        """What is kept of the files that attempts leave."""
        return Keep(self.files_most, self.files_mb * MEBIBYTE)

    @property
    def cache(self) -> CacheLimits:
        """Of the files of jobs."""
        return CacheLimits(self.blob_cache_hours * 3600, self.blob_cache_mb * MEBIBYTE, retries=self.blob_fetch_retries)

    @property
    def slot_heap_mb(self) -> int:
        """The heap of each slot, in MiB."""
        return self.heap_mb or heap_of(memory_bytes(), self.slots)

    def secret_values(self) -> list[str]:
        """With those of Spark's settings: keys of object stores may stand there."""
        return [*super().secret_values(), *(value for name, value in self.conf.items() if tells_of_secret(name))]

    def deciding(self) -> dict[str, Any]:
        """What the machine is told in its first record, but its incarnation."""
        return {
            "host": socket.gethostname(),
            "allocation_timeout_ms": self.allocation_timeout_ms,
            "slots_memory_mb": [self.slot_heap_mb] * self.slots,
            "slot_cores": self.cores or usable_cores(),
            "slot_extras": dict(self.slot_extras),
        }

    def slot_config(self, number: int) -> SlotConfig:
        return SlotConfig(
            slot=f"{self.name}-{number}",
            folder=str(self.folder / "slots" / str(number)),
            python=self.python or sys.executable,
            master=self.master or f"local[{self.cores or '*'}]",
            heap_mb=self.slot_heap_mb,
            conf=dict(self.conf),
            java_options=tuple(self.java_options),
            java_home=self.java_home,
            archive_folder=str(Path(self.class_data_folder or Path(self.work_folder) / "archives").expanduser().absolute()),
            log_head_bytes=self.log_head_mb * MEBIBYTE,
            log_tail_bytes=self.log_tail_mb * MEBIBYTE,
            attempts_per_jvm=self.attempts_per_jvm,
        )

    def check(self) -> None:
        """Looks whether the slots can start at all. Raises BadSettings with one sentence for each thing that is missing."""
        problems = []
        try:
            find_java(self.java_home)
        except CannotStart as error:
            problems.append(f"{error.reason} {error.hint}")
        try:
            _check_python(self.python)
        except CannotStart as error:
            problems.append(f"{error.reason} {error.hint}")
        if problems:
            raise BadSettings(problems)


def heap_of(memory: int, slots: int) -> int:
    """The heap in MiB of each of so many slots on a machine with so many bytes of memory, where nobody chose it."""
    return min(max(memory // MEBIBYTE // 2 // slots, LEAST_HEAP_MB), MOST_HEAP_MB)


def _check_python(python: str | None) -> None:
    if not python:
        find_spark(PYSPARK)
        return
    hint = f"Name a Python of at least 3.10 with PySpark {PYSPARK} in the setting python."
    try:
        asked = subprocess.run(
            [python, "-c", _ASK_PYSPARK], capture_output=True, text=True, timeout=60, check=False, cwd="/"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotStart(f"The Python {python} cannot be started ({error}).", hint) from None
    printed = asked.stdout.split()[-2:]  # a script that wraps it may print before
    if asked.returncode or len(printed) < 2:
        raise CannotStart(f"The Python {python} has no PySpark.", hint)
    version, new_enough = printed
    if new_enough != "True":
        raise CannotStart(f"The Python {python} is older than 3.10.", hint)
    if not f"{version}.".startswith(f"{PYSPARK}."):
        raise CannotStart(f"The Python {python} has PySpark {version}; this release needs {PYSPARK}.", hint)
