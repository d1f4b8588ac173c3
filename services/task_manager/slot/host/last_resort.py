"""The host: its own end takes a bounded time, whatever hangs on the way. With its TaskManager gone, nobody else would end it.

An alarm, and no thread: a host forks. It also interrupts a system call that hangs, where the loop of asyncio has no turn any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import signal
import sys
from types import FrameType

from ..common import procs

END_S = 20.0
"""More than all that an end may wait for takes: a JVM that dies slowly twice, and what cannot be killed."""
_DEAF_S = 10.0


def arm() -> None:
    """From now on this process, and all below it, lives for at most `END_S`. Asked again it changes nothing."""
    if signal.getitimer(signal.ITIMER_REAL)[0]:
        return
    signal.signal(signal.SIGALRM, _end_all)
    signal.setitimer(signal.ITIMER_REAL, END_S)
    with contextlib.suppress(OSError, ValueError, AttributeError):  # it needs a stderr
        faulthandler.dump_traceback_later(END_S + _DEAF_S, exit=True)  # native code that lets no handler of Python's have its turn


def _end_all(signum: int, frame: FrameType | None) -> None:
    try:
        os.write(2, b"the slot has not ended within %d s: it is killed. It waited here:\n" % END_S)
        faulthandler.dump_traceback(all_threads=False)
        with contextlib.suppress(RuntimeError):  # the loop does not run
            for task in asyncio.all_tasks():
                task.print_stack(file=sys.stderr)
        sys.stderr.flush()
    except Exception:
        pass  # whatever it is, it must not keep this from the end
    finally:
        try:
            procs.kill_below(os.getpid())
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
