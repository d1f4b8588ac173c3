"""Processes of a slot: forking, parent death, the process tree. What differs by operating system is in `platforms`."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable

from . import platforms
from .platforms import NICENESS, Process

__all__ = ["MARKER", "NICENESS", "TURN_S", "Process"]

MARKER = "MILLRACE_SLOT_HOST"
"""Environment variable whose value is the host's own; everything started below a host inherits it."""

TURN_S = 0.1
"""Between two tries of `lower_session`."""

FILES_MOST = 65_536
"""File numbers that a fork closes: where a process may have a thousand million, asking each would take minutes."""

HERE = platforms.here()


def die_with(parent: int, signum: int = signal.SIGKILL) -> None:
    """Has this process receive ``signum`` when its parent ``parent`` ends, also if that has happened already."""
    HERE.die_with(parent, signum)
    if os.getppid() != parent:
        os.kill(os.getpid(), signum)


def exec_dies_with(parent: int) -> None:
    """As `die_with`, for the program that this process is about to become; where a platform has no such thing, nothing."""
    if HERE.survives_exec:
        die_with(parent)


def lead_a_group(parent: int) -> None:
    """As `exec_dies_with`, in a process group of its own but in the session of ``parent``, whose priority it has (`lower_session`)."""
    os.setpgid(0, 0)
    exec_dies_with(parent)


def lower_session() -> bool:
    """Lowers the priority of this process's session by `NICENESS`. Where Linux shares the processor among sessions (autogroup, in
    `man 7 sched`), a process's own niceness counts within its session alone. False: it is not our turn, try again; of all that ask on a
    machine and are not root one may do this in a tenth of a second."""
    return HERE.lower_session()


def adopt_orphans() -> None:
    """Makes this process the parent of every descendant whose own parent ends, as far as the platform can."""
    HERE.adopt_orphans()


def fork(run: Callable[[], None], keep: Iterable[int] = ()) -> int:
    """Forks a child that runs ``run`` and ends; returns its pid.

    The child dies with this process and has the signal handlers that a Python starts with. Of the open descriptors it has only
    0, 1, 2 and ``keep``: a pipe end that stayed open in it would hide the end of its peer. Call it from the thread that
    lives as long as the process: a parent-death signal is bound to the thread that forked.
    """
    parent = os.getpid()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        signal.set_wakeup_fd(-1)
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP, signal.SIGALRM):
            signal.signal(signum, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        die_with(parent)
        _close_all_but(keep)
        run()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        _flush_quietly()
        os._exit(code)


def _flush_quietly() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def _close_all_but(keep: Iterable[int]) -> None:
    low = 3
    for fd in sorted(set(keep)):
        if fd >= low:
            os.closerange(low, fd)
            low = fd + 1
    os.closerange(low, FILES_MOST)


def processes() -> dict[int, Process]:
    """All processes that live (zombies are left out), by pid."""
    value = os.environ.get(MARKER)
    return HERE.processes(f"{MARKER}={value}" if value else None)


def below(root: int, apart_from: Iterable[int] = (), table: dict[int, Process] | None = None) -> list[int]:
    """The pids of all living descendants of ``root``, parents first; the trees of ``apart_from`` are left out."""
    children: dict[int, list[int]] = {}
    for process in (processes() if table is None else table).values():
        children.setdefault(process.parent, []).append(process.pid)
    left_out = set(apart_from)
    found: list[int] = []
    front = [root]
    while front:
        front = [pid for parent in front for pid in children.get(parent, ()) if pid not in left_out]
        found += front
    return found


def kill(pids: Iterable[int], signum: int = signal.SIGKILL) -> list[int]:
    """Signals each of ``pids``, and returns those that it may not signal: another user's. Those that are gone are no error."""
    foreign = []
    for pid in pids:
        try:
            os.kill(pid, signum)
        except ProcessLookupError:
            pass
        except PermissionError:
            foreign.append(pid)
    return foreign


def kill_below(root: int, apart_from: Iterable[int] = (), within_s: float = 2.0) -> list[int]:
    """Kills all descendants of ``root``, again and again until none lives: one that forks meanwhile is caught next time.

    The trees of ``apart_from`` are spared. Returns what lives on: another user's processes (a job called ``sudo``), and what is stuck in
    the kernel after ``within_s``. Who started them waits for them: a child that is waited for here would be missed there.
    """
    spared = list(apart_from)
    return _kill_all(lambda: below(root, spared), within_s)


def _kill_all(living: Callable[[], list[int]], within_s: float) -> list[int]:
    deadline = time.monotonic() + within_s
    foreign: set[int] = set()
    signalled: set[int] = set()
    while True:
        pids = living()
        ours = [pid for pid in pids if pid not in foreign]
        if not ours:
            return pids
        late = time.monotonic() > deadline
        if late:  # one that was started a moment ago is not stuck
            pids = [pid for pid in pids if pid in foreign or pid in signalled]
        foreign.update(kill(ours))
        if late:
            return pids
        signalled.update(ours)
        time.sleep(0.001)


def marked(value: str) -> list[int]:
    """The living processes that were started with ``MARKER=value`` in their environment."""
    own = os.getpid()
    return [pid for pid in HERE.marked(f"{MARKER}={value}") if pid != own]


def kill_marked(value: str, within_s: float = 2.0) -> list[int]:
    """Kills every process started below the host whose marker is ``value``, and waits until they have ended; returns what lives on.

    A host does this itself when it ends; this is for a host that was killed.
    """
    deadline = time.monotonic() + within_s
    left = _kill_all(lambda: marked(value), within_s)
    while HERE.ending() and time.monotonic() < deadline:
        time.sleep(0.001)
    return left


def command_line(pid: int) -> list[str]:
    """The arguments of a process, empty if it is gone."""
    return HERE.command_line(pid)
