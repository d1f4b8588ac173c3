"""What a slot asks of its operating system, which no call of Python's does everywhere: Linux by ``prctl`` and ``/proc``, others (macOS) by
``ps`` and a thread that looks. All else of a slot is the same; ``procs`` is the one user of this."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple, Protocol

NICENESS = 5
"""Of what a slot does: it must not starve the services' heartbeats."""

AUTOGROUP = "/proc/self/autogroup"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LOOK_S = 0.5
_LINE_BYTES = 4096  # the longest of its fields, a command, has 64 bytes
_OURS = re.compile(r"\s*(\d+)\s+(\d+)\s+(\S)\S*\s?(.*)")


class Process(NamedTuple):
    """One line of the process table; ``state`` is the letter that ``ps`` has for it."""

    pid: int
    parent: int
    state: str


class Platform(Protocol):
    survives_exec: bool
    """Whether `die_with` holds for the program that this process becomes."""
    counts_switches: bool
    """Whether `switches` counts anything."""

    def die_with(self, parent: int, signum: int) -> None:
        """Has this process receive ``signum`` when ``parent`` ends."""
        ...

    def adopt_orphans(self) -> None:
        """Makes this process the parent of every descendant whose own parent ends (setsid does not escape that)."""
        ...

    def processes(self, marker: str | None) -> dict[int, Process]:
        """All processes that live (zombies are left out), by pid. ``marker``: in the environment of all that this host started."""
        ...

    def marked(self, marker: str) -> Iterator[int]:
        """The living processes that have ``marker`` in their environment."""
        ...

    def ending(self) -> bool:
        """Whether a process is ending that `marked` can no longer tell from others'."""
        ...

    def command_line(self, pid: int) -> list[str]:
        """The arguments of a process, empty if it is gone."""
        ...

    def switches(self, pid: int) -> int | None:
        """How often a process that sleeps went to sleep: waiting for work does not count, work does. None: it does not sleep, or nothing
        tells."""
        ...

    def processor_times(self) -> tuple[int, int] | None:
        """The time that the machine's processors had nothing to do, and all their time, in one unit, since some moment. None: unknown."""
        ...

    def lower_session(self) -> bool:
        """See `procs.lower_session`."""
        ...


class Linux:
    survives_exec = counts_switches = True

    def __init__(self) -> None:
        self._prctl = ctypes.CDLL(None, use_errno=True).prctl  # raises AttributeError elsewhere

    def die_with(self, parent: int, signum: int) -> None:
        self._prctl(_PR_SET_PDEATHSIG, int(signum), 0, 0, 0)

    def adopt_orphans(self) -> None:
        self._prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def processes(self, marker: str | None) -> dict[int, Process]:
        table = {}
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            try:
                # The command in parentheses may hold anything, a closing parenthesis too.
                fields = _line(f"/proc/{name}/stat").rpartition(b")")[2].split(None, 2)
            except OSError:
                continue
            state = fields[0].decode()
            if state not in "ZX":
                table[int(name)] = Process(int(name), int(fields[1]), state)
        return table

    def marked(self, marker: str) -> Iterator[int]:
        entry = marker.encode()
        for pid in self.processes(None):
            try:
                with open(f"/proc/{pid}/environ", "rb") as environ:
                    if entry in environ.read().split(b"\0"):
                        yield pid
            except OSError:
                continue

    def ending(self) -> bool:
        """One that is ending has lost its environment already."""
        return any(each.parent not in (0, 2) and not self.command_line(each.pid) for each in self.processes(None).values())

    def command_line(self, pid: int) -> list[str]:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as arguments:
                return arguments.read().decode(errors="replace").split("\0")[:-1]
        except OSError:
            return []

    def switches(self, pid: int) -> int | None:
        try:
            with open(f"/proc/{pid}/status", "rb") as status:  # the name in it may be cut within a character
                found = re.search(rb"^State:\s*S.*^voluntary_ctxt_switches:\s*(\d+)", status.read(), re.MULTILINE | re.DOTALL)
        except OSError:
            return None
        return int(found.group(1)) if found else None

    def processor_times(self) -> tuple[int, int] | None:
        try:
            with open("/proc/stat") as stat:
                times = [int(each) for each in stat.readline().split()[1:9]]  # those of guests, behind them, are counted in these
        except OSError:
            return None
        return times[3] + times[4], sum(times)

    def lower_session(self) -> bool:
        try:
            group = os.open(AUTOGROUP, os.O_WRONLY)
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


class Elsewhere:
    """macOS and others. Nothing gives a host its orphans; so those are counted as its children that are in its session, or have its marker
    in their environment. One that has left both and lost its parent escapes: it would have to hide on purpose."""

    survives_exec = counts_switches = False

    def die_with(self, parent: int, signum: int) -> None:
        """A JVM, which no thread of ours is in, ends when the pipe to its stdin is closed."""
        threading.Thread(target=self._watch, args=(parent, signum), name="parent", daemon=True).start()

    def _watch(self, parent: int, signum: int) -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_S)
        os.kill(os.getpid(), signum)

    def adopt_orphans(self) -> None:
        """Nothing does."""

    def processes(self, marker: str | None) -> dict[int, Process]:
        host = os.getsid(0)
        table = {}
        for pid, parent, state, command in self._ps("-A", with_environment=marker is not None):
            lost = parent == 1 and pid != host
            ours = lost and ((marker is not None and marker in command) or _session(pid) == host)
            table[pid] = Process(pid, host if ours else parent, state)
        return table

    def marked(self, marker: str) -> Iterator[int]:
        for pid, _, _, command in self._ps("-A", with_environment=True):
            if marker in command:
                yield pid

    def ending(self) -> bool:
        return False

    def command_line(self, pid: int) -> list[str]:
        return [word for _, _, _, command in self._ps("-p", str(pid)) for word in command.split()]

    def switches(self, pid: int) -> int | None:
        return None

    def processor_times(self) -> tuple[int, int] | None:
        return None

    def lower_session(self) -> bool:
        return True

    def _ps(self, *which: str, with_environment: bool = False) -> Iterator[tuple[int, int, str, str]]:
        """(pid, parent, state, command) of living processes, but of the `ps` that lists them."""
        columns = ["-ww", "-o", "pid=,ppid=,stat=,command="]
        if with_environment and sys.platform == "darwin":
            command = ["ps", "-E", *which, *columns]
        else:
            command = ["ps", *(["e"] if with_environment else []), *which, *columns]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL) as listing:
            lines = listing.communicate()[0].decode(errors="replace")
        for line in lines.splitlines():
            found = _OURS.match(line)
            if found and int(found[1]) != listing.pid and found[3] not in "ZX":
                yield int(found[1]), int(found[2]), found[3], found[4]


def _line(path: str) -> bytes:
    """A file of one line of the kernel's. Python's own files ask the kernel eight times where three do: an attempt costs five looks at all
    processes of the machine."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, _LINE_BYTES)
    finally:
        os.close(file)


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def here() -> Platform:
    """The platform of this machine."""
    try:
        return Linux() if os.path.exists("/proc/self/stat") else Elsewhere()
    except AttributeError:
        return Elsewhere()
