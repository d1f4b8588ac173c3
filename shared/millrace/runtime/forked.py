"""Work on a state that must not stand still: a forked copy of the process sees it as it is now, while this one goes on."""

from __future__ import annotations

import gc
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator

LIMIT_S = 60.0  # a copy that takes longer hangs
CLOSED_MOST = 65_536  # file numbers


def await_children() -> None:
    """Whoever started this process may have had it ignore the ends of its children, and then nobody learns how a copy ended. For the main
    thread, before the first one."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def forked(make: Callable[[], Iterator[bytes]], then: Callable[[bytes | None], None]) -> None:  # [R25]
    """Gives what `make` yields in a copy of this process, in one piece, to `then`, on a thread of its own. None: the copy failed.

    `make` may use memory alone: no thread but its own is in the copy, and no connection. Raises OSError if there is no room for a
    copy, which shares all memory that does not change meanwhile.
    """
    reading, writing = os.pipe()
    try:
        child = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        raise
    if child == 0:
        _work(writing, make)
    os.close(writing)
    threading.Thread(target=_collect, args=(child, reading, then), name="forked", daemon=True).start()


def _work(writing: int, make: Callable[[], Iterator[bytes]]) -> None:
    """The copy's life. It keeps nothing open that its parent's successor may need, and ends by any signal."""
    try:
        gc.disable()  # a collection would write to every object, and so copy all memory
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.closerange(3, writing)
        os.closerange(writing + 1, CLOSED_MOST)
        os.nice(10)
        with open(writing, "wb", buffering=0) as pipe:
            for piece in make():
                rest = memoryview(piece)
                while rest:
                    rest = rest[pipe.write(rest) :]
        os._exit(0)
    except BaseException:
        os.write(2, traceback.format_exc().encode(errors="replace"))  # not by the log: another thread may hold its lock, for ever here
    finally:
        os._exit(1)


def _collect(child: int, reading: int, then: Callable[[bytes | None], None]) -> None:
    late = threading.Timer(LIMIT_S, os.kill, (child, signal.SIGKILL))
    late.name, late.daemon = "forked-late", True
    late.start()
    whole = None
    try:
        with open(reading, "rb") as pipe:
            data = pipe.read()
        late.cancel()
        if os.waitpid(child, 0)[1] == 0:
            whole = data
    finally:
        then(whole)
