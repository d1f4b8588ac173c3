"""Become another program that gets a signal when the process that started this one dies (Linux).

``python -I -S die_with_parent.py PARENT_PID SIGNAL PROGRAM ARGS...``. A program of its own instead of a ``preexec_fn``:
Python code between fork and exec can deadlock in a process with threads.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, number, program = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0) != 0:
        sys.exit(f"prctl(PR_SET_PDEATHSIG): {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:  # it died before the line above
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        os.execv(program, sys.argv[3:])
    except OSError as error:
        sys.exit(f"{program} could not be run: {error.strerror}")


main()
