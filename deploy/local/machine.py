"""Whether this machine and this Python can run Millrace at all: said before anything is fetched. ``python -m deploy.local.machine``.

It needs no package, and knows what the pinned packages and programs exist for (docs/platforms.md).
"""

from __future__ import annotations

import os
import platform
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OLDEST, NEWEST = (3, 10), (3, 14)
MACHINES = ("x86_64", "aarch64", "arm64")
SYSTEMS = {"linux": "Linux", "darwin": "macOS"}


@dataclass(frozen=True)
class Machine:
    """What decides. ``libc``: what `platform.libc_ver` says; empty on macOS, and on a Linux with musl. ``folders``: that hold our files."""

    system: str
    machine: str
    libc: str
    python: tuple[int, int]
    implementation: str
    free_threaded: bool
    folders: tuple[str, ...]


def this() -> Machine:
    home = os.environ.get("MILLRACE_HOME")
    return Machine(
        system=sys.platform,
        machine=platform.machine(),
        libc=platform.libc_ver()[0],
        python=sys.version_info[:2],
        implementation=platform.python_implementation(),
        free_threaded=bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        folders=tuple({str(Path(__file__).resolve().parents[2]), *([home] if home else [])}),
    )


def problems(at: Machine) -> Iterator[str]:
    """One sentence for each thing that cannot work, with what to do."""
    if at.system not in SYSTEMS:
        way_out = "use WSL 2" if at.system == "win32" else "use one of those"
        yield f"Millrace runs on {' and '.join(SYSTEMS.values())}, and this is {at.system}: {way_out}."
        return
    if at.machine not in MACHINES:
        yield f"The packages exist for x86-64 and 64-bit ARM, and this is {at.machine}: use a machine or a container of those."
    if at.system == "linux" and at.libc != "glibc":
        yield "etcd and some packages exist for Linuxes with glibc alone, and this one has another C library (Alpine?): use a Debian, say."
    if not OLDEST <= at.python <= NEWEST:
        from_to = " to ".join(".".join(map(str, each)) for each in (OLDEST, NEWEST))
        yield f"The packages exist for Python {from_to}, and this is {'.'.join(map(str, at.python))}: say PYTHON=python3.12 make ..."
    if at.implementation != "CPython" or at.free_threaded:
        what = "a CPython without a global lock" if at.free_threaded else at.implementation
        yield f"The packages exist for the usual CPython, and this is {what}: say PYTHON=python3.12 make ..."
    for folder in at.folders:
        if os.pathsep in folder:
            yield f"{folder} has a {os.pathsep!r} in its name, at which Java's class path and PATH are parted: use another folder."


def main() -> int:
    """Silent if all can work, else a line for each thing that cannot."""
    found = list(problems(this()))
    print("".join(f"{each}\n" for each in found), end="", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
