"""Child processes that end with their parent, their ports, and the ends of their logs."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

import psutil

from deploy.local.errors import LocalError

LOOPBACK = "127.0.0.1"
# Below the ports that systems lend to outgoing connections (from 32768 on Linux). So a port that we remember
# while its server is down is not taken by somebody's client, and a client's retries cannot connect to themselves.
PORTS = range(20000, 32000)
LOG_BYTES_MAX = 32 << 20
CUT_LOGS_S = 10.0
_WRAPPER = Path(__file__).with_name("die_with_parent.py")
Order = tuple[Callable[[], "subprocess.Popen[bytes]"], "Future[subprocess.Popen[bytes]]"]
_orders: SimpleQueue[Order] | None = None


@dataclass(frozen=True)
class Child:
    """A process that ``spawn`` started; its output goes to ``log``."""

    popen: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.popen.pid

    def exit_code(self) -> int | None:
        """None while it runs; a negative number is the signal that ended it."""
        return self.popen.poll()

    def stop(self, patience_s: float = 10.0) -> None:
        """SIGTERM, then SIGKILL after ``patience_s``, to it and all below it. Returns when none of them is left."""
        end_tree(self.pid, patience_s, self.popen)


def spawn(
    argv: Sequence[str],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    death_signal: signal.Signals = signal.SIGTERM,
) -> Child:
    """Start a program in a session of its own: a Ctrl-C in the terminal does not reach it.

    On Linux it gets ``death_signal`` when this process dies, however that happens; elsewhere whoever starts the
    same server next ends what was left (``deploy.local.server``). ``argv[0]`` must be a path. ``log`` is begun anew.
    """
    argv = [str(part) for part in argv]
    if sys.platform == "linux":
        argv = [sys.executable, "-I", "-S", str(_WRAPPER), str(os.getpid()), str(int(death_signal)), *argv]

    def start() -> subprocess.Popen[bytes]:
        log.write_bytes(b"")
        with open(log, "ab") as out:  # appended to, so that `cut_log` may empty it meanwhile
            return subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, cwd=cwd, start_new_session=True
            )

    started: Future[subprocess.Popen[bytes]] = Future()
    _spawner_orders().put((start, started))
    try:
        return Child(started.result(), log)
    except BaseException:  # a Ctrl-C that came while we waited: nobody else will know of the child
        if started.exception() is None:
            end_tree(started.result().pid, 0, started.result())
        raise


def _spawner_orders() -> SimpleQueue[Order]:
    """To the thread that starts every child: Linux sends the death signal when the starting *thread* ends.

    A daemon, and no executor: a Ctrl-C while an executor starts its thread leaves one that Python waits for at its end.
    """
    global _orders
    if _orders is None:
        orders: SimpleQueue[Order] = SimpleQueue()
        threading.Thread(target=_spawn_for_ever, args=(orders,), name="spawner", daemon=True).start()
        _orders = orders
    return _orders


def _spawn_for_ever(orders: SimpleQueue[Order]) -> None:
    while True:
        start, started = orders.get()
        try:
            started.set_result(start())
        except BaseException as error:
            started.set_exception(error)


def _forget_spawner() -> None:
    global _orders
    _orders = None  # threads do not survive a fork


os.register_at_fork(after_in_child=_forget_spawner)


def end_tree(pid: int, patience_s: float = 10.0, popen: subprocess.Popen[bytes] | None = None) -> None:
    """SIGTERM to a process; what of it and its descendants is left after ``patience_s`` gets SIGKILL.

    ``popen`` is given for a child of ours, so that its exit status is kept where its owner looks for it. Of one that has ended nothing
    is looked for: its number may be a stranger's, and what it left has another parent by now.
    """
    try:
        root = psutil.Process(pid)
        if popen is not None and popen.poll() is not None:
            return
        family = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        family = []
    if popen is None or popen.poll() is None:
        _signal(family[:1], signal.SIGTERM)
        _await_end(family[:1], popen, patience_s)
    with contextlib.suppress(psutil.NoSuchProcess, IndexError):
        family += [late for late in family[0].children(recursive=True) if late not in family]
    _signal(family, signal.SIGKILL)
    left = _await_end(family, popen, 10.0)
    if left:
        raise LocalError(f"Process {left[0].pid} does not end, even by SIGKILL: it hangs in the operating system.")


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process.send_signal(number)


def _await_end(
    processes: list[psutil.Process], popen: subprocess.Popen[bytes] | None, patience_s: float
) -> list[psutil.Process]:
    """Those that still run after ``patience_s``; a zombie has ended."""
    end = time.monotonic() + patience_s
    if popen is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            popen.wait(patience_s)
    left = processes
    while True:
        left = [process for process in left if is_running(process)]
        if not left or time.monotonic() >= end:
            return left
        time.sleep(0.01)


def is_running(process: psutil.Process) -> bool:
    """Whether exactly this process (not a later one of its id) lives and is no zombie.

    A zombie that still has threads lives: a killed JVM is one for an instant, with its ports and files still open.
    """
    try:
        return bool(process.is_running() and (process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1))
    except psutil.NoSuchProcess:
        return False


def free_port(taken: Iterable[int] = ()) -> int:
    """A port of the loopback interface that nobody listens on and that is not among ``taken``."""
    taken = set(taken)
    for port in random.SystemRandom().sample(PORTS, k=200):
        if port not in taken and port_is_free(port):
            return port
    raise LocalError(f"None of 200 ports between {PORTS.start} and {PORTS.stop} is free: end some servers.")


def port_is_free(port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Kafka and etcd do: ignores TIME_WAIT
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def port_owner(port: int) -> str | None:
    """Who listens on a port, as 'java (process 4711)', if the operating system tells."""
    try:
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
                return f"{psutil.Process(connection.pid).name()} (process {connection.pid})"
    except (psutil.Error, OSError):
        pass
    return None


def cut_log(log: Path, most_bytes: int = LOG_BYTES_MAX) -> None:
    """Keeps a log that a process writes below this size, with as much again before that in `<log>.old`; on a full disk, what fits there."""
    with contextlib.suppress(OSError):
        if log.stat().st_size > most_bytes:
            with contextlib.suppress(OSError):
                shutil.copyfile(log, log.with_name(f"{log.name}.old"))
            os.truncate(log, 0)  # what was said between these two is lost


def put_aside(log: Path, code: int | None) -> None:
    """Makes room for the log of the next process. That of one that ended by a failure of its own (`code`) is kept until another one
    does."""
    killed_or_asked = (None, 0, -signal.SIGKILL, -signal.SIGTERM)
    with contextlib.suppress(FileNotFoundError):
        log.replace(log.with_suffix(".log.1" if code in killed_or_asked else ".log.failed"))


def log_tail(paths: Iterable[Path], lines: int = 20, most_bytes: int = 16384) -> str:
    """The last lines of some logs, one after the other; a log that is not there is skipped."""
    tails = []
    for path in paths:
        with contextlib.suppress(OSError), open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - most_bytes))
            tails += file.read().decode("utf-8", "replace").splitlines()[-lines:]
    return "\n".join(tails)
