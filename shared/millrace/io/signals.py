"""How a process is asked to stop."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable


def on_stop(ask: Callable[[], None]) -> None:
    """Calls `ask` once, on a thread of its own, at the first SIGTERM or SIGINT; later ones change nothing.

    Not in the handler itself: that runs inside whatever the main thread does just then, which may hold the lock that `ask` needs.
    """
    asked: queue.SimpleQueue[None] = queue.SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked.put(None))

    def wait() -> None:
        asked.get()
        ask()

    threading.Thread(target=wait, name="signals", daemon=True).start()
