"""What the laptop's Kafka and etcd have in common: one child process on one data folder, on ports that it keeps."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import psutil

from deploy.local.errors import LocalError, disk_full, no_permission, plain_errors
from deploy.local.processes import Child, end_tree, free_port, is_running, log_tail, port_is_free, port_owner, spawn

Progress = Callable[[str], None]
CHOICES_MOST = 3  # of ports at a start, while others take those that were chosen


def silent(_: str) -> None:
    """A ``Progress`` that says nothing."""


def never() -> bool:
    """Nobody asks to stop."""
    return False


class PortTaken(LocalError):
    """The server could not listen. ``names``: the ports that may be why."""

    def __init__(self, sentence: str, detail: str, names: Iterable[str]) -> None:
        super().__init__(sentence, detail)
        self.names = frozenset(names)


def meta_of(data_dir: Path) -> dict[str, Any]:
    """``meta.json`` of a data folder; {} if there is none."""
    try:
        meta = json.loads((data_dir / "meta.json").read_text())
    except (OSError, ValueError):
        return {}
    return meta if isinstance(meta, dict) else {}


def left_in(data_dir: Path) -> psutil.Process | None:
    """The server of a data folder, by its last start, if it still runs."""
    meta = meta_of(data_dir)
    with contextlib.suppress(KeyError, TypeError, psutil.NoSuchProcess):
        process = psutil.Process(meta["pid"])
        if abs(process.create_time() - meta["created"]) < 1 and is_running(process):
            return process
    return None


class LocalServer(ABC):
    """A server that runs as our child. Its data folder holds everything: data, logs, ``meta.json``.

    ``ports`` maps the names in ``PORT_NAMES`` to numbers; those left out are chosen free at the first start and kept
    in ``meta.json``, so that clients find the server again after a restart. One process at a time may run a folder's
    server (a lock tells); a server whose starter died without ending it is ended by the next ``start``.
    """

    NAME: str
    PORT_NAMES: tuple[str, ...]
    LEAST_FREE_MB = 256
    START_LIMIT_S = 90.0

    def __init__(self, data_dir: Path | str, ports: Mapping[str, int] | None = None) -> None:
        self.data_dir = Path(data_dir).absolute()
        self.ports: dict[str, int] = {}
        self.child: Child | None = None
        self._wanted_ports = dict(ports or {})
        self._chosen: set[str] = set()  # the names of ports that are neither wanted nor remembered
        self._lock: int | None = None
        unknown = set(self._wanted_ports) - set(self.PORT_NAMES)
        if unknown:
            raise ValueError(f"{self.NAME} has no port {sorted(unknown)}; it has {list(self.PORT_NAMES)}")

    # What differs.

    @abstractmethod
    def command(self, progress: Progress) -> tuple[list[str], dict[str, str]]:
        """Argument list and environment of the process; writes the files that it needs. ``self.ports`` is set."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether the server answers a real request now; called again and again, returns within a second or so."""

    @property
    def logs(self) -> list[Path]:
        """Where the server writes what goes wrong."""
        return [self.data_dir / "output.log"]

    # What is the same.

    @property
    def running(self) -> bool:
        return self.child is not None and self.child.exit_code() is None

    @property
    def pid(self) -> int | None:
        return self.child.pid if self.child else None

    def start(self, progress: Progress = silent, stopping: Callable[[], bool] = never) -> None:
        """Start, and return when the server answers; else nothing is left running and a ``LocalError`` says why. ``stopping``: asked
        while the server has not answered yet."""
        if self.running:
            return
        with plain_errors(self.data_dir):
            self.data_dir.mkdir(parents=True, exist_ok=True)
            self._take_lock()
        try:
            self._end_orphan(progress)
            self._check_space()
            self._start_on_its_ports(progress, stopping)
        except BaseException:
            self.stop()
            raise
        progress(f"{self.NAME}: ready on port {self.ports[self.PORT_NAMES[0]]}")

    def stop(self, patience_s: float = 15.0) -> None:
        """End the server: SIGTERM, and SIGKILL after ``patience_s``. Nothing happens if it does not run."""
        self._end_child(patience_s)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _end_child(self, patience_s: float = 15.0) -> None:
        if self.child is not None:
            self.child.stop(patience_s)
            self.child = None

    def __enter__(self) -> LocalServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def meta(self) -> dict[str, Any]:
        """``{"ports": {name: number}, "pid": ..., "created": ..., "starter": ...}`` of the last start; {} if none."""
        return meta_of(self.data_dir)

    def _take_lock(self) -> None:
        self._lock = os.open(self.data_dir / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            self._lock = None
            pid = self.meta().get("pid", "unknown")
            raise LocalError(
                f"{self.NAME} is already started on {self.data_dir} (process {pid}): stop it or choose another folder."
            ) from None

    def _end_orphan(self, progress: Progress) -> None:
        """Whoever had the lock is gone; its server may be ending just now, or hang."""
        orphan = left_in(self.data_dir)
        if orphan is not None:
            progress(f"{self.NAME}: ending process {orphan.pid}, which an earlier run left behind")
            end_tree(orphan.pid, patience_s=5)

    def _check_space(self) -> None:
        free_mb = shutil.disk_usage(self.data_dir).free >> 20
        if free_mb < self.LEAST_FREE_MB:
            raise LocalError(
                f"The disk of {self.data_dir} has {free_mb} MB free and {self.NAME} needs {self.LEAST_FREE_MB}: "
                "free some space, or choose a folder on another disk."
            )

    def _start_on_its_ports(self, progress: Progress, stopping: Callable[[], bool]) -> None:
        """Ports that it chose itself, and that another process took before the server listened, are chosen again."""
        before = self.meta()
        for left in reversed(range(CHOICES_MOST)):
            self._choose_ports(before.get("ports", {}))
            try:
                with plain_errors(self.data_dir):
                    argv, env = self.command(progress)
                    progress(f"{self.NAME}: starting on port {self.ports[self.PORT_NAMES[0]]}")
                    self.child = spawn(argv, log=self.data_dir / "output.log", env=env, cwd=self.data_dir)
                    self._write_meta()
                self._await_ready(stopping)
                break
            except PortTaken as taken:
                self._end_child()
                with plain_errors(self.data_dir):
                    self._store_meta(before)  # else the next start would insist on what was chosen
                if not left or taken.names.isdisjoint(self._chosen):
                    raise
                progress(f"{self.NAME}: another process took a port that was chosen; choosing again")

    def _choose_ports(self, remembered: Mapping[str, int]) -> None:
        self.ports, self._chosen = {}, set()
        for name in self.PORT_NAMES:
            port = self._wanted_ports.get(name) or remembered.get(name)
            if port is None:
                port = free_port(taken=self.ports.values())
                self._chosen.add(name)
            elif not port_is_free(port):
                raise LocalError(self._port_taken(name, port))
            self.ports[name] = port

    def _port_taken(self, name: str, port: int) -> str:
        owner = port_owner(port)
        way_out = "choose another port"
        if name in self._chosen:
            way_out = "start again"
        elif name not in self._wanted_ports:
            way_out = f"delete {self.data_dir / 'meta.json'} to have another port chosen"
        return (
            f"Port {port}, which {self.NAME} is to listen on, is taken"
            + (f" by {owner}" if owner else "")
            + f": end that process, or {way_out}."
        )

    def _write_meta(self) -> None:
        assert self.child is not None
        meta = {"ports": self.ports, "pid": self.child.pid, "starter": os.getpid()}
        with contextlib.suppress(psutil.NoSuchProcess):
            meta["created"] = psutil.Process(self.child.pid).create_time()
        self._store_meta(meta)

    def _store_meta(self, meta: Mapping[str, Any]) -> None:
        new = self.data_dir / "meta.json.new"
        new.write_text(json.dumps(meta, indent=1) + "\n")
        new.replace(self.data_dir / "meta.json")

    def _await_ready(self, stopping: Callable[[], bool]) -> None:
        assert self.child is not None
        end = time.monotonic() + self.START_LIMIT_S
        answers = False
        while not (answers := answers or self.is_ready()) or not self._listens():
            code = self.child.exit_code()
            if code is not None:
                raise self._explain(f"{self.NAME} ended with exit code {code} while it started")
            if stopping():
                raise LocalError("Stopped while starting.")
            if time.monotonic() > end:
                raise self._explain(f"{self.NAME} did not answer within {self.START_LIMIT_S:.0f} s")
            time.sleep(0.01)

    def _listens(self) -> bool:
        """Whether it is our process that listens: another server of its kind would have answered as well."""
        assert self.child is not None
        try:
            sockets = psutil.Process(self.child.pid).net_connections("tcp")
        except psutil.AccessDenied:
            return True  # the system does not let us look
        except psutil.NoSuchProcess:
            return False
        return {each.laddr.port for each in sockets if each.status == psutil.CONN_LISTEN}.issuperset(self.ports.values())

    def _explain(self, what: str) -> LocalError:
        """The log's last words as one sentence, where they are among the known ones."""
        tail = log_tail(self.logs)
        words = log_tail(self.logs, lines=1000, most_bytes=1 << 18).lower()  # a panic's stack hides its message
        if "no space left on device" in words:
            return LocalError(disk_full(self.data_dir), tail)
        if "permission denied" in words or "accessdenied" in words:
            return LocalError(no_permission(self.data_dir), tail)
        unknown = f"{what}: see {' and '.join(str(path) for path in self.logs)}."
        if "address already in use" in words:
            taken = [name for name, port in self.ports.items() if not port_is_free(port)]
            sentence = self._port_taken(taken[0], self.ports[taken[0]]) if taken else unknown  # whoever had it is gone again
            return PortTaken(sentence, tail, taken or self.PORT_NAMES)
        if "could not reserve enough space" in words or "cannot allocate memory" in words:
            return LocalError(f"There is too little memory for {self.NAME}: end some programs.", tail)
        return LocalError(unknown, tail)
