"""`python -m services.task_manager`: the one place where a TaskManager's parts are put together."""

from __future__ import annotations

import fcntl
import gc
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from millrace import __version__
from millrace.io.etcd.store import EtcdStore
from millrace.runtime.exposition import watched
from millrace.runtime.readings import of_kafka
from millrace.runtime.service import Process
from millrace.runtime.settings import BadSettings

from .incarnation import EtcdProbe
from .journal import Journal
from .metrics import of_blobs, of_spark, readings
from .ports.lane import OnEvent, SlotFactory, SlotPort
from .ports.slots import Slots
from .running import health, run
from .settings import TaskManagerSettings
from .shell import Shell
from .slot.client import SlotProcess
from .traces import AttemptTraces

PROBE_S = 0.2


def main(argv: Sequence[str] | None = None, factory: SlotFactory | None = None) -> int:
    """Runs a TaskManager. `factory`: what makes its slots, instead of processes with Spark (for tests of everything but those)."""
    settings = TaskManagerSettings.load_or_exit(argv)
    try:
        if factory is None:
            settings.check()
        lock = _lock(settings.folder, settings.name)
    except BadSettings as bad:
        print("\n".join(f"task-manager: {each}" for each in bad.problems), file=sys.stderr)
        return 2

    def spark_slot(number: int, on_event: OnEvent) -> SlotPort:
        return SlotProcess(settings.slot_config(number), on_event)

    process = Process(settings)
    topology = process.wait_for_cluster()
    journal = Journal(settings.folder / "journal", settings.name, topology)
    prefix = f"/millrace/{settings.cluster}/"
    asked = EtcdStore(settings.etcd_endpoint, prefix, timeout_s=PROBE_S)
    shell = Shell(
        settings.name,
        topology,
        process.bus,
        process.store,
        settings.deciding(),
        journal,
        EtcdProbe(asked, settings.name),
        build=__version__,
    )
    traces = AttemptTraces(process.traces) if process.traces is not None else None
    slots = Slots(
        factory or spark_slot, settings.slots, settings.folder, process.storage, shell.inputs.post, keep=settings.keep,
        cache=settings.cache, traces=traces, settings=settings.effective,
    )  # fmt: skip
    shell.use(slots)
    process.wake = shell.inputs.wake
    server = watched(
        settings, lambda: health(shell), lambda: readings(shell), lambda: of_blobs(slots.blobs), lambda: of_spark(slots.work),
        lambda: of_kafka(process.bus),
    )  # fmt: skip
    port = server.start()
    slots.start()  # a JVM takes seconds to be warm: they begin before Kafka answers
    settings.write_ready(health_port=port, id=settings.name)
    gc.freeze()  # see millrace.runtime.service
    try:
        code = run(shell, process.stopping, lambda: process.failure)
    except BaseException:
        slots.close(1.0)
        raise
    finally:
        server.stop()
        if process.traces is not None:
            process.traces.stop()
        process.bus.close()
        process.store.close()
        asked.close()
        lock.close()
    return code


def _lock(folder: Path, name: str) -> TextIO:
    """One process at a time works in a TaskManager's folder; the lock ends with it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open(folder / "lock", "w")
    except OSError as error:
        raise BadSettings(
            [f"The work folder {folder} cannot be written ({error.strerror}): name another one."]
        ) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise BadSettings([f"Another TaskManager {name} runs in {folder}: give this one another id."]) from None
    return file


if __name__ == "__main__":
    sys.exit(main())
