"""What this process may use of its machine. Limits of a container or a service count, in either version of Linux's control groups."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import psutil

OWN = Path("/proc/self/cgroup")
GROUPS = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Cores as a JVM counts them: those that it may run on, or as many as its share of the processor's time takes."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *map(math.ceil, _shares())]))


def memory_bytes() -> int:
    """The machine's memory, or its container's limit."""
    texts = [_text(group / name) for group in _groups("memory") for name in ("memory.max", "memory.limit_in_bytes")]
    return min([int(psutil.virtual_memory().total), *(int(text) for text in texts if text.isdecimal())])


def _shares() -> Iterator[float]:
    """How many cores' time each group around this process may take that has a limit."""
    for group in _groups("cpu"):
        old = [_text(group / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
        for words in (_text(group / "cpu.max").split(), old):
            if len(words) == 2 and all(word.isdecimal() and int(word) for word in words):  # else "max", and -1 in the first version
                yield int(words[0]) / int(words[1])


def _groups(controller: str) -> Iterator[Path]:
    """The folders of the groups that this process is in, and of those around them. Some are not there: a container sees its own as the
    outermost one, and may know it by the name that it has outside."""
    for line in _text(OWN).splitlines():
        _, controllers, name = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        path = PurePosixPath(name.lstrip("/"))
        if ".." in path.parts:  # outside of what this container sees
            path = PurePosixPath()
        for root in {GROUPS / controllers, GROUPS / controller} if controllers else (GROUPS, GROUPS / "unified"):
            yield from (root / each for each in (path, *path.parents))


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
