"""Processes of a slot: forking, parent death, the process tree.

Linux only: it stands on ``prctl`` and ``/proc``.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

MARKER = "MILLRACE_SLOT_HOST"
"""Environment variable whose value is the host's own; everything started below a host inherits it."""

NICENESS = 5
"""Of what a slot does: it must not starve the services' heartbeats."""

TURN_S = 0.1
"""Between two tries of `lower_session`."""

_AUTOGROUP = "/proc/self/autogroup"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


class Process(NamedTuple):
    """One line of the process table; ``state`` is the letter of ``/proc/<pid>/stat``."""

    pid: int
    parent: int
    state: str


def die_with(parent: int, signum: int = signal.SIGKILL) -> None:
    """Has this process receive ``signum`` when its parent ``parent`` ends, also if that has happened already."""
    _libc.prctl(_PR_SET_PDEATHSIG, int(signum), 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signum)


def lead_a_group(parent: int) -> None:
    """As `die_with`, in a process group of its own but in the session of ``parent``, whose priority it has (`lower_session`)."""
    os.setpgid(0, 0)
    die_with(parent)


def lower_session() -> bool:
    """Lowers the priority of this process's session by `NICENESS`. Where Linux shares the processor among sessions (autogroup, in
    `man 7 sched`), a process's own niceness counts within its session alone. False: it is not our turn, try again; of all that ask on a
    machine and are not root one may do this in a tenth of a second."""
    try:
        group = os.open(_AUTOGROUP, os.O_WRONLY)
    except OSError:
        return True  # a Linux without them
    try:
        os.write(group, b"%d" % NICENESS)
    except BlockingIOError:
        return False
    except OSError:
        pass  # forbidden: nothing depends on it but who comes first on a busy machine
    finally:
        os.close(group)
    return True


def adopt_orphans() -> None:
    """Makes this process the parent of every descendant whose own parent ends (setsid does not escape that)."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def fork(run: Callable[[], None], keep: Iterable[int] = ()) -> int:
    """Forks a child that runs ``run`` and ends; returns its pid.

    The child dies with this process, has the signal handlers that a Python starts with, and of the open descriptors only
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
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP):
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
    os.closerange(low, os.sysconf("SC_OPEN_MAX"))


def processes() -> dict[int, Process]:
    """All processes that live (zombies are left out), by pid."""
    table = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as stat:
                # The command in parentheses may hold anything, a closing parenthesis too.
                fields = stat.read().rpartition(b")")[2].split()
        except OSError:
            continue
        state = fields[0].decode()
        if state not in "ZX":
            table[int(name)] = Process(int(name), int(fields[1]), state)
    return table


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


def kill(pids: Iterable[int], signum: int = signal.SIGKILL) -> None:
    """Signals each of ``pids``; those that are gone are no error."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signum)


def kill_below(root: int, apart_from: Iterable[int] = (), within_s: float = 2.0) -> bool:
    """Kills all descendants of ``root``, again and again until none lives: one that forks meanwhile is caught next time.

    The trees of ``apart_from`` are spared. False if something still lives after ``within_s`` (stuck in the kernel).
    """
    spared = list(apart_from)
    return _kill_all(lambda: below(root, spared), within_s)


def _kill_all(living: Callable[[], list[int]], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while pids := living():
        kill(pids)
        for pid in pids:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


def marked(value: str) -> Iterator[int]:
    """The living processes that were started with ``MARKER=value`` in their environment."""
    entry = f"{MARKER}={value}".encode()
    own = os.getpid()
    for pid in processes():
        try:
            with open(f"/proc/{pid}/environ", "rb") as environ:
                if pid != own and entry in environ.read().split(b"\0"):
                    yield pid
        except OSError:
            continue


def kill_marked(value: str, within_s: float = 2.0) -> bool:
    """Kills every process started below the host whose marker is ``value``; False if something may still live.

    A host does this itself when it ends; this is for a host that was killed.
    """
    deadline = time.monotonic() + within_s
    killed = _kill_all(lambda: list(marked(value)), within_s)
    # One that is ending has lost its environment already, and is not told from others': it is waited for.
    while any(process.parent not in (0, 2) and not command_line(process.pid) for process in processes().values()):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return killed


def command_line(pid: int) -> list[str]:
    """The arguments of a process, empty if it is gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as arguments:
            return arguments.read().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []
