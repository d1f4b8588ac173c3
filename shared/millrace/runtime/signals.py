"""How a process is asked to stop."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

STOP = (signal.SIGTERM, signal.SIGINT)


def on_stop(stop: Callable[[], None]) -> None:
    """Calls `ask` once, on a thread of its own, at the first SIGTERM or SIGINT; later ones change nothing. For the main thread.

    Not in a handler: that runs inside whatever the main thread does just then, which may hold the lock that `stop` needs. And not by the
    main thread at all: the system may give the signal to any thread, and a main thread that waits for a lock then sleeps on.
    """
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    for number in STOP:
        signal.signal(number, lambda *_: None)

    def wait() -> None:
        while os.read(read_end, 1)[0] not in STOP:
            pass
        stop()

    threading.Thread(target=wait, name="signals", daemon=True).start()
