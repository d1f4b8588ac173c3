"""A cluster's processes as the client library has them: some answer when they are asked, and the others are silent or not there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from millrace.client import NotFound, Unavailable
from millrace.client.processes import Process, Service, TaskManager, silent_of
from millrace.core.messages.processes import (
    Ask,
    LogFile,
    LogPiece,
    LogsAsk,
    LogsListed,
    LogUploaded,
    ProcessDescribed,
    Setting,
    SettingsAsk,
    SettingsListed,
    SlotDescribed,
    TaskManagerDescribed,
    ThreadDump,
    ThreadsAsk,
    ThreadsDumped,
    UploadAsk,
)
from millrace.io.storage.store import Storage
from tests.core.of_processes import jvm_status, process_status

STACK = '"main" id=1\n    at millrace/m.py:7 run\n\n"beat" id=2\n    at millrace/b.py:9 beat\n'
JVM = '"main" id=1 state=RUNNABLE\n    at app//Main.run(Main.java:3)\n'

SETTINGS = [
    Setting(name="cluster", value="default", origin="by default"),
    Setting(name="conf", value={"spark.sql.ansi.enabled": "false"}, origin="in /etc/millrace.yaml"),
    Setting(name="blob_token", value="***", origin="from the environment"),
]


class Held(NamedTuple):
    """A log: of one in memory the first bytes are gone."""

    data: bytes
    first: int = 0


class Asked:
    """What of the client library asks processes."""

    members: Mapping[str, int] = {"tm": 2}
    """The TaskManagers that answer: how many slots each has. The JVM of the last one hangs."""
    mute: tuple[str, ...] = ("mute",)
    running: Mapping[str, tuple[str, dict[str, str]]] = {"dispatcher-0": ("dispatcher", {"dispatcher": "leader"})}
    """The processes of services: of which service, and what they are in which scope."""

    def __init__(self, storage: Storage, logs: dict[str, dict[str, Held]] | None = None, unknown: tuple[str, ...] = ()) -> None:
        """`logs`: in place of the usual ones, process -> id -> log. `unknown`: processes that are gone."""
        self._storage, self._unknown = storage, unknown
        self.asked: list[tuple[str, str]] = []
        self.held = logs if logs is not None else {
            **{name: {"log": Held(b"a TaskManager\n"), "slot-0.jvm.log": Held(b"a JVM\n")} for name in self.members},
            **{name: {"log": Held(b"a Dispatcher\n"), "stdout": Held(b"")} for name in self.running},
        }  # fmt: skip

    def task_manager(self, name: str) -> TaskManager:
        return TaskManager(self, name, False)  # type: ignore[arg-type]  # nothing else of a session is called

    def service(self, name: str) -> Service:
        return Service(self, name, True)  # type: ignore[arg-type]  # the same

    def services(self, within_s: float = 1.0) -> list[ProcessDescribed]:
        return [self._described(name) for name in self.running if name not in self._unknown]

    def _answer(self, process: Process, ask: Ask, kind: Any) -> Any:
        name, here = process.name, self.running if process.is_service else self.members
        self.asked.append((name, ask.do))
        if name in self.mute:
            raise Unavailable(f"{name} does not answer", name)
        if name not in here or name in self._unknown:
            if process.is_service:
                raise Unavailable(f"there is no process {name}", silent_of(name))
            raise NotFound(f"there is no TaskManager {name}")
        if isinstance(ask, ThreadsAsk):
            return ThreadsDumped(correlation="", process=name, dumps=self._dumps(process.is_service))
        if isinstance(ask, LogsAsk):
            logs = [LogFile(log=log, bytes=held.first + len(held.data), modified_ms=5) for log, held in self.held[name].items()]
            return LogsListed(correlation="", process=name, logs=logs)
        if isinstance(ask, UploadAsk):
            return LogUploaded(correlation="", process=name, piece=self._uploaded(name, ask))
        if isinstance(ask, SettingsAsk):
            return SettingsListed(correlation="", process=name, settings=SETTINGS)
        return self._described(name) if process.is_service else self._member(name)

    def _piece(self, path: str) -> bytes:
        return self._storage.get(path)

    def _uploaded(self, name: str, ask: UploadAsk) -> LogPiece:
        held = self.held[name].get(ask.log)
        if held is None:
            raise NotFound(f"there is no log {ask.log!r}")
        size = held.first + len(held.data)
        start = min(max(size + ask.start if ask.start < 0 else ask.start, held.first), size)
        data = held.data[start - held.first : start - held.first + ask.length]
        path = f"logs/asked/{name}-{ask.log}-{start}-{len(data)}" if data else ""
        if path:
            self._storage.put_if_absent(path, data)
        return LogPiece(log=ask.log, path=path, start=start, bytes=len(data), size=size)

    @staticmethod
    def _dumps(is_service: bool) -> list[ThreadDump]:
        dumps = [ThreadDump(of="the process", text=STACK)]
        if not is_service:
            dumps.append(ThreadDump(of="the JVM of slot 0", text=JVM, truncated=True))
            dumps.append(ThreadDump(of="the JVM of slot 1", no_answer="it hangs"))
        return dumps

    def _described(self, name: str) -> ProcessDescribed:
        service, scopes = self.running[name]
        return ProcessDescribed(correlation="", process=name, status=process_status(service=service), scopes=scopes)

    def _member(self, name: str) -> TaskManagerDescribed:
        total = self.members[name]
        busy = {"job": "runs", "attempt": "runs/0-a.0/0/1.1", "attempt_state": "RUNNING"}
        slots = [
            SlotDescribed(slot=n, state="FREE" if n else "ACTIVE", memory_mb=512, jvm=jvm_status(), **({} if n else busy))
            for n in range(total - 1)
        ]  # fmt: skip
        slots.append(SlotDescribed(slot=total - 1, state="FREE", memory_mb=512, no_answer="its JVM hangs"))
        status = process_status(cores=4, memory=9 << 30)
        return TaskManagerDescribed(correlation="", task_manager=name, incarnation=7, status=status, slots=slots, total=total)
